//! Generated parts of the manual, and that their words are those that can be seen.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use bridge_api::conditions::doing::STATUS_REASONS;
use bridge_api::conditions::{REASONS, TYPES, Term};
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Outcome, Phase, Verdict};
use bridge_core::record::{After, Cause, Ending, JobRecord, JobState, NotSubmitted};
use bridge_core::status::StatusView;

fn table(title: &str, terms: &[Term]) -> String {
    let mut text = format!("\n## {title}\n| word | what it means | what to do |\n|---|---|---|\n");
    for term in terms {
        let _ = writeln!(text, "| `{}` | {} | {} |", term.name, term.meaning, term.action);
    }
    text
}

#[test]
fn the_terms_are_those_of_the_api() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshoot.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (head, rest) = text.split_once("<!-- terms").unwrap();
    let (mark, rest) = rest.split_once("-->\n").unwrap();
    let (_, tail) = rest.split_once("<!-- /terms -->").unwrap();
    let terms = [
        table("Conditions", TYPES),
        table("Reasons of conditions and of the status", REASONS),
        table("Further reasons of the status", STATUS_REASONS),
    ];
    let generated = format!("{head}<!-- terms{mark}-->\n{}<!-- /terms -->{tail}", terms.concat());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &generated).unwrap();
    } else {
        assert!(text == generated, "docs/troubleshoot.md is out of date: run this test with UPDATE=1 and commit it");
    }
}

fn in_table(word: &str) -> bool {
    [REASONS, STATUS_REASONS].concat().iter().any(|term| term.name == word)
}

/// Every kind of trouble; a new one does not compile until it is added here.
fn kinds() -> [ErrorKind; 6] {
    use ErrorKind::{Credential, Protocol, RateLimited, Refused, Unreachable, Unsupported};
    match Refused {
        Refused | Unreachable | RateLimited | Credential | Protocol | Unsupported => {}
    }
    [Refused, Unreachable, RateLimited, Credential, Protocol, Unsupported]
}

#[test]
fn every_kind_of_trouble_is_explained() {
    for kind in kinds() {
        assert!(REASONS.iter().any(|term| term.name == kind.as_str()), "{kind:?}");
    }
}

fn endings() -> Vec<Ending> {
    let id = RemoteId::new("7");
    let ran = |verdict| Ending::Ran {
        id: id.clone(),
        outcome: Outcome { verdict, exit_code: None, signal: None, reason: String::new(), message: String::new() },
    };
    let never = |reason| Ending::NeverSubmitted { reason };
    let token = JobRecord::new("uid", "holder").token();
    let mut all = vec![
        ran(Verdict::Succeeded),
        ran(Verdict::Failed),
        ran(Verdict::Cancelled),
        never(NotSubmitted::Refused { message: String::new() }),
        never(NotSubmitted::StageIn { message: String::new() }),
        Ending::Lost { id: id.clone() },
        Ending::SubmissionUnknown { token, why: String::new() },
    ];
    for cause in [Cause::Kill, Cause::Deadline, Cause::Delete, Cause::Suspend] {
        all.push(never(NotSubmitted::Ended { cause }));
    }
    all
}

/// Every state; a new one does not compile until it is added here.
fn states() -> Vec<JobState> {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let (id, token) = (RemoteId::new("7"), JobRecord::new("uid", "holder").token());
    let phases = [Phase::Queued { reason: None }, Phase::Held, Phase::Running, Phase::Suspended];
    let active = |phase, missing| JobState::Active { id: id.clone(), phase, missing };
    let mut all = vec![
        JobState::Accepted { not_before: None },
        JobState::Accepted { not_before: Some(at) },
        JobState::StagingIn,
        JobState::Submitting { token, since: at, intent: at },
        JobState::Prepared { id: id.clone() },
        JobState::Cancelling { id: id.clone(), since: at, maybe_ran: true },
        JobState::Sweeping { then: After::Again { not_before: None } },
        active(Phase::Running, Some(at)),
    ];
    all.extend(phases.into_iter().map(|phase| active(phase, None)));
    for ending in endings() {
        if let Ending::Ran { outcome, .. } = &ending {
            all.push(JobState::StagingOut { id: id.clone(), outcome: outcome.clone(), since: at, failing: None });
        }
        all.push(JobState::Sweeping { then: After::Finish { ending: ending.clone() } });
        all.push(JobState::Finished { ending });
    }
    for state in &all {
        match state {
            JobState::Accepted { .. }
            | JobState::StagingIn
            | JobState::Submitting { .. }
            | JobState::Prepared { .. }
            | JobState::Active { .. }
            | JobState::Cancelling { .. }
            | JobState::StagingOut { .. }
            | JobState::Sweeping { .. }
            | JobState::Finished { .. } => {}
        }
    }
    all
}

#[test]
fn every_reason_of_a_status_is_explained_and_every_explained_one_is_seen() {
    let mut seen = BTreeSet::new();
    for state in states() {
        for suspended in [false, true] {
            for cause in [None, Some(Cause::Kill), Some(Cause::Deadline)] {
                let record = JobRecord { state: state.clone(), suspended, cause, ..JobRecord::new("uid", "holder") };
                let reason = StatusView::of(&record).reason;
                assert!(in_table(&reason), "{reason} of {record:?}");
                seen.insert(reason);
            }
        }
    }
    for term in STATUS_REASONS {
        // What a pod that is not ours says, and what a manager may say of an end.
        let from_elsewhere = ["Reported", "StageInNoClient", "StageInNoPlace"].contains(&term.name);
        assert!(from_elsewhere || seen.contains(term.name), "{} is never the reason of a status", term.name);
    }
}

/// All source but tests.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, into);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs") && !name.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            into.push_str(text.split("#[cfg(test)]").next().unwrap());
        }
    }
}

/// `SecretMissing` is `SECRET_MISSING` in the source.
fn constant(word: &str) -> String {
    let mut name = String::new();
    for char in word.chars() {
        if char.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(char.to_ascii_uppercase());
    }
    name
}

#[test]
fn every_word_of_a_condition_is_said_somewhere() {
    let mut source = String::new();
    for name in ["bridge-operator", "bridge-core", "bridge-adapters"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut source);
    }
    let quoted = |word: &str| source.contains(&format!("\"{word}\""));
    for term in [TYPES, REASONS].concat() {
        let named = ["terms", "reasons"].iter().any(|module| {
            let path = format!("{module}::{}", constant(term.name));
            source.match_indices(&path).any(|(at, _)| {
                !source[at + path.len()..].starts_with(|next: char| next.is_ascii_uppercase() || next == '_')
            })
        });
        assert!(named || quoted(term.name), "{} is explained and never said", term.name);
    }
    for term in STATUS_REASONS {
        assert!(quoted(term.name), "{} is explained and never said", term.name);
    }
}
