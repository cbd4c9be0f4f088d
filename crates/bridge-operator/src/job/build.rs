//! The objects of one job. Needs no client: every reference was read before.

use std::collections::BTreeMap;

use bridge_api::names as api;
use bridge_api::{BridgeJob, EnvVar as UserVar, PodTemplate, ResourceManager};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ObjectFieldSelector, Pod,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext,
    ServiceAccount, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use super::plan::Runs;
use super::seen::{ANNOTATION_POD_MADE, ANNOTATION_RESTARTS};
use crate::keys::{self, Data};
use crate::names;

/// Verbs of a controller pod on its one `ConfigMap`. The operator must hold the same, or it could not grant them.
pub const WORKER_VERBS: [&str; 5] = ["get", "list", "watch", "update", "patch"];

/// Seconds our worker has between SIGTERM and SIGKILL: enough to cancel a remote job and see it end.
pub const GRACE_SECONDS: i64 = 60;

const USER: i64 = 65532;

/// What was decided about a job and its objects follow from.
#[derive(Debug, Clone)]
pub struct Blueprint<'a> {
    /// The job.
    pub job: &'a BridgeJob,
    /// What runs as its controller pod.
    pub runs: &'a Runs,
    /// The remote system's kind; unknown for foreign pods.
    pub manager: Option<ResourceManager>,
    /// Image of our worker.
    pub worker_image: &'a str,
}

