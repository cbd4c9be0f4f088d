//! The rules of the API server, for objects that never see one. The wording is that of [`crate::rules`].

use kube::ResourceExt;

use crate::names::MAX_NAME;
use crate::rules::{self, CelRule};
use crate::schema::MAX_TEXTS;
use crate::{BridgeJob, BridgeJobSpec, ExtraLocation, ScriptLocation, split_list, split_object};

/// One thing that is wrong with a `BridgeJob`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// The field, as in `spec.jobdata.scriptlocation`.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl FieldError {
    /// An error at a field.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Everything that is wrong with a new job, besides what its types already rule out.
#[must_use]
pub fn job(job: &BridgeJob) -> Vec<FieldError> {
    let mut errors = Vec::new();
    name(job, &mut errors);
    errors.extend(spec(&job.spec));
    errors
}

/// Everything that is wrong with the spec of a new job.
#[must_use]
pub fn spec(spec: &BridgeJobSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |holds: bool, path: &str, rule: CelRule| {
        if !holds {
            errors.push(FieldError::new(path, rule.message));
        }
    };
    let data = &spec.job_data;
    let s3 = spec.s3().is_some();
    let written = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());

    check(
        spec.resource_manager.is_none_or(crate::ResourceManager::works_without_secret) || spec.secret().is_some(),
        "spec.resourcesecret",
        rules::SECRET_NEEDED,
    );
    check(written(&data.jobscript) != written(&data.job_script), "spec.jobdata", rules::ONE_SCRIPT);
    check(texts(spec) <= MAX_TEXTS, "spec.jobdata", rules::TOTAL_SIZE);
    check(data.script_location != ScriptLocation::S3 || s3, "spec.jobdata.scriptlocation", rules::SCRIPT_NEEDS_S3);
    check(
        data.script_extra_location != ExtraLocation::S3
            || (data.script_metadata.is_empty() && data.job_parameters.is_empty())
            || s3,
        "spec.jobdata.scriptextralocation",
        rules::EXTRA_NEEDS_S3,
    );
    check(
        s3 || split_list(&data.additional_data).all(|entry| split_object(entry).is_none()),
        "spec.jobdata.additionaldata",
        rules::DATA_NEEDS_S3,
    );
    if let Some(storage) = &spec.s3_storage {
        check(storage.s3_secret.is_empty() == storage.endpoint.is_empty(), "spec.s3storage", rules::S3_COMPLETE);
        check(!storage.endpoint.contains('/'), "spec.s3storage.endpoint", rules::ENDPOINT_BARE);
    }
    if let Some(upload) = &spec.s3_upload {
        check(!upload.bucket.is_empty() || upload.files.is_empty(), "spec.s3upload.bucket", rules::UPLOAD_BUCKET);
        check(upload.bucket.is_empty() || s3, "spec.s3upload", rules::UPLOAD_NEEDS_S3);
    }
    for (index, var) in spec.pod_template.iter().flat_map(|template| &template.env).enumerate() {
        check(
            !matches!(var.name.as_str(), "NAMESPACE" | "JOBNAME") && !var.name.starts_with("BRIDGE_"),
            &format!("spec.podTemplate.env[{index}].name"),
            rules::ENV_RESERVED,
        );
    }
    if let Err(error) = spec.properties() {
        errors.push(FieldError::new("spec.jobproperties", error.message));
    }
    errors
}

/// What a change may not change.
#[must_use]
pub fn update(old: &BridgeJobSpec, new: &BridgeJobSpec) -> Vec<FieldError> {
    let fixed = [
        ("spec.resourceURL", old.resource_url == new.resource_url, rules::FIXED_RESOURCE_URL),
        ("spec.resourcesecret", old.resource_secret == new.resource_secret, rules::FIXED_RESOURCE_SECRET),
        ("spec.image", old.image == new.image, rules::FIXED_IMAGE),
        ("spec.imagepullpolicy", old.image_pull_policy == new.image_pull_policy, rules::FIXED_PULL_POLICY),
        ("spec.jobdata", old.job_data == new.job_data, rules::FIXED_JOB_DATA),
        ("spec.jobproperties", old.job_properties == new.job_properties, rules::FIXED_JOB_PROPERTIES),
        ("spec.s3storage", old.s3_storage == new.s3_storage, rules::FIXED_S3_STORAGE),
        ("spec.s3upload", old.s3_upload == new.s3_upload, rules::FIXED_S3_UPLOAD),
        ("spec.resourceManager", old.resource_manager == new.resource_manager, rules::FIXED_MANAGER),
        ("spec.podTemplate", old.pod_template == new.pod_template, rules::FIXED_POD_TEMPLATE),
        ("spec.kill", !old.kill || new.kill, rules::KILL_IS_FINAL),
    ];
    fixed
        .into_iter()
        .filter(|(_, holds, _)| !holds)
        .map(|(path, _, rule)| FieldError::new(path, rule.message))
        .collect()
}

fn texts(spec: &BridgeJobSpec) -> usize {
    let data = &spec.job_data;
    [&data.jobscript, &data.job_script].into_iter().flatten().map(String::len).sum::<usize>()
        + data.script_metadata.len()
        + data.job_parameters.len()
        + data.additional_data.len()
        + spec.job_properties.as_ref().map_or(0, crate::JobProperties::size)
}

fn name(job: &BridgeJob, errors: &mut Vec<FieldError>) {
    let name = job.name_any();
    match (&job.metadata.name, &job.metadata.generate_name) {
        (None, None) => errors.push(FieldError::new("metadata.name", "is missing; write name: <a name>")),
        (None, Some(_)) => {}
        (Some(given), _) if given.is_empty() => {
            errors.push(FieldError::new("metadata.name", "is empty; write a name"));
        }
        (Some(_), _) if name.len() > MAX_NAME => {
            errors.push(FieldError::new("metadata.name", rules::NAME_LENGTH.message));
        }
        (Some(_), _) => {
            if let Some(message) = not_dns(&name, true) {
                errors.push(FieldError::new("metadata.name", message));
            }
        }
    }
    if let Some(message) = job.namespace().and_then(|namespace| not_dns(&namespace, false)) {
        errors.push(FieldError::new("metadata.namespace", message));
    }
}

/// Why a name is not one that Kubernetes takes, with one that it would take.
pub(crate) fn not_dns(name: &str, dots: bool) -> Option<String> {
    let part_ok = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let ok = if dots { name.split('.').all(part_ok) } else { part_ok(name) && name.len() <= 63 };
    if ok {
        return None;
    }
    let better: String = name
        .chars()
        .flat_map(char::to_lowercase)
        .map(|c| if c.is_ascii_alphanumeric() || (dots && c == '.') { c } else { '-' })
        .collect();
    let better = better.trim_matches(['-', '.']);
    let hint = if !better.is_empty() && (!dots || better.split('.').all(part_ok)) && better.len() <= 63 {
        format!(", for example \"{better}\"")
    } else {
        String::new()
    };
    Some(format!(
        "\"{name}\" is not a name; write lower case letters, digits and \"-\", a letter or digit first and last{hint}"
    ))
}
