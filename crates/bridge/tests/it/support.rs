//! A state folder of one's own, and the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Nothing that is waited for takes longer, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// A folder for one test: job files, the state, and whatever its jobs write.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A file with one local job. `$D` in the script is this folder.
    pub(crate) fn job(&self, name: &str, script: &str) -> PathBuf {
        self.job_with(name, script, "")
    }

    pub(crate) fn job_with(&self, name: &str, script: &str, spec: &str) -> PathBuf {
        self.file(&format!("{name}.yaml"), &self.yaml(name, script, spec))
    }

    pub(crate) fn yaml(&self, name: &str, script: &str, spec: &str) -> String {
        let lines: Vec<String> = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
        let lines = lines.concat();
        let folder = self.folder.path().display();
        format!(
            "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: {name}\nspec:\n  \
             resourceURL: \"local:\"\n{spec}  jobdata:\n    scriptlocation: inline\n    jobscript: |\n      \
             #!/bin/sh\n      D={folder}\n{lines}"
        )
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bridge"));
        command
            .arg("--state-dir")
            .arg(self.state())
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn bridge(&self, arguments: &[&str]) -> Done {
        Done::of(&self.command(arguments).output().unwrap())
    }

    /// Starts the program; its output goes to files.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments), self)
    }
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Checks the exit code, and shows everything if it is another.
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// A program that runs. It is ended with the test.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn of(mut command: Command, bench: &Bench) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|name| bench.path(&format!("{name}-{number}")));
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
        Self { child: command.spawn().unwrap(), out, err }
    }

    pub(crate) fn is_alive(&self) -> bool {
        rustix::process::waitid(
            rustix::process::WaitId::Pid(Pid::from_child(&self.child)),
            rustix::process::WaitIdOptions::EXITED
                | rustix::process::WaitIdOptions::NOWAIT
                | rustix::process::WaitIdOptions::NOHANG,
        )
        .unwrap()
        .is_none()
    }

    /// A path as the program sees it, which may have mounts of its own.
    pub(crate) fn seen_inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap()
    }

    pub(crate) fn wait(mut self) -> Done {
        let mut code = None;
        until("the program ends", || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            status.is_some()
        });
        Done { code, out: self.out(), err: self.err() }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}
