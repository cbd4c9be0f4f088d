//! What the driver tells, as a stream.

use bridge_core::driver::{Leaving, Observer};
use bridge_core::ids::JobKey;
use bridge_core::record::JobRecord;
use tokio::sync::mpsc;

/// What happened to the one job.
#[derive(Debug)]
pub(super) enum Seen {
    Saved(Box<JobRecord>),
    Left(Leaving),
    Stumbled(String),
}

/// Passes on what the driver tells.
#[derive(Debug)]
pub(super) struct Teller(pub(super) mpsc::UnboundedSender<Seen>);

impl Observer for Teller {
    fn saved(&self, _key: &JobKey, record: &JobRecord) {
        let _ = self.0.send(Seen::Saved(Box::new(record.clone())));
    }

    fn left(&self, _key: &JobKey, why: &Leaving) {
        let _ = self.0.send(Seen::Left(why.clone()));
    }

    fn stumbled(&self, _key: &JobKey, what: &str) {
        let _ = self.0.send(Seen::Stumbled(what.to_owned()));
    }
}
