//! From a spec and its resolved references to a [`JobPlan`] that leaves the executor no choice.
//!
//! [`plan`] is pure: the operator, the worker and the command line decide the same for the same job.

mod decide;
mod image;
mod kind;
mod objects;
mod rules;
mod secrets;
#[cfg(test)]
mod tests;
mod types;

/// What is wrong with a job: the field, and what to write instead.
pub use bridge_api::FieldError as PlanError;
pub use decide::{Planned, Resolved, plan};
pub use image::{ImagePattern, ImageRules, OtherImages, REFERENCE_IMAGES};
pub use kind::{ChosenBy, kind_of_image, kind_of_url};
pub use rules::rules_for;
pub use secrets::{SecretNeed, secrets_of};
pub use types::{
    JobPlan, ManagerKind, ObjectRef, Script, ScriptSource, SecretRef, StoragePlan, Submission, Target, TextSource,
    UploadPlan,
};
