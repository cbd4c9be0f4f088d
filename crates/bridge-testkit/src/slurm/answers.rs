//! Answers in the words of an API version.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::cluster::{Cluster, root};
use super::job::{Job, State};
use super::templates::{Template, set_exit_code, set_number, set_text, set_words};

/// An API version as the emulator speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(pub(super) u16);

impl Version {
    pub(super) fn is_old(self) -> bool {
        self.0 <= 38
    }

    /// Servers from about here on answer 422 where older ones answer 500.
    fn says_unprocessable(self) -> bool {
        self.0 >= 43
    }

    pub(super) fn template(self) -> &'static Template {
        Template::of(self.0)
    }

    /// An entry of `errors` with this version's name for the number.
    pub(super) fn error(self, number: i64, text: &str, is_submission: bool) -> Value {
        match self.0 {
            0..=36 if number == 2017 => json!({"error": text, "error_code": 0}),
            0..=36 => json!({"error_code": number, "error": text}),
            37..=38 if is_submission => json!({"error_code": number, "error": text}),
            _ => json!({"description": text, "error_number": number, "error": text, "source": "emulator"}),
        }
    }

    /// An answer that is an error.
    pub(super) fn failure(self, part: &str, status: u16, number: i64, text: &str) -> Response {
        let mut body = self.template().part(part);
        let is_submission = part == "submit";
        body["errors"] = json!([self.error(number, text, is_submission)]);
        if let (true, Some(body)) = (is_submission, body.as_object_mut()) {
            body.retain(|key, _| matches!(key.as_str(), "meta" | "errors" | "warnings"));
        }
        let status =
            if status == 500 && self.says_unprocessable() && (2000..2999).contains(&number) { 422 } else { status };
        answer(status, body)
    }

    /// The answer to a token that is not accepted.
    pub(super) fn bad_token(self, part: &str) -> Response {
        match (self.0, part) {
            (0..=36, "jobs") => answer(500, self.template().part("jobs")),
            (0..=38, "submit") => self.failure(part, 500, 5005, "Zero Bytes were transmitted or received"),
            (0..=38, _) => self.failure(part, 500, -1, "Unspecified error"),
            (_, "ping") => {
                let mut body = self.template().part("ping");
                set_text(&mut body["pings"][0], "pinged", "DOWN");
                answer(200, body)
            }
            _ => self.failure(part, 511, 1007, "Protocol authentication error"),
        }
    }

    /// The answer while slurmctld is down.
    pub(super) fn controller_down(self, part: &str) -> Response {
        const UNREACHABLE: &str = "Unable to contact slurm controller (connect failure)";
        match (self.is_old(), part) {
            (true, "submit" | "delete") => self.failure(part, 500, 1800, UNREACHABLE),
            (false, "jobs" | "submit") => self.failure(part, 502, 1800, UNREACHABLE),
            (false, "delete") => {
                let status = if self.0 >= 43 { 403 } else { 500 };
                self.failure(part, status, 1, "Operation not permitted")
            }
            (false, "ping") => self.bad_token("ping"),
            _ => self.failure(part, 500, -1, "Unspecified error"),
        }
    }

    /// The answer of accounting while slurmdbd is down: at once, and with a success from 22.05. Newer servers were not
    /// recorded; they tell an error by its status, too.
    pub(super) fn accounting_down(self) -> Response {
        self.failure("accounting", if self.is_old() { 200 } else { 500 }, 7000, "Unable to connect to database")
    }

    /// The answer to an id that is not known.
    pub(super) fn no_such_job(self, part: &str) -> Response {
        let status = if self.is_old() { 500 } else { 404 };
        self.failure(part, status, 2017, "Invalid job id specified")
    }

    /// A job as slurmctld tells it.
    pub(super) fn job(self, job: &Job) -> Value {
        let mut record = self.template().part("job");
        let (words, reason) = job.words();
        set_number(&mut record, "job_id", Some(job.id.into()));
        set_words(&mut record, "job_state", &words);
        set_text(&mut record, "state_reason", &reason);
        set_exit_code(&mut record, "exit_code", job.wait_status());
        set_text(&mut record, "comment", &job.comment);
        set_text(&mut record, "extra", &job.extra);
        set_text(&mut record, "name", &job.name);
        set_text(&mut record, "user_name", if self.0 <= 36 { "" } else { &job.user });
        set_number(&mut record, "user_id", Some(job.user_number()));
        set_text(&mut record, "partition", &job.partition);
        let node = if job.started.is_some() && job.process.is_some() | job.is_ended() { "localhost" } else { "" };
        set_text(&mut record, "nodes", node);
        set_text(&mut record, "batch_host", node);
        let seconds = |time: Option<jiff::Timestamp>| Some(time.map_or(0, jiff::Timestamp::as_second));
        set_number(&mut record, "submit_time", Some(job.submitted.as_second()));
        set_number(&mut record, "start_time", seconds(job.started));
        set_number(&mut record, "end_time", seconds(job.ended));
        set_number(&mut record, "restart_cnt", Some(job.restarts.into()));
        set_number(&mut record, "priority", Some(i64::from(!job.held)));
        set_number(&mut record, "tasks", Some(job.tasks.into()));
        set_number(&mut record, "time_limit", job.time_limit.and_then(|limit| i64::try_from(limit).ok()));
        if let Some(hold) = record.get_mut("hold") {
            *hold = json!(job.held);
        }
        set_text(&mut record, "current_working_directory", &job.folder.to_string_lossy());
        let output = job.path(&job.output);
        let error = if job.error.is_empty() { output.clone() } else { job.path(&job.error) };
        // v0.0.40 and v0.0.42 fill the patterns in, the others show what was asked for.
        let fills_in = (39..=42).contains(&self.0);
        set_text(
            &mut record,
            "standard_output",
            if fills_in { output.to_str().unwrap_or_default() } else { &job.output },
        );
        set_text(&mut record, "standard_error", if fills_in { error.to_str().unwrap_or_default() } else { &job.error });
        set_text(&mut record, "stdout_expanded", &output.to_string_lossy());
        set_text(&mut record, "stderr_expanded", &error.to_string_lossy());
        let array = job.array.as_ref();
        set_number(&mut record, "array_job_id", Some(array.map_or(0, |array| array.root.into())));
        set_number(&mut record, "array_task_id", array.and_then(|array| array.task).map(i64::from));
        set_number(&mut record, "array_max_tasks", Some(array.map_or(0, |array| array.limit.into())));
        let waiting = array.map(|array| array.waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        set_text(&mut record, "array_task_string", &waiting.unwrap_or_default());
        record
    }

    /// A list of jobs.
    pub(super) fn jobs(self, jobs: &[Job]) -> Response {
        let mut body = self.template().part("jobs");
        body["jobs"] = jobs.iter().map(|job| self.job(job)).collect();
        answer(200, body)
    }

    /// States alone.
    pub(super) fn states(self, jobs: &[Job]) -> Response {
        let mut body = self.template().part("states");
        let entries = jobs.iter().map(|job| {
            let id = match &job.array {
                Some(array) => match array.task {
                    Some(task) => format!("{}_{task}", job.id),
                    None => format!("{}_[{}]", job.id, array.waiting.len()),
                },
                None => job.id.to_string(),
            };
            json!({"job_id": id, "state": job.words().0})
        });
        body["jobs"] = entries.collect();
        answer(200, body)
    }

    /// The answer to a submission that was taken.
    pub(super) fn submitted(self, id: u32, is_held: bool, mut warnings: Vec<Value>) -> Response {
        const HELD: &str = "Job is in held state, pending scheduler release";
        let mut body = self.template().part("submit");
        body["job_id"] = json!(id);
        if is_held && self.is_old() {
            body["errors"] = json!([{"error_code": 2042, "error": HELD}]);
        } else if is_held {
            let source = "slurm_submit_batch_job()";
            let first = format!("Job submission resulted in non-zero return code: {HELD}");
            warnings.push(json!({"description": first, "source": source}));
            warnings.push(json!({"description": HELD, "source": source}));
        }
        if let Some(result) = body.get_mut("result") {
            let (code, text) = if is_held { (2042, HELD) } else { (0, "No error") };
            *result =
                json!({"job_id": id, "step_id": "batch", "error_code": code, "error": text, "job_submit_user_msg": ""});
        }
        if !self.is_old() {
            body["warnings"] = json!(warnings);
        }
        answer(200, body)
    }

    /// The answer to a cancellation.
    pub(super) fn killed(self, id: u32, code: i64, text: &str) -> Response {
        let mut body = self.template().part("delete");
        // v0.0.40 and v0.0.41 are silent about what was not there.
        if code != 0 && body.get("status").is_some() && self.0 >= 42 {
            let known = code != 2017;
            body["status"] = json!([{
                "error": {"string": text, "code": code, "message": text}, "step_id": id.to_string(),
                "job_id": {"set": known, "infinite": false, "number": if known { id } else { 0 }},
                "federation": {"sibling": ""},
            }]);
        }
        answer(200, body)
    }

    /// Jobs as slurmdbd tells them.
    pub(super) fn accounted(self, jobs: &[Job], stores_comments: bool) -> Response {
        let mut body = self.template().part("accounting");
        let entries = jobs.iter().map(|job| {
            let mut record = self.template().part("accounted");
            let (words, reason) = job.words();
            set_number(&mut record, "job_id", Some(job.id.into()));
            set_words(&mut record["state"], "current", &words);
            set_text(&mut record["state"], "reason", &reason);
            set_exit_code(&mut record, "exit_code", job.wait_status());
            // Stored at the end of a job only, and not by every site.
            let comment = if job.is_ended() && stores_comments { job.comment.as_str() } else { "" };
            set_text(&mut record["comment"], "job", comment);
            set_text(&mut record, "extra", if stores_comments { &job.extra } else { "" });
            for (key, text) in [("name", &job.name), ("user", &job.user), ("partition", &job.partition)] {
                set_text(&mut record, key, text);
            }
            let seconds = |time: Option<jiff::Timestamp>| json!(time.map_or(0, jiff::Timestamp::as_second));
            record["time"]["submission"] = json!(job.submitted.as_second());
            record["time"]["start"] = seconds(job.started);
            record["time"]["end"] = seconds(job.ended);
            record["array"]["job_id"] = json!(job.array.as_ref().map_or(0, |_| root(job)));
            set_number(&mut record["array"], "task_id", job.array.as_ref().and_then(|array| array.task).map(i64::from));
            set_text(&mut record, "stdout_expanded", &job.path(&job.output).to_string_lossy());
            record
        });
        body["jobs"] = entries.collect();
        if jobs.is_empty() && self.is_old() {
            body["errors"] = json!([self.error(9003, "Nothing found with query", false)]);
        }
        answer(200, body)
    }

    /// The nodes or the partitions, with what is in use.
    pub(super) fn nodes(self, cluster: &Cluster) -> Response {
        let mut body = self.template().part("nodes");
        let (used, all) = (cluster.used_cpus(), cluster.options.cpus);
        let node = &mut body["nodes"][0];
        let state = if used == 0 {
            "IDLE"
        } else if used < all {
            "MIXED"
        } else {
            "ALLOCATED"
        };
        let state = if self.is_old() { state.to_ascii_lowercase() } else { state.to_owned() };
        set_words(node, "state", &[state]);
        set_number(node, "cpus", Some(all.into()));
        set_number(node, "alloc_cpus", Some(used.into()));
        answer(200, body)
    }

    pub(super) fn partitions(self, cluster: &Cluster) -> Response {
        let mut body = self.template().part("partitions");
        for partition in body["partitions"].as_array_mut().into_iter().flatten() {
            let total = json!(cluster.options.cpus);
            if self.is_old() {
                partition["total_cpus"] = total;
            } else {
                partition["cpus"]["total"] = total;
            }
        }
        answer(200, body)
    }
}

/// Whether a job would be shown as waiting.
pub(super) fn is_waiting(job: &Job) -> bool {
    matches!(job.state, State::Pending(_))
}

pub(super) fn answer(status: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(body)).into_response()
}

pub(super) fn text(status: u16, text: &'static str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, text).into_response()
}
