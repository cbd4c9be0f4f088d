//! The folder that remembers stand-alone jobs.
//!
//! ```text
//! <state>/version             the form of this folder
//!         local/              jobs of the local manager
//!         jobs/<name>/        or <namespace>_<name>; "_" is in neither
//!              lock           locked by the runner as long as it lives
//!              job.json       what is run: run id, spec, plan, where secrets were found
//!              record.json    the job's record
//!              kill           its end was asked for
//! ```
//! Every file appears whole: it is written beside its place, synced, and renamed. Secrets are never in here.

mod files;
mod job;
mod store;

use std::io;
use std::path::{Path, PathBuf};

use bridge_core::ids::JobKey;

use crate::failure::Failure;
pub use job::{FORMAT, JobFile, JobFolder, Lock, LockError, Remembered};
pub use store::FolderStore;

const VERSION: &str = "version";
const JOBS: &str = "jobs";
const LOCAL: &str = "local";

/// The folder that remembers stand-alone jobs.
#[derive(Debug, Clone)]
pub struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    /// The folder that was asked for, or the usual one. Nothing is looked at yet.
    pub fn locate(given: Option<&Path>, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let absolute_variable = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let path = given
            .map(Path::to_owned)
            .or_else(|| absolute_variable("XDG_STATE_HOME").map(|state| state.join("bridge")))
            .or_else(|| absolute_variable("HOME").map(|home| home.join(".local/state/bridge")))
            .ok_or_else(|| Failure::input("neither XDG_STATE_HOME nor HOME is set; say --state-dir FOLDER"))?;
        let path = std::path::absolute(&path)
            .map_err(|error| Failure::input(format!("--state-dir {}: {error}", path.display())))?;
        Ok(Self { path })
    }

    /// Makes the folder if it is not there, and checks that it can be used.
    pub fn prepare(&self) -> Result<(), Failure> {
        files::make_private_folder(&self.path.join(JOBS)).map_err(|error| self.unusable(&error))?;
        if !self.check()? {
            files::write(&self.path.join(VERSION), format!("{FORMAT}\n").as_bytes())
                .map_err(|error| self.unusable(&error))?;
        }
        Ok(())
    }

    /// Whether there is a state folder; one that cannot be used is an error.
    pub fn check(&self) -> Result<bool, Failure> {
        let version = self.path.join(VERSION);
        let text = match std::fs::read_to_string(&version) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.unusable(&error)),
        };
        match text.trim().parse::<u32>() {
            Ok(found) if found <= FORMAT => Ok(true),
            Ok(found) => Err(Failure::input(format!(
                "the state folder {} has format {found}, this program knows up to {FORMAT}; use the newer program, or \
                 another folder with --state-dir",
                self.path.display()
            ))),
            Err(_) => Err(Failure::input(format!(
                "the state folder {} is damaged: {} holds no number; if it is not a state folder, give another with \
                 --state-dir",
                self.path.display(),
                version.display()
            ))),
        }
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let why = match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "something in its path is not a folder".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::input(format!(
            "the state folder {} cannot be used: {why}; give another with --state-dir",
            self.path.display()
        ))
    }

    /// Where local jobs live.
    #[must_use]
    pub fn local(&self) -> PathBuf {
        self.path.join(LOCAL)
    }

    /// The place of a job, whether it is there or not.
    #[must_use]
    pub fn job(&self, key: &JobKey) -> JobFolder {
        let name = if key.namespace.is_empty() { key.name.clone() } else { format!("{}_{}", key.namespace, key.name) };
        JobFolder::new(key.clone(), self.path.join(JOBS).join(name))
    }

    /// All jobs, sorted by namespace and name.
    pub fn jobs(&self) -> Result<Vec<JobFolder>, Failure> {
        if !self.check()? {
            return Ok(Vec::new());
        }
        let entries = match std::fs::read_dir(self.path.join(JOBS)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unusable(&error)),
        };
        let mut jobs = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| self.unusable(&error))?.file_name();
            let Some(name) = name.to_str() else { continue };
            let (namespace, name) = name.split_once('_').unwrap_or(("", name));
            jobs.push(self.job(&JobKey::new(namespace, name)));
        }
        jobs.sort_by(|one, two| one.key().cmp(two.key()));
        Ok(jobs)
    }

    /// The job that a user means by `name` or `namespace/name`.
    pub fn find(&self, name: &str) -> Result<JobFolder, Failure> {
        let jobs = self.jobs()?;
        let matching: Vec<&JobFolder> = match name.split_once('/') {
            Some((namespace, name)) => jobs.iter().filter(|job| job.key() == &JobKey::new(namespace, name)).collect(),
            None => jobs.iter().filter(|job| job.key().name == name).collect(),
        };
        let exact = matching.iter().find(|job| job.key().namespace.is_empty());
        match (exact, matching.as_slice()) {
            (Some(job), _) | (None, [job]) => Ok((*job).clone()),
            (None, []) => Err(Failure::input(format!(
                "there is no job \"{name}\" in {}; bridge list shows those that are",
                self.path.display()
            ))),
            (None, several) => {
                let names: Vec<String> = several.iter().map(|job| job.key().to_string()).collect();
                Err(Failure::input(format!("\"{name}\" may be {}; write one of them", names.join(" or "))))
            }
        }
    }
}
