//! From a submission to what is run here, and from how it ended to its outcome.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bridge_core::manager::{ErrorKind, Facts, ManagerError, Outcome, Phase, Sighting, Verdict};
use bridge_core::plan::{Script, Submission};
use serde_json::Value;

use super::MANAGER;
use super::client::{JobFolder, Seen};
use super::config::Config;
use super::folder::unique;
use super::wire::{EndCause, EndFile, JobFile, STDERR, STDOUT, StartFile};

/// The properties that mean something here.
const PROPERTIES: [&str; 9] = [
    "currentWorkingDir",
    "OutputFileName",
    "ErrorFileName",
    "envPath",
    "envLibPath",
    "runlimit",
    "RunLimitHour",
    "RunLimitMinute",
    "Queue",
];

/// A submission, thought through.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) job: JobFile,
    /// The text that becomes the script's file.
    pub(super) script: Option<String>,
    /// The folder that the inputs have to be copied to; `None`: they are where the job works.
    pub(super) copy_inputs_to: Option<PathBuf>,
    pub(super) notes: Vec<String>,
}

/// Decides what is run. Looks at files that the submission names, changes nothing.
pub(super) fn launch(
    config: &Config,
    folder: &JobFolder,
    submission: &Submission,
    operation: &'static str,
) -> Result<Launch, ManagerError> {
    let refuse = |message: String| ManagerError::new(MANAGER, operation, ErrorKind::Refused, message);
    let properties = Properties::read(&submission.properties).map_err(refuse)?;
    let mut notes = properties.notes();
    if !submission.metadata.trim().is_empty() {
        notes.push("scriptmetadata means nothing to a local job and is left out".to_owned());
    }
    let work = properties.folder.clone().unwrap_or_else(|| folder.work());
    let arguments = arguments(&submission.parameters).map_err(refuse)?;
    let (mut command, script) = match &submission.script {
        Script::Text(text) => {
            if text.contains("\r\n") {
                notes.push("the script has Windows line ends (CRLF), which most interpreters take amiss".to_owned());
            }
            let mut command = interpreter(text).map_err(refuse)?;
            command.push(text_of(&folder.script()).map_err(refuse)?);
            (command, Some(text.clone()))
        }
        Script::Remote(path) => {
            check_program(path).map_err(refuse)?;
            (vec![path.clone()], None)
        }
    };
    command.extend(arguments);
    for input in &submission.inputs {
        check_name(input).map_err(refuse)?;
    }
    let place = |name: Option<&PathBuf>, default: &str| match name {
        Some(name) => work.join(name),
        None => folder.path().join(default),
    };
    let job = JobFile {
        token: submission.token.as_str().to_owned(),
        name: submission.name.clone(),
        mark: unique(),
        command,
        environment: properties.environment(&submission.name),
        stdout: place(properties.stdout.as_ref(), STDOUT),
        stderr: place(properties.stderr.as_ref(), STDERR),
        folder: work.clone(),
        limit_millis: properties.limit.map(millis),
        grace_millis: millis(config.grace),
    };
    let copy_inputs_to = properties.folder.filter(|_| !submission.inputs.is_empty());
    Ok(Launch { job, script, copy_inputs_to, notes })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The interpreter that the first line names, or `/bin/sh`.
///
/// It is called by name, as the kernel would, because a file that was just written may not be executable yet (another
/// thread's child can still hold it open) or ever (a file system mounted `noexec`).
fn interpreter(text: &str) -> Result<Vec<String>, String> {
    if text.trim().is_empty() {
        return Err("jobscript is empty; write the script that is to be run".to_owned());
    }
    let Some(line) = text.strip_prefix("#!") else { return Ok(vec!["/bin/sh".to_owned()]) };
    let line = line.lines().next().unwrap_or_default().trim();
    let (program, argument) = match line.split_once([' ', '\t']) {
        Some((program, argument)) => (program, Some(argument.trim().to_owned())),
        None => (line, None),
    };
    if !Path::new(program).is_file() {
        return Err(format!(
            "jobscript is to be run by \"{program}\", which is not on this machine; correct its first line"
        ));
    }
    Ok(std::iter::once(program.to_owned()).chain(argument).collect())
}

fn check_program(path: &str) -> Result<(), String> {
    let what = format!("jobscript names the file \"{path}\" on this machine");
    if Path::new(path).is_relative() {
        return Err(format!("{what}; write its absolute path, or scriptlocation: inline if it is the script itself"));
    }
    let metadata = std::fs::metadata(path).map_err(|error| format!("{what}, which cannot be read: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{what}, which is not a file; name an executable file"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!("{what}, which is not executable; run: chmod +x '{path}'"));
    }
    Ok(())
}

/// `jobparameters`: a list with commas, or a JSON list.
fn arguments(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    if text.starts_with('{') {
        let hint = "write a list, such as \"--steps, 10\" or [\"--steps\", \"10\"]";
        return Err(format!("jobparameters is a JSON object, and a local job takes arguments; {hint}"));
    }
    if !text.starts_with('[') {
        return Ok(bridge_api::split_list(text).map(str::to_owned).collect());
    }
    let list: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| format!("jobparameters begins like a JSON list and is none: {error}; correct it"))?;
    list.iter()
        .enumerate()
        .map(|(index, value)| {
            scalar(value)
                .ok_or_else(|| format!("jobparameters[{index}] is neither text nor a number; write it as text"))
        })
        .collect()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(bool) => Some(bool.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("the path {} is not UTF-8; rename it", path.display()))
}

