//! What the lab promises. Each test takes what it needs from the shared lab; those that break things take one of
//! their own.

mod commands;
mod kubernetes;
mod ray;
mod s3;
mod slurm;

use std::time::Duration;

/// A client without the settings of a product: tests speak to the systems as anybody would.
fn http() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_secs(20)).no_proxy().build().unwrap()
}

/// Asks again until there is an answer, or panics with `what` when the time is over.
async fn eventually<T>(what: &str, seconds: u64, mut question: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = question().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(seconds), asking)
        .await
        .unwrap_or_else(|_| panic!("waited {seconds} s in vain for {what}"))
}