impl Blueprint<'_> {
    /// The `ConfigMap`. No owner: foreground deletion of the job would take it and the pod away before the remote job is
    /// cancelled. `told` is what a controller pod wrote before, `pod_made` when a foreign one was made, for a `ConfigMap`
    /// that has to be made again.
    #[must_use]
    pub fn config_map(&self, told: Data, pod_made: Option<Timestamp>) -> ConfigMap {
        let mut data = keys::write(&self.job.spec, self.manager);
        data.extend(told);
        let mut metadata = self.meta(names::config_map(&self.job.name_any()), None);
        metadata.labels.get_or_insert_default().insert(api::LABEL_WORKER.to_owned(), self.kind().to_owned());
        metadata.annotations = pod_made.map(|at| BTreeMap::from([(ANNOTATION_POD_MADE.to_owned(), at.to_string())]));
        ConfigMap {
            metadata: ObjectMeta { finalizers: Some(vec![api::FINALIZER_RECORD.to_owned()]), ..metadata },
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    /// The pod's identity.
    #[must_use]
    pub fn service_account(&self, config_map_uid: &str) -> ServiceAccount {
        ServiceAccount {
            metadata: self.meta(names::access(&self.job.name_any()), Some(config_map_uid)),
            // The pod asks for its token itself; nobody else under this name needs one.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        }
    }

    /// What it may do: read and write its one `ConfigMap`.
    #[must_use]
    pub fn role(&self, config_map_uid: &str) -> Role {
        let job = self.job.name_any();
        Role {
            metadata: self.meta(names::access(&job), Some(config_map_uid)),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["configmaps".to_owned()]),
                resource_names: Some(vec![names::config_map(&job)]),
                verbs: WORKER_VERBS.map(str::to_owned).to_vec(),
                ..PolicyRule::default()
            }]),
        }
    }

    /// Ties the two together.
    #[must_use]
    pub fn role_binding(&self, config_map_uid: &str) -> RoleBinding {
        let name = names::access(&self.job.name_any());
        RoleBinding {
            metadata: self.meta(name.clone(), Some(config_map_uid)),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "Role".to_owned(),
                name: name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: self.job.namespace(),
                ..Subject::default()
            }]),
        }
    }

    /// The controller pod; `restarts` before it ended without a result.
    #[must_use]
    pub fn pod(&self, config_map_uid: &str, restarts: u32) -> Pod {
        let template = self.job.spec.pod_template();
        let job = self.job.name_any();
        let mut metadata = self.meta(names::pod(&job), Some(config_map_uid));
        let mut labels = template.labels.clone();
        labels.extend(metadata.labels.take().unwrap_or_default());
        labels.insert(api::LABEL_WORKER.to_owned(), self.kind().to_owned());
        if let Some(manager) = self.manager {
            labels.insert(api::LABEL_MANAGER.to_owned(), manager.as_str().to_owned());
        }
        metadata.labels = Some(labels);
        let mut annotations = template.annotations.clone();
        if restarts > 0 {
            annotations.insert(ANNOTATION_RESTARTS.to_owned(), restarts.to_string());
        }
        metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        Pod {
            metadata,
            spec: Some(PodSpec {
                service_account_name: Some(names::access(&job)),
                automount_service_account_token: Some(true),
                restart_policy: Some("Never".to_owned()),
                termination_grace_period_seconds: (!self.is_foreign()).then_some(GRACE_SECONDS),
                enable_service_links: Some(false),
                security_context: Some(pod_security()),
                containers: vec![self.container(config_map_uid, &template)],
                volumes: Some(self.volumes()),
                node_selector: Some(template.node_selector).filter(|selector| !selector.is_empty()),
                tolerations: Some(template.tolerations).filter(|tolerations| !tolerations.is_empty()),
                image_pull_secrets: Some(template.image_pull_secrets).filter(|secrets| !secrets.is_empty()),
                ..PodSpec::default()
            }),
            ..Pod::default()
        }
    }

    fn is_foreign(&self) -> bool {
        matches!(self.runs, Runs::Foreign { .. })
    }

    fn kind(&self) -> &'static str {
        if self.is_foreign() { "foreign" } else { "ours" }
    }

    fn container(&self, config_map_uid: &str, template: &PodTemplate) -> Container {
        let (image, args) = match self.runs {
            Runs::Worker { .. } => (self.worker_image.to_owned(), Some(vec!["worker".to_owned()])),
            Runs::Foreign { image } => (image.clone(), None),
        };
        Container {
            name: names::CONTAINER.to_owned(),
            image: Some(image),
            image_pull_policy: Some(self.job.spec.image_pull_policy.as_str().to_owned()),
            args,
            env: Some(self.env(config_map_uid, &template.env)),
            resources: Some(template.resources.clone().unwrap_or_else(|| self.resources())),
            volume_mounts: Some(self.mounts()),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
                read_only_root_filesystem: Some(!self.is_foreign()),
                ..SecurityContext::default()
            }),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        }
    }

    fn env(&self, config_map_uid: &str, user: &[UserVar]) -> Vec<EnvVar> {
        let literal =
            |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), ..EnvVar::default() };
        let mut env: Vec<EnvVar> = user.iter().map(|var| literal(&var.name, var.value.clone())).collect();
        env.push(literal(names::env::NAMESPACE, self.job.namespace().unwrap_or_default()));
        env.push(literal(names::env::JOB_NAME, self.job.name_any()));
        if !self.is_foreign() {
            env.push(EnvVar {
                name: names::env::POD_UID.to_owned(),
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        field_path: "metadata.uid".to_owned(),
                        ..ObjectFieldSelector::default()
                    }),
                    ..EnvVarSource::default()
                }),
                ..EnvVar::default()
            });
            env.push(literal(names::env::CONFIG_MAP_UID, config_map_uid.to_owned()));
            env.push(literal(names::env::GRACE_SECONDS, GRACE_SECONDS.to_string()));
        }
        env
    }

    fn resources(&self) -> ResourceRequirements {
        let quantities = |cpu: Option<&str>, memory: &str| {
            let mut map = BTreeMap::from([("memory".to_owned(), Quantity(memory.to_owned()))]);
            if let Some(cpu) = cpu {
                map.insert("cpu".to_owned(), Quantity(cpu.to_owned()));
            }
            Some(map)
        };
        if self.is_foreign() {
            // What the reference gave them.
            return ResourceRequirements {
                requests: quantities(Some("250m"), "100Mi"),
                limits: quantities(Some("500m"), "100Mi"),
                ..ResourceRequirements::default()
            };
        }
        // Moving data streams through a few parts in memory, the rest of the worker's life needs next to nothing.
        let moves_data = self.job.spec.s3().is_some();
        ResourceRequirements {
            requests: quantities(Some("5m"), if moves_data { "48Mi" } else { "16Mi" }),
            limits: quantities(None, if moves_data { "256Mi" } else { "64Mi" }),
            ..ResourceRequirements::default()
        }
    }

    fn volumes(&self) -> Vec<Volume> {
        let secret = |name: &str, secret: &str| Volume {
            name: name.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret.to_owned()),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        };
        let empty = |name: &str| Volume {
            name: name.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        };
        let spec = &self.job.spec;
        spec.secret()
            .map(|name| secret("credentials", name))
            .into_iter()
            .chain(spec.s3().map(|s3| secret("s3credentials", &s3.s3_secret)))
            .chain([empty("downloads"), empty("tmp")])
            .collect()
    }

    fn mounts(&self) -> Vec<VolumeMount> {
        self.volumes()
            .into_iter()
            .map(|volume| VolumeMount {
                mount_path: format!("/{}", volume.name),
                read_only: volume.secret.is_some().then_some(true),
                name: volume.name,
                ..VolumeMount::default()
            })
            .collect()
    }

    fn meta(&self, name: String, config_map_uid: Option<&str>) -> ObjectMeta {
        let job = self.job.name_any();
        ObjectMeta {
            namespace: self.job.namespace(),
            labels: Some(labels(&job, &self.job.uid().unwrap_or_default())),
            owner_references: config_map_uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "ConfigMap".to_owned(),
                    name: names::config_map(&job),
                    uid: uid.to_owned(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]
            }),
            name: Some(name),
            ..ObjectMeta::default()
        }
    }
}

