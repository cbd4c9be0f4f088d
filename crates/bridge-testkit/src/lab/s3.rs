//! The lab's S3.

use std::path::PathBuf;

use jiff::Timestamp;

use super::{LabError, Values, unique};
use crate::s3::S3Keys;

/// A bucket of one test's own, on a server that checks signatures. The bucket ends with this value.
#[derive(Debug)]
pub struct S3 {
    /// `http://host:port`
    pub endpoint: String,
    /// What the server wants requests to be signed with.
    pub keys: S3Keys,
    /// The bucket.
    pub bucket: String,
    folder: PathBuf,
}

impl S3 {
    pub(super) fn with_new_bucket(values: &Values) -> Result<Self, LabError> {
        let bucket = unique("test");
        let folder = PathBuf::from(values.get("BRIDGE_LAB_S3_FOLDER")?).join(&bucket);
        let s3 = Self {
            endpoint: values.get("BRIDGE_LAB_S3_ENDPOINT")?.to_owned(),
            keys: S3Keys::new(values.get("BRIDGE_LAB_S3_ACCESS_KEY")?, values.get("BRIDGE_LAB_S3_SECRET_KEY")?),
            bucket,
            folder,
        };
        std::fs::create_dir(&s3.folder).map_err(|source| LabError::Folder { path: s3.folder.clone(), source })?;
        Ok(s3)
    }

    /// A URL with which anybody may do `method` to an object of the bucket in the next ten minutes.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the server compares with the real clock")]
    pub fn presign(&self, method: &str, key: &str) -> String {
        let path = format!("/{}/{key}", self.bucket);
        self.keys.presign(method, &self.endpoint, &path, Timestamp::now(), 600)
    }

    /// The file that holds an object.
    #[must_use]
    pub fn object_path(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
