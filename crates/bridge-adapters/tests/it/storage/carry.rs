//! Jobs that move their data themselves: the script that Slurm would be given is run here, by several shells.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bridge_adapters::slurm::{Slurm, SlurmConfig};
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::{Clock, Instant, SystemClock};
use bridge_core::credentials::{Credentials, StaticCredentials};
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Outcome, ResourceManager, Verdict};
use bridge_core::plan::{ManagerKind, Script, ScriptSource, Submission, TextSource};
use bridge_core::staging::{Output, Staging, StagingError};
use serde_json::json;

use super::{Scene, credentials, object, staging_with};

const PATIENCE: Duration = Duration::from_secs(60);

/// A job on a node that is this machine.
pub(super) struct Node {
    pub(super) scene: Scene,
    pub(super) slurm: Slurm,
    pub(super) folder: tempfile::TempDir,
    pub(super) shell: &'static [&'static str],
    pub(super) path: Option<PathBuf>,
}

impl Node {
    pub(super) async fn new(script: &str) -> Self {
        let mut scene = Scene::new().await;
        scene.plan.target.manager = ManagerKind::Slurm;
        scene.plan.script = ScriptSource::Inline(script.to_owned());
        let config = SlurmConfig::new("http://127.0.0.1:1");
        let slurm = Slurm::new(config, Arc::new(StaticCredentials::default()), Arc::new(SystemClock::new())).unwrap();
        Self { scene, slurm, folder: tempfile::tempdir().unwrap(), shell: &["sh"], path: None }
    }

    pub(super) async fn bring(&self) -> Result<Submission, StagingError> {
        let scene = &self.scene;
        scene.staging().stage_in(&scene.plan, &scene.token, &self.slurm).await
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    pub(super) fn start(&self, submission: &Submission, arguments: &[&str]) -> Child {
        let Script::Text(text) = &submission.script else { panic!("{submission:?}") };
        let script = self.folder.path().join("slurm_script");
        std::fs::write(&script, text).unwrap();
        std::fs::create_dir_all(self.file("")).unwrap();
        std::fs::create_dir_all(self.folder.path().join("tmp")).unwrap();
        let output = |name: &str| std::fs::File::create(self.folder.path().join(name)).unwrap();
        let mut command = Command::new(self.shell[0]);
        command.args(&self.shell[1..]).arg(&script).args(arguments);
        command.current_dir(self.file("")).env("TMPDIR", self.folder.path().join("tmp")).env_remove("http_proxy");
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null()).stdout(output("out")).stderr(output("err")).spawn().unwrap()
    }

    pub(super) async fn run(&self, submission: &Submission, arguments: &[&str]) -> ExitStatus {
        let child = self.start(submission, arguments);
        self.ended(child).await
    }

    /// Output and error are one file, as Slurm has them unless told otherwise.
    pub(super) async fn run_into_one_file(&self, submission: &Submission) {
        let Script::Text(text) = &submission.script else { panic!("{submission:?}") };
        std::fs::create_dir_all(self.file("")).unwrap();
        std::fs::write(self.file("script"), text).unwrap();
        let both = std::fs::File::create(self.file("both")).unwrap();
        let mut command = Command::new("sh");
        command.arg(self.file("script")).current_dir(self.file("")).stdin(Stdio::null());
        let mut child = command.stdout(both.try_clone().unwrap()).stderr(both).spawn().unwrap();
        assert!(until("the end", || child.try_wait().unwrap()).await.success());
    }

    pub(super) async fn ended(&self, mut child: Child) -> ExitStatus {
        let ended = until("the end of the script", || child.try_wait().unwrap()).await;
        let left: Vec<_> = std::fs::read_dir(self.folder.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        ended
    }

    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("err")).unwrap()
    }

    pub(super) async fn take(&self, code: i32) -> Result<Vec<Output>, StagingError> {
        let verdict = if code == 0 { Verdict::Succeeded } else { Verdict::Failed };
        let outcome =
            Outcome { verdict, exit_code: Some(code), signal: None, reason: String::new(), message: String::new() };
        let scene = &self.scene;
        scene.staging().stage_out(&scene.plan, &scene.token, &RemoteId::new("7"), &outcome, &self.slurm).await
    }
}

pub(super) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("{what} did not come"))
}

pub(super) fn has(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).is_file())
}

/// A folder with links to programs, to be the only ones.
pub(super) fn only(folder: &Path, programs: &[&str]) -> PathBuf {
    let place = folder.join("bin");
    std::fs::create_dir_all(&place).unwrap();
    for program in programs {
        let all = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&all).map(|folder| folder.join(program)).find(|path| path.is_file());
        if let Some(found) = found {
            std::os::unix::fs::symlink(found, place.join(program)).ok();
        }
    }
    place
}

