//! Logs: live, whole, from anywhere, through breaks.

use std::os::unix::fs::PermissionsExt;

use bridge_core::manager::{ErrorKind, LogCursor, LogStream, Logs};
use bridge_testkit::faults::Fault;

use super::*;

/// The whole log, read to its end.
pub(super) async fn whole(manager: &RayManager, job: &Tracked) -> String {
    String::from_utf8(rest(manager, job, LogCursor(0)).await).unwrap()
}

/// The log from here to its end.
async fn rest(manager: &RayManager, job: &Tracked, from: LogCursor) -> Vec<u8> {
    let mut text = Vec::new();
    until("the end of the log", async || {
        let cursor = LogCursor(from.0 + u64::try_from(text.len()).unwrap());
        let chunk = manager.read(job, LogStream::Stdout, cursor).await.unwrap();
        text.extend_from_slice(&chunk.data);
        assert_eq!(chunk.next.0, from.0 + u64::try_from(text.len()).unwrap());
        chunk.end.then_some(())
    })
    .await;
    text
}

/// Reads until the log has this line; what came and where to go on.
pub(super) async fn follow(manager: &RayManager, job: &Tracked, from: LogCursor, line: &str) -> (String, LogCursor) {
    let (mut text, mut cursor) = (String::new(), from);
    until(line, async || {
        let chunk = manager.read(job, LogStream::Stdout, cursor).await.unwrap();
        text.push_str(std::str::from_utf8(&chunk.data).unwrap());
        cursor = chunk.next;
        text.contains(line).then_some(())
    })
    .await;
    (text, cursor)
}

/// Prints a line whenever the test says so; not before Ray's own first line is in the log, which comes at any time.
const TALKER: &str = "\
import os, time
while b'Running entrypoint' not in open('/proc/self/fd/1', 'rb').read():
    time.sleep(0.01)
n = 0
while not os.path.exists(os.environ['CUE'] + '.end'):
    if os.path.exists(os.environ['CUE'] + f'.{n}'):
        print(f'line {n} ü', flush=True)
        n += 1
    time.sleep(0.01)
print('the end')
";

pub(super) struct Talker {
    folder: tempfile::TempDir,
    pub(super) job: Submission,
}

impl Talker {
    fn new(uid: &str) -> Self {
        Self::within(uid, &std::env::temp_dir())
    }

    /// For a job that sees this folder.
    pub(super) fn within(uid: &str, folder: &std::path::Path) -> Self {
        let folder = tempfile::tempdir_in(folder).unwrap();
        // A real Ray runs jobs as a user of its own.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let cue = folder.path().join("cue").display().to_string();
        let job = Submission { metadata: json!({"env": {"CUE": cue}}).to_string(), ..python(uid, TALKER) };
        Self { folder, job }
    }

