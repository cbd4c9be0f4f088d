//! From Slurm's words to ours.

use std::collections::{BTreeMap, HashSet};

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{Facts, Outcome, Phase, Sighting, Verdict};
use jiff::Timestamp;

use super::wire::{JobInfo, Number};
use super::{carrier, output};

/// The longest text of Slurm that is handed on.
const LONGEST: usize = 256;

/// Whether the job carries the token, in its comment or in `extra` where that exists.
#[must_use]
pub(super) fn carries(job: &JobInfo, token: &SubmitToken) -> bool {
    [&job.comment, &job.extra].iter().any(|text| mark_in(&text.0).as_ref() == Some(token))
}

/// Whether the job carries one of the tokens.
#[must_use]
pub(super) fn carries_any(job: &JobInfo, tokens: &HashSet<SubmitToken>) -> bool {
    [&job.comment, &job.extra].iter().any(|text| mark_in(&text.0).is_some_and(|token| tokens.contains(&token)))
}

/// The token that a job carries, whosever it is.
#[must_use]
pub(super) fn token_of(job: &JobInfo) -> Option<SubmitToken> {
    mark_in(&job.comment.0).or_else(|| mark_in(&job.extra.0))
}

/// The first word that is a token: a site's submit filter may put words of its own before ours, and the user's own
/// comment, which comes after it, may name the token of another job.
fn mark_in(text: &str) -> Option<SubmitToken> {
    text.split_whitespace().find_map(SubmitToken::parse)
}

/// Where one record stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not ended; the word of Slurm, where the phase does not tell all.
    Alive(Phase, Option<String>),
    /// Ended.
    Ended(Outcome),
}

/// Reads a state of one word or of a base and flags.
///
/// A record of v0.0.38 and older shows one word only, and `COMPLETING` hides what it will end as.
#[must_use]
pub(super) fn standing(job: &JobInfo) -> Standing {
    let words: Vec<String> = job.job_state.0.iter().map(|word| word.trim().to_ascii_uppercase()).collect();
    let has = |word: &str| words.iter().any(|own| own == word);
    let queued = |reason: Option<&str>| Phase::Queued { reason: reason.map(bounded) };
    let reason = job.state_reason.get().filter(|reason| *reason != "None");
    let held_by = reason.filter(|reason| is_hold(reason));

    if has("REQUEUE_HOLD") || has("SPECIAL_EXIT") || has("RESV_DEL_HOLD") {
        return Standing::Alive(Phase::Held, Some(describe(&words, reason)));
    }
    if (has("PENDING") && !has("REVOKED")) || has("REQUEUED") || has("REQUEUE_FED") {
        return match held_by {
            // A hold by the user is what we asked for; any other needs a word to the user.
            Some("JobHeldUser") if !was_held_by_slurm(job) => Standing::Alive(Phase::Held, None),
            Some("JobHeldUser") => Standing::Alive(Phase::Held, job.state_description.get().map(bounded)),
            Some(other) => Standing::Alive(Phase::Held, Some(format!("held: {}", bounded(other)))),
            None => Standing::Alive(queued(reason), None),
        };
    }
    if has("COMPLETING") || has("STAGE_OUT") {
        // Its processes or its data are still on the nodes; the end follows.
        return Standing::Alive(Phase::Running, Some(describe(&words, reason)));
    }
    if let Some((word, verdict)) = ENDS.iter().find(|(word, _)| has(word)) {
        return Standing::Ended(outcome(job, word, *verdict, reason));
    }
    if has("REVOKED") {
        // A flag beside the end, if there is one: it says that the job was left to another cluster of the federation.
        return Standing::Alive(Phase::Running, Some(REVOKED.to_owned()));
    }
    if has("SUSPENDED") || has("STOPPED") {
        return Standing::Alive(Phase::Suspended, None);
    }
    if has("CONFIGURING") || has("POWER_UP_NODE") {
        return Standing::Alive(queued(Some(if has("CONFIGURING") { "CONFIGURING" } else { "POWER_UP_NODE" })), None);
    }
    if has("RUNNING") || has("RESIZING") || has("SIGNALING") || has("EXPEDITING") || has("UPDATE_DB") {
        return Standing::Alive(Phase::Running, None);
    }
    // A word of a newer Slurm: whatever it means, the job is there and its end is not known.
    Standing::Alive(
        Phase::Running,
        Some(format!("state {}, which this version does not know", describe(&words, reason))),
    )
}

