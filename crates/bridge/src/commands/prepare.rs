//! From files to plans and managers, or everything that is in the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_api::reader::{JobDocument, Problem};
use bridge_core::credentials::CredentialSource;
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ManagerError, ResourceManager};
use bridge_core::plan::{
    ImageRules, JobPlan, PlanError, Resolved, Script, ScriptSource, Submission, TextSource, plan, secrets_of,
};
use bridge_core::staging::Staging;

use crate::failure::Failure;
use crate::input::Input;
use crate::registry::Registry;
use crate::secrets::{FoundSecret, Origin, SecretBook};

/// A job that could be run.
pub struct Prepared {
    /// Where it was read.
    pub document: JobDocument,
    /// What was decided; its uid is only a stand-in.
    pub plan: JobPlan,
    /// Its remote system.
    pub manager: Arc<dyn ResourceManager>,
    /// Moves its data.
    pub staging: Result<Arc<dyn Staging>, PlanError>,
    /// Its Secrets.
    pub secrets: BTreeMap<String, FoundSecret>,
}

/// Stands for the id that a run gets when it begins.
const STAND_IN: &str = "runid";

impl Prepared {
    /// Where its Secrets were found.
    #[must_use]
    pub fn origins(&self) -> BTreeMap<String, Origin> {
        self.secrets.iter().map(|(name, secret)| (name.clone(), secret.origin.clone())).collect()
    }

    /// An error of a later step, at its place in the file.
    #[must_use]
    pub fn problem(&self, error: &PlanError) -> Problem {
        self.document.problem(error)
    }

    /// What would be submitted; texts that are fetched first are only named.
    #[must_use]
    pub fn submission(&self) -> Submission {
        let fetched = |text: &TextSource| match text {
            TextSource::Inline(text) => text.clone(),
            TextSource::Object(object) => format!("<the content of {object}>"),
        };
        let base_name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
        Submission {
            token: SubmitToken::derive(&self.plan.uid, 1),
            name: self.plan.key.name.clone(),
            script: match &self.plan.script {
                ScriptSource::Inline(text) => Script::Text(text.clone()),
                ScriptSource::Remote(path) => Script::Remote(path.clone()),
                // Managers look at a script's first line.
                ScriptSource::Object(object) => Script::Text(format!("#!/bin/sh\n# <the content of {object}>\n")),
            },
            metadata: fetched(&self.plan.metadata),
            parameters: fetched(&self.plan.parameters),
            properties: self.plan.properties.clone(),
            inputs: self.plan.inputs.iter().map(|object| base_name(&object.key)).collect(),
        }
    }

    /// What its manager would refuse at once.
    pub fn check_submission(&self) -> Result<(), PlanError> {
        let whole = bridge_core::staging::submission_without_objects(&self.plan, &SubmitToken::derive(STAND_IN, 1));
        let Some(submission) = whole else { return Ok(()) };
        match self.manager.preview(&submission) {
            Err(error) if error.kind.is_final() => Err(refused(error)),
            _ => Ok(()),
        }
    }
}

/// A manager's refusal, at the field that it is about.
#[must_use]
pub fn refused(error: ManagerError) -> PlanError {
    // Managers begin with the field's name, as people know it.
    let field = error.message.split(|c: char| c.is_whitespace() || c == ':').next().unwrap_or_default();
    let path = match field.split(['.', '[']).next().unwrap_or_default() {
        "jobscript" | "jobScript" | "jobparameters" | "scriptmetadata" | "additionaldata" | "scriptlocation" => {
            format!("spec.jobdata.{field}")
        }
        "jobproperties" | "resourceURL" | "resourcesecret" | "s3upload" | "s3storage" => format!("spec.{field}"),
        _ => "spec".to_owned(),
    };
    PlanError::new(path, error.message)
}

/// Plans every job of the files and finds its Secrets and its manager.
pub fn prepare(
    input: Input,
    secret_folders: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
    mut registry: Registry,
) -> Result<Vec<Prepared>, Failure> {
    let Input { jobs, secrets, .. } = input;
    let book = SecretBook::new(secret_folders, secrets, environment)?;
    let mut prepared = Vec::new();
    let mut problems = Vec::new();
    for document in jobs {
        match prepare_one(&document, &book, &mut registry) {
            Ok((plan, secrets, manager)) => {
                let staging = registry.storage(&plan, storage_keys_of(&plan, &secrets));
                prepared.push(Prepared { document, plan, manager, staging, secrets });
            }
            Err(errors) => problems.extend(errors.iter().map(|error| document.problem(error))),
        }
    }
    if problems.is_empty() { Ok(prepared) } else { Err(Failure::problems(&problems)) }
}

type Parts = (JobPlan, BTreeMap<String, FoundSecret>, Arc<dyn ResourceManager>);

fn prepare_one(
    document: &JobDocument,
    book: &SecretBook<'_>,
    registry: &mut Registry,
) -> Result<Parts, Vec<PlanError>> {
    let resolved = Resolved { uid: STAND_IN.to_owned(), images: ImageRules::standalone() };
    let planned = plan(&document.job, &resolved)?;
    // Without a cluster there are no foreign pods.
    let plan = planned
        .into_plan()
        .ok_or_else(|| vec![PlanError::new("spec.image", "an image of your own needs a cluster; leave it out")])?;
    let mut errors = Vec::new();
    let mut secrets = BTreeMap::new();
    for need in secrets_of(&plan) {
        match book.find(&plan.key.namespace, &need) {
            Ok(found) => {
                secrets.insert(need.secret.0.clone(), found);
            }
            Err(error) => errors.push(error),
        }
    }
    let credentials = credentials_of(&plan, &secrets);
    match registry.manager(&plan.target, credentials) {
        Ok(manager) if errors.is_empty() => Ok((plan, secrets, manager)),
        Ok(_) => Err(errors),
        // A manager that is not there needs no Secret.
        Err(error) => Err(vec![error]),
    }
}

/// The credentials for a plan's remote system.
#[must_use]
pub fn credentials_of(plan: &JobPlan, secrets: &BTreeMap<String, FoundSecret>) -> Option<Arc<dyn CredentialSource>> {
    let name = &plan.target.secret.as_ref()?.0;
    secrets.get(name).map(|found| Arc::clone(&found.source))
}

/// The credentials for a plan's object store.
#[must_use]
pub fn storage_keys_of(plan: &JobPlan, secrets: &BTreeMap<String, FoundSecret>) -> Option<Arc<dyn CredentialSource>> {
    let name = &plan.storage.as_ref()?.secret.0;
    secrets.get(name).map(|found| Arc::clone(&found.source))
}
