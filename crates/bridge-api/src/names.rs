//! Names that other programs, people and stored objects rely on: API group, labels, annotations, finalizers.

/// The API group a cluster knows.
pub const GROUP: &str = "bridgejob.ibm.com";
/// The group of the paper's figure and of two old samples; file readers take it for [`GROUP`].
pub const LEGACY_GROUP: &str = "bridgeoperator.ibm.com";
/// The one version of the API.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every `BridgeJob`.
pub const API_VERSION: &str = "bridgejob.ibm.com/v1alpha1";
/// `kind` of every `BridgeJob`.
pub const KIND: &str = "BridgeJob";

/// Field manager of everything the operator applies.
pub const FIELD_MANAGER: &str = "bridge-operator";
/// Value of `app.kubernetes.io/managed-by` on every object the operator makes.
pub const MANAGED_BY: &str = "bridge-operator";

/// On a `BridgeJob`: the remote job is cancelled before the object goes away.
pub const FINALIZER_CANCEL: &str = "bridgejob.ibm.com/cancel";
/// On a job's `ConfigMap`: the record survives until the operator has read the end from it.
pub const FINALIZER_RECORD: &str = "bridgejob.ibm.com/record";

/// On a `BridgeJob`: its own UID as the value lets go of a remote job that can no longer be cancelled.
pub const ANNOTATION_ABANDON: &str = "bridgejob.ibm.com/abandon";

/// On every object made for a job: the name of its `BridgeJob`.
pub const LABEL_JOB: &str = "bridgejob.ibm.com/job";
/// On every object made for a job: the UID of its `BridgeJob`, because names are used again.
pub const LABEL_JOB_UID: &str = "bridgejob.ibm.com/job-uid";
/// On the pod of a job: the resource manager it drives.
pub const LABEL_MANAGER: &str = "bridgejob.ibm.com/manager";
/// On the pod of a job: `ours` or `foreign`.
pub const LABEL_WORKER: &str = "bridgejob.ibm.com/worker";
/// The standard label for [`MANAGED_BY`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The longest `metadata.name`: foreign pods derive `<name>-bridge-pod` themselves and a label takes 63 characters.
pub const MAX_NAME: usize = 52;
