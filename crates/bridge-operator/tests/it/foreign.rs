//! Controller pods of other people.

use std::path::Path;

use bridge_api::JobStatus;
use bridge_operator::names;
use bridge_testkit::lab::{Kubernetes, Lab};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::bed::Bed;

const IMAGE: &str = "localhost/foreign-pod:1";
static BUILT: OnceCell<()> = OnceCell::const_new();

/// The example's image: its script, a shell and kubectl.
async fn build(lab: &Lab, kubernetes: &Kubernetes) {
    BUILT
        .get_or_init(async || {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/foreign-pod/controller.sh");
            image(lab, kubernetes, IMAGE, &std::fs::read_to_string(script).unwrap()).await;
        })
        .await;
}

/// An image with a shell, kubectl, and this script to begin with.
async fn image(lab: &Lab, kubernetes: &Kubernetes, name: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    std::fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    for applet in ["sh", "date", "sleep"] {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
    }
    std::fs::copy(std::fs::canonicalize(kubernetes.kubectl.as_ref().unwrap()).unwrap(), bin.join("kubectl")).unwrap();
    let program = folder.path().join("controller.sh");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = r#"{"Entrypoint":["/controller.sh"]}"#;
    lab.must("image", &[name, folder.path().to_str().unwrap(), config]).await.unwrap();
}

fn spec(bed: &Bed, seconds: &str, more: &Value) -> Value {
    let mut spec = bed.spec("", &json!({ "image": IMAGE, "jobdata": { "jobscript": seconds } }));
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_pod_runs_a_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    build(lab, &bed.kubernetes).await;
    bed.try_create("job", spec(&bed, "30", &json!({}))).await.unwrap();
    bed.until_status("job", JobStatus::Running).await;
    let status = bed.until_status("job", JobStatus::Done).await;
    assert!(status.jobid.is_some() && status.submittime.is_some() && status.completiontime.is_some());
    assert_eq!(status.manager, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_pod_obeys_kill_and_goes_on_after_a_crash() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    build(lab, &bed.kubernetes).await;
    bed.try_create("job", spec(&bed, "3600", &json!({}))).await.unwrap();
    let id = bed.until_status("job", JobStatus::Running).await.jobid;
    let pods: Api<Pod> = bed.api();
    let first = pods.get(&names::pod("job")).await.unwrap();
    let _ = pods.delete(&names::pod("job"), &DeleteParams::default().grace_period(0)).await.unwrap();
    bed.until_pod_runs("job", first.metadata.uid.as_deref()).await;
    bed.set("job", &json!({ "kill": true })).await;
    let status = bed.until_status("job", JobStatus::Killed).await;
    assert_eq!(status.jobid, id);

    bed.try_create("late", spec(&bed, "3600", &json!({}))).await.unwrap();
    bed.until_status("late", JobStatus::Running).await;
    bed.set("late", &json!({ "activeDeadlineSeconds": 3 })).await;
    let late = bed.until_status("late", JobStatus::Failed).await;
    assert_eq!(late.reason.as_deref(), Some("DeadlineExceeded"), "{late:?}");
}

/// Ends with 0 when it is told to stop, as well-behaved programs do; the second of its kind finds its job done.
const POLITE: &str = r#"#!/bin/sh
export HOME=/tmp
tell() { until kubectl -n "$NAMESPACE" patch configmap "$JOBNAME-bridge-cm" --type=merge -p "{\"data\":{$1}}"; do sleep 1; done; }
trap 'exit 0' TERM
until id=$(kubectl -n "$NAMESPACE" get configmap "$JOBNAME-bridge-cm" -o jsonpath='{.data.id}'); do sleep 1; done
case $id in
  '') tell '"id":"job-5","jobStatus":"RUNNING"' ;;
  *) tell '"jobStatus":"COMPLETED"'; exit 0 ;;
