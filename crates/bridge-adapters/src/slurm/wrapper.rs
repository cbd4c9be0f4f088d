//! A job that fetches its inputs and sends its outputs by itself, because Slurm has no files.
//!
//! The user's script goes along encoded, inside a shell script that moves the data around it. `docs/staging.md` says
//! what of it other users of a cluster can see.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::ids::SubmitToken;
use bridge_core::staging::{Cargo, OutgoingSource};
use jiff::Timestamp;

use crate::carrying::{EXPIRED, LARGEST, NO_CLIENT, NO_INPUT, NO_PLACE, is_further_attempt, sha256_in_hex};

const TEMPLATE: &str = include_str!("wrapper.sh");

/// When the URLs of a script that was made here end.
#[must_use]
pub(super) fn end_of_urls(script: &str) -> Option<Timestamp> {
    let (_, rest) = script.split_once("\nbridge_expires=")?;
    Timestamp::from_second(rest.lines().next()?.parse().ok()?).ok()
}

/// The script that carries the user's own.
#[must_use]
pub(super) fn wrap(script: &str, cargo: &Cargo, token: &SubmitToken) -> String {
    let numbers = [
        ("@EXPIRES@", cargo.expires.as_second().to_string()),
        ("@EXPIRED@", EXPIRED.to_string()),
        ("@NO_CLIENT@", NO_CLIENT.to_string()),
        ("@NO_INPUT@", NO_INPUT.to_string()),
        ("@NO_PLACE@", NO_PLACE.to_string()),
        ("@LARGEST@", LARGEST.to_string()),
        ("@SCRIPT_SIZE@", script.len().to_string()),
        ("@MARK@", format!("{}: {}", cargo.mark.0, cargo.mark.1)),
    ];
    let mut body = TEMPLATE.to_owned();
    for (place, value) in numbers {
        body = body.replace(place, &value);
    }
    // Texts of users come last: nothing in them may be taken for a place.
    let report = cargo.report.as_ref().map_or("", |url| url.expose());
    let parts = [
        ("@AUTHORITIES@", authorities(cargo)),
        ("@REPORT@", report.to_owned()),
        ("@OUTPUTS@", outputs(cargo)),
        ("@KNOWN@", known(cargo, token)),
        ("@INPUTS@", inputs(cargo)),
        ("@SCRIPT@", encoded(script)),
    ];
    let mut whole = header(script);
    let mut rest = body.as_str();
    while let Some((place, value, at)) =
        parts.iter().filter_map(|(place, value)| Some((*place, value, rest.find(place)?))).min_by_key(|part| part.2)
    {
        whole.push_str(&rest[..at]);
        whole.push_str(value);
        rest = &rest[at + place.len()..];
    }
    whole.push_str(rest);
    whole
}

/// The user's lines up to the first command, so that `#SBATCH` lines are read where they were written.
fn header(script: &str) -> String {
    let remarks =
        script.lines().skip(1).take_while(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#'));
    std::iter::once("#!/bin/sh").chain(remarks).fold(String::new(), |text, line| text + line + "\n")
}

fn authorities(cargo: &Cargo) -> String {
    match &cargo.authorities {
        None => String::new(),
        Some(pem) => format!(
            "bridge_authorities=$bridge_work/authorities\nprintf '%s\\n' {} >\"$bridge_authorities\"",
            quoted(pem)
        ),
    }
}

fn outputs(cargo: &Cargo) -> String {
    let line = |outgoing: &bridge_core::staging::Outgoing| {
        let (name, url) = (quoted(&outgoing.name), quoted(outgoing.url.expose()));
        match &outgoing.source {
            OutgoingSource::Stdout => format!("    bridge_send_output {name} 1 {url}\n"),
            // Where both go to one file it is sent once.
            OutgoingSource::Stderr => format!(
                "    if [ \"/proc/$$/fd/1\" -ef \"/proc/$$/fd/2\" ]; then\n        bridge_merged {name}\n    else\n        \
                 bridge_send_output {name} 2 {url}\n    fi\n    bridge_report_so_far\n"
            ),
            OutgoingSource::File(path) => format!("    bridge_send {name} {} {url}\n", quoted(&as_path(path))),
        }
    };
    cargo.outputs.iter().map(line).collect()
}

/// Before the inputs are fetched: one that is also listed as an output is the job's own.
fn known(cargo: &Cargo, token: &SubmitToken) -> String {
    if is_further_attempt(token) {
        return String::new();
    }
    let line = |outgoing: &bridge_core::staging::Outgoing| match &outgoing.source {
        OutgoingSource::File(path) => Some(format!("bridge_known {}\n", quoted(&as_path(path)))),
        OutgoingSource::Stdout | OutgoingSource::Stderr => None,
    };
    cargo.outputs.iter().filter_map(line).collect()
}

fn inputs(cargo: &Cargo) -> String {
    let line = |incoming: &bridge_core::staging::Incoming| {
        format!(
            "bridge_input {} {} {} {}\n",
            quoted(&as_path(&incoming.name)),
            incoming.size,
            incoming.sha256.as_deref().and_then(sha256_in_hex).as_deref().unwrap_or("-"),
            quoted(incoming.url.expose())
        )
    };
    cargo.inputs.iter().map(line).collect()
}

fn encoded(script: &str) -> String {
    let text = STANDARD.encode(script);
    let lines: Vec<&str> =
        text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    lines.join("\n")
}

/// No program may take a name for an option.
fn as_path(name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("./{name}") }
}

/// One word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
#[path = "wrapper_tests.rs"]
mod tests;
