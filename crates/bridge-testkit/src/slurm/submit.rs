//! Taking a job in, as strictly or as loosely as the real server of the version does.

use std::collections::BTreeMap;

use axum::response::Response;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::answers::Version;
use super::cluster::{Cluster, now};
use super::fields;
use super::job::{Array, Job};
use crate::faults::http::hang_up;

/// The answer to a job that is not taken.
struct Refusal(Box<Response>);

const PARTITIONS: [&str; 2] = ["debug", "long"];

/// Reads a submission; the answer is what the server says to it.
pub(super) fn submit(cluster: &Cluster, version: Version, user: &str, body: &[u8]) -> Response {
    let Ok(Value::Object(mut body)) = serde_json::from_slice(body) else {
        let text = if version.0 >= 43 { "Failure during parsing" } else { "Unable to parse query." };
        return super::answers::text(400, text);
    };
    let Some(Value::Object(mut fields)) = body.remove("job") else {
        return no_script(version);
    };
    let inner = fields.remove("script").filter(|_| !version.is_old());
    let script = inner.or_else(|| body.remove("script")).and_then(|script| script.as_str().map(str::to_owned));
    match read(cluster, version, user, &fields, script) {
        Ok((job, warnings)) => {
            let (is_held, has_arguments) = (job.held, fields.contains_key("argv"));
            let id = cluster.add(job);
            // The trap of 22.05: it takes the job and dies of its arguments.
            if version.is_old() && has_arguments { hang_up() } else { version.submitted(id, is_held, warnings) }
        }
        Err(Refusal(answer)) => *answer,
    }
}

fn refusal(version: Version, status: u16, number: i64, text: &str) -> Refusal {
    Refusal(Box::new(version.failure("submit", status, number, text)))
}

fn no_script(version: Version) -> Response {
    if version.is_old() {
        version.failure("submit", 500, 2009, "Job script not specified")
    } else {
        version.failure("submit", 422, 9000, "Query empty or not RFC7320 compliant")
    }
}

fn read(
    cluster: &Cluster,
    version: Version,
    user: &str,
    fields: &Map<String, Value>,
    script: Option<String>,
) -> Result<(Job, Vec<Value>), Refusal> {
    let mut warnings = Vec::new();
    for name in fields.keys() {
        let is_known = if version.is_old() {
            fields::OLD.contains(&name.as_str()) || (version.0 == 38 && fields::ONLY_38.contains(&name.as_str()))
        } else {
            fields::NEW.contains(&name.as_str())
        };
        if !is_known && version.is_old() {
            return Err(refusal(version, 400, 9001, &format!("Unknown key \"{name}\"")));
        }
        if !is_known {
            let text = format!("Ignoring unknown field \"{name}\" of type string in DATA_PARSER_JOB_DESC_MSG");
            warnings.push(json!({"description": text, "source": format!("#/job/{name}/")}));
        }
    }
    // An empty script is taken by 22.05 and held for ever; newer servers refuse it.
    let script = script
        .filter(|script| version.is_old() || !script.is_empty())
        .ok_or_else(|| Refusal(Box::new(no_script(version))))?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut job = Job { script, name: text("name"), ..cluster.blank(user) };
    job.tasks = match whole(fields.get("tasks")) {
        Ok(tasks) => u32::try_from(tasks.unwrap_or(1)).unwrap_or(u32::MAX),
        Err(()) if version.is_old() => {
            return Err(refusal(version, 400, 9202, "Unable to read integer value"));
        }
        Err(()) => {
            // The trap of the data parsers: 200, a warning, no error and no id.
            let mut body = version.template().part("submit");
            if let Some(body) = body.as_object_mut() {
                body.retain(|key, _| matches!(key.as_str(), "meta" | "errors" | "warnings"));
                let text = "Expected OpenAPI type=integer format=int32 but got OpenAPI type=string";
                body.insert("warnings".to_owned(), json!([{"description": text, "source": "#/job/tasks/"}]));
            }
            return Err(Refusal(Box::new(super::answers::answer(200, body))));
        }
    };
    job.environment = environment(version, fields.get("environment"))?;
    job.folder = match text("current_working_directory").as_str() {
        "" if version.is_old() => cluster.folder.clone(),
        "" => {
            return Err(refusal(
                version,
                500,
                2063,
                "Job cannot be submitted without the current working directory specified.",
            ));
        }
        folder => folder.into(),
    };
    job.partition = match text("partition").as_str() {
        "" => "debug".to_owned(),
        known if PARTITIONS.contains(&known) => known.to_owned(),
        _ => return Err(refusal(version, 500, 2000, "Invalid partition name specified")),
    };
    job.comment = text("comment");
    job.extra = text("extra");
    if cluster.options.extra_constraints && !job.extra.is_empty() && !job.extra.contains(['=', '<', '>']) {
        // The text is that of Slurm's own table of errors; the answer itself was not recorded.
        return Err(refusal(version, 500, 2200, "Invalid extra constraints specification"));
    }
    let open = cluster.lock().jobs.values().filter(|own| own.user == user && !own.is_ended()).count();
    if cluster.options.max_submit_jobs.is_some_and(|most| open >= most) {
        let text = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";
        return Err(refusal(version, 500, 2050, text));
    }
    if job.comment.len() > 3000 {
        return Err(refusal(version, 500, 2012, "Pathname of a file, directory or other parameter too long"));
    }
    job.output = text("standard_output");
    job.error = text("standard_error");
    // The trap of the data parsers: both are one field of theirs, and a priority undoes the hold.
    let priority = whole(fields.get("priority")).unwrap_or_default();
    let is_released = !version.is_old() && priority.is_some_and(|priority| priority > 0);
    job.held = fields.get("hold") == Some(&Value::Bool(true)) && !is_released;
    job.time_limit = limit(version, fields.get("time_limit"))?;
    job.begin = begin(fields.get("begin_time"));
    let arguments = fields.get("argv").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    job.arguments = arguments.iter().skip(1).filter_map(Value::as_str).map(str::to_owned).collect();
    job.array = Some(text("array")).filter(|array| !array.is_empty()).map(|array| tasks(&array));
    Ok((job, warnings))
}

