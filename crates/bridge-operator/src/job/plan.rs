//! What follows from a job's spec and the operator's settings, before anything in the cluster is looked at.

use bridge_api::{BridgeJob, conditions as terms};
use bridge_core::plan::{self, ImageRules, PlanError, Resolved, SecretNeed, SecretRef};
use kube::ResourceExt;

use super::decide::{Planned, Problem};

/// What runs as a job's controller pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// Our worker.
    Worker {
        /// Why it runs in place of the image that the job names.
        replaced: Option<String>,
    },
    /// The named image, as it is.
    Foreign {
        /// The image.
        image: String,
    },
}

/// Plans a job. `settled` says whose pod has it already, foreign or ours: the operator's settings may have changed since.
pub fn plan(job: &BridgeJob, images: &ImageRules, settled: Option<bool>) -> Result<Planned, Problem> {
    let image = job.spec.image.clone();
    let images = match settled {
        Some(true) if image.is_some() => {
            let image = image.unwrap_or_default();
            return Ok(Planned { runs: Runs::Foreign { image }, manager: None, needs: foreign_needs(job) });
        }
        Some(false) => ImageRules { worker: image, ..images.clone() },
        _ => images.clone(),
    };
    let resolved = Resolved { uid: job.uid().unwrap_or_default(), images };
    match plan::plan(job, &resolved).map_err(|errors| problem(&errors))? {
        plan::Planned::Ours(plan) => Ok(Planned {
            runs: Runs::Worker { replaced: None },
            manager: Some(plan.target.manager),
            needs: plan::secrets_of(&plan),
        }),
        plan::Planned::Replaced { plan, image, pattern } => Ok(Planned {
            runs: Runs::Worker {
                replaced: Some(format!(
                    "our own worker runs in place of {image}, because --replace-image has {pattern}"
                )),
            },
            manager: Some(plan.target.manager),
            needs: plan::secrets_of(&plan),
        }),
        plan::Planned::Foreign { image } => {
            Ok(Planned { runs: Runs::Foreign { image }, manager: None, needs: foreign_needs(job) })
        }
    }
}

/// What a foreign pod mounts must be there; what must be in it, only that pod knows.
fn foreign_needs(job: &BridgeJob) -> Vec<SecretNeed> {
    let need = |name: &str, path: &'static str| SecretNeed { secret: SecretRef(name.to_owned()), path, any_of: &[] };
    let spec = &job.spec;
    spec.secret()
        .map(|name| need(name, "spec.resourcesecret"))
        .into_iter()
        .chain(spec.s3().map(|s3| need(&s3.s3_secret, "spec.s3storage.s3secret")))
        .collect()
}

fn problem(errors: &[PlanError]) -> Problem {
    let unknown_manager = errors.len() == 1 && errors.iter().all(|error| error.path == "spec.resourceManager");
    let message: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect();
    Problem {
        reason: if unknown_manager { terms::MANAGER_UNKNOWN } else { terms::INVALID_SPEC },
        message: message.join("; "),
    }
}
