//! A job's life, whatever happens to its objects.

use bridge_api::JobStatus;
use bridge_api::names as api;
use bridge_operator::names;
use bridge_testkit::faults::{Fault, Operation};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bed::{Bed, FOR_EVER, eventually, has_succeeded, until};

fn condition(status: &bridge_api::BridgeJobStatus, type_: &str) -> Option<(String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_mirrored_from_apply_to_done() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("hello", "echo hello; sleep 2", &json!({})).await;
    bed.kubectl(&["wait", "--for=condition=Complete", "bridgejob/hello", "--timeout=600s"]).await;
    let status = bed.status("hello").await;
    assert_eq!((status.jobstatus, status.exitcode, bed.runs()), (Some(JobStatus::Done), Some(0), 1));
    assert!(status.submittime.is_some() && status.starttime.is_some() && status.completiontime.is_some());
    let table = bed.kubectl(&["get", "bj", "hello"]).await;
    assert!(table.contains("DONE") && table.contains("slurm"), "{table}");
    let wide = bed.kubectl(&["get", "bj", "hello", "-o", "wide"]).await;
    assert!(wide.contains(&bed.slurm.url()), "{wide}");
    // Events are told after the status.
    let told = ["get", "events", "--field-selector", "involvedObject.kind=BridgeJob"];
    eventually(async || bed.kubectl(&told).await.contains("Completed")).await;
    until(&bed.api::<Pod>(), "hello-bridge-pod", "over", has_succeeded).await;
    let log = bed.kubectl(&["logs", "hello-bridge-pod"]).await;
    assert!(log.contains("DONE"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_or_evicted_is_made_again_and_finds_its_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    let before = bed.until_status("job", JobStatus::Running).await;
    let pods: Api<Pod> = bed.api();
    let pod = pods.get(&names::pod("job")).await.unwrap();
    let _ = pods.delete(&names::pod("job"), &DeleteParams::default()).await.unwrap();
    let pod = bed.until_pod_runs("job", pod.metadata.uid.as_deref()).await;
    pods.evict(&names::pod("job"), &EvictParams::default()).await.unwrap();
    bed.until_pod_runs("job", pod.metadata.uid.as_deref()).await;
    bed.go();
    let after = bed.until_status("job", JobStatus::Done).await;
    assert_eq!((before.jobid, bed.runs()), (after.jobid, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_crashes_is_made_again_and_finds_its_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    let pod = bed.until_pod_runs("job", None).await;
    kill_process(Pid::from_raw(Bed::worker_process(&pod)).unwrap(), Signal::KILL).unwrap();
    bed.until_pod_runs("job", pod.metadata.uid.as_deref()).await;
    bed.go();
    bed.until_status("job", JobStatus::Done).await;
    assert_eq!(bed.runs(), 1);
}

/// The node of the first worker is cut off: it stands still while a second takes over, and then comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_back_from_the_dead_does_nothing() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    let pod = bed.until_pod_runs("job", None).await;
    // The same worker once more, as if the first one's node had lost touch with the cluster.
    let twin: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "twin", "ownerReferences": pod.metadata.owner_references },
        "spec": twin_spec(&pod),
    }))
    .unwrap();
    let old = Pid::from_raw(Bed::worker_process(&pod)).unwrap();
    kill_process(old, Signal::STOP).unwrap();
    let pods: Api<Pod> = bed.api();
    pods.create(&kube::api::PostParams::default(), &twin).await.unwrap();
    let holder = |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref()?.get("bridge.state").cloned())
            .is_some_and(|state| !state.contains(&format!("pod-{}", pod.metadata.uid.as_deref().unwrap_or_default())))
    };
    until(&bed.api::<ConfigMap>(), &names::config_map("job"), "taken over", holder).await;
    let ended = |pod: Option<&Pod>| {
        let state = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone());
        state.and_then(|state| state.terminated).is_some_and(|terminated| terminated.exit_code == 75)
    };
    // The end of the job is what it would write down.
    let go_on = async {
        kill_process(old, Signal::CONT).unwrap();
        bed.go();
    };
    let name = names::pod("job");
    tokio::join!(until(&pods, &name, "fenced", ended), go_on);
    bed.until_status("job", JobStatus::Done).await;
    assert_eq!(bed.runs(), 1);
}

