//! One way to say what goes wrong and when, shared by the in-memory manager and by the emulators that speak HTTP.
//!
//! A [`FaultPlan`] is cheap to clone and all clones share one plan: the test keeps one, the emulator another. The
//! emulator calls [`FaultPlan::take`] once for every request; that also counts the request.

pub mod http;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_core::manager::{ErrorKind, ManagerError};

/// What a request to a remote system is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Handing a job over.
    Submit,
    /// Looking for a token.
    Find,
    /// The state of jobs.
    Poll,
    /// Ending a job.
    Cancel,
    /// Holding a job back.
    Hold,
    /// Letting a held job go.
    Release,
    /// Reading output.
    Logs,
    /// Putting a file.
    Put,
    /// Fetching a file.
    Get,
    /// How busy the system is.
    Load,
    /// Anything else, such as a login or a version.
    Other,
}

impl Operation {
    /// The word used in messages; also the `operation` of a [`ManagerError`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Find => "find",
            Self::Poll => "poll",
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Logs => "logs",
            Self::Put => "put",
            Self::Get => "get",
            Self::Load => "load",
            Self::Other => "other",
        }
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answered as usual, but late.
    Delay(Duration),
    /// 429 without any effect.
    TooManyRequests {
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// 500 with a body that says nothing, without any effect.
    ServerError,
    /// 401 without any effect.
    Unauthorized,
    /// The connection is closed before anything was done.
    Reset,
    /// Everything is done, and the connection is closed before the answer.
    LostReply,
    /// 200 with a body that says, in the system's own way, that it failed; without any effect.
    ErrorBody,
    /// 200 with a body that is cut off in its middle; without any effect.
    Garbage,
}

impl Fault {
    /// All faults after which the request has no usable answer.
    pub const WITHOUT_ANSWER: [Self; 6] = [
        Self::TooManyRequests { retry_after: None },
        Self::ServerError,
        Self::Reset,
        Self::LostReply,
        Self::ErrorBody,
        Self::Garbage,
    ];

    /// Whether the request is carried out all the same.
    #[must_use]
    pub fn takes_effect(&self) -> bool {
        matches!(self, Self::Delay(_) | Self::LostReply)
    }

    /// The error that a well-made adapter makes of it; `None` for a delay.
    #[must_use]
    pub fn as_error(&self, manager: &'static str, operation: Operation) -> Option<ManagerError> {
        let (kind, message) = match self {
            Self::Delay(_) => return None,
            Self::TooManyRequests { .. } => (ErrorKind::RateLimited, "too many requests: try again later"),
            Self::ServerError => (ErrorKind::Unreachable, "the server answered 500: try again"),
            Self::Unauthorized => (ErrorKind::Credential, "the credential was not accepted: renew it"),
            Self::Reset | Self::LostReply => (ErrorKind::Unreachable, "the connection was closed: try again"),
            Self::ErrorBody => (ErrorKind::Protocol, "the answer says 200 and holds an error: try again"),
            Self::Garbage => (ErrorKind::Protocol, "the answer is cut off: try again"),
        };
        let mut error = ManagerError::new(manager, operation.as_str(), kind, message);
        if let Self::TooManyRequests { retry_after } = self {
            error.retry_after = *retry_after;
        }
        Some(error)
    }
}

/// Which request meets which fault, and how many requests there were.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    shared: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    rules: Vec<Rule>,
    seen: BTreeMap<Operation, u64>,
    chance: Option<Chance>,
}

#[derive(Debug)]
struct Rule {
    /// `None`: a request of any kind.
    operation: Option<Operation>,
    /// Requests that pass before this rule holds.
    skip: u64,
    /// How many requests meet the fault from then on; `None`: all.
    left: Option<u64>,
    fault: Fault,
}

#[derive(Debug)]
struct Chance {
    state: u64,
    percent: u8,
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// A plan in which nothing goes wrong.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next request of this kind meets the fault. Several of them queue up in the order they were asked for.
    pub fn next(&self, operation: Operation, fault: Fault) {
        let mut plan = self.lock();
        let taken: Vec<u64> =
            plan.rules.iter().filter(|rule| rule.operation == Some(operation)).map(|rule| rule.skip).collect();
        // One more place than there are faults: one of them is free.
        let mut places = 0..=u64::try_from(taken.len()).unwrap_or(u64::MAX);
        let skip = places.find(|place| !taken.contains(place)).unwrap_or_default();
        plan.rules.push(Rule { operation: Some(operation), skip, left: Some(1), fault });
    }

