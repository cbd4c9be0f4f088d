//! The `ConfigMap` of a job: what the operator (or a pipeline) writes and the controller pod reads.
//!
//! A key that is absent and one that is "" mean the same: the default.

use std::collections::BTreeMap;

use bridge_api::{
    Addressing, BridgeJobSpec, DeletionPolicy, ExtraLocation, JobData, JobProperties, PullPolicy, ResourceManager,
    S3Storage, S3Upload, ScriptLocation,
};

/// The content of a `ConfigMap`.
pub type Data = BTreeMap<String, String>;

/// Seconds between two looks.
pub const UPDATE_INTERVAL: &str = "updateInterval";
/// The spelling that one of the reference's pods reads.
pub const UPDATE_INTERVAL_LOWER: &str = "updateinterval";
/// Address of the remote system.
pub const RESOURCE_URL: &str = "resourceURL";
/// Name of the Secret; informational, because it is mounted.
pub const RESOURCE_SECRET: &str = "resourcesecret";
/// Which kind of remote system.
pub const RESOURCE_MANAGER: &str = "resourceManager";
/// Properties for the manager.
pub const PROPERTIES: &str = "jobproperties";
/// Another spelling, read only.
pub const PROPERTIES_CAMEL: &str = "jobProperties";
/// The script.
pub const SCRIPT: &str = "jobdata.jobScript";
/// Where it is.
pub const SCRIPT_LOCATION: &str = "jobdata.scriptLocation";
/// Data about it.
pub const SCRIPT_METADATA: &str = "jobdata.scriptMetadata";
/// Its parameters.
pub const PARAMETERS: &str = "jobdata.jobParameters";
/// Where metadata and parameters are.
pub const EXTRA_LOCATION: &str = "jobdata.scriptExtraLocation";
/// Files the job needs.
pub const ADDITIONAL_DATA: &str = "jobdata.additionalData";
/// The object store.
pub const S3_ENDPOINT: &str = "s3.endpoint";
/// https or http.
pub const S3_SECURE: &str = "s3.secure";
/// Name of its Secret.
pub const S3_SECRET: &str = "s3.secret";
/// Region to sign for.
pub const S3_REGION: &str = "s3.region";
/// How a bucket is named in requests.
pub const S3_ADDRESSING: &str = "s3.addressing";
/// How compute nodes reach the store.
pub const S3_REMOTE_ENDPOINT: &str = "s3.remoteEndpoint";
/// Where outputs go.
pub const UPLOAD_BUCKET: &str = "s3upload.bucket";
/// Which files go there.
pub const UPLOAD_FILES: &str = "s3upload.files";
/// "true" asks for the end.
pub const KILL: &str = "kill";
/// Ours: "true" holds the job back.
pub const SUSPEND: &str = "suspend";
/// Ours: "true" says that the `BridgeJob` is being deleted; outputs are no longer waited for.
pub const DELETE: &str = "bridge.delete";
/// Ours: how many failed attempts are followed by another.
pub const BACKOFF_LIMIT: &str = "backoffLimit";
/// Ours: seconds the job may take.
pub const DEADLINE: &str = "activeDeadlineSeconds";
/// Ours: the record.
pub const STATE: &str = "bridge.state";

/// The remote id.
pub const ID: &str = "id";
/// The status word.
pub const STATUS: &str = "jobStatus";
/// When it was submitted.
pub const SUBMIT_TIME: &str = "submitTime";
/// When it started.
pub const START_TIME: &str = "startTime";
/// When it ended.
pub const END_TIME: &str = "endTime";
/// What a person should know.
pub const MESSAGE: &str = "message";

/// The prefix that status keys may have; those without it are just as official.
pub const PREFIX: &str = "status.";

/// The value of a key, unless it is absent or empty.
#[must_use]
pub fn get<'a>(data: &'a Data, key: &str) -> Option<&'a str> {
    data.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether a key says "true", in any case.