const REVOKED: &str =
    "REVOKED here: another cluster of the federation has taken the job, and its end is told when it is over";

/// Words that end a job, the telling ones first.
const ENDS: [(&str, Verdict); 13] = [
    ("OUT_OF_MEMORY", Verdict::Failed),
    ("TIMEOUT", Verdict::Failed),
    ("NODE_FAIL", Verdict::Failed),
    ("BOOT_FAIL", Verdict::Failed),
    ("DEADLINE", Verdict::Failed),
    ("PREEMPTED", Verdict::Failed),
    ("LAUNCH_FAILED", Verdict::Failed),
    ("RECONFIG_FAIL", Verdict::Failed),
    ("FAILED", Verdict::Failed),
    ("CANCELLED", Verdict::Cancelled),
    ("COMPLETED", Verdict::Succeeded),
    ("INVALID", Verdict::Failed),
    ("STEPS_COMPLETED", Verdict::Succeeded),
];

/// Whether somebody asked for its hold; Slurm itself holds a job that it could not start.
#[must_use]
pub(super) fn is_held_on_request(job: &JobInfo) -> bool {
    let is_pending = job.job_state.0.iter().all(|word| word.trim().eq_ignore_ascii_case("PENDING"));
    is_pending && job.state_reason.get().is_some_and(|reason| reason.starts_with("JobHeld")) && !was_held_by_slurm(job)
}

/// A job that could not be launched is held in its user's name; only the description tells.
fn was_held_by_slurm(job: &JobInfo) -> bool {
    job.state_description.get().is_some_and(|text| text.to_ascii_lowercase().contains("requeued held"))
}

fn is_hold(reason: &str) -> bool {
    reason.starts_with("JobHeld") || reason.to_ascii_lowercase().contains("requeued held")
}

fn outcome(job: &JobInfo, word: &str, verdict: Verdict, reason: Option<&str>) -> Outcome {
    let (mut exit_code, signal) = (job.exit_code.code, job.exit_code.signal);
    if verdict != Verdict::Succeeded && exit_code == Some(0) {
        // Accounting of 22.05 reports 0 for any failure, and a cancelled job never came to an exit code.
        exit_code = None;
    }
    // Word, code and signal have places of their own; the message holds what else Slurm says.
    let mut parts: Vec<String> = reason.map(bounded).into_iter().collect();
    if verdict == Verdict::Failed && exit_code.is_none() && signal.is_none() {
        parts.push("exit code unknown".to_owned());
    }
    parts.extend(job.state_description.get().map(bounded));
    let mut reason = word;
    if let Some((word, sentence)) = carrier::meaning(&job.comment.0, exit_code).filter(|_| verdict == Verdict::Failed) {
        reason = word;
        parts.push(sentence.to_owned());
    }
    Outcome { verdict, exit_code, signal, reason: reason.to_owned(), message: parts.join(", ") }
}

/// An outcome in one text.
fn told(outcome: &Outcome) -> String {
    let code = outcome.exit_code.map(|code| format!("exit code {code}"));
    let signal = outcome.signal.map(|signal| format!("signal {signal}"));
    let message = Some(outcome.message.clone()).filter(|message| !message.is_empty());
    let parts = [Some(outcome.reason.clone()), code, signal, message];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What a record tells beside its state.
#[must_use]
pub(super) fn facts(job: &JobInfo, standing: &Standing) -> Facts {
    // Until a job has started, Slurm shows the time at which it expects to.
    let has_started = !matches!(standing, Standing::Alive(Phase::Queued { .. } | Phase::Held, _));
    let has_ended = matches!(standing, Standing::Ended(_));
    let node =
        [&job.nodes, &job.batch_host].into_iter().find_map(|text| text.get()).filter(|node| *node != "None assigned");
    let (stdout, stderr) = output::paths(job);
    Facts {
        started: has_started.then(|| time(job.start_time)).flatten(),
        ended: has_ended.then(|| time(job.end_time)).flatten(),
        queue: job.partition.get().map(bounded),
        node: node.map(bounded),
        stdout,
        stderr,
        note: match standing {
            Standing::Alive(_, remark) => remark.clone(),
            Standing::Ended(_) => None,
        },
    }
}

/// How a task of an array ended, remembered after slurmctld has forgotten it.
pub(super) type EndedTasks = BTreeMap<i64, (JobInfoSummary, Outcome)>;

/// The little that is kept of an ended task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobInfoSummary {
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
}