fn twin_spec(pod: &Pod) -> serde_json::Value {
    let mut spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
    // Made anew by the API server.
    spec["containers"][0]["volumeMounts"]
        .as_array_mut()
        .unwrap()
        .retain(|mount| !mount["name"].as_str().unwrap().starts_with("kube-api-access"));
    spec["volumes"]
        .as_array_mut()
        .unwrap()
        .retain(|volume| !volume["name"].as_str().unwrap().starts_with("kube-api-access"));
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_deleted_by_hand_is_made_again_with_its_state() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    let before = bed.config_map("job").await.unwrap();
    let maps: Api<ConfigMap> = bed.api();
    let _ = maps.delete(&names::config_map("job"), &DeleteParams::default()).await.unwrap();
    let other = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != before.uid());
    let after = until(&maps, &names::config_map("job"), "made again", other).await.unwrap();
    assert!(after.data.unwrap()["bridge.state"].contains("active"));
    bed.go();
    bed.until_status("job", JobStatus::Done).await;
    assert_eq!(bed.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_taken_by_force_is_made_again_and_the_job_is_looked_for() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", &bed.until_go(), &json!({})).await;
    bed.until_status("job", JobStatus::Running).await;
    let maps: Api<ConfigMap> = bed.api();
    let name = names::config_map("job");
    let before = bed.config_map("job").await.unwrap();
    let bare = json!({ "metadata": { "finalizers": null } });
    maps.patch(&name, &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
    let _ = maps.delete(&name, &DeleteParams::default()).await.unwrap();
    until(&maps, &name, "made again", |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != before.uid())).await;
    bed.go();
    bed.until_status("job", JobStatus::Done).await;
    assert_eq!(bed.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_the_submission_does_not_submit_twice() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.slurm.faults().next(Operation::Submit, Fault::LostReply);
    bed.create("job", "sleep 1", &json!({})).await;
    let status = bed.until_status("job", JobStatus::Done).await;
    assert_eq!((bed.runs(), status.attempts), (1, Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_cancels_the_remote_job_first() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    for (name, propagation) in [
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
        ("orphan", PropagationPolicy::Orphan),
    ] {
        bed.create(name, FOR_EVER, &json!({})).await;
        let id = bed.until_status(name, JobStatus::Running).await.jobid.unwrap();
        bed.delete(name, &DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() }).await;
        assert!(bed.remote_state(&id).await.contains("CANCELLED"), "{name}");
        assert!(bed.config_map(name).await.is_none());
        bed.until_gone(&bed.api::<Pod>(), &names::pod(name)).await;
        bed.until_gone(&bed.api::<ServiceAccount>(), &names::access(name)).await;
        bed.until_gone(&bed.api::<Role>(), &names::access(name)).await;
        bed.until_gone(&bed.api::<RoleBinding>(), &names::access(name)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_cancels_also_while_the_remote_system_is_away() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({})).await;
    let id = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    bed.slurm.faults().outage(Fault::Reset);
    let _ = bed.jobs().delete("job", &DeleteParams::default()).await.unwrap();
    bed.until("job", "unreachable", |status| condition(status, "Reachable").is_some_and(|(holds, _)| holds == "False"))
        .await;
    bed.slurm.faults().clear();
    bed.until_gone(&bed.jobs(), "job").await;
    assert!(bed.remote_state(&id).await.contains("CANCELLED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_namespace_cancels_its_jobs() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({})).await;
    let id = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(bed.client.clone());
    let _ = namespaces.delete(&bed.ns, &DeleteParams::default()).await.unwrap();
    bed.until_gone(&namespaces, &bed.ns).await;
    assert!(bed.remote_state(&id).await.contains("CANCELLED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_without_its_secret_is_blocked_until_someone_helps() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("restored", FOR_EVER, &json!({})).await;
    bed.create("abandoned", FOR_EVER, &json!({})).await;
    let mut ids = Vec::new();
    for name in ["restored", "abandoned"] {
        ids.push(bed.until_status(name, JobStatus::Running).await.jobid.unwrap());
    }
    let _ = bed.api::<Secret>().delete("mysecret", &DeleteParams::default()).await.unwrap();
    for name in ["restored", "abandoned"] {
        let pod = bed.until_pod_runs(name, None).await;
        kill_process(Pid::from_raw(Bed::worker_process(&pod)).unwrap(), Signal::KILL).unwrap();
        bed.until(name, "waiting for the Secret", |status| {
            condition(status, "Ready") == Some(("False".into(), "SecretMissing".into()))
        })
        .await;
        let _ = bed.jobs().delete(name, &DeleteParams::default()).await.unwrap();
    }
    for (name, id) in ["restored", "abandoned"].into_iter().zip(&ids) {
        let status = bed
            .until(name, "blocked", |status| {
                condition(status, "Ready") == Some(("False".into(), "CancelBlocked".into()))
            })
            .await;
        let message = status.message.unwrap();
        assert!(
            message.contains(id) && message.contains(&bed.slurm.url()) && message.contains("mysecret"),
            "{message}"
        );
    }
    let uid = bed.jobs().get("abandoned").await.unwrap().uid().unwrap();
    let abandon = json!({ "metadata": { "annotations": { api::ANNOTATION_ABANDON: uid } } });
    bed.jobs().patch("abandoned", &PatchParams::default(), &Patch::Merge(abandon)).await.unwrap();
    bed.until_gone(&bed.jobs(), "abandoned").await;
    assert!(bed.remote_state(&ids[1]).await.contains("RUNNING"));
    bed.secret("mysecret", &[("username", "alice"), ("password", "alice-token")]).await;
    bed.until_gone(&bed.jobs(), "restored").await;
    assert!(bed.remote_state(&ids[0]).await.contains("CANCELLED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_taken_away_by_force_is_swept_and_cancelled() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", FOR_EVER, &json!({})).await;
    let id = bed.until_status("job", JobStatus::Running).await.jobid.unwrap();
    let bare = json!({ "metadata": { "finalizers": null } });
    bed.jobs().patch("job", &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
    let _ = bed.jobs().delete("job", &DeleteParams::default()).await.unwrap();
    bed.until_gone(&bed.api::<ConfigMap>(), &names::config_map("job")).await;
    assert!(bed.remote_state(&id).await.contains("CANCELLED"));
}
