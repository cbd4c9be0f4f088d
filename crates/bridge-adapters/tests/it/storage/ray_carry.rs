//! What a Ray job does with its listed files, run here as Ray would run it.

use std::io::Write as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_adapters::ray::{Config, RayManager};
use bridge_core::credentials::StaticCredentials;
use bridge_core::ids::SubmitToken;
use bridge_core::manager::ResourceManager as _;
use bridge_core::plan::{ManagerKind, Script, ScriptSource};
use bridge_core::staging::Staging as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use super::Scene;
use super::away::patience;
use super::carry::{as_ray_runs, has, until};

struct RayJob {
    scene: Scene,
    folder: tempfile::TempDir,
}

impl RayJob {
    /// None where there is no Python.
    async fn new(script: &str, files: &[&str]) -> Option<Self> {
        if !has("python3") {
            return None;
        }
        let mut scene = Scene::new().await.files(files);
        scene.plan.target.manager = ManagerKind::Ray;
        scene.plan.script = ScriptSource::Inline(script.to_owned());
        Some(Self { scene, folder: tempfile::tempdir().unwrap() })
    }

    async fn run(&self) -> Output {
        self.run_with(|_| ()).await
    }

    /// With changes to what the job is told. What may be lost on failures is far less than a real job may lose.
    async fn run_with(&self, change: impl FnOnce(&mut Value)) -> Output {
        let scene = &self.scene;
        let ray = RayManager::new(Config::new("http://127.0.0.1:1"), Arc::new(StaticCredentials::default())).unwrap();
        let mut submission = scene.staging().stage_in(&scene.plan, &scene.token, &ray).await.unwrap();
        let preview = ray.preview(&submission).unwrap().body;
        assert!(preview.contains("bridge_data"), "its exit codes are known by it: {preview}");
        patience(&mut submission, 4);
        let Script::Text(text) = &submission.script else { panic!() };
        let (before, rest) = text.split_once("b64decode(\"").unwrap();
        let (cargo, after) = rest.split_once('"').unwrap();
        let mut cargo = serde_json::from_slice(&STANDARD.decode(cargo).unwrap()).unwrap();
        change(&mut cargo);
        let cargo = STANDARD.encode(cargo.to_string());
        let text = format!("{before}b64decode(\"{cargo}\"{after}");
        std::fs::write(self.folder.path().join("script.py"), text).unwrap();
        let child = as_ray_runs(self.folder.path(), &[]).spawn().unwrap();
        tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap()
    }

