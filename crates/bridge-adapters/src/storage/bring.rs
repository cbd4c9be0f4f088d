//! Before a job: its texts and inputs.

use std::sync::Arc;
use std::time::Duration;

use bridge_api::schema::{MAX_SCRIPT, MAX_TEXT};
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ByteStream, Carrier, CarrierLimits, Files, ManagerError, ResourceManager};
use bridge_core::plan::{JobPlan, ManagerKind, ObjectRef, Script, ScriptSource, Submission, TextSource, UploadPlan};
use bridge_core::staging::{Cargo, Incoming, Outgoing, OutgoingSource, StagingError, glob, submission_without_objects};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderName, HeaderValue, Method};
use object_store::PutPayload;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::client::{Head, Store, TOKEN};
use super::error::{Kind, StorageError, quoted};
use super::items::{self, REPORT_FOLDER, STDERR, STDOUT};
use super::meter::Meter;
use super::send::hex;
use super::{S3Staging, base_name};

/// Inputs that are fetched at a time; of each there is little in memory.
const AT_A_TIME: usize = 4;

/// The header of what a carrying job sends, by which it is told from what was there before.
pub(super) const MARK: HeaderName = HeaderName::from_static("x-amz-meta-bridge-token");

impl S3Staging {
    pub(super) async fn bring(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        manager: &dyn ResourceManager,
        meter: &Arc<Meter>,
    ) -> Result<Submission, StagingError> {
        if let Some(upload) = &plan.upload {
            items::check_names(upload)?;
        }
        let carrier = carrier_of(plan, manager);
        if let (Some(submission), None) = (submission_without_objects(plan, token), carrier) {
            // The store may be away now and back when there is something to send.
            return Ok(with_kwargs(plan, submission));
        }
        let store = self.open(plan).await?;
        let mut submission = texts(&store, plan, token).await.map_err(StorageError::before_job)?;
        match (carrier, manager.files()) {
            (Some(carrier), files) => {
                if let Some(files) = files.filter(|_| carrier.limits().only_files) {
                    submission.inputs = put_inputs(&store, plan, token, files, meter).await?;
                }
                let cargo = self.load(&store, plan, token, carrier).await?;
                submission = carrier.load(submission, &cargo).map_err(|error| of_manager(&error))?;
            }
            (None, Some(files)) => submission.inputs = put_inputs(&store, plan, token, files, meter).await?,
            (None, None) if plan.inputs.is_empty() => {}
            (None, None) => {
                let kind = plan.target.manager;
                return Err(StagingError::lasting(format!(
                    "{kind} takes no files; leave spec.jobdata.additionaldata out"
                )));
            }
        }
        Ok(with_kwargs(plan, submission))
    }

    /// Signs for everything that a job moves by itself.
    async fn load(
        &self,
        store: &Store,
        plan: &JobPlan,
        token: &SubmitToken,
        carrier: &dyn Carrier,
    ) -> Result<Cargo, StagingError> {
        let now = self.clock.now().wall;
        let life = store.signature_life(now).await.map_err(StorageError::before_job)?;
        if !life.is_certain {
            tracing::warn!(
                job = %plan.key,
                "the session token's end is not known, so the URLs of this job may end before it starts; \
                 add the key `expiration` to the Secret"
            );
        }
        let mut inputs = Vec::new();
        let CarrierLimits { only_files, .. } = carrier.limits();
        for object in plan.inputs.iter().filter(|_| !only_files) {
            let head = store
                .sure_head(object)
                .await
                .map_err(StorageError::before_job)?
                .ok_or_else(|| no_such_object(plan, object))?;
            let url = store.sign(Method::GET, object, life.lasts, None).await.map_err(StorageError::before_job)?;
            let name = base_name(&object.key).to_owned();
            inputs.push(Incoming { name, url, size: head.size, sha256: head.sha256 });
        }
        let value = HeaderValue::from_str(token.as_str())
            .map_err(|_| StagingError::lasting(format!("the token {token} cannot be a header")))?;
        let (mut outputs, mut report) = (Vec::new(), None);
        if let Some(upload) = &plan.upload {
            let kind = plan.target.manager;
            if let Some(pattern) = upload.files.iter().find(|file| glob::is_pattern(file)) {
                return Err(StagingError::lasting(format!(
                    "spec.s3upload.files: {pattern:?} is a pattern, but on {kind} a file is sent by its exact name; \
                     write the names"
                )));
            }
            store.ensure_bucket(&upload.bucket).await.map_err(StorageError::before_job)?;
            for (name, source) in carried(upload, only_files) {
                let object = items::object(upload, &name);
                let url = store
                    .sign(Method::PUT, &object, life.lasts, Some((&MARK, &value)))
                    .await
                    .map_err(StorageError::before_job)?;
                outputs.push(Outgoing { name, source, url });
            }
            let object = items::object(upload, &format!("{REPORT_FOLDER}/{token}"));
            // Keys that are wrong or may not write are found out before the job has run for nothing.
            store
                .put(&object, PutPayload::new(), &[(TOKEN, token.as_str())])
                .await
                .map_err(StorageError::before_job)?;
            store.delete(&object).await.ok();
            report = Some(
                store
                    .sign(Method::PUT, &object, life.lasts, Some((&MARK, &value)))
                    .await
                    .map_err(StorageError::before_job)?,
            );
        }
        let lasts = jiff::SignedDuration::try_from(life.lasts.saturating_sub(Duration::from_secs(1)));
        let expires = lasts.ok().and_then(|lasts| now.checked_add(lasts).ok()).unwrap_or(now);
        Ok(Cargo {
            inputs,
            outputs,
            report,
            mark: (MARK.as_str().to_owned(), token.to_string()),
            expires,
            authorities: store.authorities().map(str::to_owned),
        })
    }
}

