//! Listed files, which the job sends itself: Ray hands out none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::manager::{Carrier, CarrierLimits, ErrorKind, ManagerError, Result};
use bridge_core::plan::{Script, Submission};
use bridge_core::staging::{Cargo, OutgoingSource};
use serde_json::json;

use super::entrypoint::{SCRIPT_NAME, entrypoint};
use super::{MANAGER, RayManager};
use crate::carrying::{self, LARGEST};

const TEMPLATE: &str = include_str!("carrier.py");
/// Whether a script is one that was made here.
pub(super) fn carries(script: &Script) -> bool {
    let first = TEMPLATE.lines().next().unwrap_or_default();
    matches!(script, Script::Text(text) if text.lines().next() == Some(first))
}

impl Carrier for RayManager {
    fn limits(&self) -> CarrierLimits {
        CarrierLimits { largest_output: LARGEST, only_files: true }
    }

    fn load(&self, mut job: Submission, cargo: &Cargo) -> Result<Submission> {
        let command = entrypoint(&job.script, "")
            .map_err(|message| ManagerError::new(MANAGER, "submit", ErrorKind::Refused, message))?;
        let file = format!("script_{}.py", job.token.as_str().replace('-', "_"));
        let (command, script) = match &job.script {
            Script::Remote(_) => (command, None),
            Script::Text(text) => {
                let command = command.strip_suffix(SCRIPT_NAME).unwrap_or(&command);
                (format!("{command}{file}"), Some(STANDARD.encode(text)))
            }
        };
        let outputs = cargo.outputs.iter().filter_map(|outgoing| match &outgoing.source {
            OutgoingSource::File(path) => Some(json!([outgoing.name, path, outgoing.url.expose()])),
            OutgoingSource::Stdout | OutgoingSource::Stderr => None,
        });
        let whole = json!({
            "again": carrying::is_further_attempt(&job.token),
            "authorities": cargo.authorities,
            "command": command,
            "expired": carrying::EXPIRED,
            "expires": cargo.expires.as_second(),
            "file": file,
            "largest": LARGEST,
            "mark": [cargo.mark.0, cargo.mark.1],
            "no_place": carrying::NO_PLACE,
            "outputs": outputs.collect::<Vec<_>>(),
            "report": cargo.report.as_ref().map(bridge_core::staging::SignedUrl::expose),
            "script": script,
        });
        job.script = Script::Text(TEMPLATE.replace("@CARGO@", &STANDARD.encode(whole.to_string())));
        Ok(job)
    }
}