esac
while :; do sleep 1 & wait $!; done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_leaves_politely_has_not_done_its_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    image(lab, &bed.kubernetes, "localhost/polite-pod:1", POLITE).await;
    bed.try_create("job", spec(&bed, "1", &json!({ "image": "localhost/polite-pod:1" }))).await.unwrap();
    bed.until_status("job", JobStatus::Running).await;
    let pods: Api<Pod> = bed.api();
    let first = pods.get(&names::pod("job")).await.unwrap();
    let _ = pods.delete(&names::pod("job"), &DeleteParams::default()).await.unwrap();
    let status = bed.until_status("job", JobStatus::Done).await;
    assert!(
        status.message.as_ref().unwrap().contains("COMPLETED"),
        "not its own word, but the first pod's exit code: {status:?}"
    );
    assert_ne!(pods.get(&names::pod("job")).await.unwrap().metadata.uid, first.metadata.uid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_pod_is_judged_by_its_exit_code_and_a_lost_one_is_not_run_again() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    // Its shell reads an empty standard input and ends with 0.
    bed.try_create("silent", spec(&bed, "1", &json!({ "image": "localhost/busybox:1" }))).await.unwrap();
    bed.until_status("silent", JobStatus::Done).await;
    // It never starts, tells no id, and is taken away.
    let nowhere = json!({ "podTemplate": { "nodeSelector": { "no": "where" } }, "image": "localhost/busybox:1" });
    bed.try_create("lost", spec(&bed, "1", &nowhere)).await.unwrap();
    bed.until("lost", "waiting", |status| status.message.as_ref().is_some_and(|m| m.contains("cannot start"))).await;
    let _ = bed.api::<Pod>().delete(&names::pod("lost"), &DeleteParams::default()).await.unwrap();
    let status = bed.until_status("lost", JobStatus::Unknown).await;
    assert!(status.message.unwrap().contains("not run again"));
}

/// As pods written in Go do: it reads the whole `ConfigMap`, changes it, and PUTs it back; a write of anyone else in between
/// kills it. Its keys have no prefix, its times are of several kinds, and a final-looking word comes before the end.
const PUTS: &str = r#"#!/bin/sh
set -eu
export HOME=/tmp
put() {
  kubectl -n "$NAMESPACE" get configmap "$JOBNAME-bridge-cm" -o json > /tmp/map.json
  sleep 1
  kubectl patch --local -f /tmp/map.json --type=merge -p "{\"data\":{$1}}" -o json > /tmp/new.json
  kubectl replace -f /tmp/new.json
}
put '"id":"job-77","jobStatus":"SUBMITTED","submitTime":"1.65037756e+09","startTime":""'
put '"jobStatus":"COMPLETED","startTime":"19/04/2022 14:13:00","id":"","history":"kept"'
# Long enough for everyone to see that it goes on.
sleep 20
put '"jobStatus":"EXIT","endTime":"2022-04-19T14:14:00Z","message":"the disk was full"'
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_puts_whole_config_maps_is_understood_and_left_alone() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    image(lab, &bed.kubernetes, "localhost/putting-pod:1", PUTS).await;
    bed.try_create("job", spec(&bed, "1", &json!({ "image": "localhost/putting-pod:1" }))).await.unwrap();
    let early = bed.until("job", "started", |status| status.starttime.is_some()).await;
    assert_eq!(early.jobstatus, Some(JobStatus::Running), "only the pod's end ends the job");
    let status = bed.until_status("job", JobStatus::Failed).await;
    assert_eq!(status.jobid.as_deref(), Some("job-77"), "an empty value clears nothing");
    let times = [status.submittime, status.starttime, status.completiontime].map(|time| time.unwrap().0.to_string());
    assert_eq!(times, ["2022-04-19T14:12:40Z", "2022-04-19T14:13:00Z", "2022-04-19T14:14:00Z"]);
    assert!(status.message.unwrap().contains("the disk was full"));
}
