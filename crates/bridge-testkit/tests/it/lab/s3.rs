//! S3 and its signatures.

use bridge_testkit::s3::S3Keys;
use jiff::Timestamp;

use super::http;

#[tokio::test]
async fn a_signed_request_is_served_and_a_wrongly_signed_one_refused() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let s3 = lab.s3().await.unwrap();
    let stored = http().put(s3.presign("PUT", "a/b")).body("content").send().await.unwrap();
    assert!(stored.status().is_success(), "{stored:?}");
    let read = http().get(s3.presign("GET", "a/b")).send().await.unwrap();
    assert_eq!(read.text().await.unwrap(), "content");

    let path = format!("/{}/a/b", s3.bucket);
    let wrong = S3Keys::new(&s3.keys.access_key, "another secret");
    #[expect(clippy::disallowed_methods, reason = "the server compares with the real clock")]
    let url = wrong.presign("GET", &s3.endpoint, &path, Timestamp::now(), 60);
    let refused = http().get(url).send().await.unwrap();
    assert_eq!(refused.status(), 403);
    // Signed for reading, used for writing.
    let refused = http().put(s3.presign("GET", "a/b")).body("other").send().await.unwrap();
    assert_eq!(refused.status(), 403);
    let unsigned = http().get(format!("{}{path}", s3.endpoint)).send().await.unwrap();
    assert_eq!(unsigned.status(), 403);
    assert_eq!(std::fs::read(s3.object_path("a/b")).unwrap(), b"content");
}