/// What a carrying job sends: its output first, because a cancelled job may have little time.
pub(super) fn carried(upload: &UploadPlan, only_files: bool) -> Vec<(String, OutgoingSource)> {
    let standard = [(STDOUT.to_owned(), OutgoingSource::Stdout), (STDERR.to_owned(), OutgoingSource::Stderr)];
    let files = upload.files.iter().map(|file| (base_name(file).to_owned(), OutgoingSource::File(file.clone())));
    standard.into_iter().filter(|_| !only_files).chain(files).collect()
}

/// What makes the job move its data, if it has any that it must move itself.
pub(super) fn carrier_of<'a>(plan: &JobPlan, manager: &'a dyn ResourceManager) -> Option<&'a dyn Carrier> {
    let carrier = manager.carrier()?;
    let needed = if carrier.limits().only_files {
        plan.upload.as_ref().is_some_and(|upload| !upload.files.is_empty())
    } else {
        plan.upload.is_some() || !plan.inputs.is_empty()
    };
    needed.then_some(carrier)
}

async fn texts(store: &Store, plan: &JobPlan, token: &SubmitToken) -> Result<Submission, StorageError> {
    let script = match &plan.script {
        ScriptSource::Inline(text) => Script::Text(text.clone()),
        ScriptSource::Remote(path) => Script::Remote(path.clone()),
        ScriptSource::Object(object) => Script::Text(store.text(object, "spec.jobdata.jobscript", MAX_SCRIPT).await?),
    };
    let text = async |source: &TextSource, field: &str| match source {
        TextSource::Inline(text) => Ok(text.clone()),
        TextSource::Object(object) => store.text(object, field, MAX_TEXT).await,
    };
    Ok(Submission {
        token: token.clone(),
        name: plan.key.name.clone(),
        script,
        metadata: text(&plan.metadata, "spec.jobdata.scriptmetadata").await?,
        parameters: text(&plan.parameters, "spec.jobdata.jobparameters").await?,
        properties: plan.properties.clone(),
        inputs: Vec::new(),
    })
}

async fn put_inputs(
    store: &Store,
    plan: &JobPlan,
    token: &SubmitToken,
    files: &dyn Files,
    meter: &Arc<Meter>,
) -> Result<Vec<String>, StagingError> {
    meter.expect(plan.inputs.len(), total(store, &plan.inputs).await.map_err(StorageError::before_job)?);
    let put = |object: &'_ ObjectRef| {
        let object = object.clone();
        async move {
            let (head, content) = store.get(&object).await.map_err(StorageError::before_job)?;
            let name = base_name(&object.key).to_owned();
            let put = files.put(token, &name, verified(content, head, object.clone(), Arc::clone(meter))).await;
            put.map_err(|error| {
                let inner = of_manager(&error);
                StagingError { message: format!("bringing {} to the job: {}", quoted(&object), inner.message), ..inner }
            })?;
            meter.file_done();
            Ok(name)
        }
    };
    futures::stream::iter(&plan.inputs).map(put).buffered(AT_A_TIME).try_collect().await
}

