//! Which Secrets a plan needs, and what must be in them.

use std::collections::BTreeSet;

use super::{JobPlan, ManagerKind, SecretRef};
use crate::credentials::keys;

/// A Secret that a job needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretNeed {
    /// Which.
    pub secret: SecretRef,
    /// The field that names it.
    pub path: &'static str,
    /// One of these sets of keys must be there; none, if nothing must be.
    pub any_of: &'static [&'static [&'static str]],
}

impl SecretNeed {
    /// Which keys are missing, in words; `None` if all is there.
    pub fn missing<'a>(&self, there: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let there: BTreeSet<&str> = there.into_iter().collect();
        if self.any_of.is_empty() || self.any_of.iter().any(|set| set.iter().all(|key| there.contains(key))) {
            return None;
        }
        let sets: Vec<String> = self.any_of.iter().map(|set| set.join(" and ")).collect();
        let found = if there.is_empty() {
            "it is empty".to_owned()
        } else {
            format!("it has {}", there.into_iter().collect::<Vec<_>>().join(", "))
        };
        Some(format!("the Secret \"{}\" needs the keys {}; {found}", self.secret.0, sets.join(", or ")))
    }
}

/// The Secrets of a plan.
#[must_use]
pub fn secrets_of(plan: &JobPlan) -> Vec<SecretNeed> {
    let mut needs = Vec::new();
    if let Some(secret) = &plan.target.secret {
        let any_of: &[&[&str]] = match plan.target.manager {
            ManagerKind::Slurm | ManagerKind::Lsf | ManagerKind::Quantum => {
                &[&[keys::USERNAME, keys::PASSWORD], &[keys::TOKEN]]
            }
            ManagerKind::Ray | ManagerKind::Local => &[],
        };
        needs.push(SecretNeed { secret: secret.clone(), path: "spec.resourcesecret", any_of });
    }
    if let Some(storage) = &plan.storage {
        needs.push(SecretNeed {
            secret: storage.secret.clone(),
            path: "spec.s3storage.s3secret",
            any_of: &[&[keys::ACCESS_KEY, keys::SECRET_KEY]],
        });
    }
    needs
}
