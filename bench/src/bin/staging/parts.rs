//! A store that keeps the parts of an upload as they came, as services do.
//!
//! The one beneath it would copy and hash all of them once more at the end, which takes longer than the upload.

use std::path::PathBuf;

use s3s::dto::{
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETag, GetObjectInput, GetObjectOutput, HeadBucketInput, HeadBucketOutput,
    HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, PutObjectInput, PutObjectOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;

/// Files below a folder; the parts of an object `bucket/key` are `bucket/key/1`, `bucket/key/2` and so on.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) files: FileSystem,
    pub(crate) root: PathBuf,
}

#[async_trait::async_trait]
impl S3 for Parts {
    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let CompleteMultipartUploadInput { bucket, key, upload_id, multipart_upload, .. } = request.input;
        let parts = multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let object = self.root.join(bucket).join(key);
        std::fs::create_dir_all(&object).map_err(|error| s3_error!(error, InternalError))?;
        for (number, part) in (1..).zip(&parts) {
            if part.part_number != Some(number) || part.e_tag.is_none() {
                return Err(s3_error!(InvalidPartOrder));
            }
            let came = self.root.join(format!(".upload_id-{upload_id}.part-{number}"));
            std::fs::rename(came, object.join(number.to_string())).map_err(|error| s3_error!(error, InvalidPart))?;
        }
        let e_tag = Some(ETag::Strong(format!("{upload_id}-{}", parts.len())));
        Ok(S3Response::new(CompleteMultipartUploadOutput { e_tag, ..Default::default() }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        self.files.create_multipart_upload(request).await
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        self.files.upload_part(request).await
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        self.files.put_object(request).await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        self.files.get_object(request).await
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        self.files.head_object(request).await
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.files.head_bucket(request).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.files.list_objects_v2(request).await
    }
}
