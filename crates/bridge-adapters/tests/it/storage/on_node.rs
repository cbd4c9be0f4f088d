//! What a Slurm job meets on its node: signals, and what lies there already.

use bridge_core::ids::SubmitToken;
use bridge_core::plan::ManagerKind;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::carry::{Node, has, until};
use super::object;

const SHELLS: [&[&str]; 4] =
    [&["setsid", "dash"], &["setsid", "bash"], &["setsid", "bash", "--posix"], &["setsid", "busybox", "sh"]];

/// Takes a while over a signal, longer than the wrapper looks for whom it was meant.
const CAREFUL: &str = "#!/bin/bash\nfinish() {\n    echo got >> seen\n    printf half > result\n    \
                       for n in $(seq 20); do sleep 0.1; done\n    printf ' and half' >> result\n    : > done\n}\n\
                       trap finish TERM USR1\n: > ready\nwhile [ ! -e done ]; do sleep 0.1; done\nexit 127\n";

/// Processes of a group that have not ended.
fn living(group: Pid) -> Vec<String> {
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        let (state, process_group) = (words.next()?, words.nth(1)?);
        (state != "Z" && process_group == group.as_raw_nonzero().to_string()).then_some(stat)
    });
    stats.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_the_script_once_whoever_else_it_reaches() {
    for shell in SHELLS.into_iter().filter(|shell| has(shell[0]) && has(shell[1])) {
        for (signal, to_all) in [(Signal::TERM, true), (Signal::USR1, true), (Signal::TERM, false)] {
            let mut node = Node::new(CAREFUL).await;
            node.scene = node.scene.files(&["result"]);
            node.shell = shell;
            let submission = node.bring().await.unwrap();
            let child = node.start(&submission, &[]);
            until("the script", || node.file("ready").exists().then_some(())).await;
            let wrapper = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            if to_all {
                kill_process_group(wrapper, signal).unwrap();
            } else {
                kill_process(wrapper, signal).unwrap();
            }
            let case = format!("{shell:?} {signal:?} {to_all}");
            // Its own code, although a shell says 127 also of processes that it does not know.
            assert_eq!(node.ended(child).await.code(), Some(127), "{case}: {}", node.said());
            assert_eq!(node.read("seen"), "got\n", "{case}");
            node.take(127).await.unwrap();
            assert_eq!(node.scene.stored("hello/result"), b"half and half", "{case}");
            assert!(!node.said().contains("sleep"), "{case}: {}", node.said());
            until("the end of all its processes", || living(wrapper).is_empty().then_some(())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_is_not_put_into_a_folder_of_its_name() {
    let mut node = Node::new("#!/bin/sh\n: > ran\n").await;
    node.scene.store("data", "in", b"x");
    node.scene.plan.inputs = vec![object("data", "in")];
    let submission = node.bring().await.unwrap();
    std::fs::create_dir_all(node.file("in")).unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(114), "{}", node.said());
    assert!(node.said().contains("the input ./in could not be put in its place: a folder"), "{}", node.said());
    assert!(!node.file("ran").exists() && std::fs::read_dir(node.file("in")).unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_with_a_known_checksum_is_compared_with_it() {
    let mut node = Node::new("#!/bin/sh\ncat stdout > result\n").await;
    node.scene = node.scene.files(&["result"]);
    // What an earlier job has sent carries its checksum.
    node.scene.plan.target.manager = ManagerKind::Local;
    node.scene.plan.upload.as_mut().unwrap().prefix = "earlier".to_owned();
    node.scene.plan.upload.as_mut().unwrap().files.clear();
    node.scene.desk.stdout = "good".into();
    node.scene.take().await.unwrap();
    node.scene.plan.target.manager = ManagerKind::Slurm;
    node.scene.plan.upload.as_mut().unwrap().prefix = "hello".to_owned();
    node.scene.plan.inputs = vec![object("results", "earlier/stdout")];
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());

    std::fs::write(node.scene.server.object_path("results", "earlier/stdout"), "evil").unwrap();
    std::fs::remove_file(node.file("result")).unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(114), "{}", node.said());
    assert!(node.said().contains("the input ./stdout does not match its checksum"), "{}", node.said());
    assert!(!node.file("result").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_attempt_of_the_job_wrote_is_its_own() {
    let mut node = Node::new("#!/bin/sh\n[ -e result ] || echo new > result\n").await;
    node.scene = node.scene.files(&["result"]);
    node.scene.token = SubmitToken::derive("0123", 2);
    let submission = node.bring().await.unwrap();
    std::fs::create_dir_all(node.file("")).unwrap();
    std::fs::write(node.file("result"), "of the first\n").unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    node.take(0).await.unwrap();
    assert_eq!(node.scene.stored("hello/result"), b"of the first\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_waiting_for_too_long_is_asked_again() {
    let node = Node::new("#!/bin/sh\necho out\n").await;
    let submission = node.bring().await.unwrap();
    let door = node.scene.server.door();
    door.refuse("PUT", "/results/hello/stdout", (400, "RequestTimeout"), 1);
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    node.take(0).await.unwrap();
    assert_eq!((node.scene.stored("hello/stdout"), door.puts("/results/hello/stdout")), (b"out\n".to_vec(), 2));
}