pub(super) const TOOLS: [&str; 15] = [
    "sh",
    "date",
    "mktemp",
    "chmod",
    "rm",
    "sleep",
    "wc",
    "tr",
    "cut",
    "sha256sum",
    "mv",
    "base64",
    "env",
    "true",
    "grep",
];

const SCRIPT: &str = "#!/usr/bin/env bash\n#SBATCH -n 1\nset -o pipefail\nprintf 'out %s\\n' \"$@\"\ncat < in.txt\n\
                      echo oops >&2\nmkdir -p 'a dir'\nprintf 'result ä' > 'a dir/erg ä.txt'\n: > empty\n\
                      echo odd > '+%20&#= $a \"b\"{1}.txt'\nexit 3";
const ODD: &str = "+%20&#= $a \"b\"{1}.txt";

#[tokio::test(flavor = "multi_thread")]
async fn data_travels_both_ways_under_every_shell_and_client() {
    let shells: [&[&str]; 4] = [&["dash"], &["bash"], &["busybox", "sh"], &["bash", "--posix"]];
    for (shell, client) in shells.iter().flat_map(|shell| ["curl", "wget"].map(|client| (*shell, client))) {
        // A shell that takes its own wget for the real one finds none that can send.
        if !has(shell[0]) || !has(client) || (shell[0], client) == ("busybox", "wget") {
            continue;
        }
        let case = format!("{shell:?} {client}");
        let mut node = Node::new(SCRIPT).await;
        node.scene = node.scene.files(&["a dir/erg ä.txt", "empty", ODD]);
        node.scene.store("data", "x/in.txt", b"from s3\n");
        node.scene.store("data", ODD, b"not read");
        node.scene.plan.inputs = vec![object("data", "x/in.txt"), object("data", ODD)];
        node.shell = shell;
        let mut tools = TOOLS.to_vec();
        tools.extend([shell[0], client, "bash", "cat", "mkdir"]);
        node.path = Some(only(node.folder.path(), &tools));

        let submission = node.bring().await.unwrap();
        assert!(submission.inputs.is_empty());
        let code = node.run(&submission, &["one two", "it's"]).await.code();
        assert_eq!(code, Some(3), "{case}: {}", node.said());
        let outputs = node.take(3).await.unwrap_or_else(|error| panic!("{case}: {error}\n{}", node.said()));
        let keys: Vec<&str> = outputs.iter().map(|output| output.key.as_str()).collect();
        let names = ["script", "stdout", "stderr", "erg ä.txt", "empty", ODD];
        assert_eq!(keys, names.map(|name| format!("hello/{name}")), "{case}");
        let scene = &node.scene;
        assert_eq!(scene.stored(&format!("hello/{ODD}")), b"odd\n", "{case}");
        assert_eq!(scene.stored("hello/stdout"), b"out one two\nout it's\nfrom s3\n", "{case}");
        assert_eq!(scene.stored("hello/stderr"), b"oops\n", "{case}");
        assert_eq!(scene.stored("hello/erg ä.txt"), "result ä".as_bytes(), "{case}");
        assert_eq!(scene.stored("hello/script"), SCRIPT.as_bytes(), "{case}");
        for output in &outputs {
            assert_eq!(output.checksum, super::sha256(&scene.stored(&output.key)), "{case}");
        }
        assert_eq!(scene.manifest()["complete"], true);
        let report = scene.server.object_path("results", &format!("hello/.bridge/{}", scene.token));
        assert!(!report.exists(), "its content is in the manifest");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_still_sends_its_output() {
    for shell in [&["dash"] as &[_], &["bash"], &["busybox", "sh"]] {
        let mut node =
            Node::new("#!/bin/sh\necho begun\nprintf part > result\n: > ready\nwhile :; do sleep 0.1; done\n").await;
        node.scene = node.scene.files(&["result", "never"]);
        node.shell = shell;
        let submission = node.bring().await.unwrap();
        let child = node.start(&submission, &[]);
        until("the script", || node.file("ready").exists().then_some(())).await;
        let wrapper = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(wrapper, rustix::process::Signal::TERM).unwrap();
        assert_eq!(node.ended(child).await.code(), Some(143), "{shell:?}: {}", node.said());
        let error = node.take(143).await.unwrap_err();
        assert!(error.is_final && error.message.contains("\"never\""), "{error}");
        assert!(error.message.contains("results:hello/never"), "{error}");
        assert_eq!(node.scene.stored("hello/stdout"), b"begun\n");
        assert_eq!(node.scene.stored("hello/result"), b"part");
        assert_eq!(error.sent.len(), 4, "script, stdout, stderr, result: {:?}", error.sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_for_the_script_reach_it_once_and_its_handler_decides() {
    let script = "#!/bin/bash\ntrap 'echo got >> seen; exit 9' USR1\n: > ready\nwhile :; do sleep 0.1; done\n";
    let mut node = Node::new(script).await;
    node.shell = &["dash"];
    let submission = node.bring().await.unwrap();
    let child = node.start(&submission, &[]);
    until("the script", || node.file("ready").exists().then_some(())).await;
    let wrapper = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(wrapper, rustix::process::Signal::USR1).unwrap();
    assert_eq!(node.ended(child).await.code(), Some(9), "{}", node.said());
    assert_eq!(node.read("seen"), "got\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_job_left_in_the_folder_is_not_taken_for_a_result() {
    for shell in [&["dash"] as &[_], &["bash"], &["busybox", "sh"]] {
        let mut node = Node::new("#!/bin/sh\necho more >> log\necho new > result\n").await;
        node.scene = node.scene.files(&["left", "log", "result", "in"]);
        node.scene.store("data", "in", b"input\n");
        node.scene.plan.inputs = vec![object("data", "in")];
        node.shell = shell;
        let submission = node.bring().await.unwrap();
        std::fs::create_dir_all(node.file("")).unwrap();
        for name in ["left", "log", "result", "in"] {
            std::fs::write(node.file(name), "old\n").unwrap();
        }
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{shell:?}: {}", node.said());
        let error = node.take(0).await.unwrap_err();
        assert!(error.is_final && error.message.contains("results:hello/left"), "{error}");
        assert!(error.message.contains("it was there before the job started"), "{error}");
        assert_eq!(node.scene.manifest()["missing"], json!(["left"]));
        let sent = ["log", "result", "in"].map(|name| node.scene.stored(&format!("hello/{name}")));
        assert_eq!(sent, [b"old\nmore\n".to_vec(), b"new\n".to_vec(), b"input\n".to_vec()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_and_error_in_one_file_are_sent_once() {
    let node = Node::new("#!/bin/sh\necho out\necho err >&2\n").await;
    let submission = node.bring().await.unwrap();
    node.run_into_one_file(&submission).await;
    let outputs = node.take(0).await.unwrap();
    assert_eq!(outputs.iter().map(|output| output.key.as_str()).collect::<Vec<_>>(), ["hello/script", "hello/stdout"]);
    assert_eq!(node.scene.stored("hello/stdout"), b"out\nerr\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_job_from_its_data_has_a_code_of_its_own() {
    // Neither client.
    let mut node = Node::new("#!/bin/sh\n: > ran\n").await;
    node.path = Some(only(node.folder.path(), &TOOLS));
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(112));
    assert!(node.said().contains("neither curl nor GNU wget"), "{}", node.said());
    let error = node.take(112).await.unwrap_err();
    assert!(error.is_final && error.message.contains("reported nothing"), "{error}");

    // An input that went away between its submission and its start.
    let mut node = Node::new("#!/bin/sh\n: > ran\n").await;
    node.scene.store("data", "in", b"x");
    node.scene.plan.inputs = vec![object("data", "in")];
    let submission = node.bring().await.unwrap();
    std::fs::remove_file(node.scene.server.object_path("data", "in")).unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(114), "{}", node.said());
    assert!(!node.file("ran").exists());
    node.take(114).await.unwrap();
    let told = String::from_utf8(node.scene.stored("hello/stderr")).unwrap();
    assert!(told.contains("the input ./in could not be fetched"), "{told}");

    // URLs that have ended.
    let node = Node::new("#!/bin/sh\n: > ran\n").await;
    let mut submission = node.bring().await.unwrap();
    let Script::Text(text) = &mut submission.script else { panic!() };
    let line = text.lines().find(|line| line.starts_with("bridge_expires=")).unwrap().to_owned();
    *text = text.replace(&line, "bridge_expires=1000000000");
    assert_eq!(node.run(&submission, &[]).await.code(), Some(113));
    assert!(!node.file("ran").exists());
}

/// Disks without room, which end with the process that sees them. Making one takes root.
const NO_ROOM: &str = "mount -t tmpfs -o size=64k none \"$TMPDIR\" && exec sh \"$@\"";
const NO_ROOM_HERE: &str = "mount -t tmpfs -o size=64k none \"$PWD\" && cd \"$PWD\" && exec sh \"$@\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_on_the_node_is_told() {
    let mut node = Node::new(&format!("#!/bin/sh\n: > ran\n# {}\n", "x".repeat(100_000))).await;
    node.shell = &["unshare", "-m", "sh", "-c", NO_ROOM, "sh"];
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(115), "{}", node.said());
    assert!(node.said().contains("the disk may be full") && !node.file("ran").exists(), "{}", node.said());
    node.take(115).await.unwrap();

    let mut node = Node::new("#!/bin/sh\n: > ran\n").await;
    node.scene.store("data", "in", &vec![7; 100_000]);
    node.scene.plan.inputs = vec![object("data", "in")];
    node.shell = &["unshare", "-m", "sh", "-c", NO_ROOM_HERE, "sh"];
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(114), "{}", node.said());
    assert!(node.said().contains("the input ./in could not be fetched (it cannot be written here;"), "{}", node.said());
    node.take(114).await.unwrap();
}

/// A clock that stands still.
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }
}

#[tokio::test]
async fn urls_live_as_long_as_the_session_token_and_seven_days_at_most() {
    let node = Node::new("#!/bin/sh\ntrue\n").await;
    let scene = &node.scene;
    let now = Instant { wall: jiff::Timestamp::now(), mono: Duration::ZERO };
    let end = now.wall + jiff::SignedDuration::from_mins(30);
    for (expiration, lasts) in [(None, 604_800), (Some(end.to_string()), 1800)] {
        let mut pairs = credentials(&scene.server);
        if let Some(end) = expiration {
            pairs.push(("sessiontoken".to_owned(), "token".to_owned()));
            pairs.push(("expiration".to_owned(), end));
        }
        let keys = StaticCredentials(Credentials::from_pairs(pairs));
        let staging = S3Staging::new(Arc::new(keys), Arc::new(Stopped(now)));
        let submission = staging.stage_in(&scene.plan, &scene.token, &node.slurm).await.unwrap();
        let Script::Text(text) = &submission.script else { panic!() };
        let notes = node.slurm.preview(&submission).unwrap().notes;
        assert_eq!(notes.iter().any(|note| note.contains("the URLs for its data end at")), lasts < 2000, "{notes:?}");
        let (_, rest) = text.split_once("X-Amz-Expires=").unwrap();
        let seconds: u64 = rest.split('&').next().unwrap().parse().unwrap();
        assert_eq!(seconds, lasts);
    }
    let mut pairs = credentials(&scene.server);
    pairs.push(("sessiontoken".to_owned(), "token".to_owned()));
    pairs.push(("expiration".to_owned(), "2020-01-01T00:00:00Z".to_owned()));
    let error = staging_with(pairs).stage_in(&scene.plan, &scene.token, &node.slurm).await.unwrap_err();
    assert!(error.message.contains("session token has ended"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_s3_does_not_take_in_one_piece_is_told_and_the_rest_is_sent() {
    // Without any content of its own, so that it takes no room.
    let mut node = Node::new("#!/bin/sh\ntruncate -s 5368709121 large\necho small > small\n").await;
    node.scene = node.scene.files(&["large", "small"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    let error = node.take(0).await.unwrap_err();
    assert!(error.is_final && error.message.contains("results:hello/large"), "{error}");
    assert!(error.message.contains("5368709121 bytes, and a job can send 5 GiB at most"), "{error}");
    assert_eq!(node.scene.stored("hello/small"), b"small\n");
}

#[tokio::test]
async fn with_keys_that_cannot_write_nothing_is_submitted() {
    let mut node = Node::new("#!/bin/sh\ntrue\n").await;
    node.scene = node.scene.files(&["out"]);
    let mut wrong = credentials(&node.scene.server);
    wrong[1].1 = "not-the-secret-key".to_owned();
    let error = staging_with(wrong).stage_in(&node.scene.plan, &node.scene.token, &node.slurm).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("results:hello/"), "{error}");
}

#[tokio::test]
async fn what_a_job_cannot_carry_is_refused_before_it_is_submitted() {
    let mut node = Node::new("#!/bin/sh\ntrue\n").await;
    node.scene = node.scene.files(&["*.out"]);
    let error = node.bring().await.unwrap_err();
    assert!(error.is_final && error.message.contains("\"*.out\" is a pattern"), "{error}");

    node.scene = node.scene.files(&["out"]);
    node.scene.plan.properties.insert("Array".to_owned(), json!("1-3"));
    let error = node.bring().await.unwrap_err();
    assert!(error.is_final && error.message.contains("array"), "{error}");
    node.scene.plan.properties.clear();
    node.scene.plan.script = ScriptSource::Inline("#!/bin/sh\n#SBATCH -a 1-3\ntrue\n".to_owned());
    assert!(node.bring().await.unwrap_err().message.contains("line 2"));

    node.scene.plan.script = ScriptSource::Inline("true\n".to_owned());
    assert!(node.bring().await.unwrap_err().message.contains("name its interpreter"));

    node.scene.plan.script = ScriptSource::Inline("#!/bin/sh\ntrue\n".to_owned());
    node.scene.plan.inputs = vec![object("data", "not there")];
    let error = node.bring().await.unwrap_err();
    assert!(error.is_final && error.message.contains("data:not there"), "{error}");
}

#[tokio::test]
async fn nothing_shows_a_signed_url_but_the_script_itself() {
    let mut node = Node::new("#!/bin/sh\n#SBATCH --comment=mine\ntrue\n").await;
    node.scene.plan.parameters = TextSource::Inline("[\"a\"]".to_owned());
    let submission = node.bring().await.unwrap();
    assert_eq!(submission.parameters, "[\"a\"]");
    assert_eq!(submission.properties["comment"], "bridge-data mine");
    let preview = node.slurm.preview(&submission);
    // A preview is made of the plan, not of this; what it would show is still the user's own business.
    assert!(preview.is_ok_and(|preview| preview.body.contains("bridge-data mine")));
    let error = node.slurm.submit(&submission).await.unwrap_err();
    let text = format!("{error:?} {error}");
    assert!(!text.contains("X-Amz-Signature"), "{text}");
    assert!(matches!(
        error,
        bridge_core::manager::SubmitError::NotSubmitted(error) if error.kind != ErrorKind::Refused
    ));
}

/// Runs `script.py` in a folder.
pub(super) fn as_ray_runs(folder: &Path, arguments: &[&str]) -> Command {
    // Ray's `python` is that of the job's environment.
    let programs = only(folder, &["sh"]);
    let all = std::env::var_os("PATH").unwrap();
    let python = std::env::split_paths(&all).map(|place| place.join("python3")).find(|path| path.is_file()).unwrap();
    std::fs::write(programs.join("python"), format!("#!/bin/sh\nexec {} \"$@\"\n", python.display())).unwrap();
    std::fs::set_permissions(programs.join("python"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&all))).unwrap();
    let mut command = Command::new(python);
    command.arg("script.py").args(arguments).current_dir(folder).env("PATH", path);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ray_job_sends_its_listed_files_and_keeps_its_exit_code() {
    use bridge_adapters::ray::{Config, RayManager};
    if !has("python3") {
        return;
    }
    let user =
        "import sys, helper\nprint(helper.word, sys.argv[1:])\nopen('out ä.txt', 'w').write('result')\nsys.exit(5)\n";
    let mut scene = Scene::new().await.files(&["out ä.txt", "d/never"]);
    scene.plan.target.manager = ManagerKind::Ray;
    scene.plan.script = ScriptSource::Inline(user.to_owned());
    let ray = RayManager::new(Config::new("http://127.0.0.1:1"), Arc::new(StaticCredentials::default())).unwrap();
    let submission = scene.staging().stage_in(&scene.plan, &scene.token, &ray).await.unwrap();
    let Script::Text(text) = &submission.script else { panic!() };
    assert!(!text.contains("X-Amz-Signature"), "encoded");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.py"), text).unwrap();
    std::fs::write(folder.path().join("helper.py"), "word = 'hi'\n").unwrap();
    let output = as_ray_runs(folder.path(), &["--kwargs", "a=b c"]).spawn().unwrap();
    let output = tokio::task::spawn_blocking(|| output.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hi ['--kwargs', 'a=b c']\n");
    assert!(said.contains("there is no file d/never"), "{said}");
    assert_eq!(scene.stored("hello/out ä.txt"), b"result");
    let report = String::from_utf8(scene.stored(&format!("hello/.bridge/{}", scene.token))).unwrap();
    let sum = super::sha256(b"result").replace("sha256:", "");
    assert_eq!(report, format!("start\nsent 6 {sum} out ä.txt\nmissing - - never\nend 5\n"));

    // The log cannot be read now. What the job told of its files must be there for a further try.
    let outcome = Outcome {
        verdict: Verdict::Failed,
        exit_code: Some(5),
        signal: None,
        reason: String::new(),
        message: String::new(),
    };
    for _ in 0..2 {
        let id = RemoteId::new(scene.token.as_str());
        let error = scene.staging().stage_out(&scene.plan, &scene.token, &id, &outcome, &ray).await.unwrap_err();
        assert!(!error.is_final && error.message.contains("the job did not write it"), "{error}");
        assert_eq!(scene.manifest()["complete"], false);
    }
}