/// The size of all inputs, if it can be told. One that is missing ends the stage before the others are fetched.
async fn total(store: &Store, inputs: &[ObjectRef]) -> Result<Option<u64>, StorageError> {
    let look = async |object: &ObjectRef| match store.head(object).await {
        Ok(Some(head)) => Ok(Some(head.size)),
        // Only an answer with a body tells whether it is the object that is missing, or its bucket.
        Ok(None) => store.get(object).await.map(|(head, _)| Some(head.size)),
        // The right to fetch it may be there all the same.
        Err(error) if error.kind == Kind::Denied => Ok(None),
        Err(error) => Err(error),
    };
    let sizes = futures::stream::iter(inputs).map(look).buffered(AT_A_TIME);
    Ok(sizes.try_collect::<Vec<_>>().await?.into_iter().sum())
}

/// The stream, with an error in place of its end if what came is not what is there.
fn verified(content: ByteStream, head: Head, object: ObjectRef, meter: Arc<Meter>) -> ByteStream {
    struct Check {
        content: Option<ByteStream>,
        hash: Sha256,
        size: u64,
    }
    let start = Check { content: Some(content), hash: Sha256::new(), size: 0 };
    futures::stream::unfold(start, move |mut check| {
        let (head, object, meter) = (head.clone(), object.clone(), Arc::clone(&meter));
        async move {
            let piece: std::io::Result<Bytes> = match check.content.as_mut()?.next().await {
                Some(Ok(piece)) => {
                    if head.sha256.is_some() {
                        check.hash.update(&piece);
                    }
                    check.size += piece.len() as u64;
                    meter.add(piece.len() as u64);
                    return Some((Ok(piece), check));
                }
                Some(Err(error)) => Err(error),
                None if check.size != head.size => {
                    let (got, all) = (check.size, head.size);
                    Err(std::io::Error::other(format!("{} ended after {got} of {all} bytes", quoted(&object))))
                }
                None if head.sha256.is_some_and(|sha256| sha256 != hex(&check.hash.clone().finalize())) => {
                    Err(std::io::Error::other(format!("{} does not match its checksum", quoted(&object))))
                }
                None => return None,
            };
            check.content = None;
            Some((piece, check))
        }
    })
    .boxed()
}

fn no_such_object(plan: &JobPlan, object: &ObjectRef) -> StagingError {
    let endpoint = plan.storage.as_ref().map_or("", |storage| storage.endpoint.as_str());
    let message =
        format!("reading {}: there is no such object at {endpoint}; put it there or correct its name", quoted(object));
    StorageError::new(Kind::NoObject, message).before_job()
}

/// What a manager's error means for a stage.
pub(super) fn of_manager(error: &ManagerError) -> StagingError {
    let mut message = error.to_string();
    let mut source = error.source.as_deref().map(|source| source as &dyn std::error::Error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    StagingError { is_final: error.kind.is_final(), ..StagingError::passing(message) }
}

/// Ray scripts are told where their outputs may go, in the words of existing scripts. The Secret goes by its name only.
fn with_kwargs(plan: &JobPlan, mut submission: Submission) -> Submission {
    let (ManagerKind::Ray, Some(storage), Some(upload)) = (plan.target.manager, &plan.storage, &plan.upload) else {
        return submission;
    };
    let text = submission.parameters.trim();
    let given = if text.is_empty() { Some(Map::new()) } else { serde_json::from_str::<Map<String, Value>>(text).ok() };
    // Arguments in a list have places of their own.
    let Some(mut kwargs) = given else { return submission };
    let known = [
        ("s3_secret", storage.secret.0.clone()),
        ("s3_endpoint", storage.endpoint.clone()),
        ("s3_bucket", upload.bucket.clone()),
        ("s3_prefix", format!("{}/", upload.prefix)),
        ("s3_secure", storage.secure.to_string()),
    ];
    for (name, value) in known {
        kwargs.entry(name).or_insert(Value::String(value));
    }
    submission.parameters = Value::Object(kwargs).to_string();
    submission
}
