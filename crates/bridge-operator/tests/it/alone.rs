//! The worker without an operator: a ConfigMap, a pod, and nobody who looks after them.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{Bed, FOR_EVER, until};

/// What the seeds' pipeline makes: the ConfigMap with every key, and a pod whose account may use ConfigMaps.
async fn pipeline(bed: &Bed, job: &str, script: &str) {
    let params = PatchParams::apply("pipeline").force();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "pipeline" } });
    bed.api::<ServiceAccount>().patch("pipeline", &params, &Patch::Apply(account)).await.unwrap();
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch", "list", "update", "patch"] }]);
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": { "name": "pipeline" }, "rules": rules });
    bed.api::<Role>().patch("pipeline", &params, &Patch::Apply(role)).await.unwrap();
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": "pipeline" },
        "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "pipeline" },
        "subjects": [{ "kind": "ServiceAccount", "name": "pipeline", "namespace": bed.ns }],
    });
    bed.api::<RoleBinding>().patch("pipeline", &params, &Patch::Apply(binding)).await.unwrap();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("{job}-bridge-cm") },
        "data": {
            "resourceURL": bed.slurm.versioned_url(41), "resourcesecret": "mysecret", "updateInterval": "1",
            "jobdata.jobScript": format!("#!/bin/sh\n{script}\n"), "jobdata.scriptLocation": "inline",
            "jobdata.scriptMetadata": "", "jobdata.jobParameters": "", "jobdata.scriptExtraLocation": "",
            "jobdata.additionalData": "", "jobproperties": "", "s3.endpoint": "", "s3.secure": "", "s3.secret": "",
            "s3upload.bucket": "", "s3upload.files": "", "kill": "",
        },
    });
    bed.api::<ConfigMap>().patch(&format!("{job}-bridge-cm"), &params, &Patch::Apply(map)).await.unwrap();
    bed.api::<Pod>().patch(job, &params, &Patch::Apply(pod(bed, job))).await.unwrap();
}

fn pod(bed: &Bed, job: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": job },
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": "pipeline",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "worker", "image": bed.image, "args": ["worker"],
                "env": [{ "name": "NAMESPACE", "value": bed.ns }, { "name": "JOBNAME", "value": job }],
                "volumeMounts": [{ "name": "credentials", "mountPath": "/credentials" }],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
            "volumes": [{ "name": "credentials", "secret": { "secretName": "mysecret" } }],
        },
    })
}

fn exit_code(pod: Option<&Pod>) -> Option<i32> {
    let state = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?;
    state.terminated.map(|terminated| terminated.exit_code)
}

async fn until_word(bed: &Bed, job: &str, word: &'static str) -> ConfigMap {
    let says = move |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref()?.get("status.jobStatus").cloned()).as_deref() == Some(word)
    };
    until(&bed.api::<ConfigMap>(), &format!("{job}-bridge-cm"), word, says).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipelines_job_runs_and_its_exit_code_is_the_pods() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    pipeline(&bed, "good", "true").await;
    pipeline(&bed, "bad", "exit 9").await;
    until(&bed.api::<Pod>(), "good", "exit code 0", |pod: Option<&Pod>| exit_code(pod) == Some(0)).await;
    until(&bed.api::<Pod>(), "bad", "exit code 9", |pod: Option<&Pod>| exit_code(pod) == Some(9)).await;
    let data = until_word(&bed, "good", "DONE").await.data.unwrap();
    assert!(!data["id"].is_empty() && data.contains_key("status.endTime"));
    assert_eq!(bed.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_the_pod_cancels_the_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    pipeline(&bed, "job", FOR_EVER).await;
    let id = until_word(&bed, "job", "RUNNING").await.data.unwrap()["id"].clone();
    let pods: Api<Pod> = bed.api();
    let _ = pods.delete("job", &DeleteParams::default()).await.unwrap();
    bed.until_gone(&pods, "job").await;
    assert!(bed.remote_state(&id).await.contains("CANCELLED"));
    until_word(&bed, "job", "KILLED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_vanishes_does_not_end_the_watch() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    pipeline(&bed, "job", &format!("{}; exit 5", bed.until_go())).await;
    until_word(&bed, "job", "RUNNING").await;
    let _ = bed.api::<ConfigMap>().delete("job-bridge-cm", &DeleteParams::default()).await.unwrap();
    bed.go();
    until(&bed.api::<Pod>(), "job", "exit code 5", |pod: Option<&Pod>| exit_code(pod) == Some(5)).await;
    assert_eq!(bed.runs(), 1);
}
