//! The fault plan for emulators made with axum.

use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Fault, FaultPlan, Operation};

/// Answers one request under the plan. `answer` does the real work; it is not run if the fault keeps it from
/// happening. `error_body` is what this system sends with 200 when it means an error.
///
/// ```text
/// async fn list_jobs(State(emulator): State<Emulator>) -> Response {
///     under(&emulator.faults, Operation::Poll, ERROR_BODY, async || emulator.list().into_response()).await
/// }
/// ```
pub async fn under<A>(faults: &FaultPlan, operation: Operation, error_body: &str, answer: A) -> Response
where
    A: AsyncFnOnce() -> Response,
{
    match faults.take(operation) {
        None => answer().await,
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            answer().await
        }
        Some(Fault::LostReply) => {
            answer().await;
            hang_up()
        }
        Some(fault) => without_effect(&fault, error_body),
    }
}

/// The answer to a request that is not carried out.
#[must_use]
pub fn without_effect(fault: &Fault, error_body: &str) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    match fault {
        Fault::TooManyRequests { retry_after } => {
            let mut response = (StatusCode::TOO_MANY_REQUESTS, "too many requests").into_response();
            if let Some(wait) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(*wait).into());
            }
            response
        }
        Fault::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "").into_response(),
        Fault::Unauthorized => (StatusCode::UNAUTHORIZED, "").into_response(),
        Fault::ErrorBody => (json, error_body.to_owned()).into_response(),
        Fault::Garbage => (json, "{\"jobs\": [{\"job_i").into_response(),
        Fault::Delay(_) | Fault::Reset | Fault::LostReply => hang_up(),
    }
}

/// Closes the connection without a byte of an answer.
#[must_use]
pub fn hang_up() -> Response {
    // A body that fails before its first piece makes hyper drop the connection before it has flushed the headers.
    let broken = futures::stream::once(async { Err::<bytes::Bytes, _>(std::io::Error::other("planned fault")) });
    Response::new(Body::from_stream(broken))
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_lost_reply_happens_and_a_reset_does_not() {
        let (faults, effects) = (FaultPlan::new(), Arc::new(AtomicU32::new(0)));
        let (plan, count) = (faults.clone(), effects.clone());
        let app = axum::Router::new().route(
            "/",
            axum::routing::post(async move || {
                under(&plan, Operation::Submit, "{\"errors\":[1]}", async || {
                    count.fetch_add(1, Ordering::SeqCst);
                    "done".into_response()
                })
                .await
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let post = async || reqwest::Client::builder().build().unwrap().post(&url).send().await;

        assert_eq!(post().await.unwrap().text().await.unwrap(), "done");
        faults.next(Operation::Submit, Fault::Reset);
        assert!(post().await.is_err());
        assert_eq!(effects.load(Ordering::SeqCst), 1);
        faults.next(Operation::Submit, Fault::LostReply);
        assert!(post().await.is_err());
        assert_eq!(effects.load(Ordering::SeqCst), 2);
        faults.next(Operation::Submit, Fault::TooManyRequests { retry_after: Some(Duration::from_millis(1500)) });
        let limited = post().await.unwrap();
        assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "2"));
        faults.next(Operation::Submit, Fault::ErrorBody);
        assert_eq!(post().await.unwrap().text().await.unwrap(), "{\"errors\":[1]}");
        assert!(faults.is_used_up());
        server.abort();
    }
}
