//! One module a command.

pub mod cluster;
mod cluster_follow;
pub mod cluster_jobs;
mod cluster_lines;
pub mod cluster_logs;
mod cluster_watch;
pub mod completions;
pub mod crd;
pub mod forget;
pub mod kill;
pub mod list;
pub mod logs;
pub mod manifest;
pub mod operator;
pub mod plan;
pub mod prepare;
pub mod reopen;
pub mod run;
pub mod worker;

use std::fmt::Write as _;
use std::io::{self, Read as _};

use crate::failure::Failure;

/// Runs a future to its end on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::trouble(format!("the runtime cannot be started: {error}")))?;
    let result = runtime.block_on(future);
    // Whoever leaves at once does not wait for calls under way.
    runtime.shutdown_background();
    Ok(result)
}

/// 128 random bits in hexadecimal.
pub fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// A name that no other process, before or after, has.
pub fn unique_name(kind: &str) -> io::Result<String> {
    Ok(format!("{kind}-{}-{}", std::process::id(), random_id()?))
}
