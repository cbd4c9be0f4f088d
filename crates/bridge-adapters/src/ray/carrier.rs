//! Listed files, which the job sends itself: Ray hands out none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::manager::{Carrier, CarrierLimits, ErrorKind, ManagerError, Result};
use bridge_core::plan::{Script, Submission};
use bridge_core::staging::{Cargo, OutgoingSource};
use serde_json::json;

use super::entrypoint::{SCRIPT_NAME, entrypoint};
use super::{MANAGER, RayManager};

const TEMPLATE: &str = include_str!("carrier.py");
/// What S3 takes in one piece.
const LARGEST: u64 = 5 * 1024 * 1024 * 1024;

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
            "authorities": cargo.authorities,
            "command": command,
            "expires": cargo.expires.as_second(),
            "file": file,
            "largest": LARGEST,
            "mark": [cargo.mark.0, cargo.mark.1],
            "outputs": outputs.collect::<Vec<_>>(),
            "report": cargo.report.as_ref().map(bridge_core::staging::SignedUrl::expose),
            "script": script,
        });
        job.script = Script::Text(TEMPLATE.replace("@CARGO@", &STANDARD.encode(whole.to_string())));
        Ok(job)
    }
}
