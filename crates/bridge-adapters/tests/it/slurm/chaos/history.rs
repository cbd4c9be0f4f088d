//! What slurmctld was asked for, by its own log: it tells the bridge's doings from Slurm's own.

/// slurmctld's log, each line with its moment.
pub(super) struct History(pub(super) String);

impl History {
    /// Whether a job of this id was submitted, or its hold lifted, after one moment and until another.
    pub(super) fn was_let_go(&self, id: &str, after: &str, until: &str) -> bool {
        let [submitted, released] = [submission(id), format!("release hold on JobId={id} ")];
        self.lines()
            .filter(|(at, _)| after < *at && *at <= until)
            .any(|(_, text)| text.contains(&submitted) || text.contains(&released))
    }

    /// Whether this user ended the last job of this id. slurmd does so itself with a job that it cannot launch because
    /// it still has another one of that id, which slurmctld has forgotten.
    pub(super) fn was_cancelled_by(&self, user: u32, id: &str) -> bool {
        let submitted = submission(id);
        let cancelled = format!("REQUEST_KILL_JOB JobId={id} uid {user}");
        let last = self.lines().filter(|(_, text)| text.contains(&submitted)).last().map_or("", |(at, _)| at);
        self.lines().any(|(at, text)| at >= last && text.ends_with(&cancelled))
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.strip_prefix('[')?.split_once("] "))
    }
}

fn submission(id: &str) -> String {
    format!("_slurm_rpc_submit_batch_job: JobId={id} ")
}
