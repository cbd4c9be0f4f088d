//! What an object store's refusal means, in words that name bucket and object and never a secret.

use std::error::Error as _;

use bridge_core::plan::ObjectRef;
use bridge_core::staging::StagingError;

use super::keys::KeyError;

/// What is being done to an object that is sent; that there is none is then not about the object.
pub(super) const WRITING: &str = "writing";

/// What is being done to an object that is asked for without its content; the answer has no text.
pub(super) const LOOKING: &str = "looking at";

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no such bucket.
    NoBucket,
    /// There is no such object; the bucket may be missing as well.
    NoObject,
    /// The keys are wrong, expired or may not do this.
    Denied,
    /// The store does not want this and will not want it later.
    Refused,
    /// Anything that may pass.
    Passing,
}

/// An object store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct StorageError {
    pub(super) kind: Kind,
    pub(super) message: String,
}

impl StorageError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl StorageError {
    /// What it means before a job: what is not there was named wrongly.
    pub(super) fn before_job(self) -> StagingError {
        let is_final = matches!(self.kind, Kind::NoBucket | Kind::NoObject | Kind::Refused);
        StagingError { is_final, ..StagingError::passing(self.message) }
    }

    /// What it means after a job: its results are worth waiting for, also while someone mends the bucket, or a gateway
    /// that knows nothing of it yet.
    pub(super) fn after_job(self) -> StagingError {
        StagingError { is_final: self.kind == Kind::Refused, ..StagingError::passing(self.message) }
    }
}

/// Where and with which Secret, for messages.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// `host[:port]`
    pub(super) endpoint: String,
    /// The Secret's name.
    pub(super) secret: String,
}

/// What the store said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Its own word, e.g. `NoSuchBucket`.
    pub(super) code: Option<String>,
    /// Its sentence.
    pub(super) message: Option<String>,
}

impl Said {
    /// Finds the two in an error's text. The rest of an S3 error repeats what was signed, session token included.
    pub(super) fn read(text: &str) -> Self {
        Self { code: element(text, "Code"), message: element(text, "Message") }
    }
}

fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    let line: String = value.chars().filter(|letter| !letter.is_control()).take(200).collect();
    (!line.is_empty()).then_some(line)
}

impl Place {
    /// What an error means for what was being done to an object.
    pub(super) fn explain(&self, doing: &str, object: &ObjectRef, error: &object_store::Error) -> StorageError {
        if let Some(error) = find_key_error(error) {
            return self.key_error(error);
        }
        let said = Said::read(&error.to_string());
        let status = match error {
            object_store::Error::NotFound { .. } => Some(404),
            object_store::Error::PermissionDenied { .. } => Some(403),
            object_store::Error::Unauthenticated { .. } => Some(401),
            object_store::Error::InvalidPath { .. } => {
                let message = format!(
                    "the object name {} cannot be used: it has an empty part, \".\" or \"..\" between slashes; rename it",
                    quoted(object)
                );
                return StorageError::new(Kind::Refused, message);
            }
            _ => None,
        };
        self.words(doing, object, status, &said, &deepest(error))
    }

