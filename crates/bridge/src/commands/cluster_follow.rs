//! What following a job's output does next. No I/O: news in, the next step out.
//!
//! # Guarantees
//! - It ends once the job is over and the output of its last pod was shown, or cannot be any more.
//! - An output counts as shown only when it was read to its end after its pod had ended: whatever ends a connection before
//!   that may as well be a network, so it is read on.

use std::time::Duration;

/// How often the output of an ended pod is asked for in vain; the node may be gone with it.
const VAIN_READS: u32 = 5;
/// The first pause before an output is read on; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_DOUBLINGS: u32 = 3;

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    NotStarted,
    Running,
    Ended,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// No more came.
    End,
    /// It broke off, or was not to be had.
    Broke {
        /// Something had come.
        gave: bool,
    },
    /// The container never ran, or its pod is gone.
    Nothing,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// The pod by its UID, or that there is none.
    Pod(Option<(String, Stage)>),
    /// Whether the job is over.
    Job { over: bool },
    /// A connection ended.
    Read(ReadEnd),
    /// Nothing happened for as long as was to be waited.
    Quiet,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for news.
    Wait,
    /// Wait for news, but not for ever.
    WaitAwhile,
    /// Read the pod's output after a pause.
    Read(String, Duration),
    /// Leave.
    Done,
}