#[must_use]
pub fn is_true(data: &Data, key: &str) -> bool {
    get(data, key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// What the operator may change while the job lives; foreign pods are only ever told to end.
#[must_use]
pub fn wishes(spec: &BridgeJobSpec) -> Data {
    let flag = |value: bool| if value { "true".to_owned() } else { String::new() };
    Data::from([
        (UPDATE_INTERVAL.to_owned(), spec.update_interval.to_string()),
        (UPDATE_INTERVAL_LOWER.to_owned(), spec.update_interval.to_string()),
        (KILL.to_owned(), flag(spec.kill)),
        (SUSPEND.to_owned(), flag(spec.suspend)),
        (BACKOFF_LIMIT.to_owned(), spec.backoff_limit.to_string()),
        (DEADLINE.to_owned(), spec.active_deadline_seconds.map(|s| s.to_string()).unwrap_or_default()),
    ])
}

/// All spec-like keys. Every key of the contract is there, "" where it is unset, because some pods index without asking.
#[must_use]
pub fn write(spec: &BridgeJobSpec, manager: Option<ResourceManager>) -> Data {
    let mut data = wishes(spec);
    let mut put = |key: &str, value: &str| {
        data.insert(key.to_owned(), value.to_owned());
    };
    put(RESOURCE_URL, &spec.resource_url);
    put(RESOURCE_SECRET, spec.secret().unwrap_or_default());
    put(RESOURCE_MANAGER, manager.map(ResourceManager::as_str).unwrap_or_default());
    put(PROPERTIES, &properties_text(spec));
    put(SCRIPT, spec.script());
    put(SCRIPT_LOCATION, spec.job_data.script_location.as_str());
    put(SCRIPT_METADATA, &spec.job_data.script_metadata);
    put(PARAMETERS, &spec.job_data.job_parameters);
    put(EXTRA_LOCATION, spec.job_data.script_extra_location.as_str());
    put(ADDITIONAL_DATA, &spec.job_data.additional_data);
    let s3 = spec.s3();
    put(S3_ENDPOINT, s3.map(|s3| s3.endpoint.as_str()).unwrap_or_default());
    put(S3_SECURE, s3.map(|s3| if s3.secure { "true" } else { "false" }).unwrap_or_default());
    put(S3_SECRET, s3.map(|s3| s3.s3_secret.as_str()).unwrap_or_default());
    if let Some(s3) = s3 {
        put(S3_REGION, s3.region.as_deref().unwrap_or_default());
        put(S3_ADDRESSING, if s3.addressing == Addressing::Virtual { "virtual" } else { "path" });
        put(S3_REMOTE_ENDPOINT, s3.remote_endpoint.as_deref().unwrap_or_default());
    }
    let upload = spec.upload();
    put(UPLOAD_BUCKET, upload.map(|upload| upload.bucket.as_str()).unwrap_or_default());
    put(UPLOAD_FILES, upload.map(|upload| upload.files.as_str()).unwrap_or_default());
    data
}

fn properties_text(spec: &BridgeJobSpec) -> String {
    match &spec.job_properties {
        None => String::new(),
        Some(JobProperties::Text(text)) => text.clone(),
        Some(JobProperties::Map(map)) => serde_json::Value::Object(map.clone()).to_string(),
        Some(JobProperties::Other(value)) => value.to_string(),
    }
}

/// Why a `ConfigMap` describes no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key {key}: {problem}")]
pub struct KeyError {
    /// The key.
    pub key: &'static str,
    /// What is wrong with it, and what to write.
    pub problem: String,
}

/// The job that a `ConfigMap` describes, whoever wrote it.
pub fn read(data: &Data) -> Result<BridgeJobSpec, KeyError> {
    let text = |key: &str| get(data, key).unwrap_or_default().to_owned();
    let resource_manager = get(data, RESOURCE_MANAGER)
        .map(|word| word.trim().to_ascii_lowercase().parse::<ResourceManager>())
        .transpose()
        .map_err(|error| KeyError { key: RESOURCE_MANAGER, problem: error.to_string() })?;
    let script_location = match get(data, SCRIPT_LOCATION).map(str::trim) {
        None | Some("remote") => ScriptLocation::Remote,
        Some("inline") => ScriptLocation::Inline,
        Some("s3") => ScriptLocation::S3,
        Some(other) => return Err(choice(SCRIPT_LOCATION, other, "remote, inline or s3")),
    };
    let script_extra_location = match get(data, EXTRA_LOCATION).map(str::trim) {
        None | Some("inline") => ExtraLocation::Inline,
        Some("s3") => ExtraLocation::S3,
        Some(other) => return Err(choice(EXTRA_LOCATION, other, "inline or s3")),
    };
    let properties = get(data, PROPERTIES).or_else(|| get(data, PROPERTIES_CAMEL));
    Ok(BridgeJobSpec {
        resource_url: get(data, RESOURCE_URL).map(str::to_owned).ok_or_else(|| KeyError {
            key: RESOURCE_URL,
            problem: "missing; write the remote system's URL".to_owned(),
        })?,
        resource_secret: get(data, RESOURCE_SECRET).map(str::to_owned),
        resource_manager,
        image: None,
        image_pull_policy: PullPolicy::default(),
        update_interval: number(data, UPDATE_INTERVAL)?.or(number(data, UPDATE_INTERVAL_LOWER)?).unwrap_or(20).max(1),
        kill: is_true(data, KILL),
        job_data: JobData {
            jobscript: Some(text(SCRIPT)),
            job_script: None,
            script_location,
            script_extra_location,
            script_metadata: text(SCRIPT_METADATA),
            job_parameters: text(PARAMETERS),
            additional_data: text(ADDITIONAL_DATA),
        },
        job_properties: properties.map(|text| JobProperties::Text(text.to_owned())),
        s3_storage: s3(data),
        s3_upload: get(data, UPLOAD_BUCKET)
            .map(|bucket| S3Upload { bucket: bucket.to_owned(), files: text(UPLOAD_FILES) }),
        suspend: is_true(data, SUSPEND),
        backoff_limit: number(data, BACKOFF_LIMIT)?.unwrap_or(0),
        active_deadline_seconds: number(data, DEADLINE)?,
        ttl_seconds_after_finished: None,
        deletion_policy: DeletionPolicy::default(),
        pod_template: None,
    })
}

fn s3(data: &Data) -> Option<S3Storage> {
    // The pipeline of the seeds writes an endpoint and mounts the Secret without naming it.
    let endpoint = get(data, S3_ENDPOINT)?;
    Some(S3Storage {
        s3_secret: get(data, S3_SECRET).unwrap_or("s3credentials").to_owned(),
        endpoint: endpoint.to_owned(),
        secure: get(data, S3_SECURE).is_none_or(|value| value.trim().eq_ignore_ascii_case("true")),
        region: get(data, S3_REGION).map(str::to_owned),
        addressing: match get(data, S3_ADDRESSING) {
            Some("virtual") => Addressing::Virtual,
            _ => Addressing::Path,
        },
        remote_endpoint: get(data, S3_REMOTE_ENDPOINT).map(str::to_owned),
    })
}

fn number(data: &Data, key: &'static str) -> Result<Option<u32>, KeyError> {
    get(data, key)
        .map(|text| {
            text.trim().parse().map_err(|_| KeyError {
                key,
                problem: format!("\"{text}\" is no whole number; write seconds or a count"),
            })
        })
        .transpose()
}

fn choice(key: &'static str, word: &str, choices: &str) -> KeyError {
    KeyError { key, problem: format!("\"{word}\" is none of the choices; write {choices}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> BridgeJobSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_written_reads_back() {
        let job = spec(
            r#"{"resourceURL":"http://x:8080","resourcesecret":"sec","resourceManager":"slurm","updateinterval":7,
                "kill":true,"suspend":true,"backoffLimit":2,"activeDeadlineSeconds":60,
                "jobdata":{"jobscript":"echo","scriptlocation":"inline","scriptmetadata":"m","jobparameters":"p",
                           "additionaldata":"b:k"},
                "jobproperties":"{\"Queue\":\"V100\"}",
                "s3storage":{"s3secret":"s","endpoint":"minio:9000","secure":false,"region":"eu","addressing":"virtual",
                             "remoteEndpoint":"outside:9000"},
                "s3upload":{"bucket":"out","files":"a, b"}}"#,
        );
        let data = write(&job, job.resource_manager);
        assert_eq!(read(&data).unwrap(), job);
        assert_eq!(data["updateinterval"], "7");
    }

    #[test]
    fn every_key_of_the_contract_is_there_even_if_empty() {
        let job = spec(r#"{"resourceURL":"http://x","jobdata":{"jobscript":"/s"}}"#);
        let data = write(&job, None);
        for key in [
            "updateInterval",
            "updateinterval",
            "resourceURL",
            "resourcesecret",
            "jobproperties",
            "jobdata.jobScript",
            "jobdata.scriptLocation",
            "jobdata.scriptMetadata",
            "jobdata.jobParameters",
            "jobdata.scriptExtraLocation",
            "jobdata.additionalData",
            "s3.endpoint",
            "s3.secure",
            "s3.secret",
            "s3upload.bucket",
            "s3upload.files",
            "resourceManager",
        ] {
            assert!(data.contains_key(key), "{key}");
        }
        assert_eq!(data["kill"], "");
    }

    #[test]
    fn a_pipelines_empty_keys_are_defaults() {
        let data: Data = ["updateInterval", "jobproperties", "s3.endpoint", "s3.secure", "s3upload.bucket", "kill"]
            .into_iter()
            .map(|key| (key.to_owned(), String::new()))
            .chain([("resourceURL".to_owned(), "http://x".to_owned()), ("jobProperties".to_owned(), "{}".to_owned())])
            .collect();
        let job = read(&data).unwrap();
        assert_eq!((job.update_interval, job.kill, job.s3_storage, job.s3_upload), (20, false, None, None));
        assert_eq!(job.job_properties, Some(JobProperties::Text("{}".to_owned())));
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        let mut data = Data::from([("resourceURL".to_owned(), "http://x".to_owned())]);
        data.insert("updateInterval".to_owned(), "soon".to_owned());
        assert!(read(&data).unwrap_err().to_string().starts_with("key updateInterval: \"soon\""));
        assert_eq!(read(&Data::new()).unwrap_err().key, RESOURCE_URL);
    }
}
