use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bridge_api::ResourceManager;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::keys::Data;

/// A cluster that answers each kind of request as it was told, and keeps a list of what it was asked for.
#[derive(Default)]
struct Cluster {
    /// Part of "METHOD path", code, and message or object.
    answers: Vec<(&'static str, u16, Value)>,
    asked: Vec<String>,
}

impl Cluster {
    fn answer(&mut self, request: &str, body: &Value) -> (u16, Value) {
        self.asked.push(format!("{request} {body}"));
        match self.answers.iter().find(|(part, ..)| request.contains(part)) {
            Some((_, code, Value::String(message))) => {
                (*code, json!({ "kind": "Status", "code": code, "message": message, "reason": "Odd" }))
            }
            Some((_, code, object)) => (*code, object.clone()),
            None if request.starts_with("POST") => {
                let mut made = body.clone();
                made["metadata"]["uid"] = json!("made");
                (201, made)
            }
            None => {
                (200, json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "hello-bridge-cm" } }))
            }
        }
    }
}

fn client(cluster: &Arc<Mutex<Cluster>>) -> Client {
    let cluster = Arc::clone(cluster);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let cluster = Arc::clone(&cluster);
        async move {
            let asked = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = cluster.lock().unwrap().answer(&asked, &body);
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "team")
}

fn job() -> BridgeJob {
    let spec = r#"{"resourceURL":"http://x","image":"own:1","jobdata":{"jobscript":"s"}}"#;
    let mut job = BridgeJob::new("hello", serde_json::from_str(spec).unwrap());
    job.metadata.namespace = Some("team".to_owned());
    job.metadata.uid = Some("job-uid".to_owned());
    job
}

