//! Which manager is behind a job: `resourceManager`, else the URL's form, else the image's name.

use std::collections::BTreeSet;

use bridge_api::BridgeJobSpec;
use url::Url;

use super::{ManagerKind, PlanError};

/// Hosts of the quantum service and of its earlier addresses; any host below them counts as well.
const QUANTUM_HOSTS: [&str; 3] =
    ["quantum.cloud.ibm.com", "quantum-computing.cloud.ibm.com", "quantum-computing.ibm.com"];

/// The ports that Slurm's and Ray's REST interfaces have unless someone chose another.
const PORTS: [(u16, ManagerKind); 2] = [(6820, ManagerKind::Slurm), (8265, ManagerKind::Ray)];

/// What told the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenBy {
    /// `resourceManager`.
    Field,
    /// The form of `resourceURL`.
    Url,
    /// The name of the image.
    Image,
}

impl ChosenBy {
    /// The field that told it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Field => "resourceManager",
            Self::Url => "resourceURL",
            Self::Image => "image",
        }
    }
}

/// Reads `resourceURL`.
pub(super) fn parse_url(text: &str) -> Result<Url, PlanError> {
    let fault = |message: String| PlanError::new("spec.resourceURL", message);
    // Whatever stands before the host may hold a password.
    let shown = text.rsplit('@').next().unwrap_or_default();
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => {
            fault(format!("\"{shown}\" is not a URL; write it with its scheme: https://{shown}"))
        }
        other => fault(format!("\"{shown}\" is not a URL ({other}); write it like this: https://host:port/path")),
    })?;
    match url.scheme() {
        "http" | "https" if url.password().is_some() => Err(fault(
            "holds a password, which everyone who sees the job could read; put it into resourcesecret".to_owned(),
        )),
        "http" | "https" if url.fragment().is_some() || url.query().is_some() => {
            Err(fault(format!("\"{shown}\" has a query or a fragment; write only scheme, host, port and path")))
        }
        "local" | "http" | "https" => Ok(url),
        // `host:port` reads as a scheme.
        _ if url.cannot_be_a_base() => {
            Err(fault(format!("\"{shown}\" has no scheme; write it like this: https://{shown}")))
        }
        scheme => {
            Err(fault(format!("the scheme \"{scheme}\" is unknown; write https, http, or local: for this machine")))
        }
    }
}

/// The manager that the form of a URL tells: its scheme, its path, its host, its port, in this order.
#[must_use]
pub fn kind_of_url(url: &Url) -> Option<ManagerKind> {
    if url.scheme() == "local" {
        return Some(ManagerKind::Local);
    }
    let segments: Vec<&str> = url.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let by_path: BTreeSet<ManagerKind> = segments
        .iter()
        .filter_map(|segment| match segment.to_ascii_lowercase().as_str() {
            "slurm" | "slurmdb" | "slurmrestd" => Some(ManagerKind::Slurm),
            version if is_slurm_version(version) => Some(ManagerKind::Slurm),
            "platform" | "lsf" => Some(ManagerKind::Lsf),
            _ => None,
        })
        .chain(segments.windows(2).any(|pair| pair == ["api", "jobs"]).then_some(ManagerKind::Ray))
        .collect();
    match by_path.len() {
        0 => {}
        1 => return by_path.first().copied(),
        // It says two things at once, so it says nothing.
        _ => return None,
    }
    let host = url.host_str().unwrap_or_default();
    let is_quantum = QUANTUM_HOSTS
        .iter()
        .any(|known| host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if is_quantum {
        return Some(ManagerKind::Quantum);
    }
    PORTS.into_iter().find(|(port, _)| url.port() == Some(*port)).map(|(_, kind)| kind)
}

/// `v0.0.38`
fn is_slurm_version(segment: &str) -> bool {
    segment.strip_prefix("v0.0.").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// The manager that an image's name tells, such as `quay.io/group/slurm-pod:v1`.
#[must_use]
pub fn kind_of_image(image: &str) -> Option<ManagerKind> {
    let (name, _) = image_parts(image);
    let last = name.rsplit('/').next().unwrap_or_default();
    let kinds: BTreeSet<ManagerKind> =
        last.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| word.parse().ok()).collect();
    if kinds.len() == 1 { kinds.first().copied() } else { None }
}

/// Name and tag, or name and digest.
pub(super) fn image_parts(image: &str) -> (&str, Option<&str>) {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let tag_at = name.rfind(':').filter(|colon| !name[*colon..].contains('/'));
    match tag_at {
        Some(colon) => (&name[..colon], digest.or_else(|| name.get(colon + 1..))),
        None => (name, digest),
    }
}

/// Decides, or says what the choices are.
pub(super) fn choose(spec: &BridgeJobSpec, url: &Url) -> Result<(ManagerKind, ChosenBy), PlanError> {
    if let Some(kind) = spec.resource_manager {
        let is_local = url.scheme() == "local";
        if is_local != (kind == ManagerKind::Local) {
            let given = &spec.resource_url;
            let message = if is_local {
                format!(
                    "\"{given}\" is this machine, but resourceManager is {kind}; write the URL of its REST interface"
                )
            } else {
                format!("\"{given}\" is another machine, but resourceManager is local; write local:")
            };
            return Err(PlanError::new("spec.resourceURL", message));
        }
        return Ok((kind, ChosenBy::Field));
    }
    kind_of_url(url)
        .map(|kind| (kind, ChosenBy::Url))
        .or_else(|| spec.image().and_then(kind_of_image).map(|kind| (kind, ChosenBy::Image)))
        .ok_or_else(|| {
            let choices: Vec<&str> = ManagerKind::ALL.into_iter().map(ManagerKind::as_str).collect();
            let message = format!(
                "neither resourceURL nor image tells which manager \"{}\" is; write resourceManager: one of {}",
                spec.resource_url,
                choices.join(", ")
            );
            PlanError::new("spec.resourceManager", message)
        })
}