    fn report(&self) -> String {
        String::from_utf8(self.scene.stored(&format!("hello/.bridge/{}", self.scene.token))).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_always_fails_does_not_cost_the_files_after_it() {
    let script = "for name in ('one', 'two', 'three'): open(name, 'w').write(name)\n";
    let Some(job) = RayJob::new(script, &["one", "two", "three"]).await else { return };
    let door = job.scene.server.door();
    door.refuse("PUT", "/results/hello/one", (503, "SlowDown"), usize::MAX);
    door.refuse("PUT", "/results/hello/two", (503, "SlowDown"), 1);
    let output = job.run().await;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!((job.scene.stored("hello/two"), job.scene.stored("hello/three")), (b"two".to_vec(), b"three".to_vec()));
    assert!(job.report().contains("failed status-503 - one\nsent 3 "), "{}", job.report());
    assert!(door.puts("/results/hello/one") > 1, "it may pass, so it is tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_waiting_for_too_long_is_asked_again() {
    let Some(job) = RayJob::new("open('one', 'w').write('one')\n", &["one"]).await else { return };
    let door = job.scene.server.door();
    door.refuse("PUT", "/results/hello/one", (400, "RequestTimeout"), 1);
    let output = job.run().await;
    assert_eq!((output.status.code(), job.scene.stored("hello/one")), (Some(0), b"one".to_vec()), "{}", said(&output));
}

/// It has more to say than the kernel keeps for a reader that is not there.
const LARGE: &str = "open('large', 'wb').truncate(64 << 20)\nopen('small', 'w').write('x')\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_in_the_middle_of_a_large_file_is_not_taken_for_a_broken_connection() {
    let Some(job) = RayJob::new(LARGE, &["large", "small"]).await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/large?signature=x", listener.local_addr().unwrap());
    let door = tokio::spawn(async move {
        for asked in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::with_capacity(512, stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            let refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(refusal.as_bytes()).await.unwrap();
            assert_eq!(asked, 1, "what is refused is not asked again");
        }
    });
    let output = job.run_with(|cargo| cargo["outputs"][0][2] = json!(url)).await;
    assert!(said(&output).contains("large could not be sent (status-413)"), "{}", said(&output));
    assert_eq!(job.scene.stored("hello/small"), b"x");
    assert!(!door.is_finished(), "it was asked again");
    door.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_job_left_outside_of_the_folder_is_not_taken_for_a_result() {
    for attempt in [1, 2] {
        let others = tempfile::tempdir().unwrap();
        let file = |name: &str| others.path().join(name).to_str().unwrap().to_owned();
        let script = format!("open({:?}, 'a').write('more')\n", file("log"));
        let Some(mut job) = RayJob::new(&script, &[&file("left"), &file("log"), "own"]).await else { return };
        job.scene.token = SubmitToken::derive("0123", attempt);
        std::fs::write(file("left"), "old").unwrap();
        std::fs::write(file("log"), "old").unwrap();
        std::fs::write(job.folder.path().join("own"), "an input").unwrap();
        let output = job.run().await;
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let report = job.report();
        // What the first attempt wrote is the job's own.
        assert_eq!(report.contains("stale - - left\n"), attempt == 1, "{report}");
        assert_eq!(report.matches("sent ").count(), if attempt == 1 { 2 } else { 3 }, "{report}");
        assert_eq!(
            (job.scene.stored("hello/log"), job.scene.stored("hello/own")),
            (b"oldmore".to_vec(), b"an input".to_vec())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_job_from_its_start_has_a_code_of_its_own() {
    let Some(job) = RayJob::new("open('ran', 'w')\n", &["one"]).await else { return };
    let output = job.run_with(|cargo| cargo["expires"] = json!(1)).await;
    assert_eq!(output.status.code(), Some(113), "{}", said(&output));
    let script = format!("script_{}.py", job.scene.token.as_str().replace('-', "_"));
    std::fs::create_dir(job.folder.path().join(script)).unwrap();
    let output = job.run().await;
    assert_eq!(output.status.code(), Some(115), "{}", said(&output));
    assert!(said(&output).contains("the script could not be written (Is a directory)"), "{}", said(&output));
    assert!(!job.folder.path().join("ran").exists());
}

/// What someone does to a file while its first PUT waits for an answer.
type Deed = fn(&Path);

fn rewritten(file: &Path) {
    std::fs::write(file, vec![b'n'; 1000]).unwrap();
}

fn grown(file: &Path) {
    std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(b" and more").unwrap();
}

fn shortened(file: &Path) {
    std::fs::File::options().write(true).open(file).unwrap().set_len(10).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_a_file_that_changes_while_it_is_sent_is_true() {
    // The large one does not fit into what the kernel keeps for a reader that is not there.
    let cases: [(usize, Deed, bool); 6] = [
        (1000, rewritten, true),
        (1000, rewritten, false),
        (1000, grown, false),
        (32 << 20, grown, false),
        (32 << 20, shortened, false),
        (32 << 20, rewritten, true),
    ];
    for (place, (size, deed, refused)) in cases.into_iter().enumerate() {
        let script = format!("open('file', 'wb').write(b'o' * {size})\n");
        let Some(job) = RayJob::new(&script, &["file"]).await else { return };
        let (door, path) = (job.scene.server.door(), "/results/hello/file");
        door.close_for(path);
        if refused {
            door.refuse("PUT", path, (503, "SlowDown"), 1);
        }
        let changes = async {
            until("its PUT", || (door.puts(path) == 1).then_some(())).await;
            deed(&job.folder.path().join("file"));
            door.open();
        };
        let (output, ()) = tokio::join!(job.run(), changes);
        assert_eq!(output.status.code(), Some(0), "{place}: {}", said(&output));
        let content = std::fs::read(job.folder.path().join("file")).unwrap();
        assert!(job.scene.stored("hello/file") == content, "{place}");
        let sum = super::sha256(&content).replace("sha256:", "");
        assert_eq!(job.report(), format!("start\nsent {} {sum} file\nend 0\n", content.len()), "{place}");
    }
}
