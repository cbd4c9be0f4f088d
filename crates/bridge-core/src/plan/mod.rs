//! From a spec and its resolved references to a [`JobPlan`] that leaves the executor no choice.

mod types;

pub use types::{
    JobPlan, ManagerKind, ObjectRef, Script, ScriptSource, SecretRef, StoragePlan, Submission, Target, TextSource,
    UploadPlan,
};
