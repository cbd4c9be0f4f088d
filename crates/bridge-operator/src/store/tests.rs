use std::convert::Infallible;
use std::sync::Arc;

use kube::client::Body;
use serde_json::Value;

use super::*;

/// A `ConfigMap` in a cluster that does what it is asked, and then may never answer.
struct Cluster {
    revision: u64,
    data: Value,
    silent: bool,
}

impl Cluster {
    fn handle(&mut self, save: Option<Value>) -> (u16, Value) {
        if let Some(save) = save {
            if save["metadata"]["resourceVersion"] != json!(self.revision.to_string()) {
                return (409, json!({ "kind": "Status", "code": 409, "reason": "Conflict" }));
            }
            self.revision += 1;
            self.data = save["data"].clone();
        }
        let metadata = json!({ "name": "j-bridge-cm", "uid": "u", "resourceVersion": self.revision.to_string() });
        (200, json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": self.data }))
    }
}

fn store(cluster: &Arc<Mutex<Cluster>>) -> ConfigMapStore {
    let cluster = Arc::clone(cluster);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let cluster = Arc::clone(&cluster);
        async move {
            let saves = request.method() == http::Method::PATCH;
            let body = request.into_body().collect_bytes().await.unwrap();
            let save = saves.then(|| serde_json::from_slice(&body).unwrap());
            let (silent, (code, answer)) = {
                let mut cluster = cluster.lock().unwrap();
                (cluster.silent, cluster.handle(save))
            };
            if silent {
                std::future::pending::<()>().await;
            }
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    ConfigMapStore::new(Client::new(service, "ns"), &JobKey::new("ns", "j"), "u", Keeper::Operator)
}

#[tokio::test(start_paused = true)]
async fn a_save_that_arrived_without_an_answer_is_found_and_not_made_twice() {
    let cluster = Arc::new(Mutex::new(Cluster { revision: 1, data: json!({}), silent: true }));
    let (store, key) = (store(&cluster), JobKey::new("ns", "j"));
    let record = JobRecord::new("uid", "me");
    let first = Revision("1".to_owned());

    let unclear = store.save(&key, &record, Some(&first)).await;
    assert!(matches!(unclear, Err(SaveError::Unavailable { .. })), "{unclear:?}");
    assert!(matches!(store.load(&key).await, Err(LoadError::Unavailable { .. })));

    cluster.lock().unwrap().silent = false;
    assert!(matches!(store.save(&key, &record, Some(&first)).await, Err(SaveError::Conflict)));
    assert!(matches!(store.save(&key, &record, None).await, Err(SaveError::Conflict)));
    let found = store.load(&key).await.unwrap().unwrap();
    assert_eq!((found.record, found.revision), (record, Revision("2".to_owned())));
}
