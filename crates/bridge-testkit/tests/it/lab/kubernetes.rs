//! Pods that run, and what they reach.

use bridge_testkit::lab::TestNamespace;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::SYSTEM_PATIENCE;

#[tokio::test]
async fn a_pod_runs_to_completion_and_its_log_is_read() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let kubernetes = lab.kubernetes().await.unwrap();
    let namespace = kubernetes.namespace().await.unwrap();
    let (phase, log) = run(&namespace, "hello", json!({"command": ["echo", "hello from a pod"]}), json!([])).await;
    assert_eq!((phase.as_str(), log.as_str()), ("Succeeded", "hello from a pod\n"));
}

#[tokio::test]
async fn a_client_in_a_pod_reaches_the_api_by_its_service_account() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let kubernetes = lab.kubernetes().await.unwrap();
    let Some(kubectl) = &kubernetes.kubectl else {
        return bridge_testkit::skip!("BRIDGE_TEST_KUBECONFIG: that cluster's nodes do not have the lab's kubectl");
    };
    let namespace = kubernetes.namespace().await.unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace.name}],
    }))
    .unwrap();
    Api::namespaced(namespace.client.clone(), &namespace.name).create(&PostParams::default(), &binding).await.unwrap();
    let (phase, log) = run(
        &namespace,
        "client",
        json!({
            "command": ["sh", "-c", "kubectl get pods -o name && ! kubectl get secrets 2>&1"],
            "volumeMounts": [{"name": "kubectl", "mountPath": "/bin/kubectl"}],
        }),
        json!([{"name": "kubectl", "hostPath": {"path": kubectl.canonicalize().unwrap(), "type": "File"}}]),
    )
    .await;
    assert_eq!(phase, "Succeeded", "{log}");
    assert!(log.starts_with("pod/client\n"), "{log}");
    assert!(log.contains("secrets is forbidden"), "{log}");
}

#[tokio::test]
async fn a_pod_reaches_slurmrestd_ray_s3_and_servers_of_the_test() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let (kubernetes, slurm, ray, s3) = tokio::try_join!(lab.kubernetes(), lab.slurm(), lab.ray(), lab.s3()).unwrap();
    if kubernetes.kubectl.is_none() {
        return bridge_testkit::skip!("BRIDGE_TEST_KUBECONFIG: pods of that cluster do not reach the lab");
    }
    let listener = tokio::net::TcpListener::bind((lab.host().await.unwrap(), 0)).await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(async || "the test itself")).await });
    let namespace = kubernetes.namespace().await.unwrap();
    std::fs::write(s3.object_path("greeting"), "from a bucket").unwrap();
    let script = format!(
        "wget -qO- {}slurm/v0.0.38/ping 2>&1; wget -qO- {}api/version 2>&1; wget -qO- '{}'; echo; wget -qO- http://{own}/; true",
        slurm.url,
        ray.url,
        s3.presign("GET", "greeting"),
    );
    let (phase, log) = run(&namespace, "caller", json!({"command": ["sh", "-c", script]}), json!([])).await;
    assert_eq!(phase, "Succeeded", "{log}");
    assert_eq!(
        log.matches("wget: server returned error: HTTP/1.1 401").count(),
        2,
        "slurmrestd and Ray ask for a token:\n{log}"
    );
    assert!(log.ends_with("from a bucket\nthe test itself"), "{log}");
}

#[tokio::test]
async fn a_service_is_found_by_its_dns_name() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let namespace = lab.kubernetes().await.unwrap().namespace().await.unwrap();
    let command = json!({"command": ["nslookup", "kubernetes.default.svc.cluster.local"]});
    let (phase, log) = run(&namespace, "lookup", command, json!([])).await;
    assert_eq!(phase, "Succeeded", "{log}");
    assert!(log.contains("10.96.0.1"), "{log}");
}

/// Runs a pod of one container to its end; returns its phase and its log.
async fn run(
    namespace: &TestNamespace,
    name: &str,
    mut container: serde_json::Value,
    volumes: serde_json::Value,
) -> (String, String) {
    container["name"] = "main".into();
    container["image"] = "localhost/busybox:1".into();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes},
    }))
    .unwrap();
    let pods = Api::<Pod>::namespaced(namespace.client.clone(), &namespace.name);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let ended = await_condition(pods.clone(), name, |pod: Option<&Pod>| {
        pod.and_then(phase).is_some_and(|phase| phase == "Succeeded" || phase == "Failed")
    });
    let ended = tokio::time::timeout(SYSTEM_PATIENCE, ended)
        .await
        .unwrap_or_else(|_| panic!("the pod {name} did not end in {SYSTEM_PATIENCE:?}"))
        .unwrap()
        .unwrap();
    let log = pods.logs(name, &LogParams::default()).await.unwrap();
    (phase(&ended).unwrap().to_owned(), log)
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}