#[derive(Debug, Default)]
enum Sight {
    #[default]
    NotLooked,
    NoPod,
    Pod(String, Stage),
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Follow {
    pod: Sight,
    over: bool,
    /// Whose output is being read, and whether its pod had ended before.
    reading: Option<(String, bool)>,
    /// Whose output was asked for last.
    latest: Option<String>,
    /// Whose output needs no further look.
    shown: Option<String>,
    vain: u32,
    gave_up: bool,
}

impl Follow {
    /// Whether a connection is wanted.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Takes news in.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Pod(pod) => self.pod = pod.map_or(Sight::NoPod, |(uid, stage)| Sight::Pod(uid, stage)),
            News::Job { over } => self.over = over,
            News::Read(end) => self.read_ended(end),
            News::Quiet if self.is_reading() => self.read_ended(ReadEnd::Broke { gave: false }),
            News::Quiet => self.gave_up = true,
        }
    }

    fn read_ended(&mut self, end: ReadEnd) {
        let Some((uid, had_ended)) = self.reading.take() else { return };
        self.vain = match end {
            ReadEnd::Broke { gave: false } => self.vain + 1,
            _ => 0,
        };
        let runs = self.stage_of(&uid) == Some(Stage::Running);
        let all = match end {
            ReadEnd::End => had_ended,
            ReadEnd::Nothing => !runs,
            ReadEnd::Broke { .. } => had_ended && self.vain >= VAIN_READS,
        };
        if all {
            self.shown = Some(uid);
            self.vain = 0;
        }
    }

    fn stage_of(&self, uid: &str) -> Option<Stage> {
        match &self.pod {
            Sight::Pod(current, stage) if current == uid => Some(*stage),
            _ => None,
        }
    }

    /// The next step; to be asked after all news. Whoever gets [`Next::Read`] has to read.
    pub(super) fn next(&mut self) -> Next {
        if let Some((uid, _)) = &self.reading {
            // A pod that has ended has no more to say; silence then is a connection that broke without a word.
            return if self.stage_of(uid) == Some(Stage::Running) { Next::Wait } else { Next::WaitAwhile };
        }
        match &self.pod {
            Sight::Pod(uid, stage) if *stage != Stage::NotStarted && self.shown.as_ref() != Some(uid) => {
                let again = self.latest.as_ref() == Some(uid);
                let doublings = self.vain.min(PAUSE_DOUBLINGS);
                let pause = if again { PAUSE * 2_u32.pow(doublings) } else { Duration::ZERO };
                self.latest = Some(uid.clone());
                self.reading = Some((uid.clone(), *stage == Stage::Ended));
                Next::Read(uid.clone(), pause)
            }
            _ if !self.over => Next::Wait,
            Sight::Pod(uid, Stage::NotStarted) if !self.gave_up && self.shown.as_ref() != Some(uid) => Next::WaitAwhile,
            Sight::NotLooked if !self.gave_up => Next::WaitAwhile,
            _ => Next::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: News = News::Job { over: true };

    fn pod(uid: &str, stage: Stage) -> News {
        News::Pod(Some((uid.to_owned(), stage)))
    }

    fn read(uid: &str, seconds: u64) -> Next {
        Next::Read(uid.to_owned(), Duration::from_secs(seconds))
    }

    /// Tells all the news, and what is to be done then.
    fn after(follow: &mut Follow, news: impl IntoIterator<Item = News>) -> Next {
        let mut next = follow.next();
        for news in news {
            follow.hear(news);
            next = follow.next();
        }
        next
    }

    #[test]
    fn an_output_is_read_to_its_end_and_that_is_all() {
        let mut follow = Follow::default();
        assert_eq!(after(&mut follow, [News::Job { over: false }]), Next::Wait);
        assert_eq!(after(&mut follow, [pod("a", Stage::NotStarted)]), Next::Wait);
        assert_eq!(after(&mut follow, [pod("a", Stage::Running)]), read("a", 0));
        assert_eq!(after(&mut follow, [pod("a", Stage::Running)]), Next::Wait);
        assert_eq!(after(&mut follow, [OVER, pod("a", Stage::Ended)]), Next::WaitAwhile);
        // It began before the pod's end, so its end may be a network's.
        assert_eq!(after(&mut follow, [News::Read(ReadEnd::End)]), read("a", 1));
        assert_eq!(after(&mut follow, [News::Read(ReadEnd::End)]), Next::Done);
    }

    #[test]
    fn a_job_that_is_killed_while_its_pod_waits_ends_with_the_pod() {
        let mut follow = Follow::default();
        assert_eq!(after(&mut follow, [pod("a", Stage::NotStarted), OVER]), Next::WaitAwhile);
        assert_eq!(after(&mut follow, [News::Pod(None)]), Next::Done);
        let mut follow = Follow::default();
        assert_eq!(after(&mut follow, [News::Pod(None), News::Job { over: false }]), Next::Wait);
        assert_eq!(after(&mut follow, [OVER]), Next::Done);
        let mut follow = Follow::default();
        assert_eq!(after(&mut follow, [pod("a", Stage::NotStarted), OVER, News::Quiet]), Next::Done);
    }

    #[test]
    fn a_connection_that_ends_before_the_pod_does_is_made_again() {
        let mut follow = Follow::default();
        after(&mut follow, [pod("a", Stage::Running)]);
        for end in [ReadEnd::End, ReadEnd::Broke { gave: true }, ReadEnd::Nothing] {
            assert_eq!(after(&mut follow, [News::Read(end)]), read("a", 1), "{end:?}");
        }
        for pause in [2, 4, 8, 8, 8, 8, 8] {
            assert_eq!(after(&mut follow, [News::Read(ReadEnd::Broke { gave: false })]), read("a", pause));
        }
    }

    #[test]
    fn a_pod_without_output_does_not_keep_the_next_one_from_being_shown() {
        for end in [ReadEnd::Nothing, ReadEnd::Broke { gave: false }] {
            let mut follow = Follow::default();
            assert_eq!(after(&mut follow, [pod("a", Stage::Ended)]), read("a", 0));
            after(&mut follow, [News::Read(end)]);
            after(&mut follow, [News::Pod(None), News::Quiet]);
            assert_eq!(after(&mut follow, [pod("b", Stage::NotStarted)]), Next::Wait);
            assert_eq!(after(&mut follow, [pod("b", Stage::Running)]), read("b", 0));
        }
    }

    #[test]
    fn an_output_that_cannot_be_had_is_not_asked_for_for_ever() {
        let mut follow = Follow::default();
        after(&mut follow, [OVER, pod("a", Stage::Ended)]);
        let vain = || News::Read(ReadEnd::Broke { gave: false });
        assert_eq!(after(&mut follow, (1..VAIN_READS).map(|_| vain())), read("a", 8));
        assert_eq!(after(&mut follow, [vain()]), Next::Done);
    }

    #[test]
    fn a_connection_that_broke_without_a_word_is_left() {
        let mut follow = Follow::default();
        assert_eq!(after(&mut follow, [pod("a", Stage::Running), OVER]), Next::Wait);
        assert_eq!(after(&mut follow, [News::Pod(None)]), Next::WaitAwhile);
        assert!(follow.is_reading());
        assert_eq!(after(&mut follow, [News::Quiet]), Next::Done);
        assert!(!follow.is_reading());
    }
}
