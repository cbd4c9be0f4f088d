//! What the lab promises. Each test takes what it needs from the shared lab; those that break things take one of
//! their own.

mod commands;
mod kubernetes;
mod ray;
mod s3;
mod slurm;

use std::time::Duration;

/// How long a system may take to do something before a test fails: a bound for what hangs, not for what is slow.
const SYSTEM_PATIENCE: Duration = Duration::from_mins(10);
/// So for a process that starts or ends, and for an answer.
const PROCESS_PATIENCE: Duration = Duration::from_mins(2);

/// A client without the settings of a product: tests speak to the systems as anybody would.
fn http() -> reqwest::Client {
    reqwest::Client::builder().timeout(PROCESS_PATIENCE).no_proxy().build().unwrap()
}

/// Asks again until there is an answer, or panics with `what` when the time is over.
async fn eventually<T>(what: &str, patience: Duration, mut question: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = question().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| panic!("waited {patience:?} in vain for {what}"))
}
