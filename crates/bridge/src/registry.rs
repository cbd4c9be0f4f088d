//! The resource managers of this build.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bridge_adapters::local::{Config as LocalConfig, LocalManager};
use bridge_adapters::ray::{Config as RayConfig, RayManager};
use bridge_adapters::slurm::{Slurm, SlurmConfig};
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialSource, StaticCredentials};
use bridge_core::manager::ResourceManager;
use bridge_core::plan::{JobPlan, ManagerKind, PlanError, ScriptSource, Target, TextSource};
use bridge_core::staging::{NoStaging, Staging};

/// The managers that this build can talk to.
pub const BUILT: [ManagerKind; 3] = [ManagerKind::Slurm, ManagerKind::Ray, ManagerKind::Local];

/// Makes managers, one for each target.
#[derive(Debug)]
pub struct Registry {
    /// The folder of local jobs.
    local: PathBuf,
    /// Folders that this machine and the compute nodes share.
    shared: Vec<PathBuf>,
    made: BTreeMap<Target, Arc<dyn ResourceManager>>,
}

impl Registry {
    /// A registry whose local jobs live in this folder.
    pub fn new(local: impl Into<PathBuf>) -> Self {
        Self { local: local.into(), shared: Vec::new(), made: BTreeMap::new() }
    }

    /// Output files below these folders may be shown. Only for whoever may read them anyway: the path of an output file
    /// is chosen by the job's author.
    #[must_use]
    pub fn sharing(mut self, folders: &[PathBuf]) -> Self {
        self.shared.extend_from_slice(folders);
        self
    }

    /// The manager of a target. Nothing is sent.
    pub fn manager(
        &mut self,
        target: &Target,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn ResourceManager>, PlanError> {
        if let Some(manager) = self.made.get(target) {
            return Ok(Arc::clone(manager));
        }
        let credentials = credentials.unwrap_or_else(|| Arc::new(StaticCredentials::default()));
        let wrong_url = |message: String| PlanError::new("spec.resourceURL", message);
        let manager: Arc<dyn ResourceManager> = match target.manager {
            ManagerKind::Local => Arc::new(LocalManager::new(LocalConfig::new(&self.local))),
            ManagerKind::Slurm => {
                let config = SlurmConfig { shared_folders: self.shared.clone(), ..SlurmConfig::new(&target.url) };
                let slurm = Slurm::new(config, credentials, Arc::new(SystemClock::new()));
                Arc::new(slurm.map_err(|error| wrong_url(error.message))?)
            }
            ManagerKind::Ray => {
                let ray = RayManager::new(RayConfig::new(&target.url), credentials);
                Arc::new(ray.map_err(|error| wrong_url(error.to_string()))?)
            }
            kind @ (ManagerKind::Lsf | ManagerKind::Quantum) => return Err(not_built(kind)),
        };
        self.made.insert(target.clone(), Arc::clone(&manager));
        Ok(manager)
    }

    /// What moves a plan's data, with the keys of its object store if it has one.
    pub fn storage(
        &self,
        plan: &JobPlan,
        keys: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn Staging>, PlanError> {
        match keys {
            Some(keys) => Ok(Arc::new(S3Staging::new(keys, Arc::new(SystemClock::new())))),
            None => self.staging(plan),
        }
    }

    /// What moves the data of a plan without an object store.
    pub fn staging(&self, plan: &JobPlan) -> Result<Arc<dyn Staging>, PlanError> {
        let object = |text: &TextSource| matches!(text, TextSource::Object(_));
        let field = match plan {
            plan if matches!(plan.script, ScriptSource::Object(_)) => "spec.jobdata.scriptlocation",
            plan if object(&plan.metadata) || object(&plan.parameters) => "spec.jobdata.scriptextralocation",
            plan if !plan.inputs.is_empty() => "spec.jobdata.additionaldata",
            plan if plan.upload.is_some() => "spec.s3upload",
            _ => return Ok(Arc::new(NoStaging)),
        };
        Err(PlanError::new(field, "this needs an object store; add s3storage with s3secret and endpoint"))
    }
}

fn not_built(kind: ManagerKind) -> PlanError {
    let built: Vec<&str> = BUILT.into_iter().map(ManagerKind::as_str).collect();
    PlanError::new(
        "spec.resourceManager",
        format!("this build cannot talk to {kind}; it has {}; use a build that has {kind}", built.join(", ")),
    )
}
