//! The plan of a job, or everything that keeps it from having one.

use bridge_api::schema::{MAX_SCRIPT, MAX_TEXT};
use bridge_api::{Addressing, BridgeJob, BridgeJobSpec, ExtraLocation, ScriptLocation, validate};

use super::image::{ImageRole, ImageRules};
use super::kind::{self, ChosenBy};
use super::objects;
use super::{JobPlan, ManagerKind, PlanError, ScriptSource, SecretRef, StoragePlan, Target, TextSource, UploadPlan};
use crate::ids::JobKey;

/// A look at a local job costs nothing, so the user is not kept waiting for its end.
const LOCAL_POLL_SECONDS: u32 = 1;

/// What a plan needs beside the job itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The root of the job's tokens: the object's UID, or a saved run id.
    pub uid: String,
    /// How `spec.image` is read.
    pub images: ImageRules,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Our worker runs it.
    Ours(Box<JobPlan>),
    /// Our worker runs it in place of an image that matched a pattern of `--replace-image`.
    Replaced {
        /// The plan.
        plan: Box<JobPlan>,
        /// The image that is not run.
        image: String,
        /// The pattern that it matches.
        pattern: String,
    },
    /// A pod of this image runs it, as it is.
    Foreign {
        /// The image.
        image: String,
    },
}

impl Planned {
    /// The plan, unless a foreign pod has its own.
    #[must_use]
    pub fn plan(&self) -> Option<&JobPlan> {
        match self {
            Self::Ours(plan) | Self::Replaced { plan, .. } => Some(plan),
            Self::Foreign { .. } => None,
        }
    }

    /// The plan, unless a foreign pod has its own.
    #[must_use]
    pub fn into_plan(self) -> Option<JobPlan> {
        match self {
            Self::Ours(plan) | Self::Replaced { plan, .. } => Some(*plan),
            Self::Foreign { .. } => None,
        }
    }
}

/// Decides everything about a job, or says everything that is wrong with it.
pub fn plan(job: &BridgeJob, resolved: &Resolved) -> Result<Planned, Vec<PlanError>> {
    let spec = &job.spec;
    let mut errors = validate::job(job);
    let name = job.metadata.name.clone().unwrap_or_default();
    if job.metadata.name.is_none() && job.metadata.generate_name.is_some() {
        let message = "is missing, and only a cluster makes one from generateName; write a name";
        errors.push(PlanError::new("metadata.name", message));
    }
    sizes(spec, &mut errors);

    let role = resolved.images.role_of(spec.image());
    if let (ImageRole::Foreign, Some(image)) = (&role, spec.image()) {
        let image = image.to_owned();
        return if errors.is_empty() { Ok(Planned::Foreign { image }) } else { Err(errors) };
    }

    let mut notes = Vec::new();
    let target = target(spec, &mut notes, &mut errors);
    let script = script(spec, &mut errors);
    let metadata = text(spec, "spec.jobdata.scriptmetadata", &spec.job_data.script_metadata, &mut errors);
    let parameters = text(spec, "spec.jobdata.jobparameters", &spec.job_data.job_parameters, &mut errors);
    let inputs = objects::inputs("spec.jobdata.additionaldata", &spec.job_data.additional_data, &mut errors);
    let storage = storage(spec, &mut errors);
    let upload = upload(spec, &name, &mut errors);
    // What is wrong with the text itself, `validate` has said.
    let properties = spec.properties().unwrap_or_default().into_iter().collect();

    let Some(target) = target.filter(|_| errors.is_empty()) else {
        return Err(once_each(errors));
    };
    if target.manager == ManagerKind::Slurm && (upload.is_some() || !inputs.is_empty()) {
        notes.push(
            "its data travels by signed URLs, which end after 7 days or with the keys' session token: a job that waits \
             or runs longer can neither fetch nor send it"
                .to_owned(),
        );
    }
    let poll_seconds =
        if target.manager == ManagerKind::Local { LOCAL_POLL_SECONDS } else { spec.update_interval.max(1) };
    match (&role, spec.image()) {
        (ImageRole::Replaced { pattern }, Some(image)) => {
            notes.push(format!("image {image} is replaced by our worker (it matches {pattern})"));
        }
        (ImageRole::Unused, Some(image)) => notes.push(format!("image {image} is not used: there is no pod here")),
        _ => {}
    }
    let plan = Box::new(JobPlan {
        key: JobKey::new(job.metadata.namespace.clone().unwrap_or_default(), name),
        uid: resolved.uid.clone(),
        target,
        poll_seconds,
        script,
        metadata,
        parameters,
        inputs,
        properties,
        storage,
        upload,
        notes,
    });
    Ok(match (role, spec.image()) {
        (ImageRole::Replaced { pattern }, Some(image)) => Planned::Replaced { plan, image: image.to_owned(), pattern },
        _ => Planned::Ours(plan),
    })
}

fn target(spec: &BridgeJobSpec, notes: &mut Vec<String>, errors: &mut Vec<PlanError>) -> Option<Target> {
    let chosen = kind::parse_url(&spec.resource_url).and_then(|url| kind::choose(spec, &url));
    let (manager, by) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    if by != ChosenBy::Field {
        notes.push(format!("manager {manager}, as {} tells", by.as_str()));
    }
    let secret = spec.secret().map(|name| SecretRef(name.to_owned()));
    if secret.is_none() && !manager.works_without_secret() {
        errors.push(PlanError::new("spec.resourcesecret", bridge_api::rules::SECRET_NEEDED.message));
    }
    Some(Target { manager, url: spec.resource_url.clone(), secret })
}