/// Takes these steps in a cluster that answers so; how that ended, and what the cluster was asked for.
async fn apply(runs: Runs, answers: &[(&'static str, u16, Value)], steps: &[Step]) -> (Result<(), ApplyError>, String) {
    let cluster = Arc::new(Mutex::new(Cluster { answers: answers.to_vec(), asked: Vec::new() }));
    let planned = Planned { runs, manager: Some(ResourceManager::Slurm), needs: Vec::new() };
    let (client, job) = (client(&cluster), job());
    let applier = Applier { client: &client, job: &job, planned: Some(&planned), worker_image: "bridge:1" };
    let result = applier.apply(steps).await;
    let asked = cluster.lock().unwrap().asked.join("\n");
    (result, asked)
}

fn foreign() -> Runs {
    Runs::Foreign { image: "own:1".to_owned() }
}

/// Makes the pod of a foreign job; how that ended, and whether the mark of its making is there afterwards.
async fn make_foreign_pod(answers: &[(&'static str, u16, Value)]) -> (Result<(), ApplyError>, bool) {
    let steps = [
        Step::MarkPodMade { uid: Some("map".to_owned()), at: Timestamp::UNIX_EPOCH },
        Step::MakePod { uid: Some("map".to_owned()), restarts: 0 },
    ];
    let (result, asked) = apply(foreign(), answers, &steps).await;
    let mark = asked.lines().rfind(|line| line.contains(ANNOTATION_POD_MADE));
    let marked = mark.is_some_and(|mark| !mark.contains(&format!("\"{ANNOTATION_POD_MADE}\":null")));
    (result, marked)
}

const POST_POD: &str = "POST /api/v1/namespaces/team/pods";
const GET_POD: &str = "GET /api/v1/namespaces/team/pods/hello-bridge-pod";

#[tokio::test]
async fn a_foreign_pod_is_marked_as_made_unless_it_surely_was_not() {
    let (result, marked) = make_foreign_pod(&[]).await;
    assert!(result.is_ok() && marked, "{result:?}");
    // What fails before the pod is asked for leaves no mark at all.
    for before in ["POST /api/v1/namespaces/team/serviceaccounts", "/roles?", "/rolebindings"] {
        let (result, marked) = make_foreign_pod(&[(before, 500, json!("etcd is away"))]).await;
        assert!(result.is_err() && !marked, "{before}: {result:?}");
    }
    let webhook = "Internal error occurred: failed calling webhook \"x\"";
    for (code, message, stays) in [
        (403, "exceeded quota", false),
        (429, "too many requests", false),
        (500, webhook, false),
        (500, "etcdserver: request timed out", true),
        (504, "timeout", true),
    ] {
        let (result, marked) = make_foreign_pod(&[(POST_POD, code, json!(message))]).await;
        assert!(result.is_err() && marked == stays, "{code} {message}: {result:?} {marked}");
    }
}

#[tokio::test]
async fn a_pod_that_is_there_for_this_config_map_is_the_one() {
    let pod = |owner: &str| {
        let owners = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": owner }]);
        json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "name": "hello-bridge-pod", "uid": "p", "ownerReferences": owners } })
    };
    let there = (POST_POD, 409, json!("already exists"));
    let (ours, marked) = make_foreign_pod(&[there.clone(), (GET_POD, 200, pod("map"))]).await;
    assert!(ours.is_ok() && marked, "{ours:?}");
    let (another, marked) = make_foreign_pod(&[there, (GET_POD, 200, pod("earlier"))]).await;
    assert!(matches!(another, Err(ApplyError::NotYet(_))) && !marked, "{another:?}");
}

#[tokio::test]
async fn a_config_map_that_was_surely_not_made_is_told_from_one_that_may_be() {
    let steps = [Step::MakeMap { told: Data::new(), pod_made: None }];
    for (code, surely) in [(403, true), (422, true), (429, true), (500, false), (503, false), (504, false)] {
        let answers = [("POST /api/v1/namespaces/team/configmaps", code, json!("no"))];
        let (result, _) = apply(foreign(), &answers, &steps).await;
        assert_eq!(matches!(result, Err(ApplyError::Refused { map: true, .. })), surely, "{code}: {result:?}");
    }
}

#[tokio::test]
async fn a_config_map_is_tried_without_being_made() {
    for (message, passes) in [("exceeded quota", false), ("admission webhook does not support dry run", true)] {
        let answers = vec![("POST /api/v1/namespaces/team/configmaps?&dryRun=All", 400, json!(message))];
        let cluster = Arc::new(Mutex::new(Cluster { answers, asked: Vec::new() }));
        let planned = Planned { runs: foreign(), manager: None, needs: Vec::new() };
        let (client, job) = (client(&cluster), job());
        let applier = Applier { client: &client, job: &job, planned: Some(&planned), worker_image: "bridge:1" };
        assert_eq!(applier.try_map().await.is_ok(), passes, "{message}: {:?}", cluster.lock().unwrap().asked);
    }
}

#[tokio::test]
async fn what_is_in_the_way_is_told_unless_it_goes_by_itself() {
    let account = |labels: Value, owners: Value| {
        json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "name": "hello-bridge", "uid": "a", "labels": labels, "ownerReferences": owners } })
    };
    let managed = json!({ api::LABEL_MANAGED_BY: api::MANAGED_BY });
    let earlier = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "earlier" }]);
    for (there, goes) in [
        (account(managed.clone(), earlier), true),
        (account(managed, json!([])), false),
        (account(json!({}), json!([])), false),
    ] {
        let answers = [
            ("POST /api/v1/namespaces/team/serviceaccounts", 409, json!("already exists")),
            ("GET /api/v1/namespaces/team/serviceaccounts", 200, there.clone()),
        ];
        let steps = [Step::MakePod { uid: Some("map".to_owned()), restarts: 0 }];
        let (result, asked) = apply(Runs::Worker { replaced: None }, &answers, &steps).await;
        let told = matches!(&result, Err(ApplyError::Refused { message, .. }) if message.contains("kubectl delete"));
        assert!(told != goes && !asked.contains(POST_POD), "{there}: {result:?}");
    }
}