/// Whether a file's name stays inside the job's folder.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let inside = !name.is_empty()
        && !name.contains('\0')
        && !name.ends_with('/')
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if inside {
        return Ok(());
    }
    Err(format!("the file name {name:?} leads out of the job's folder; write a name without \"..\" and leading \"/\""))
}

/// `jobproperties`, read.
#[derive(Debug, Default)]
struct Properties {
    folder: Option<PathBuf>,
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
    path: Option<String>,
    library_path: Option<String>,
    limit: Option<Duration>,
    queue: Option<String>,
}

impl Properties {
    fn read(given: &BTreeMap<String, Value>) -> Result<Self, String> {
        if let Some(unknown) = given.keys().find(|name| !PROPERTIES.contains(&name.as_str())) {
            return Err(unknown_property(unknown));
        }
        // "" is "not set", as in the ConfigMap.
        let text = |name: &str| -> Result<Option<String>, String> {
            let Some(value) = given.get(name) else { return Ok(None) };
            let text = scalar(value).ok_or_else(|| format!("jobproperties.{name} is {value}; write a text"))?;
            Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
        };
        let minutes = |name: &str, factor: f64| -> Result<Option<Duration>, String> {
            let Some(text) = text(name)? else { return Ok(None) };
            let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
            let time = number.and_then(|number| Duration::try_from_secs_f64(number * 60.0 * factor).ok());
            time.map(Some).ok_or_else(|| format!("jobproperties.{name} is \"{text}\"; write a number"))
        };
        let folder = text("currentWorkingDir")?.map(PathBuf::from);
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_absolute() || !folder.is_dir()) {
            let name = folder.display();
            return Err(format!("jobproperties.currentWorkingDir is \"{name}\"; write the absolute path of a folder"));
        }
        let (total, hours, rest) =
            (minutes("runlimit", 1.0)?, minutes("RunLimitHour", 60.0)?, minutes("RunLimitMinute", 1.0)?);
        if total.is_some() && (hours.is_some() || rest.is_some()) {
            return Err(
                "jobproperties has runlimit and RunLimitHour or RunLimitMinute; write one of the two".to_owned()
            );
        }
        let limit = total.unwrap_or_else(|| hours.unwrap_or_default() + rest.unwrap_or_default());
        Ok(Self {
            folder,
            stdout: text("OutputFileName")?.map(PathBuf::from),
            stderr: text("ErrorFileName")?.map(PathBuf::from),
            path: text("envPath")?,
            library_path: text("envLibPath")?,
            limit: Some(limit).filter(|limit| !limit.is_zero()),
            queue: text("Queue")?,
        })
    }

    fn environment(&self, name: &str) -> BTreeMap<String, String> {
        let job = Some(("JOBNAME".to_owned(), name.to_owned()));
        let path = self.path.clone().map(|path| ("PATH".to_owned(), path));
        let library_path = self.library_path.clone().map(|path| ("LD_LIBRARY_PATH".to_owned(), path));
        [job, path, library_path].into_iter().flatten().collect()
    }

    fn notes(&self) -> Vec<String> {
        let queue = self.queue.as_ref();
        queue
            .map(|queue| format!("there are no queues on this machine: Queue \"{queue}\" is left out"))
            .into_iter()
            .collect()
    }
}