    /// The same from a bare answer.
    pub(super) fn words(
        &self,
        doing: &str,
        object: &ObjectRef,
        status: Option<u16>,
        said: &Said,
        cause: &str,
    ) -> StorageError {
        let Self { endpoint, secret } = self;
        let named = quoted(object);
        let code = said.code.as_deref().unwrap_or_default();
        let in_words = if code.is_empty() { String::new() } else { format!(" ({code})") };
        let (kind, message) = match (code, status) {
            ("NoSuchBucket", _) => (
                Kind::NoBucket,
                format!(
                    "{doing} {named}: the bucket {:?} does not exist at {endpoint}; create it or correct its name",
                    object.bucket
                ),
            ),
            ("", Some(404)) if doing == WRITING => (
                Kind::Passing,
                format!(
                    "{doing} {named}: {endpoint} says that there is no such place (status 404); check the endpoint"
                ),
            ),
            // A store tells in its answer what is missing; this may be a gateway before it.
            ("", Some(404)) if doing != LOOKING => (
                Kind::Passing,
                format!(
                    "{doing} {named}: {endpoint} answered with status 404 and did not say that the object is missing; \
                     check the endpoint"
                ),
            ),
            ("NoSuchKey" | "NotFound", _) | ("", Some(404)) => (
                Kind::NoObject,
                format!("{doing} {named}: there is no such object at {endpoint}; put it there or correct its name"),
            ),
            ("ExpiredToken" | "TokenRefreshRequired", _) => (
                Kind::Denied,
                format!("{doing} {named}: the session token in the Secret {secret:?} has expired; renew it"),
            ),
            ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken", _) | (_, Some(401)) => (
                Kind::Denied,
                format!(
                    "{doing} {named}: {endpoint} does not take the keys in the Secret {secret:?}{in_words}; \
                     correct accesskey and secretkey"
                ),
            ),
            ("RequestTimeTooSkewed", _) => {
                (Kind::Passing, format!("{doing} {named}: this machine's clock and that of {endpoint} differ; set it"))
            }
            ("AccessDenied" | "AllAccessDisabled" | "AccountProblem", _) | (_, Some(403)) => (
                Kind::Denied,
                format!("{doing} {named}: the keys in the Secret {secret:?} may not do that{in_words}; grant it"),
            ),
            ("InvalidBucketName" | "EntityTooLarge" | "KeyTooLongError" | "InvalidArgument", _) => {
                (Kind::Refused, format!("{doing} {named}: {endpoint} refuses it{in_words}{}", sentence(said)))
            }
            ("", _) => (Kind::Passing, format!("{doing} {named}: {endpoint} did not answer as it should: {cause}")),
            _ => (Kind::Passing, format!("{doing} {named}: {endpoint} answered {code}{}", sentence(said))),
        };
        StorageError::new(kind, message)
    }

    pub(super) fn key_error(&self, error: &KeyError) -> StorageError {
        StorageError::new(Kind::Denied, format!("the Secret {:?} for the object store: {error}", self.secret))
    }
}

fn sentence(said: &Said) -> String {
    said.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default()
}

/// `"bucket:key"`
pub(super) fn quoted(object: &ObjectRef) -> String {
    if object.key.is_empty() { format!("bucket {:?}", object.bucket) } else { format!("\"{object}\"") }
}

/// Whether other keys could help.
pub(super) fn is_denied<T>(answer: &object_store::Result<T>) -> bool {
    let Err(error) = answer else { return false };
    let text = error.to_string();
    matches!(error, object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. })
        || ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"]
            .iter()
            .any(|code| text.contains(&format!("<Code>{code}</Code>")))
}

fn find_key_error(error: &object_store::Error) -> Option<&KeyError> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref() {
            return Some(error);
        }
        source = inner.source();
    }
    None
}

/// The innermost cause: the outer ones repeat it around addresses.
fn deepest(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_and_sentence_of_an_answer_are_kept() {
        let text = "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature\n differs</Message>\
                    <CanonicalRequest>x-amz-security-token:SECRET</CanonicalRequest></Error>";
        let said = Said::read(text);
        assert_eq!(said.code.as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(said.message.as_deref(), Some("The signature differs"));
        let place = Place { endpoint: "s3.example".to_owned(), secret: "s3-secret".to_owned() };
        let object = ObjectRef { bucket: "b".to_owned(), key: "k".to_owned() };
        let error = place.words("reading", &object, Some(403), &said, text);
        assert_eq!(error.kind, Kind::Denied);
        assert!(!error.message.contains("SECRET") && error.message.contains("\"b:k\""), "{error}");
        assert_eq!(Said::read("connection refused"), Said::default());
    }

    #[test]
    fn only_the_store_itself_says_that_an_object_is_missing() {
        let place = Place { endpoint: "s3.example".to_owned(), secret: "s3-secret".to_owned() };
        let object = ObjectRef { bucket: "b".to_owned(), key: "k".to_owned() };
        let kind = |doing, code: &str| {
            let said = Said { code: (!code.is_empty()).then(|| code.to_owned()), message: None };
            place.words(doing, &object, Some(404), &said, "404").kind
        };
        assert_eq!(kind("reading", "NoSuchKey"), Kind::NoObject);
        assert_eq!(kind("reading", "NoSuchBucket"), Kind::NoBucket);
        assert_eq!(
            (kind("reading", ""), kind("listing", ""), kind(WRITING, "")),
            (Kind::Passing, Kind::Passing, Kind::Passing)
        );
        assert_eq!(kind(LOOKING, ""), Kind::NoObject, "there is nothing else to go by");
    }
}
