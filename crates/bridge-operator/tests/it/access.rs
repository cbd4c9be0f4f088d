//! Who may do what, and what is refused.

use bridge_api::{BridgeJob, JobStatus};
use bridge_operator::names;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::bed::{Bed, eventually};

impl Bed {
    async fn client_as(&self, user: &str) -> Client {
        let mut config = self.kubernetes.config().await.unwrap();
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).unwrap()
    }

    async fn grant(&self, name: &str, user: &str, rules: Value) {
        let params = PatchParams::apply("test").force();
        let rbac = "rbac.authorization.k8s.io";
        let role =
            json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": { "name": name }, "rules": rules });
        self.api::<Role>().patch(name, &params, &Patch::Apply(role)).await.unwrap();
        let binding = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": name },
            "subjects": [{ "kind": "User", "name": user, "apiGroup": rbac }],
        });
        self.api::<RoleBinding>().patch(name, &params, &Patch::Apply(binding)).await.unwrap();
    }
}

fn is_forbidden<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_pod_may_use_its_own_config_map_and_nothing_else() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("one", "true", &json!({})).await;
    bed.create("two", "true", &json!({})).await;
    bed.until_status("one", JobStatus::Done).await;
    bed.until_status("two", JobStatus::Done).await;
    let pod = bed.client_as(&format!("system:serviceaccount:{}:{}", bed.ns, names::access("one"))).await;
    let maps: Api<ConfigMap> = Api::namespaced(pod.clone(), &bed.ns);
    maps.get(&names::config_map("one")).await.unwrap();
    let own = ListParams::default().fields(&format!("metadata.name={}", names::config_map("one")));
    assert_eq!(maps.list(&own).await.unwrap().items.len(), 1);
    assert!(is_forbidden(maps.get(&names::config_map("two")).await));
    assert!(is_forbidden(maps.list(&ListParams::default()).await));
    assert!(is_forbidden(maps.delete(&names::config_map("one"), &kube::api::DeleteParams::default()).await));
    let patch = json!({ "data": { "kill": "true" } });
    assert!(is_forbidden(maps.patch(&names::config_map("two"), &PatchParams::default(), &Patch::Merge(patch)).await));
    let secrets: Api<Secret> = Api::namespaced(pod.clone(), &bed.ns);
    assert!(is_forbidden(secrets.get("mysecret").await));
    assert!(is_forbidden(secrets.list(&ListParams::default()).await));
    let jobs: Api<BridgeJob> = Api::namespaced(pod, &bed.ns);
    assert!(is_forbidden(jobs.get("one").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_cannot_list_secrets() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let operator = bed.client_as("system:serviceaccount:bridge-system:bridge-operator").await;
    let secrets: Api<Secret> = Api::namespaced(operator, &bed.ns);
    secrets.get("mysecret").await.unwrap();
    assert!(is_forbidden(secrets.list(&ListParams::default()).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn naming_a_secret_needs_the_right_to_read_it_or_to_make_pods() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let jobs_only =
        json!([{ "apiGroups": ["bridgejob.ibm.com"], "resources": ["bridgejobs"], "verbs": ["create", "patch"] }]);
    bed.grant("jobs", "mallory", jobs_only).await;
    let mallory = bed.client_as("mallory").await;
    let jobs: Api<DynamicObject> = Api::namespaced_with(mallory, &bed.ns, &ApiResource::erase::<BridgeJob>(&()));
    let create = async |name: &str, more: &Value| {
        let mut spec = bed.spec("true", &json!({ "suspend": true }));
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let job = json!({ "apiVersion": "bridgejob.ibm.com/v1alpha1", "kind": "BridgeJob", "metadata": { "name": name }, "spec": spec });
        let made = jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await;
        made.map_err(|error| error.to_string())
    };
    // A grant takes effect within moments.
    eventually(async || !create("one", &json!({})).await.unwrap_err().contains("cannot create resource")).await;
    let refusal = create("one", &json!({})).await.unwrap_err();
    assert!(refusal.contains("resourcesecret names Secret \"mysecret\""), "{refusal}");
    let ray = json!({ "resourceManager": "ray", "resourcesecret": "", "suspend": true });
    create("nosecret", &ray).await.unwrap();
    let s3 = json!({ "resourceManager": "ray", "resourcesecret": "", "s3storage": { "s3secret": "other", "endpoint": "e" } });
    let refusal = create("s3", &s3).await.unwrap_err();
    assert!(refusal.contains("s3storage.s3secret names Secret \"other\""), "{refusal}");
    let pulls = json!({ "imagePullSecrets": [{ "name": "other" }] });
    let pulls = json!({ "resourceManager": "ray", "resourcesecret": "", "podTemplate": pulls });
    let refusal = create("pulls", &pulls).await.unwrap_err();
    assert!(refusal.contains("imagePullSecrets names a Secret which you may not use"), "{refusal}");
    let foreign = json!({ "resourceManager": "ray", "resourcesecret": "", "image": "own:1" });
    let refusal = create("foreign", &foreign).await.unwrap_err();
    assert!(refusal.contains("would run as a pod"), "{refusal}");
    let replaced =
        json!({ "resourceManager": "ray", "resourcesecret": "", "image": "registry.example.com/x/ray-pod:1" });
    create("replaced", &replaced).await.unwrap();

    let one_secret =
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mysecret"], "verbs": ["get"] }]);
    bed.grant("secret", "mallory", one_secret).await;
    eventually(async || create("two", &json!({})).await.is_ok()).await;
    let pods = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["create"] }]);
    bed.grant("pods", "mallory", pods).await;
    eventually(async || create("three", &foreign).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_cannot_be_changed() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.create("job", "true", &json!({ "suspend": true, "jobproperties": { "Tasks": "1" } })).await;
    let patch = async |patch: Value| {
        let patched = bed.jobs().patch("job", &PatchParams::default(), &Patch::Merge(json!({ "spec": patch }))).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    let refusal = patch(json!({ "jobproperties": { "Tasks": "2" } })).await.unwrap_err();
    assert!(refusal.contains("jobproperties cannot be changed"), "{refusal}");
    let refusal = patch(json!({ "jobproperties": null })).await.unwrap_err();
    assert!(refusal.contains("jobproperties cannot be changed"), "{refusal}");
    patch(json!({ "backoffLimit": 3 })).await.unwrap();
}