fn unknown_property(name: &str) -> String {
    let wanted = name.to_lowercase();
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&wanted, &known.to_lowercase());
    let nearest = PROPERTIES.into_iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match nearest.filter(|known| likeness(known) > 0.6) {
        Some(known) => format!("jobproperties.{name} is unknown to local jobs; did you mean \"{known}\"?"),
        None => format!("jobproperties.{name} is unknown to local jobs; they know: {}", PROPERTIES.join(", ")),
    }
}

/// What a poll tells of a folder.
pub(super) fn sighting(seen: Seen, cancelled: bool, node: Option<&String>) -> Sighting {
    let facts = |job: &JobFile, start: &StartFile| Facts {
        started: match start {
            StartFile::Started { at, .. } => Some(*at),
            StartFile::CalledOff => None,
        },
        node: node.cloned(),
        stdout: Some(job.stdout.display().to_string()),
        stderr: Some(job.stderr.display().to_string()),
        ..Facts::default()
    };
    match seen {
        Seen::Nothing => Sighting::Gone,
        Seen::Running { job, start, orphaned } => {
            let remark = "its supervisor is gone: its exit code will not be known";
            Sighting::Alive(Phase::Running, Facts { note: orphaned.then(|| remark.to_owned()), ..facts(&job, &start) })
        }
        Seen::Ended { job, start, end: Some(end) } => {
            let facts = Facts { ended: Some(end.ended), ..facts(&job, &start) };
            Sighting::Ended(outcome(&end, &job), facts)
        }
        Seen::Ended { job, start, end: None } => Sighting::Ended(lost(cancelled), facts(&job, &start)),
    }
}

fn outcome(end: &EndFile, job: &JobFile) -> Outcome {
    let EndFile { exit_code, signal, cause, message, .. } = end;
    let (verdict, reason, message) = match (cause, exit_code, signal) {
        (EndCause::Cancelled, ..) => (Verdict::Cancelled, "CANCELLED", how(*exit_code, *signal)),
        (EndCause::TimedOut, ..) => {
            let limit = Duration::from_millis(job.limit_millis.unwrap_or_default());
            (Verdict::Failed, "TIMEOUT", format!("it ran longer than its limit of {limit:?}"))
        }
        (EndCause::NotStarted, ..) => (Verdict::Failed, "NOT_STARTED", message.clone()),
        (EndCause::Itself, Some(0), _) => (Verdict::Succeeded, "COMPLETED", String::new()),
        (EndCause::Itself, Some(_), _) => (Verdict::Failed, "FAILED", how(*exit_code, *signal)),
        (EndCause::Itself, None, _) => (Verdict::Failed, "SIGNALED", how(*exit_code, *signal)),
    };
    Outcome { verdict, exit_code: *exit_code, signal: *signal, reason: reason.to_owned(), message }
}

fn how(exit_code: Option<i32>, signal: Option<i32>) -> String {
    match (exit_code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}{}", signal_name(signal)),
        (None, None) => String::new(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL; out of memory?)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

fn lost(cancelled: bool) -> Outcome {
    let message =
        "its supervisor disappeared, killed or with the machine, before the job's end: how it ended is not known";
    let verdict = if cancelled { Verdict::Cancelled } else { Verdict::Failed };
    Outcome {
        verdict,
        exit_code: None,
        signal: None,
        reason: "SUPERVISOR_LOST".to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
