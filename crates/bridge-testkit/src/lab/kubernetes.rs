//! The lab's Kubernetes, or an existing one.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};

use super::{LabError, Values, unique};

/// A Kubernetes cluster and how to be its administrator.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The lab's own kubectl. `None` for an existing cluster: pods there reach nothing else of the lab either, and its
    /// node does not have the lab's images.
    pub kubectl: Option<PathBuf>,
}

/// The cluster that `BRIDGE_TEST_KUBECONFIG` names.
pub(super) fn existing() -> Option<PathBuf> {
    std::env::var_os("BRIDGE_TEST_KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

impl Kubernetes {
    pub(super) fn existing(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, kubectl: None }
    }

    pub(super) fn of_lab(values: &Values) -> Result<Self, LabError> {
        Ok(Self {
            kubeconfig: values.get("KUBECONFIG")?.into(),
            kubectl: Some(values.get("BRIDGE_LAB_KUBECTL")?.into()),
        })
    }

    /// A client for the calling test: it belongs to the runtime it is made in.
    pub async fn client(&self) -> Result<Client, LabError> {
        Client::try_from(self.config().await?).map_err(|error| self.unusable(error))
    }

    /// What [`Kubernetes::client`] is made of, for clients with other settings.
    pub async fn config(&self) -> Result<Config, LabError> {
        let file = Kubeconfig::read_from(&self.kubeconfig).map_err(|error| self.unusable(error))?;
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|error| self.unusable(error))
    }

    /// A namespace of the calling test's own, with its service account. It is deleted with the value.
    pub async fn namespace(&self) -> Result<TestNamespace, LabError> {
        let client = self.client().await?;
        let name = unique("test");
        let object = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .map_err(|error| self.unusable(error))?;
        let namespace = TestNamespace { name: name.clone(), client: client.clone(), kubernetes: self.clone() };
        // Pods are refused until the controllers have made it.
        let accounts = Api::<ServiceAccount>::namespaced(client, &name);
        await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some())
            .await
            .map_err(|error| self.unusable(error))?;
        Ok(namespace)
    }

    fn unusable(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LabError {
        LabError::Cluster { kubeconfig: self.kubeconfig.clone(), source: error.into() }
    }
}

/// A namespace of one test's own. Dropping it asks for its deletion and does not wait for it.
pub struct TestNamespace {
    /// Its name.
    pub name: String,
    /// A client for the test that asked for the namespace.
    pub client: Client,
    kubernetes: Kubernetes,
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        // The test's runtime may be ending, and cannot be waited for from here: another one sends the request.
        let (kubernetes, name) = (self.kubernetes.clone(), self.name.clone());
        let sender = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let _ = runtime.block_on(async {
                    let namespaces = Api::<Namespace>::all(kubernetes.client().await.ok()?);
                    namespaces.delete(&name, &DeleteParams::background()).await.ok()
                });
            }
        });
        let _ = sender.join();
    }
}
