//! Submissions whose reply was lost, and what becomes of a job when they cannot be looked for.

use super::apply::{Swept, bounded};
use super::{Machine, Rules};
use crate::clock::Instant;
use crate::ids::SubmitToken;
use crate::manager::{ErrorKind, ManagerError};
use crate::record::{After, JobState};

/// Sweeps without a result, because the manager cannot tell, after which the job ends all the same. A stray would stay
/// for ever and be followed by nobody, so it is worth half a minute of asking again; but a manager that never can tell
/// must not keep the job from its end for good. The user is then told what may be left.
const BLIND_SWEEPS: u32 = 6;

/// Sweeps that failed in a row, after which the job ends all the same. With the pauses between them that is about an
/// hour: an outage that passes is waited out, and one that does not keeps no job from its end for good.
const FAILED_SWEEPS: u32 = 80;

impl Machine {
    pub(super) fn swept(
        &mut self,
        token: &SubmitToken,
        result: Result<Swept, ManagerError>,
        rules: &Rules,
        now: Instant,
    ) {
        if *token != self.record.token() {
            return;
        }
        // The sweep at the end catches what this one did not.
        self.memory.sweep_now = false;
        match result {
            Ok(Swept::Clean(strays)) => {
                self.went_well();
                self.record.counters.duplicates_prevented += strays as u64;
                self.sweep_over(now);
            }
            Ok(Swept::CannotTell(_)) if !matches!(self.record.state, JobState::Sweeping { .. }) => {}
            Ok(Swept::CannotTell(why)) => {
                self.memory.blind_sweeps += 1;
                if self.memory.blind_sweeps < BLIND_SWEEPS {
                    let message = format!("submissions whose reply was lost cannot be looked for: {why}");
                    self.went_wrong(ErrorKind::Protocol.as_str(), message, None, rules, now);
                } else {
                    self.leave_strays(token, &format!("cannot tell ({why})"), now);
                }
            }
            Err(error) if !matches!(self.record.state, JobState::Sweeping { .. }) => {
                self.manager_error(&error, rules, now);
            }
            Err(error) => {
                self.memory.failed_sweeps += 1;
                if self.memory.failed_sweeps < FAILED_SWEEPS {
                    self.manager_error(&error, rules, now);
                } else {
                    self.leave_strays(token, &format!("could not be asked for a long time ({error})"), now);
                }
            }
        }
    }

    fn leave_strays(&mut self, token: &SubmitToken, why: &str, now: Instant) {
        self.went_well();
        self.record.unswept = bounded(format!(
            "a submission whose reply was lost may be left on the remote system, which {why}: look there for {token} and \
             cancel what does not belong to this job"
        ));
        self.sweep_over(now);
    }

    fn sweep_over(&mut self, now: Instant) {
        let JobState::Sweeping { then } = &self.record.state else { return };
        let then = then.clone();
        self.record.doubt = false;
        match then {
            After::Finish { ending } => self.finish(ending, now),
            After::Again { not_before } => self.begin_again(not_before),
        }
    }
}
