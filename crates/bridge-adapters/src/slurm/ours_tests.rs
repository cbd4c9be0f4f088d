use serde_json::json;

use super::*;

fn token() -> SubmitToken {
    SubmitToken::derive("own", 1)
}

/// An account: its id, when it was submitted and ended, its comment.
fn account(id: i64, [submitted, ended]: [i64; 2], comment: &str) -> JobInfo {
    serde_json::from_value(json!({
        "job_id": id, "user_name": "alice", "name": "x", "submit_time": submitted, "end_time": ended, "comment": comment,
    }))
    .unwrap()
}

fn trail(submissions: &[i64]) -> Trail {
    let seen: Vec<JobInfo> = submissions.iter().map(|time| account(7, [*time, 0], "")).collect();
    Trail::default().followed_by(&seen)
}

fn kept(trail: &Trail, records: &[JobInfo]) -> Vec<(i64, i64)> {
    let kept = trail.accounts(records.to_vec(), &token(), Some("alice"));
    kept.iter().map(|record| (record.job_id.0.unwrap(), record.submit_time.0.unwrap())).collect()
}

#[test]
fn of_a_requeued_job_the_newest_run_counts() {
    let own = token();
    let mark = own.as_str();
    for comments in [[mark, mark, mark], [mark, mark, ""], [mark, "", ""], [mark, "changed", "by hand"]] {
        let [first, second, third] = comments;
        let mut runs = [
            account(7, [10, 20], first),
            account(7, [20, 30], second),
            account(7, [31, if third.is_empty() { 0 } else { 40 }], third),
        ];
        assert_eq!(kept(&Trail::default(), &runs), [(7, 31)], "{comments:?}");
        runs.reverse();
        assert_eq!(kept(&trail(&[10]), &runs), [(7, 31)], "newer servers tell the newest first: {comments:?}");
    }
    // Without stored comments.
    let runs = [account(7, [10, 20], ""), account(7, [20, 30], "")];
    for known in [trail(&[]), trail(&[10]), trail(&[20]), trail(&[10, 20])] {
        assert_eq!(kept(&known, &runs), [(7, 20)], "{known:?}");
    }
}

#[test]
fn another_job_under_a_lost_id_is_none_of_its_runs() {
    let own = token();
    let mark = own.as_str();
    // The account of a job that slurmctld has lost never ends.
    let lost = [account(7, [10, 0], ""), account(7, [20, 30], "")];
    assert_eq!(kept(&trail(&[]), &lost), [(0, 0); 0], "nothing tells which is ours");
    assert_eq!(kept(&trail(&[10]), &lost), [(7, 10)]);
    assert_eq!(kept(&trail(&[5]), &lost), [(0, 0); 0]);
    let another = SubmitToken::derive("another", 1);
    let marked = [account(7, [10, 20], mark), account(7, [20, 30], another.as_str())];
    assert_eq!(kept(&trail(&[]), &marked), [(7, 10)]);
    let renamed = JobInfo { name: serde_json::from_value(json!("y")).unwrap(), ..account(7, [20, 30], "") };
    assert_eq!(kept(&trail(&[10]), &[account(7, [10, 20], ""), renamed]), [(7, 10)]);
    let bobs = JobInfo { user_name: serde_json::from_value(json!("bob")).unwrap(), ..account(7, [20, 30], "") };
    assert_eq!(kept(&trail(&[10]), &[account(7, [10, 20], mark), bobs]), [(7, 10)]);
}

#[test]
fn of_an_array_every_task_counts_once() {
    let runs =
        [account(9, [10, 30], ""), account(9, [30, 40], ""), account(10, [10, 20], ""), account(11, [10, 0], "")];
    for known in [trail(&[]), trail(&[10]), trail(&[30]), trail(&[10, 30])] {
        assert_eq!(kept(&known, &runs), [(9, 30), (10, 10), (11, 10)], "{known:?}");
    }
}

#[test]
fn a_record_without_the_token_is_ours_only_by_what_was_seen() {
    let record = |submitted: i64, restarts: i64, comment: &str| JobInfo {
        restart_cnt: serde_json::from_value(json!(restarts)).unwrap(),
        ..account(7, [submitted, 0], comment)
    };
    let own = token();
    let another = SubmitToken::derive("another", 1);
    let table = [
        (trail(&[]), record(10, 0, own.as_str()), Whose::Ours),
        (trail(&[]), record(10, 0, "changed"), Whose::CannotTell),
        (trail(&[]), record(10, 0, another.as_str()), Whose::Anothers),
        (trail(&[10]), record(10, 0, "changed"), Whose::Ours),
        (trail(&[10]), record(10, 0, another.as_str()), Whose::Anothers),
        (trail(&[10]), record(20, 0, "changed"), Whose::Anothers),
        (trail(&[10]), record(20, 1, "changed"), Whose::CannotTell),
        (trail(&[10]), record(5, 1, "changed"), Whose::Anothers),
        (trail(&[10]), record(20, 1, own.as_str()), Whose::Ours),
    ];
    for (trail, record, expected) in table {
        assert_eq!(trail.whose(&record, &own), expected, "{trail:?} {record:?}");
        let bobs = JobInfo { user_name: serde_json::from_value(json!("bob")).unwrap(), ..record };
        let is_known = trail != Trail::default();
        assert!(!is_known || trail.whose(&bobs, &own) == Whose::Anothers);
    }
}

#[test]
fn the_accounts_user_is_ours_however_the_secret_spells_him() {
    let runs = [account(7, [10, 20], "")];
    for user in ["alice", "Alice", "alice@example.org", "EXAMPLE\\alice"] {
        assert_eq!(Trail::default().accounts(runs.to_vec(), &token(), Some(user)).len(), 1, "{user}");
    }
    for user in ["bob", "alice2@example.org", ""] {
        assert!(Trail::default().accounts(runs.to_vec(), &token(), Some(user)).is_empty(), "{user}");
    }
}
