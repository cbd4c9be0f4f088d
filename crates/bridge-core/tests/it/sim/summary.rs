//! What happened in many lives.

#[derive(Debug, Default, Clone)]
pub(super) struct Summary {
    pub(super) crashes: u64,
    pub(super) fenced: u64,
    pub(super) lost_replies: u64,
    pub(super) strays_removed: u64,
    pub(super) retried: u64,
    pub(super) requeued: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) killed: u64,
    pub(super) unknown: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { crashes, fenced, lost_replies, strays_removed, retried, requeued, done, failed, killed, unknown } =
            other;
        self.crashes += crashes;
        self.fenced += fenced;
        self.lost_replies += lost_replies;
        self.strays_removed += strays_removed;
        self.retried += retried;
        self.requeued += requeued;
        self.done += done;
        self.failed += failed;
        self.killed += killed;
        self.unknown += unknown;
    }
}
