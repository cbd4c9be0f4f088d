//! What a user may ask of a job, before and while it runs.

use std::time::Duration;

use bridge_api::JobStatus;
use bridge_operator::names;
use bridge_testkit::slurm::EmulatorOptions;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::bed::{Bed, FOR_EVER, until};

#[tokio::test(flavor = "multi_thread")]
async fn kill_ends_the_remote_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({})).await;
    let id = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    bed.set("job", &json!({ "kill": true })).await;
    let status = bed.until_status("job", JobStatus::Killed).await;
    assert!(bed.remote_state(&id).await.contains("CANCELLED"));
    assert!(status.conditions.iter().any(|c| c.type_ == "Failed" && c.status == "True" && c.reason == "Killed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_at_creation_submits_nothing() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", "true", &json!({ "kill": true })).await;
    bed.until_status("job", JobStatus::Killed).await;
    assert!(bed.config_map("job").await.is_none());
    assert!(bed.api::<Pod>().get_opt(&names::pod("job")).await.unwrap().is_none());
    assert_eq!(bed.slurm.faults().total(), 0, "nothing may reach Slurm");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_before_the_pod_starts_needs_no_pod() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    // No node has this label, so the pod never starts.
    bed.create("job", "true", &json!({ "podTemplate": { "nodeSelector": { "no": "where" } } })).await;
    let status =
        bed.until("job", "waiting", |status| status.message.as_ref().is_some_and(|m| m.contains("cannot start"))).await;
    assert_eq!(status.reason.as_deref(), Some("WorkerStarting"));
    bed.set("job", &json!({ "kill": true })).await;
    bed.until_status("job", JobStatus::Killed).await;
    bed.until_gone(&bed.api::<Pod>(), &names::pod("job")).await;
    bed.delete("job", &DeleteParams::default()).await;
    assert_eq!(bed.slurm.faults().total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspend_at_creation_makes_nothing_until_it_is_lifted() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", "true", &json!({ "suspend": true })).await;
    bed.until_status("job", JobStatus::Suspended).await;
    assert!(bed.config_map("job").await.is_none());
    bed.set("job", &json!({ "suspend": false })).await;
    bed.until_status("job", JobStatus::Done).await;
    assert_eq!(bed.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspending_a_running_job_queues_it_again_as_a_new_attempt() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    let first = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    bed.set("job", &json!({ "suspend": true })).await;
    let status = bed.until_status("job", JobStatus::Suspended).await;
    assert!(status.conditions.iter().any(|c| c.type_ == "Suspended" && c.status == "True"));
    assert!(bed.remote_state(&first).await.contains("CANCELLED"));
    bed.go();
    bed.set("job", &json!({ "suspend": false })).await;
    let status = bed.until_status("job", JobStatus::Done).await;
    assert_eq!((status.attempts, bed.runs()), (Some(2), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_is_tried_again_as_often_as_it_says() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let mark = bed.slurm.folder().join("once");
    let script = format!("test -e {0} && exit 0; touch {0}; exit 3", mark.display());
    bed.create("again", &script, &json!({ "backoffLimit": 1 })).await;
    bed.create("once", "exit 7", &json!({})).await;
    let status = bed.until_status("again", JobStatus::Done).await;
    assert_eq!(status.attempts, Some(2));
    let status = bed.until_status("once", JobStatus::Failed).await;
    assert_eq!((status.attempts, status.exitcode), (Some(1), Some(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_job_as_failed() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({ "activeDeadlineSeconds": 4 })).await;
    let status = bed.until_status("job", JobStatus::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert!(bed.remote_state(&status.jobid.unwrap()).await.contains("CANCELLED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_job_goes_away_after_its_time_to_live() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("ran", "true", &json!({ "ttlSecondsAfterFinished": 2 })).await;
    bed.create("never", "true", &json!({ "ttlSecondsAfterFinished": 1, "kill": true })).await;
    bed.until_gone(&bed.jobs(), "never").await;
    bed.until_gone(&bed.jobs(), "ran").await;
    bed.until_gone(&bed.api::<ConfigMap>(), &names::config_map("ran")).await;
    assert_eq!(bed.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphan_leaves_the_remote_job_alone() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({ "deletionPolicy": "Orphan" })).await;
    let id = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    bed.delete("job", &DeleteParams::default()).await;
    bed.until_gone(&bed.api::<Pod>(), &names::pod("job")).await;
    assert!(bed.remote_state(&id).await.contains("RUNNING"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_named_and_waited_for() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", "true", &json!({ "resourcesecret": "later" })).await;
    let ready = |reason: &'static str| {
        move |status: &bridge_api::BridgeJobStatus| {
            status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "False" && c.reason == reason)
        }
    };
    let status = bed.until("job", "SecretMissing", ready("SecretMissing")).await;
    assert!(status.message.unwrap().contains("\"later\""));
    bed.secret("later", &[("username", "alice")]).await;
    let status = bed.until("job", "SecretKeyMissing", ready("SecretKeyMissing")).await;
    assert!(status.message.unwrap().contains("password"));
    bed.secret("later", &[("username", "alice"), ("password", "alice-token")]).await;
    bed.until_status("job", JobStatus::Done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_does_not_want_is_told_and_made_when_it_does() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let quotas: Api<ResourceQuota> = bed.api();
    // Each namespace has one ConfigMap of Kubernetes itself, sooner or later.
    until(&bed.api::<ConfigMap>(), "kube-root-ca.crt", "there", |map: Option<&ConfigMap>| map.is_some()).await;
    for (name, resource, most) in [("map", "count/configmaps", "1"), ("pod", "pods", "0")] {
        let quota = json!({ "metadata": { "name": name }, "spec": { "hard": { resource: most } } });
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        let counted = |quota: Option<&ResourceQuota>| {
            quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()).is_some_and(|used| used.contains_key(resource))
        };
        until(&quotas, name, "in effect", counted).await;
        bed.create(name, "true", &json!({})).await;
        let refused = |status: &bridge_api::BridgeJobStatus| {
            let is =
                |c: &bridge_api::Condition| c.type_ == "Ready" && c.status == "False" && c.message.contains("quota");
            // Nothing was handed over as long as there is nothing to hand it over in.
            status.conditions.iter().any(is) && status.handover.is_none() == (name == "map")
        };
        bed.until(name, "refused", refused).await;
        let _ = quotas.delete(name, &DeleteParams::default()).await.unwrap();
        bed.until_status(name, JobStatus::Done).await;
    }
    assert_eq!(bed.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_nobody_can_tell_is_a_condition_with_the_choices() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let mut spec = bed.spec("true", &json!({ "resourceURL": "https://hpc.example.com/api" }));
    spec.as_object_mut().unwrap().remove("resourceManager");
    bed.try_create("job", spec).await.unwrap();
    let status = bed.until_status("job", JobStatus::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("ManagerUnknown"));
    assert!(status.message.unwrap().contains("slurm, lsf, ray, quantum"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_left_alone() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let maps: Api<ConfigMap> = bed.api();
    let own = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "job-bridge-cm" }, "data": { "a": "b" } });
    maps.patch("job-bridge-cm", &PatchParams::apply("test"), &Patch::Apply(own)).await.unwrap();
    bed.create("job", "true", &json!({})).await;
    bed.until("job", "waiting", |status| status.message.as_ref().is_some_and(|m| m.contains("job-bridge-cm"))).await;
    assert_eq!(bed.config_map("job").await.unwrap().data.unwrap().len(), 1);
    let _ = maps.delete("job-bridge-cm", &DeleteParams::default()).await.unwrap();
    bed.until_status("job", JobStatus::Done).await;

    let accounts: Api<ServiceAccount> = bed.api();
    let own = json!({ "metadata": { "name": "other-bridge" } });
    accounts.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
    bed.create("other", "true", &json!({})).await;
    let told = |status: &bridge_api::BridgeJobStatus| {
        status.message.as_ref().is_some_and(|m| m.contains("service account other-bridge") && m.contains("delete it"))
    };
    bed.until("other", "waiting for the account", told).await;
    let _ = accounts.delete("other-bridge", &DeleteParams::default()).await.unwrap();
    bed.until_status("other", JobStatus::Done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_job_is_held_where_slurm_can() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::with(
        lab,
        EmulatorOptions { cpus: 1, kill_wait: Duration::from_millis(200), ..EmulatorOptions::default() },
    )
    .await;
    bed.create("first", FOR_EVER, &json!({})).await;
    bed.until_status("first", JobStatus::Running).await;
    bed.create("second", "true", &json!({})).await;
    let id = bed.until("second", "queued", |status| status.jobid.is_some()).await.jobid.unwrap();
    bed.set("second", &json!({ "suspend": true })).await;
    bed.until_status("second", JobStatus::Suspended).await;
    bed.set("first", &json!({ "kill": true })).await;
    bed.until_status("first", JobStatus::Killed).await;
    bed.set("second", &json!({ "suspend": false })).await;
    let status = bed.until_status("second", JobStatus::Done).await;
    assert_eq!((status.jobid, status.attempts), (Some(id), Some(1)));
}