/// Sums up all records of one submission: one for an ordinary job, several for an array or a heterogeneous job.
///
/// `remembered` are ended tasks of an array that the records may lack; newly ended ones are added.
#[must_use]
pub(super) fn sighting(records: &[JobInfo], remembered: &mut EndedTasks) -> Option<Sighting> {
    let first = records.first()?;
    let is_group = records.len() > 1 || first.array_job_id.positive().is_some();
    if !is_group {
        let standing = standing(first);
        let facts = facts(first, &standing);
        return Some(match standing {
            Standing::Alive(phase, _) => Sighting::Alive(phase, facts),
            Standing::Ended(outcome) => Sighting::Ended(outcome, facts),
        });
    }
    Some(sum_up(records, remembered))
}

/// Sums up the accounts of a job. `known` is how many tasks it was seen to have.
#[must_use]
pub(super) fn accounted(records: &[JobInfo], remembered: &mut EndedTasks, known: u64) -> Option<Sighting> {
    let told: Vec<JobInfo> = records.iter().filter(|record| !is_overruled(record, remembered)).cloned().collect();
    let found = if told.len() == records.len() { sighting(records, remembered)? } else { sum_up(&told, remembered) };
    let is_one = matches!(records, [record] if record.array_job_id.positive().is_none());
    // Accounting that lags behind may lack tasks altogether; those that never started share an account.
    let may_lack_tasks = !is_one && !records.iter().any(is_unsplit);
    (!may_lack_tasks || remembered.len() as u64 >= known).then_some(found)
}

/// Whether a record stands for those tasks of an array that have no records of their own.
fn is_unsplit(record: &JobInfo) -> bool {
    record.array_job_id.positive().is_some() && record.array_task_id.0.is_none()
}

/// Whether an account shows a task as not ended whose end was seen: slurmdbd is told late, and of some ends never.
pub(super) fn is_overruled(account: &JobInfo, ended: &EndedTasks) -> bool {
    let was_seen = account.array_task_id.0.is_some_and(|task| ended.contains_key(&task));
    was_seen && matches!(standing(account), Standing::Alive(..))
}

/// How many tasks a job is seen to have, those included that ended before.
pub(super) fn known_tasks(records: &[JobInfo], ended: &EndedTasks) -> u64 {
    let alive = records.iter().filter(|record| matches!(standing(record), Standing::Alive(..)));
    alive.map(tasks_in).fold(ended.len() as u64, u64::saturating_add)
}

fn sum_up(records: &[JobInfo], remembered: &mut EndedTasks) -> Sighting {
    let mut phases: Vec<(Phase, u64)> = Vec::new();
    let mut facts = Facts::default();
    let mut starts = Vec::new();
    for job in records {
        let standing = standing(job);
        let own = self::facts(job, &standing);
        starts.extend(own.started);
        match standing {
            Standing::Alive(phase, _) => {
                // One that was put back into the queue has another end before it.
                job.array_task_id.0.and_then(|task| remembered.remove(&task));
                phases.push((phase, tasks_in(job)));
            }
            Standing::Ended(outcome) => {
                let key = job.array_task_id.0.or(job.job_id.0).unwrap_or_default();
                let kept = JobInfoSummary { started: own.started, ended: own.ended };
                remembered.insert(key, (kept, outcome));
            }
        }
        facts.queue = facts.queue.or(own.queue);
        facts.node = own.node.or(facts.node);
        facts.stdout = facts.stdout.or(own.stdout);
        facts.stderr = facts.stderr.or(own.stderr);
    }
    if let Some(job) = records.first().filter(|job| job.array_job_id.positive().is_some()) {
        (facts.stdout, facts.stderr) = output::array_paths(job);
    }
    starts.extend(remembered.values().filter_map(|(kept, _)| kept.started));
    facts.started = starts.into_iter().min();

    let count = |verdict: Verdict| remembered.values().filter(|(_, outcome)| outcome.verdict == verdict).count();
    let (failed, cancelled) = (count(Verdict::Failed), count(Verdict::Cancelled));
    let alive: u64 = phases.iter().map(|(_, tasks)| tasks).sum();
    let all = alive + remembered.len() as u64;
    let mut summary = format!("{} of {all} tasks done", remembered.len());
    for (number, word) in [(failed, "failed"), (cancelled, "cancelled")] {
        if number > 0 {
            summary = format!("{summary}, {number} {word}");
        }
    }
    if alive > 0 {
        let chosen = phases.into_iter().map(|(phase, _)| phase).min_by_key(rank).unwrap_or(Phase::Running);
        facts.note = Some(summary);
        return Sighting::Alive(chosen, facts);
    }
    facts.ended = remembered.values().filter_map(|(kept, _)| kept.ended).max();
    let worst = remembered.iter().min_by_key(|(task, (_, outcome))| (severity(outcome.verdict), **task));
    let outcome = worst.map(|(task, (_, outcome))| {
        let message = match outcome.verdict {
            Verdict::Succeeded => summary.clone(),
            _ => format!("{summary}; task {task}: {}", told(outcome)),
        };
        Outcome { message, ..outcome.clone() }
    });
    match outcome {
        Some(outcome) => Sighting::Ended(outcome, facts),
        None => Sighting::Alive(Phase::Running, facts),
    }
}

