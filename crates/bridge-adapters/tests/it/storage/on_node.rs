//! What a Slurm job meets on its node: signals, and what lies there already.

use bridge_core::ids::SubmitToken;
use bridge_core::plan::ManagerKind;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::carry::{Node, TOOLS, has, only, until};
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

/// The process by which a wrapper tells a signal for all.
fn canary(group: Pid) -> Option<String> {
    let mut processes = living(group).into_iter().filter_map(|stat| stat.split(' ').next().map(str::to_owned));
    processes.find(|process| {
        std::fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains("read -r _"))
    })
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

/// Has an input that an earlier job has sent, which carries its checksum.
async fn after_an_earlier_job(node: &mut Node) {
    let files = std::mem::take(&mut node.scene.plan.upload.as_mut().unwrap().files);
    node.scene.plan.target.manager = ManagerKind::Local;
    "earlier".clone_into(&mut node.scene.plan.upload.as_mut().unwrap().prefix);
    node.scene.desk.stdout = "good".into();
    node.scene.take().await.unwrap();
    node.scene.plan.target.manager = ManagerKind::Slurm;
    let upload = node.scene.plan.upload.as_mut().unwrap();
    (upload.prefix, upload.files) = ("hello".to_owned(), files);
    node.scene.plan.inputs = vec![object("results", "earlier/stdout")];
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_with_a_known_checksum_is_compared_with_it() {
    let mut node = Node::new("#!/bin/sh\ncat stdout > result\n").await;
    node.scene = node.scene.files(&["result"]);
    after_an_earlier_job(&mut node).await;
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

/// With `stat`, without which only sizes are compared.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_a_file_that_changes_while_it_is_sent_is_true() {
    for shell in SHELLS.into_iter().filter(|shell| has(shell[0]) && has(shell[1])) {
        for (new, refused) in [("new!\n", true), ("new!\n", false), ("grown\n", false)] {
            let mut node = Node::new("#!/bin/sh\necho old! > result\n").await;
            node.scene = node.scene.files(&["result"]);
            node.shell = shell;
            let submission = node.bring().await.unwrap();
            let (door, path) = (node.scene.server.door(), "/results/hello/result");
            door.close_for(path);
            if refused {
                door.refuse("PUT", path, (503, "SlowDown"), 1);
            }
            let child = node.start(&submission, &[]);
            until("its PUT", || (door.puts(path) == 1).then_some(())).await;
            std::fs::write(node.file("result"), new).unwrap();
            door.open();
            let case = format!("{shell:?} {new:?} {refused}");
            assert_eq!(node.ended(child).await.code(), Some(0), "{case}: {}", node.said());
            let account = node.scene.stored(&format!("hello/.bridge/{}", node.scene.token));
            let sum = super::sha256(new.as_bytes()).replace("sha256:", "");
            let told = format!("\nsent {} {sum} result\n", new.len());
            assert!(String::from_utf8_lossy(&account).contains(&told), "{case}: {account:?}");
            node.take(0).await.unwrap();
            assert_eq!(node.scene.stored("hello/result"), new.as_bytes(), "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_signals_for_all_in_quick_succession_are_not_doubled() {
    let script = "#!/bin/bash\nfor name in USR1 TERM USR2; do trap \"echo $name >> seen\" \"$name\"; done\n: > ready\n\
                  while [ ! -e done ]; do sleep 0.1; done\nfor n in $(seq 20); do sleep 0.1; done\nexit 7\n";
    for shell in SHELLS.into_iter().filter(|shell| has(shell[0]) && has(shell[1])) {
        let mut node = Node::new(script).await;
        node.shell = shell;
        let submission = node.bring().await.unwrap();
        let child = node.start(&submission, &[]);
        until("the script", || node.file("ready").exists().then_some(())).await;
        let wrapper = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let first = until("a canary", || canary(wrapper)).await;
        // Both are there before it can do anything about the first.
        kill_process(wrapper, Signal::STOP).unwrap();
        until("its halt", || living(wrapper).iter().any(|stat| stat.contains(") T ")).then_some(())).await;
        kill_process_group(wrapper, Signal::USR1).unwrap();
        kill_process_group(wrapper, Signal::TERM).unwrap();
        until("the end of the canary", || canary(wrapper).is_none().then_some(())).await;
        kill_process(wrapper, Signal::CONT).unwrap();
        until("another canary", || canary(wrapper).filter(|other| *other != first)).await;
        // For this one alone: it is handed on after a while, in which the others would have been, too.
        kill_process(wrapper, Signal::USR2).unwrap();
        until("the third", || node.read("seen").contains("USR2").then_some(())).await;
        std::fs::write(node.file("done"), "").unwrap();
        assert_eq!(node.ended(child).await.code(), Some(7), "{shell:?}: {}", node.said());
        let mut seen: Vec<String> = node.read("seen").lines().map(str::to_owned).collect();
        seen.sort();
        assert_eq!(seen, ["TERM", "USR1", "USR2"], "{shell:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cancelled_while_an_input_is_looked_at_was_cancelled() {
    // Busybox takes a checksum itself, whatever program of this name there is.
    let shells = SHELLS.into_iter().filter(|shell| has(shell[0]) && has(shell[1]) && shell[1] != "busybox");
    for shell in shells {
        let mut node = Node::new("#!/bin/sh\n: > ran\n").await;
        after_an_earlier_job(&mut node).await;
        node.shell = shell;
        let mut tools: Vec<&str> = TOOLS.into_iter().filter(|tool| *tool != "sha256sum").collect();
        tools.extend([shell[0], shell[1], "curl"]);
        let programs = only(node.folder.path(), &tools);
        let stub = "#!/bin/sh\n[ ! -e looking ] || exit 1\n: > looking\nwhile :; do sleep 0.1; done\n";
        std::fs::write(programs.join("sha256sum"), stub).unwrap();
        std::fs::set_permissions(programs.join("sha256sum"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        node.path = Some(programs);
        let submission = node.bring().await.unwrap();
        let child = node.start(&submission, &[]);
        until("the checksum", || node.file("looking").exists().then_some(())).await;
        let wrapper = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process_group(wrapper, Signal::TERM).unwrap();
        assert_eq!(node.ended(child).await.code(), Some(143), "{shell:?}: {}", node.said());
        assert!(!node.said().contains("checksum"), "{shell:?}: {}", node.said());
        let left: Vec<_> = std::fs::read_dir(node.file("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["looking"], "{shell:?}");
    }
}
