//! `bridge plan`: what running files would do. Nothing is sent, nothing is saved.

use std::fmt::Write as _;
use std::path::Path;

use bridge_core::manager::Preview;
use serde_json::{Value, json};

use super::crd::print;
use super::prepare::{Prepared, prepare, refused};
use crate::cli::{Format, PlanArguments};
use crate::failure::Failure;
use crate::input;
use crate::registry::Registry;
use crate::secrets::{Origin, process_environment};
use crate::state::StateFolder;

/// Shows the plans.
pub fn run(arguments: &PlanArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let mut files = input::read(&arguments.files)?;
    let notes = std::mem::take(&mut files.notes);
    let jobs = prepare(files, &arguments.secrets.folders, &process_environment, Registry::new(state.local()))?;
    let mut previews = Vec::new();
    let mut problems = Vec::new();
    for job in &jobs {
        if let Err(error) = &job.staging {
            problems.push(job.problem(error));
        }
        match job.manager.preview(&job.submission()) {
            Ok(preview) => previews.push(preview),
            Err(error) => problems.push(job.problem(&refused(error))),
        }
    }
    if !problems.is_empty() {
        return Err(Failure::problems(&problems));
    }
    let described = jobs.iter().zip(&previews);
    let text = match arguments.output {
        Format::Text => {
            let notes = notes.iter().map(|note| format!("note: {note}\n"));
            let plans = described.map(|(job, preview)| redacted(job, as_text(job, preview)));
            notes.chain(plans).collect::<Vec<_>>().join("\n")
        }
        Format::Json => {
            let plans: Vec<Value> = described.map(|(job, preview)| as_json(job, preview)).collect();
            let text = format!("{:#}\n", json!({ "jobs": plans }));
            jobs.iter().fold(text, |text, job| redacted(job, text))
        }
    };
    print(&text)
}

fn redacted(job: &Prepared, text: String) -> String {
    job.secrets.values().fold(text, |text, secret| secret.redact(text))
}

fn moves(job: &Prepared) -> (Vec<String>, Vec<String>) {
    use bridge_core::plan::{ScriptSource, TextSource};
    let plan = &job.plan;
    let mut bring = Vec::new();
    if let ScriptSource::Object(object) = &plan.script {
        bring.push(format!("script: {object}"));
    }
    for (name, text) in [("scriptmetadata", &plan.metadata), ("jobparameters", &plan.parameters)] {
        if let TextSource::Object(object) = text {
            bring.push(format!("{name}: {object}"));
        }
    }
    bring.extend(plan.inputs.iter().map(|object| format!("file: {object}")));
    let send = plan.upload.iter().flat_map(|upload| {
        let place = format!("{}:{}/", upload.bucket, upload.prefix);
        std::iter::once(format!("outputs to {place}"))
            .chain(upload.files.iter().map(move |file| format!("{file} to {place}")))
    });
    (bring, send.collect())
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Folder { path } => format!("folder {}", path.display()),
        Origin::Document { file } => format!("document in {}", file.display()),
        Origin::Environment => "environment".to_owned(),
    }
}

fn as_text(job: &Prepared, preview: &Preview) -> String {
    let plan = &job.plan;
    let mut text = format!("{}\n", plan.key);
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<9} {value}");
    };
    line("manager", plan.target.manager.as_str());
    line("url", &plan.target.url);
    for (name, secret) in &job.secrets {
        line("secret", &format!("{name} ({}), keys {}", origin(&secret.origin), secret.keys.join(", ")));
    }
    line("request", &preview.request);
    let (bring, send) = moves(job);
    for file in &bring {
        line("brings", file);
    }
    for file in &send {
        line("sends", file);
    }
    line("looks", &format!("every {} s", plan.poll_seconds));
    for note in plan.notes.iter().chain(&preview.notes) {
        line("note", note);
    }
    if !preview.body.is_empty() {
        let _ = writeln!(text, "  body");
        for body_line in preview.body.lines() {
            let _ = writeln!(text, "    {body_line}");
        }
    }
    text
}

fn as_json(job: &Prepared, preview: &Preview) -> Value {
    let plan = &job.plan;
    let (bring, send) = moves(job);
    let secrets: Vec<Value> = job
        .secrets
        .iter()
        .map(|(name, secret)| json!({ "name": name, "origin": secret.origin, "keys": secret.keys }))
        .collect();
    let namespace = Some(&plan.key.namespace).filter(|namespace| !namespace.is_empty());
    let notes: Vec<&String> = plan.notes.iter().chain(&preview.notes).collect();
    json!({
        "name": plan.key.name,
        "namespace": namespace,
        "manager": plan.target.manager.as_str(),
        "url": plan.target.url,
        "secrets": secrets,
        "request": preview.request,
        "body": preview.body,
        "brings": bring,
        "sends": send,
        "pollSeconds": plan.poll_seconds,
        "notes": notes,
    })
}