    pub(super) fn say(&self, what: &str) {
        std::fs::write(self.folder.path().join(format!("cue.{what}")), "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_there_soon_after_it_was_written() {
    let cluster = Cluster::start().await;
    let talker = Talker::new("live");
    let job = submit(&cluster.manager, &talker.job).await;
    let mut cursor = LogCursor(0);
    for number in 0..5 {
        talker.say(&number.to_string());
        let (text, next) = follow(&cluster.manager, &job, cursor, &format!("line {number} ü\n")).await;
        assert!(number == 0 || text == format!("line {number} ü\n"), "nothing is told twice: {text:?}");
        cursor = next;
    }
    talker.say("end");
    let rest = until("the end of the log", async || {
        let chunk = cluster.manager.read(&job, LogStream::Stdout, cursor).await.unwrap();
        cursor = chunk.next;
        chunk.end.then_some(())
    });
    rest.await;
    let text = whole(&cluster.manager, &job).await;
    assert!(text.ends_with("line 4 ü\nthe end\n") && text.len() == usize::try_from(cursor.0).unwrap(), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_that_is_slow_does_not_keep_output_back() {
    let slow = Options { tail_interval: Duration::from_mins(10), ..quick() };
    let cluster = Cluster::with(slow, &Secret::default()).await;
    let talker = Talker::new("slow");
    let job = submit(&cluster.manager, &talker.job).await;
    let mut cursor = LogCursor(0);
    for number in 0..3 {
        talker.say(&number.to_string());
        let (text, next) = follow(&cluster.manager, &job, cursor, &format!("line {number} ü\n")).await;
        assert!(number == 0 || text == format!("line {number} ü\n"), "nothing is told twice: {text:?}");
        cursor = next;
    }
    talker.say("end");
    assert!(whole(&cluster.manager, &job).await.ends_with("line 2 ü\nthe end\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_slow_to_answer_does_not_keep_output_back() {
    let cluster = Cluster::start().await;
    let talker = Talker::new("slowhead");
    let job = submit(&cluster.manager, &talker.job).await;
    talker.say("0");
    let (_, mut cursor) = follow(&cluster.manager, &job, LogCursor(0), "line 0 ü\n").await;
    cluster.faults.always(Operation::Poll, Fault::Delay(Duration::from_mins(10)));
    for number in 1..4 {
        // A look is under way when the line is written.
        let looks = cluster.faults.requests(Operation::Poll);
        let speaking = async {
            until("a look", async || (cluster.faults.requests(Operation::Poll) > looks).then_some(())).await;
            talker.say(&number.to_string());
        };
        let line = format!("line {number} ü\n");
        let ((), (text, next)) = tokio::join!(speaking, follow(&cluster.manager, &job, cursor, &line));
        assert_eq!(text, line);
        cursor = next;
    }
    cluster.faults.clear();
    talker.say("end");
    assert!(whole(&cluster.manager, &job).await.ends_with("line 3 ü\nthe end\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_goes_on_after_a_break_and_in_another_process() {
    let cluster = Cluster::start().await;
    let talker = Talker::new("breaks");
    let job = submit(&cluster.manager, &talker.job).await;
    talker.say("0");
    let (_, cursor) = follow(&cluster.manager, &job, LogCursor(0), "line 0 ü\n").await;
    // A new process knows the cursor and nothing else.
    let other = manager_at(cluster.server.url(), &Secret::new(&[("token", TOKEN)]));
    talker.say("1");
    assert_eq!(follow(&other, &job, cursor, "line 1").await.0, "line 1 ü\n");
    for fault in Fault::WITHOUT_ANSWER {
        let broken = manager_at(cluster.server.url(), &Secret::new(&[("token", TOKEN)]));
        cluster.faults.always(Operation::Logs, fault.clone());
        match broken.read(&job, LogStream::Stdout, cursor).await {
            Ok(chunk) => {
                assert!(chunk.data.is_empty() && !chunk.end && chunk.next == cursor, "{fault:?} gave {chunk:?}");
            }
            Err(error) => assert!(!error.kind.is_final(), "{fault:?}: {error}"),
        }
        cluster.faults.clear();
        assert_eq!(follow(&broken, &job, cursor, "line 1").await.0, "line 1 ü\n", "after {fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_websockets_logs_are_asked_for() {
    let cluster = Cluster::with(Options { websockets: false, ..quick() }, &Secret::default()).await;
    let talker = Talker::new("plain");
    let job = submit(&cluster.manager, &talker.job).await;
    talker.say("0");
    let (_, cursor) = follow(&cluster.manager, &job, LogCursor(0), "line 0 ü\n").await;
    talker.say("1");
    assert_eq!(follow(&cluster.manager, &job, cursor, "line 1 ü\n").await.0, "line 1 ü\n");
    talker.say("end");
    assert!(whole(&cluster.manager, &job).await.ends_with("the end\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_log_is_read_in_pieces_with_one_request() {
    let cluster = Cluster::start().await;
    let job = python("large", "for n in range(200_000):\n    print(f'a line of a log, number {n}: ü')\n");
    let job = submit(&cluster.manager, &job).await;
    ended(&cluster.manager, &job).await;
    let before = cluster.faults.requests(Operation::Logs);
    // All of it: where one piece ends and the next begins is up to the network.
    let (mut cursor, mut largest, mut log) = (LogCursor(0), 0, Vec::new());
    until("the end of a large log", async || {
        loop {
            let chunk = cluster.manager.read(&job, LogStream::Stdout, cursor).await.unwrap();
            cursor = chunk.next;
            largest = largest.max(chunk.data.len());
            if chunk.end {
                return Some(());
            }
            log.extend_from_slice(&chunk.data);
        }
    })
    .await;
    assert!(cursor.0 > 6_800_000 && largest <= 256 * 1024, "{cursor:?} {largest}");
    assert!(String::from_utf8(log).unwrap().ends_with("number 199999: ü\n"));
    assert_eq!(cluster.faults.requests(Operation::Logs) - before, 1);
    // From the end on there is nothing, and from its middle on there is its second half.
    let nothing = cluster.manager.read(&job, LogStream::Stdout, cursor).await.unwrap();
    assert!(nothing.end && nothing.data.is_empty() && nothing.next == cursor);
    assert_eq!(rest(&cluster.manager, &job, LogCursor(cursor.0 - 10)).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_no_text_and_jobs_without_one_are_told() {
    let cluster = Cluster::start().await;
    let binary = submit(&cluster.manager, &command("binary", "printf '\\377\\376'")).await;
    ended(&cluster.manager, &binary).await;
    let error = cluster.manager.read(&binary, LogStream::Stdout, LogCursor(0)).await.unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("UTF-8"), "{error}");

    let unknown = tracked(&SubmitToken::derive("nobody", 1));
    let error = cluster.manager.read(&unknown, LogStream::Stdout, LogCursor(0)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");

    let failed =
        Submission { metadata: r#"{"working_dir": "gcs://_ray_pkg_no.zip"}"#.to_owned(), ..command("failed", "true") };
    let failed = submit(&cluster.manager, &failed).await;
    assert_eq!(whole(&cluster.manager, &failed).await, "");
    let errors = cluster.manager.read(&failed, LogStream::Stderr, LogCursor(0)).await.unwrap();
    assert!(errors.end && errors.data.is_empty(), "Ray has one stream");
}
