//! What commands that talk to a cluster share.

use kube::config::KubeConfigOptions;
use kube::{Client, Config};

use crate::failure::Failure;

/// A client for a context of the kubeconfig, or for what the environment says: the pod's own account inside a cluster.
pub async fn client(context: Option<&str>) -> Result<Client, Failure> {
    let mut config = configuration(context).await?;
    // Whoever uses it tries again by himself, when he knows what the first answer was: a creation that was repeated unseen
    // is told that the object is there already.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Failure::trouble(format!("no client for the cluster: {}", chain(&error))))
}

/// How the cluster is reached.
pub async fn configuration(context: Option<&str>) -> Result<Config, Failure> {
    // One provider in the whole program; a second installation is refused and changes nothing.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let result = match context {
        Some(context) => {
            let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.map_err(|error| chain(&error))
        }
        None => Config::infer().await.map_err(|error| chain(&error)),
    };
    result.map_err(|error| {
        Failure::trouble(format!("no cluster is known: {error}; set KUBECONFIG, or run inside a cluster"))
    })
}

/// An error with its causes.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
