//! `bridge manifest`

use bridge_operator::install::{self, InstallOptions};

use super::crd::print;
use crate::cli::ManifestArguments;
use crate::failure::Failure;

/// Prints what a cluster needs.
pub fn run(arguments: &ManifestArguments) -> Result<u8, Failure> {
    let ManifestArguments { image, namespace, replicas, watched } = arguments;
    let usual = InstallOptions::default();
    print(&install::yaml(&InstallOptions {
        image: image.clone().unwrap_or(usual.image),
        namespace: namespace.clone().unwrap_or(usual.namespace),
        replicas: replicas.unwrap_or(usual.replicas),
        watched: watched.clone(),
        ..InstallOptions::default()
    }))
}