/// A whole number, also as text or boxed.
fn whole(value: Option<&Value>) -> Result<Option<u64>, ()> {
    match value {
        Some(Value::Number(number)) => number.as_u64().map(Some).ok_or(()),
        Some(Value::String(text)) => text.parse().map(Some).map_err(|_| ()),
        Some(Value::Object(boxed)) if boxed.get("set") == Some(&Value::Bool(true)) => whole(boxed.get("number")),
        None | Some(Value::Null | Value::Object(_)) => Ok(None),
        Some(_) => Err(()),
    }
}

fn environment(version: Version, value: Option<&Value>) -> Result<BTreeMap<String, String>, Refusal> {
    let missing = || match version.0 {
        0..=38 => refusal(version, 400, 2127, "environment must be set"),
        39..=42 => refusal(version, 500, 2019, "I/O error writing script/environment to file"),
        _ => refusal(version, 422, 2127, "Environment is missing in job"),
    };
    let variables: BTreeMap<String, String> = match value {
        Some(Value::Object(map)) => {
            map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
        }
        Some(Value::Array(list)) if !version.is_old() => list
            .iter()
            .filter_map(Value::as_str)
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        Some(Value::Array(_)) => return Err(refusal(version, 400, -1, "environment must be a dictionary")),
        _ => BTreeMap::new(),
    };
    if variables.is_empty() { Err(missing()) } else { Ok(variables) }
}

fn limit(version: Version, value: Option<&Value>) -> Result<Option<u64>, Refusal> {
    match value {
        Some(Value::Object(_)) if version.is_old() => Err(refusal(version, 400, 9202, "Unable to read string")),
        Some(Value::String(text)) if text.contains(':') && !version.is_old() => {
            Err(refusal(version, 500, 9202, &format!("Expected integer but got \"{text}\"")))
        }
        Some(Value::String(text)) if version.is_old() && text.eq_ignore_ascii_case("unlimited") => Ok(None),
        other => whole(other).map_err(|()| refusal(version, 400, 9202, "Unable to convert Data type")),
    }
}

/// Seconds since 1970, boxed or not, or `now+1hour`.
fn begin(value: Option<&Value>) -> Option<Timestamp> {
    if let Ok(Some(seconds)) = whole(value) {
        return i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    }
    let rest = value?.as_str()?.strip_prefix("now+")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let count: i64 = rest.get(..digits)?.parse().ok()?;
    let unit = match rest.get(digits..)?.trim_end_matches('s') {
        "minute" => 60,
        "hour" => 3600,
        "day" => 86400,
        _ => 1,
    };
    Timestamp::from_second(now().as_second() + count * unit).ok()
}

/// `0-3,7%2`.
fn tasks(text: &str) -> Array {
    let (ranges, limit) = text.split_once('%').unwrap_or((text, "0"));
    let waiting = ranges.split(',').flat_map(|range| {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().unwrap_or_default(), last.parse::<u32>().unwrap_or_default());
        (first..=last.min(first.saturating_add(10_000))).step_by(step.parse::<usize>().unwrap_or(1).max(1))
    });
    Array { root: 0, task: None, waiting: waiting.collect(), limit: limit.parse().unwrap_or_default() }
}