    /// The `nth` request of this kind from now on meets the fault; 1 is the next one.
    pub fn nth(&self, operation: Operation, nth: u64, fault: Fault) {
        let skip = nth.saturating_sub(1);
        self.lock().rules.push(Rule { operation: Some(operation), skip, left: Some(1), fault });
    }

    /// The `nth` request of any kind from now on meets the fault; 1 is the next one.
    pub fn nth_of_all(&self, nth: u64, fault: Fault) {
        self.lock().rules.push(Rule { operation: None, skip: nth.saturating_sub(1), left: Some(1), fault });
    }

    /// All requests of this kind meet the fault, until [`clear`](Self::clear).
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.lock().rules.push(Rule { operation: Some(operation), skip: 0, left: None, fault });
    }

    /// All requests of any kind meet the fault, until [`clear`](Self::clear): an outage.
    pub fn outage(&self, fault: Fault) {
        self.lock().rules.push(Rule { operation: None, skip: 0, left: None, fault });
    }

    /// About `percent` of all requests meet one of the faults; the same seed gives the same run.
    pub fn by_chance(&self, seed: u64, percent: u8, faults: Vec<Fault>) {
        self.lock().chance = Some(Chance { state: seed, percent, faults });
    }

    /// Nothing goes wrong from now on. The counts stay.
    pub fn clear(&self) {
        let mut plan = self.lock();
        plan.rules.clear();
        plan.chance = None;
    }

    /// Counts a request and says what goes wrong with it. An emulator calls it once a request.
    #[must_use]
    pub fn take(&self, operation: Operation) -> Option<Fault> {
        let mut plan = self.lock();
        *plan.seen.entry(operation).or_default() += 1;
        let mut met = None;
        for rule in &mut plan.rules {
            if rule.operation.is_some_and(|wanted| wanted != operation) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if met.is_none() {
                met = Some(rule.fault.clone());
                rule.left = rule.left.map(|left| left.saturating_sub(1));
            }
        }
        plan.rules.retain(|rule| rule.left != Some(0));
        met.or_else(|| plan.chance.as_mut().and_then(Chance::draw))
    }

    /// How many requests of this kind there were.
    #[must_use]
    pub fn requests(&self, operation: Operation) -> u64 {
        self.lock().seen.get(&operation).copied().unwrap_or(0)
    }

    /// How many requests there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lock().seen.values().sum()
    }

    /// Whether every planned fault with an end has been met: a test that planned one must see it happen.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.lock().rules.iter().all(|rule| rule.left.is_none())
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        // A test that panicked while holding the lock has failed already; the plan itself is never half changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chance {
    fn draw(&mut self) -> Option<Fault> {
        let hit = self.random() % 100 < u64::from(self.percent);
        let len = u64::try_from(self.faults.len()).ok().filter(|len| hit && *len > 0)?;
        let pick = usize::try_from(self.random() % len).ok()?;
        self.faults.get(pick).cloned()
    }

    /// `SplitMix64`: tiny, and the same everywhere.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_meet_the_requests_they_were_planned_for() {
        let plan = FaultPlan::new();
        plan.next(Operation::Submit, Fault::Reset);
        plan.next(Operation::Submit, Fault::LostReply);
        plan.nth(Operation::Poll, 2, Fault::ServerError);
        assert_eq!(plan.take(Operation::Poll), None);
        assert_eq!(plan.take(Operation::Submit), Some(Fault::Reset));
        assert_eq!(plan.take(Operation::Submit), Some(Fault::LostReply));
        assert_eq!(plan.take(Operation::Submit), None);
        assert!(!plan.is_used_up());
        assert_eq!(plan.take(Operation::Poll), Some(Fault::ServerError));
        assert!(plan.is_used_up());
        assert_eq!((plan.requests(Operation::Submit), plan.requests(Operation::Poll), plan.total()), (3, 2, 5));
    }

    #[test]
    fn an_outage_lasts_until_it_is_cleared() {
        let plan = FaultPlan::new();
        plan.outage(Fault::Reset);
        assert!(plan.take(Operation::Load).is_some() && plan.take(Operation::Cancel).is_some());
        plan.clear();
        assert_eq!(plan.take(Operation::Load), None);
    }

    #[test]
    fn chance_repeats_with_its_seed() {
        let draw = |seed| {
            let plan = FaultPlan::new();
            plan.by_chance(seed, 30, Fault::WITHOUT_ANSWER.to_vec());
            (0..200).map(|_| plan.take(Operation::Poll)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let hits = draw(7).iter().flatten().count();
        assert!((30..90).contains(&hits), "{hits} of 200 requests failed where 30% were asked for");
    }
}
