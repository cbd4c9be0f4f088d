//! Which of several operators acts: the holder of a Lease.
//!
//! # Guarantees
//! At most one instance believes to be the leader, as long as clocks run at about the same rate: a leader that cannot renew
//! ends before its Lease does, and makes nothing once it is over. Little depends on it: deletes carry UIDs, and writes revisions.
//!
//! Own code instead of a crate: it is one object and one compare-and-set, and giving the Lease back at the end of a process
//! has to be tied to this process's shutdown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::settings::LeaseSettings;

/// Whether the Lease is surely still ours, for those who are about to make something: a process that was stopped in the
/// middle of a pass and goes on much later must not finish what another has long taken over.
#[derive(Debug, Clone)]
pub struct Leadership {
    renewed: Arc<Mutex<Option<tokio::time::Instant>>>,
    duration: Duration,
}

impl Leadership {
    /// Whether it holds at this moment.
    #[must_use]
    pub fn holds(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.is_some_and(|at| at.elapsed() < self.duration)
    }

    /// The Lease was asked for at this moment, and given.
    fn renewed(&self, asked: tokio::time::Instant) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
    }
}

/// Tries to get and keep the Lease.
#[derive(Debug)]
pub struct Candidate {
    api: Api<Lease>,
    settings: LeaseSettings,
    leadership: Leadership,
    /// The foreign Lease as last seen and since when it has not changed, on our clock alone.
    seen: Option<(Option<String>, tokio::time::Instant)>,
}

impl Candidate {
    /// A candidate under its settings.
    #[must_use]
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        let leadership = Leadership { renewed: Arc::default(), duration: settings.duration };
        Self { api: Api::namespaced(client, &settings.namespace), settings, leadership, seen: None }
    }

    /// Tells others whether the Lease is ours.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Returns when this instance is the leader.
    pub async fn win(&mut self, now: impl Fn() -> Timestamp) {
        loop {
            let asked = tokio::time::Instant::now();
            match tokio::time::timeout(self.settings.duration, self.attempt(now())).await {
                Ok(Ok(true)) => return self.leadership.renewed(asked),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be read or taken"),
                // Should it have been taken all the same, the next look finds our own name in it.
                Err(_) => tracing::warn!("no answer about the Lease in time"),
            }
            tokio::time::sleep(self.settings.duration / 5).await;
        }
    }

    /// Returns when this instance is no longer sure to be the leader.
    pub async fn keep(&mut self, now: impl Fn() -> Timestamp) {
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(self.settings.duration / 5).await;
            let pause = self.settings.duration * 2 / 3;
            let asked = tokio::time::Instant::now();
            match tokio::time::timeout(self.settings.duration / 5, self.attempt(now())).await {
                Ok(Ok(true)) => {
                    renewed = asked;
                    self.leadership.renewed(asked);
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be renewed"),
                Err(_) => tracing::warn!("the Lease could not be renewed in time"),
            }
            if renewed.elapsed() >= pause {
                return;
            }
        }
    }

    /// Gives the Lease back, so that the next leader need not wait for its end.
    pub async fn resign(&self) {
        // Later it would run out by itself.
        if tokio::time::timeout(self.settings.duration, self.give_back()).await.is_err() {
            tracing::debug!("no answer about giving the Lease back in time");
        }
    }

    async fn give_back(&self) {
        loop {
            let Ok(Some(mut lease)) = self.api.get_opt(&self.settings.name).await else { return };
            let Some(spec) = lease.spec.as_mut().filter(|spec| self.is_ours(spec)) else { return };
            spec.holder_identity = None;
            spec.renew_time = None;
            match self.api.replace(&self.settings.name, &PostParams::default(), &lease).await {
                // A renewal of our own that was under way.
                Err(kube::Error::Api(answer)) if answer.code == 409 => {}
                Err(error) => return tracing::debug!(%error, "the Lease could not be given back"),
                Ok(_) => return,
            }
        }
    }

    fn is_ours(&self, spec: &LeaseSpec) -> bool {
        spec.holder_identity.as_deref() == Some(self.settings.identity.as_str())
    }

    /// One look, and a compare-and-set if the Lease is ours or free. Returns whether it is ours now.
    async fn attempt(&mut self, now: Timestamp) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(None, now)),
            };
            return settle(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let ours = self.is_ours(&spec);
        if !ours && !self.is_free(&lease, &spec) {
            return Ok(false);
        }
        lease.spec = Some(self.spec(Some(&spec), now));
        settle(self.api.replace(&self.settings.name, &PostParams::default(), &lease).await)
    }

    /// Free is a Lease without a holder, or one that has not changed for its whole duration while we were looking.
    fn is_free(&mut self, lease: &Lease, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return true;
        }
        let version = lease.metadata.resource_version.clone();
        match &self.seen {
            Some((seen, since)) if *seen == version => {
                let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15);
                since.elapsed() >= Duration::from_secs(seconds)
            }
            _ => {
                self.seen = Some((version, tokio::time::Instant::now()));
                false
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
        let same = before.is_some_and(|spec| self.is_ours(spec));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: before.filter(|_| same).and_then(|spec| spec.acquire_time.clone()).or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if same { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

fn settle(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;

    use super::*;

    /// A cluster without a Lease that lets its first requests hang, as a broken connection does.
    fn candidate(silent: usize) -> Candidate {
        let asked = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let asked = Arc::clone(&asked);
            async move {
                if asked.fetch_add(1, Ordering::Relaxed) < silent {
                    std::future::pending::<()>().await;
                }
                let taken = request.method() == http::Method::POST;
                let missing = serde_json::json!({ "kind": "Status", "code": 404, "reason": "NotFound" });
                let answer = if taken {
                    request.into_body().collect_bytes().await.unwrap().to_vec()
                } else {
                    Vec::from(missing.to_string())
                };
                let code = if taken { 201 } else { 404 };
                Ok::<_, Infallible>(http::Response::builder().status(code).body(Body::from(answer)).unwrap())
            }
        });
        let settings = LeaseSettings {
            namespace: "ns".to_owned(),
            name: "lease".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(15),
        };
        Candidate::new(Client::new(service, "ns"), settings)
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_won_although_a_request_was_never_answered() {
        let began = tokio::time::Instant::now();
        candidate(1).win(|| Timestamp::UNIX_EPOCH).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_answers_ends_before_its_lease_does() {
        let began = tokio::time::Instant::now();
        candidate(usize::MAX).keep(|| Timestamp::UNIX_EPOCH).await;
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        candidate(usize::MAX).resign().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_stopped_for_longer_than_its_lease_makes_nothing_more() {
        let mut candidate = candidate(0);
        let leadership = candidate.leadership();
        assert!(!leadership.holds());
        candidate.win(|| Timestamp::UNIX_EPOCH).await;
        assert!(leadership.holds());
        tokio::time::advance(Duration::from_secs(15)).await;
        assert!(!leadership.holds());
    }
}