fn script(spec: &BridgeJobSpec, errors: &mut Vec<PlanError>) -> ScriptSource {
    let text = spec.script();
    let path = if spec.job_data.jobscript.as_deref().is_some_and(|script| !script.is_empty()) {
        "spec.jobdata.jobscript"
    } else {
        "spec.jobdata.jobScript"
    };
    if text.contains('\0') {
        errors.push(PlanError::new(path, "holds a NUL character; a script is text"));
    }
    match spec.job_data.script_location {
        ScriptLocation::Inline => {
            if !text.is_empty() && text.trim().is_empty() {
                errors.push(PlanError::new(path, "is blank; write the text of the script"));
            }
            ScriptSource::Inline(text.to_owned())
        }
        ScriptLocation::Remote => {
            let trimmed = text.trim();
            if trimmed.contains('\n') || trimmed.starts_with("#!") {
                let message = "is the text of a script, but scriptlocation is remote (the default), which means a path \
                               on the remote system; write scriptlocation: inline";
                errors.push(PlanError::new(path, message));
            } else if !text.is_empty() && trimmed.is_empty() {
                errors.push(PlanError::new(path, "is blank; write a path on the remote system"));
            }
            ScriptSource::Remote(trimmed.to_owned())
        }
        ScriptLocation::S3 => match objects::object(path, text) {
            Ok(object) => ScriptSource::Object(object),
            Err(error) => {
                // An empty one is missing, which has been said.
                errors.extend((!text.is_empty()).then_some(error));
                ScriptSource::Inline(String::new())
            }
        },
    }
}

fn text(spec: &BridgeJobSpec, path: &str, text: &str, errors: &mut Vec<PlanError>) -> TextSource {
    if spec.job_data.script_extra_location == ExtraLocation::Inline || text.trim().is_empty() {
        return TextSource::Inline(text.to_owned());
    }
    match objects::object(path, text) {
        Ok(object) => TextSource::Object(object),
        Err(error) => {
            errors.push(error);
            TextSource::Inline(String::new())
        }
    }
}

fn storage(spec: &BridgeJobSpec, errors: &mut Vec<PlanError>) -> Option<StoragePlan> {
    let storage = spec.s3()?;
    // A scheme or a path in it, `validate` has said.
    if !storage.endpoint.is_empty() && !storage.endpoint.contains('/') {
        objects::endpoint("spec.s3storage.endpoint", &storage.endpoint, errors);
    }
    let remote = storage.remote_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    if let Some(endpoint) = remote {
        objects::endpoint("spec.s3storage.remoteEndpoint", endpoint, errors);
    }
    Some(StoragePlan {
        secret: SecretRef(storage.s3_secret.clone()),
        endpoint: storage.endpoint.clone(),
        secure: storage.secure,
        region: storage.region.clone().filter(|region| !region.is_empty()),
        virtual_host: storage.addressing == Addressing::Virtual,
        remote_endpoint: remote.map(str::to_owned),
    })
}

fn upload(spec: &BridgeJobSpec, name: &str, errors: &mut Vec<PlanError>) -> Option<UploadPlan> {
    let upload = spec.upload()?;
    objects::bucket("spec.s3upload.bucket", &upload.bucket, errors);
    Some(UploadPlan {
        bucket: upload.bucket.clone(),
        prefix: name.to_owned(),
        files: objects::files("spec.s3upload.files", &upload.files, errors),
    })
}

/// The API server has checked these for objects it stores; a job from a `ConfigMap` never saw it.
fn sizes(spec: &BridgeJobSpec, errors: &mut Vec<PlanError>) {
    let data = &spec.job_data;
    let mut limit = |path: &str, length: usize, most: usize| {
        if length > most {
            let message = format!("has {length} characters; {} KiB are allowed; put it into S3", most / 1024);
            errors.push(PlanError::new(path, message));
        }
    };
    let length = |text: &str| text.chars().count();
    limit("spec.jobdata.jobscript", length(spec.script()), MAX_SCRIPT);
    limit("spec.jobdata.scriptmetadata", length(&data.script_metadata), MAX_TEXT);
    limit("spec.jobdata.jobparameters", length(&data.job_parameters), MAX_TEXT);
    limit("spec.jobdata.additionaldata", length(&data.additional_data), MAX_TEXT);
    if let Some(upload) = &spec.s3_upload {
        limit("spec.s3upload.files", length(&upload.files), MAX_TEXT);
    }
    if let Some(size) =
        spec.job_properties.as_ref().map(bridge_api::JobProperties::size).filter(|size| *size > MAX_TEXT)
    {
        let most = MAX_TEXT / 1024;
        let message = format!("have {size} bytes; {most} KiB are allowed; leave out what the manager does not need");
        errors.push(PlanError::new("spec.jobproperties", message));
    }
}

/// Two steps may find the same fault; the user hears of it once.
fn once_each(errors: Vec<PlanError>) -> Vec<PlanError> {
    let mut said: Vec<PlanError> = Vec::new();
    for error in errors {
        if !said.contains(&error) {
            said.push(error);
        }
    }
    said
}