/// What an array is, if its tasks differ: running if any runs.
fn rank(phase: &Phase) -> u8 {
    match phase {
        Phase::Running => 0,
        Phase::Queued { .. } => 1,
        Phase::Suspended => 2,
        Phase::Held => 3,
    }
}

fn severity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Failed => 0,
        Verdict::Cancelled => 1,
        Verdict::Succeeded => 2,
    }
}

/// The tasks of an array that have not started, which share one record, e.g. `2-3,7%2`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WaitingTasks {
    /// First, last, step.
    ranges: Vec<(u64, u64, u64)>,
    /// A long list ends in dots.
    is_cut: bool,
}

impl WaitingTasks {
    pub(super) fn of(job: &JobInfo) -> Self {
        Self::read(&job.array_task_string.0)
    }

    fn read(text: &str) -> Self {
        let text = text.split('%').next().unwrap_or_default().trim_matches(['[', ']']);
        let mut tasks = Self::default();
        for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            let (bounds, step) = range.split_once(':').unwrap_or((range, "1"));
            let (first, last) = bounds.split_once('-').unwrap_or((bounds, bounds));
            match (first.trim().parse(), last.trim().parse(), step.trim().parse()) {
                (Ok(first), Ok(last), Ok(step)) if first <= last && step > 0 => tasks.ranges.push((first, last, step)),
                _ => tasks.is_cut = true,
            }
        }
        tasks
    }

    /// How many they are, at least one.
    fn count(&self) -> u64 {
        let counts = self.ranges.iter().map(|(first, last, step)| (last - first) / step + 1);
        counts.fold(0_u64, u64::saturating_add).max(1)
    }

    /// Whether a task is, or may be, among them.
    pub(super) fn may_hold(&self, task: i64) -> bool {
        let Ok(task) = u64::try_from(task) else { return true };
        self.is_cut
            || self
                .ranges
                .iter()
                .any(|(first, last, step)| (*first..=*last).contains(&task) && (task - first) % step == 0)
    }

    /// Whether so many of them are surely all.
    pub(super) fn are_all(&self, tasks: usize) -> bool {
        !self.is_cut && tasks as u64 >= self.count()
    }
}

/// How many tasks an array is submitted with; `None` if the text does not surely tell all.
pub(super) fn submitted_tasks(array: &str) -> Option<u64> {
    let tasks = WaitingTasks::read(array);
    (!tasks.is_cut && !tasks.ranges.is_empty()).then(|| tasks.count())
}

/// How many tasks a record stands for.
fn tasks_in(job: &JobInfo) -> u64 {
    WaitingTasks::of(job).count()
}

fn time(number: Number) -> Option<Timestamp> {
    number.positive().and_then(|seconds| Timestamp::from_second(seconds).ok())
}

fn describe(words: &[String], reason: Option<&str>) -> String {
    let words = bounded(&words.join("+"));
    match reason {
        Some(reason) => format!("{words} ({})", bounded(reason)),
        None if words.is_empty() => "none".to_owned(),
        None => words,
    }
}

/// A text of the remote system, without control characters and not longer than is reasonable.
#[must_use]
pub(super) fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
