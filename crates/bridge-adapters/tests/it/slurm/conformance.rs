//! The suite that every adapter passes.

use bridge_testkit::slurm::EmulatorOptions;

use super::Cluster;

/// Cases that a manager without files beside its jobs cannot be put to.
fn skipped_for_want_of_files(skipped: &[&str]) -> bool {
    skipped.iter().all(|case| case.contains("file") || case.contains("input") || case.contains("put"))
}

async fn conforms(version: u16) {
    let cluster = Cluster::of_version(version).await;
    let report = bridge_testkit::conformance::run(&cluster).await;
    assert!(report.is_ok(), "{report}");
    assert!(skipped_for_want_of_files(&report.skipped()), "{:?}", report.skipped());
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_36_conforms() {
    conforms(36).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_37_conforms() {
    conforms(37).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_38_conforms() {
    conforms(38).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_39_conforms() {
    conforms(39).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_40_conforms() {
    conforms(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_41_conforms() {
    conforms(41).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_42_conforms() {
    conforms(42).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_43_conforms() {
    conforms(43).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_44_conforms() {
    conforms(44).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v0_0_45_conforms() {
    conforms(45).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_accounting_and_a_negotiated_version_conforms() {
    let options = EmulatorOptions { accounting: true, versions: vec![41, 42, 47], ..EmulatorOptions::default() };
    let cluster = Cluster::with(options, None).await;
    let report = bridge_testkit::conformance::run(&cluster).await;
    assert!(report.is_ok(), "{report}");
}
