//! Something is away for a while: the remote system, its credentials, the operator.

use bridge_api::JobStatus;
use bridge_testkit::faults::Fault;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::bed::{Bed, until};

fn reachable(status: &bridge_api::BridgeJobStatus) -> Option<(String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == "Reachable")?;
    Some((found.status.clone(), found.reason.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_remote_system_is_shown_and_waited_out() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    bed.slurm.faults().outage(Fault::Reset);
    let status = bed
        .until("job", "unreachable", |status| reachable(status) == Some(("False".into(), "Unreachable".into())))
        .await;
    assert_eq!(status.jobstatus, Some(JobStatus::Running));
    bed.go();
    bed.slurm.faults().clear();
    let status = bed.until_status("job", JobStatus::Done).await;
    assert_eq!(reachable(&status), Some(("True".into(), "Answers".into())));
    assert_eq!(bed.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_expired_is_taken_from_the_renewed_secret() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    bed.slurm.set_token("alice", "renewed");
    bed.until("job", "unauthorized", |status| reachable(status) == Some(("False".into(), "Unauthorized".into()))).await;
    bed.go();
    bed.secret("mysecret", &[("username", "alice"), ("password", "renewed")]).await;
    // The kubelet brings the change to the pod within its own period, about a minute.
    let status = bed.until_status("job", JobStatus::Done).await;
    let map = bed.config_map("job").await.unwrap();
    let log = bed.kubectl(&["logs", "job-bridge-pod"]).await;
    let told = format!("{status:?}{:?}{log}", map.data);
    assert!(!told.contains("alice-token") && !told.contains("renewed"), "a credential was told: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_acting_operator_stops_or_dies_the_other_goes_on() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    stopped_it_gives_the_lease_back(&bed).await;
    bed.create("before", &bed.until_go(), &json!({})).await;
    bed.until_status("before", JobStatus::Running).await;
    let leases: Api<Lease> = Api::namespaced(bed.client.clone(), "bridge-system");
    let holder = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
    let leader = holder(Some(&leases.get("bridge-operator").await.unwrap())).unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), "bridge-system");
    // Without grace it cannot give the Lease back.
    let _ = pods.delete(&leader, &DeleteParams::default().grace_period(0)).await.unwrap();
    bed.create("after", "true", &json!({})).await;
    until(&leases, "bridge-operator", "another's", |lease: Option<&Lease>| {
        holder(lease).is_some_and(|now| now != leader)
    })
    .await;
    bed.until_status("after", JobStatus::Done).await;
    bed.go();
    bed.until_status("before", JobStatus::Done).await;
    assert_eq!(bed.runs(), 2);
}

/// Nobody has to wait until the Lease of an operator that was asked to stop has run out.
async fn stopped_it_gives_the_lease_back(bed: &Bed) {
    let leases: Api<Lease> = Api::namespaced(bed.client.clone(), "bridge-system");
    let holder = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
    let held = |lease: Option<&Lease>| holder(lease).is_some_and(|holder| !holder.is_empty());
    let lease = until(&leases, "bridge-operator", "held", held).await;
    let leader = holder(lease.as_ref()).unwrap();
    let given_back = until(&leases, "bridge-operator", "given back", |lease: Option<&Lease>| !held(lease));
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), "bridge-system");
    let stop = async { pods.delete(&leader, &DeleteParams::default()).await.unwrap() };
    tokio::join!(given_back, stop);
    until(&leases, "bridge-operator", "another's", |lease: Option<&Lease>| {
        held(lease) && holder(lease).is_some_and(|now| now != leader)
    })
    .await;
}
