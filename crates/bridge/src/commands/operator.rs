//! `bridge operator`

use std::sync::Arc;
use std::time::Duration;

use bridge_core::clock::SystemClock;
use bridge_core::plan::ImagePattern;
use bridge_operator::operator;
use bridge_operator::settings::{LeaseSettings, Settings};
use tokio::sync::watch;

use super::cluster;
use crate::cli::OperatorArguments;
use crate::failure::Failure;
use crate::signals::Signals;

/// Runs the operator until it is told to stop.
pub fn run(arguments: OperatorArguments) -> Result<u8, Failure> {
    // Taken apart completely, so that a new flag cannot be forgotten here.
    let OperatorArguments {
        namespaces,
        worker_image,
        replace_images,
        concurrency,
        listen,
        lease_namespace,
        lease_name,
        lease_seconds,
        identity,
    } = arguments;
    let identity = identity.unwrap_or_else(host_name);
    let settings = Settings {
        namespaces: namespaces.into_iter().filter(|name| !name.is_empty()).collect(),
        worker_image,
        replace_image: replace_images.into_iter().map(ImagePattern::new).collect(),
        concurrency,
        listen,
        lease: lease_namespace.map(|namespace| LeaseSettings {
            namespace,
            name: lease_name,
            identity,
            duration: Duration::from_secs(lease_seconds.into()),
        }),
    };
    super::block_on(async {
        let client = cluster::client(None).await?;
        let (stop, stopped) = watch::channel(false);
        let mut signals = Signals::listen().map_err(|error| Failure::trouble(error.to_string()))?;
        tokio::spawn(async move {
            signals.next().await;
            tracing::info!("told to stop");
            stop.send_replace(true);
        });
        operator::run(client, settings, Arc::new(SystemClock::new()), stopped)
            .await
            .map(|()| 0)
            .map_err(|error| Failure::trouble(cluster::chain(&error)))
    })?
}

fn host_name() -> String {
    std::fs::read_to_string("/etc/hostname").map_or_else(|_| "operator".to_owned(), |name| name.trim().to_owned())
}
