//! Whose a job is. Anybody who may list jobs can read a token and put it into a comment of his own, so it makes a job
//! ours only together with its user.

use super::wire::JobInfo;

/// The user of a job, as far as a record tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    name: Option<String>,
    number: Option<i64>,
}

impl Owner {
    pub(super) fn of(record: &JobInfo) -> Self {
        Self { name: plain(&record.user_name.0), number: record.user_id.positive() }
    }

    pub(super) fn named(name: &str) -> Self {
        Self { name: plain(name), number: None }
    }

    pub(super) fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// Whether these are surely two. What is not told contradicts nothing: v0.0.36 tells numbers only, accounting names
    /// only.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (Some(one), Some(another)) => one != another,
            _ => matches!((&self.name, &other.name), (Some(one), Some(another)) if one != another),
        }
    }
}

/// Those of some jobs with one token that are of one user. A token can be copied only when there is a job that carries
/// it: the first one is its owner's.
pub(super) fn of_first_owner(mut jobs: Vec<JobInfo>) -> Vec<JobInfo> {
    if let Some(first) = jobs.iter().min_by_key(|job| job.root()).map(Owner::of) {
        jobs.retain(|job| !Owner::of(job).differs_from(&first));
    }
    jobs
}

/// A name without its domain, in small letters: what a credential says and what a directory answers differ in these.
fn plain(name: &str) -> Option<String> {
    let name = name.rsplit_once('\\').map_or(name, |(_, name)| name);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    // A slurmrestd without a directory of its own, as in a container, calls every user so.
    let tells_nothing = name.is_empty() || name == "nobody" || name.bytes().all(|byte| byte.is_ascii_digit());
    (!tells_nothing).then(|| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::captures;

    fn job(id: i64, name: &str, number: i64) -> JobInfo {
        serde_json::from_value(serde_json::json!({"job_id": id, "user_name": name, "user_id": number})).unwrap()
    }

    #[test]
    fn a_recorded_job_is_its_users_and_nobody_elses() {
        for (server, captures) in captures::all() {
            let Some(capture) = captures.get("job-RUNNING") else { continue };
            let job: JobInfo = serde_json::from_value(capture.body["jobs"][0].clone()).unwrap();
            assert!(!Owner::of(&job).differs_from(&Owner::named("alice")), "{server}");
            // v0.0.36 does not tell the name.
            assert_eq!(Owner::of(&job).differs_from(&Owner::named("bob")), !server.ends_with("36"), "{server}");
            let other = JobInfo { user_id: serde_json::from_value(1002.into()).unwrap(), ..job.clone() };
            assert!(Owner::of(&job).differs_from(&Owner::of(&other)), "{server}");
        }
    }

    #[test]
    fn another_spelling_is_no_other_user() {
        let differs = |one: &str, another: &str| Owner::named(one).differs_from(&Owner::named(another));
        for [one, another] in [
            ["alice", "alice"],
            ["alice", "Alice"],
            ["alice", "alice@example.org"],
            ["alice", "EXAMPLE\\alice"],
            ["alice", "nobody"],
            ["alice", "1001"],
            ["alice", ""],
        ] {
            assert!(!differs(one, another) && !differs(another, one), "{one} {another}");
        }
        assert!(differs("alice", "bob") && differs("alice", "alice2"));
    }

    #[test]
    fn who_came_first_has_the_token() {
        let ids = |jobs: Vec<JobInfo>| jobs.iter().filter_map(JobInfo::root).collect::<Vec<_>>();
        assert_eq!(ids(of_first_owner(vec![job(9, "", 1001), job(3, "", 1001), job(5, "", 1002)])), [9, 3]);
        assert_eq!(ids(of_first_owner(vec![job(9, "", 0), job(3, "", 1001)])), [9, 3], "not told");
        assert_eq!(ids(of_first_owner(Vec::new())), [0; 0]);
    }
}