fn labels(job: &str, uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (api::LABEL_MANAGED_BY.to_owned(), api::MANAGED_BY.to_owned()),
        (api::LABEL_JOB.to_owned(), job.to_owned()),
        (api::LABEL_JOB_UID.to_owned(), uid.to_owned()),
    ])
}

fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        // Mounted Secrets belong to root and to this group.
        fs_group: Some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: &str) -> BridgeJob {
        let mut job = BridgeJob::new("hello", serde_json::from_str(spec).unwrap());
        job.metadata.namespace = Some("team".to_owned());
        job.metadata.uid = Some("uid-1".to_owned());
        job
    }

    const FULL: &str = r#"{"resourceURL":"http://x","resourcesecret":"sec","jobdata":{"jobscript":"s"},
        "s3storage":{"s3secret":"s3","endpoint":"e"},
        "podTemplate":{"labels":{"team":"a","bridgejob.ibm.com/job":"forged"},"env":[{"name":"HTTPS_PROXY","value":"p"}]}}"#;

    #[test]
    fn our_pod_is_restricted_and_small() {
        let job = job(FULL);
        let runs = Runs::Worker { replaced: None };
        let plan =
            Blueprint { job: &job, runs: &runs, manager: Some(ResourceManager::Slurm), worker_image: "bridge:1" };
        let pod = plan.pod("cm-1", 0);
        let spec = pod.spec.unwrap();
        let container = &spec.containers[0];
        let security = container.security_context.as_ref().unwrap();
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]));
        let pod_security = spec.security_context.unwrap();
        assert_eq!((pod_security.run_as_non_root, pod_security.run_as_user), (Some(true), Some(65532)));
        let paths: Vec<_> = container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
        assert_eq!(paths, ["/credentials", "/s3credentials", "/downloads", "/tmp"]);
        let labels = pod.metadata.labels.unwrap();
        assert_eq!((labels["team"].as_str(), labels[api::LABEL_JOB].as_str()), ("a", "hello"));
        let owner = &pod.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ConfigMap", "cm-1"));
    }

    #[test]
    fn a_foreign_pod_gets_what_the_reference_gave() {
        let job =
            job(r#"{"resourceURL":"http://x","resourcesecret":"sec","image":"own:1","jobdata":{"jobscript":"s"}}"#);
        let runs = Runs::Foreign { image: "own:1".to_owned() };
        let plan = Blueprint { job: &job, runs: &runs, manager: None, worker_image: "bridge:1" };
        let spec = plan.pod("cm-1", 0).spec.unwrap();
        let container = &spec.containers[0];
        assert_eq!((container.image.as_deref(), &container.args, &container.command), (Some("own:1"), &None, &None));
        let env: Vec<_> = container.env.iter().flatten().map(|var| var.name.as_str()).collect();
        assert_eq!(env, ["NAMESPACE", "JOBNAME"]);
        assert_eq!(
            container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"],
            Quantity("250m".to_owned())
        );
        assert_eq!(container.security_context.as_ref().unwrap().read_only_root_filesystem, Some(false));
    }

    #[test]
    fn the_config_map_has_no_owner_and_the_role_names_it_alone() {
        let job = job(FULL);
        let runs = Runs::Worker { replaced: None };
        let plan =
            Blueprint { job: &job, runs: &runs, manager: Some(ResourceManager::Slurm), worker_image: "bridge:1" };
        let map = plan.config_map(Data::from([("id".to_owned(), "7".to_owned())]), None);
        assert_eq!(map.metadata.owner_references, None);
        assert_eq!(map.metadata.finalizers.as_deref(), Some(&[api::FINALIZER_RECORD.to_owned()][..]));
        assert_eq!(map.data.as_ref().unwrap()["id"], "7");
        assert_eq!(map.data.as_ref().unwrap()["resourceManager"], "slurm");
        let rules = plan.role("cm-1").rules.unwrap();
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].resource_names.as_deref(), Some(&["hello-bridge-cm".to_owned()][..]));
        assert_eq!(rules[0].verbs, WORKER_VERBS);
    }
}
