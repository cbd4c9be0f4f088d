//! What a Ray job does with its listed files, run here as Ray would run it.

use std::process::Output;
use std::sync::Arc;

use bridge_adapters::ray::{Config, RayManager};
use bridge_core::credentials::StaticCredentials;
use bridge_core::plan::{ManagerKind, Script, ScriptSource};
use bridge_core::staging::Staging as _;

use super::Scene;
use super::away::patience;
use super::carry::{as_ray_runs, has};

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

    /// What may be lost on failures is far less than a real job may lose.
    async fn run(&self) -> Output {
        let scene = &self.scene;
        let ray = RayManager::new(Config::new("http://127.0.0.1:1"), Arc::new(StaticCredentials::default())).unwrap();
        let mut submission = scene.staging().stage_in(&scene.plan, &scene.token, &ray).await.unwrap();
        patience(&mut submission, 4);
        let Script::Text(text) = &submission.script else { panic!() };
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
