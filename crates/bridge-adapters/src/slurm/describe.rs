//! From a submission to the body of `POST /job/submit`.

use std::collections::BTreeMap;

use bridge_core::plan::{Script, Submission};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::properties::{self, Choice, Field, Form, Resource};
use super::script::{self, Runnable};
use super::values::{self, Limit, Problem};
use super::wire::ApiVersion;
use super::{arguments, carrier, sbatch};

/// The longest comment that is sent; slurmctld refuses one of about 3,000 characters.
const LONGEST_COMMENT: usize = 2500;
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
const DEFAULT_FOLDER: &str = "/tmp";

/// What is sent, and what the user should know about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Described {
    /// The request's body.
    pub(super) body: Value,
    /// Remarks for the user.
    pub(super) notes: Vec<String>,
}

/// Why a submission is not sent: what is wrong with which part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// Describes the job in the words of one API version; it is to be submitted held.
pub(super) fn describe(job: &Submission, version: ApiVersion, now: Timestamp) -> Result<Described, Refusal> {
    let mut notes = Vec::new();
    if let Script::Remote(path) = &job.script {
        notes.push(format!(
            "{} is on the cluster, so its #SBATCH lines cannot be seen; give such options as job properties",
            path.trim()
        ));
    }
    let mut options = Options::default();
    for (name, value) in &job.properties {
        options.property(name, value, version)?;
    }
    if let Script::Text(text) = &job.script {
        let directives =
            sbatch::directives(text).map_err(|error| Refusal(format!("#SBATCH of the script, {error}")))?;
        for directive in directives {
            options.directive(&directive)?;
        }
    }
    if !job.metadata.trim().is_empty() {
        notes.push("scriptmetadata means nothing to Slurm and is not used".to_owned());
    }

    let mut writer = Writer { version, now, fields: Map::new(), environment: BTreeMap::new(), notes };
    let arguments = arguments::read(&job.parameters).map_err(Refusal)?;
    let arguments = writer.options(options, arguments)?;
    let Runnable { text: script, arguments } =
        script::runnable(&job.script, arguments, &job.token, version).map_err(Refusal)?;
    if !arguments.is_empty() {
        // argv[0] is the script itself.
        let argv: Vec<String> = std::iter::once("script".to_owned()).chain(arguments).collect();
        writer.fields.insert("argv".to_owned(), json!(argv));
    }
    writer.token(job);
    writer.fields.entry("name").or_insert_with(|| json!(job.name));
    if writer.fields.get("current_working_directory").is_none() {
        writer
            .notes
            .push(format!("no current_working_directory is given, so the job starts in {DEFAULT_FOLDER} of its node"));
        writer.fields.insert("current_working_directory".to_owned(), json!(DEFAULT_FOLDER));
    }
    if let Some(note) = carrier::outlives(job, writer.fields.get("time_limit"), now) {
        writer.notes.push(note);
    }
    writer.environment();
    writer.fields.insert("hold".to_owned(), json!(true));

    let Writer { mut fields, notes, .. } = writer;
    let body = if version.script_in_job() {
        fields.insert("script".to_owned(), json!(script));
        json!({ "job": fields })
    } else {
        json!({ "script": script, "job": fields })
    };
    Ok(Described { body, notes })
}

/// An option, its value, and where it stands.
type Given = (&'static Choice, Value, String);

/// The options of a job, each by its own name, and fields to be handed on as they are.
#[derive(Debug, Default)]
struct Options {
    chosen: BTreeMap<&'static str, Given>,
    raw: BTreeMap<String, Value>,
    from_directives: BTreeMap<&'static str, Given>,
}

impl Options {
    fn property(&mut self, name: &str, value: &Value, version: ApiVersion) -> Result<(), Refusal> {
        if value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty()) {
            // Existing YAML leaves keys empty; an empty value and an absent key mean the same.
            return Ok(());
        }
        let Some(choice) = properties::find(name) else {
            if properties::exists(name, version) {
                self.raw.insert(name.to_owned(), value.clone());
                return Ok(());
            }
            return Err(Refusal(format!("job property `{name}` is not known to Slurm's API {version}; remove it")));
        };
        if let Some((before, other, origin)) = self.chosen.get(choice.name)
            && (other != value || before.form != choice.form)
        {
            return Err(Refusal(format!("job properties {origin} and `{name}` mean the same; remove one of them")));
        }
        self.chosen.insert(choice.name, (choice, value.clone(), format!("`{name}`")));
        Ok(())
    }

    fn directive(&mut self, directive: &sbatch::Directive) -> Result<(), Refusal> {
        let origin = format!("#SBATCH --{} in line {}", directive.name, directive.line);
        let choice = properties::find(&directive.name)
            .ok_or_else(|| Refusal(format!("{origin} is not known; remove it or use a job property")))?;
        let value = directive.value.clone().map_or(Value::Bool(true), Value::String);
        self.from_directives.insert(choice.name, (choice, value, origin));
        Ok(())
    }

    /// All options; a property wins over a directive.
    fn settle(mut self) -> (Vec<Given>, BTreeMap<String, Value>) {
        if self.chosen.contains_key("RunLimitHour") || self.chosen.contains_key("RunLimitMinute") {
            self.from_directives.remove("time_limit");
        }
        let mut all = self.from_directives;
        // Variables add up instead of replacing each other; what comes later wins.
        let environment = all.remove("environment").into_iter().chain(all.remove("export"));
        let first: Vec<_> = environment.collect();
        all.extend(self.chosen);
        (first.into_iter().chain(all.into_values()).collect(), self.raw)
    }
}

struct Writer {
    version: ApiVersion,
    now: Timestamp,
    fields: Map<String, Value>,
    environment: BTreeMap<String, String>,
    notes: Vec<String>,
}

impl Writer {
    /// Writes all options; the arguments may be among them.
    fn options(&mut self, options: Options, mut arguments: Vec<String>) -> Result<Vec<String>, Refusal> {
        let (chosen, raw) = options.settle();
        let mut minutes: Option<i64> = None;
        for (choice, value, origin) in chosen {
            let named = |problem: Problem| Refusal(format!("{origin}: {problem}"));
            match choice.form {
                Form::RunHours | Form::RunMinutes => {
                    let factor = if choice.form == Form::RunHours { 60 } else { 1 };
                    let part = values::integer(&value).map_err(named)?;
                    let sum = part.checked_mul(factor).and_then(|part| minutes.unwrap_or(0).checked_add(part));
                    minutes = Some(sum.filter(|sum| *sum >= 0).ok_or_else(|| named("it is out of range".to_owned()))?);
                }
                Form::Arguments if arguments.is_empty() => arguments = values::names(&value).map_err(named)?,
                Form::Arguments => return Err(named("the script's arguments are given in jobparameters".to_owned())),
                _ => self.option(choice, &value).map_err(named)?,
            }
        }
        if let Some(minutes) = minutes.filter(|minutes| *minutes > 0) {
            if self.fields.contains_key("time_limit") {
                return Err(Refusal("RunLimitHour/RunLimitMinute and time_limit mean the same; remove one".to_owned()));
            }
            self.minutes("time_limit", Limit::Minutes(minutes.unsigned_abs()));
        }
        for (name, value) in raw {
            self.fields.entry(name).or_insert(value);
        }
        Ok(arguments)
    }

    fn option(&mut self, choice: &Choice, value: &Value) -> Result<(), Problem> {
        let new = self.version.has_data_parser();
        match choice.form {
            Form::Text(field) => self.put(field, json!(values::text(value)?)),
            Form::Integer(field) => self.put(field, json!(values::integer(value)?)),
            Form::Switch(field) => {
                let on = values::switch(value)?;
                // Two switches of the older servers are numbers.
                let is_number = !new && matches!(field.old, "wait_all_nodes" | "get_user_environment");
                self.put(field, if is_number { json!(u8::from(on)) } else { json!(on) })
            }
            Form::Names(field) => self.put(field, json!(values::names(value)?)),
            Form::Minutes(field) => {
                let limit = values::limit(value)?;
                let name = self.name(field)?;
                self.minutes(name, limit);
                Ok(())
            }
            Form::Megabytes(field) => {
                let number = values::megabytes(value)?;
                let is_boxed = new && field.new.starts_with("memory");
                self.put(field, if is_boxed { values::boxed(number) } else { json!(number) })
            }
            Form::BoxedMoment(field) if new => self.put(field, values::boxed(values::moment(value, self.now)?)),
            Form::Moment(field) if new => self.put(field, json!(values::moment(value, self.now)?)),
            Form::BoxedMoment(field) | Form::Moment(field) => {
                // Older servers read no seconds since 1970, but their own zone's time, and time from now on.
                let text = match values::moment(value, self.now) {
                    Ok(moment) => format!("now+{}", moment.saturating_sub(self.now.as_second()).max(0)),
                    Err(_) => values::text(value)?,
                };
                self.put(field, json!(text))
            }
            Form::Resource { old, new: list, resource } => self.resource(old, list, resource, value),
            Form::Nodes => self.nodes(value),
            Form::Environment => {
                self.environment.extend(values::environment(value)?);
                Ok(())
            }
            Form::Variable(name) => {
                self.environment.insert(name.to_owned(), values::text(value)?);
                Ok(())
            }
            Form::Export => self.export(value),
            Form::Comment | Form::Extra => {
                let text = values::text(value)?;
                if text.chars().count() > LONGEST_COMMENT {
                    return Err(format!("it is longer than {LONGEST_COMMENT} characters, which slurmctld refuses"));
                }
                let name = if choice.form == Form::Comment { "comment" } else { "extra" };
                if name == "extra" && !new {
                    return Err(self.lacks(name));
                }
                self.fields.insert(name.to_owned(), json!(text));
                Ok(())
            }
            _ => self.odd_option(choice, value),
        }
    }

    /// Options that are not one value in one field.
    fn odd_option(&mut self, choice: &Choice, value: &Value) -> Result<(), Problem> {
        let new = self.version.has_data_parser();
        match choice.form {
            Form::Exclusive => {
                let word = values::text(value)?.to_ascii_lowercase();
                let (old, shared) = match word.as_str() {
                    "user" | "mcs" => (word.as_str(), word.as_str()),
                    "true" | "yes" | "exclusive" | "1" => ("exclusive", "none"),
                    "false" | "no" | "0" => return Ok(()),
                    _ => return Err("it must be true, user or mcs".to_owned()),
                };
                self.either("exclusive", json!(old), "shared", json!([shared]));
                Ok(())
            }
            Form::Oversubscribe if !values::switch(value)? => Ok(()),
            Form::Oversubscribe if !new && self.version.number() < 38 => Err(self.lacks("oversubscribe")),
            Form::Oversubscribe => {
                self.either("oversubscribe", json!(true), "shared", json!(["oversubscribe"]));
                Ok(())
            }
            Form::MailType => self.mail(value),
            Form::OpenMode => {
                let word = values::text(value)?.to_ascii_lowercase();
                let word = match word.as_str() {
                    "a" | "append" => "append",
                    "t" | "truncate" => "truncate",
                    _ => return Err("it must be append or truncate".to_owned()),
                };
                self.either("open_mode", json!(word), "open_mode", json!([word.to_ascii_uppercase()]));
                Ok(())
            }
            Form::Signal => {
                let warning = values::warning(value)?;
                if new {
                    self.fields.insert("kill_warning_signal".to_owned(), json!(warning.signal));
                    let seconds = warning.seconds.map(values::boxed);
                    self.fields.extend(seconds.map(|seconds| ("kill_warning_delay".to_owned(), seconds)));
                    let batch = warning.batch_only.then(|| ("kill_warning_flags".to_owned(), json!(["BATCH_JOB"])));
                    self.fields.extend(batch);
                } else if warning.batch_only {
                    return Err(format!(
                        "Slurm's API {} cannot send it to the batch shell alone; leave B: out",
                        self.version
                    ));
                } else {
                    let seconds = warning.seconds.map(|seconds| format!("@{seconds}")).unwrap_or_default();
                    self.fields.insert("signal".to_owned(), json!(format!("{}{seconds}", warning.signal)));
                }
                Ok(())
            }
            Form::KillOnInvalidDependency => {
                let kills = values::switch(value)?;
                let flag = if kills { "KILL_INVALID_DEPENDENCY" } else { "NO_KILL_INVALID_DEPENDENCY" };
                self.flag_or(flag, "kill_on_invalid_dependency", kills);
                Ok(())
            }
            Form::SpreadJob => {
                if values::switch(value)? {
                    self.flag_or("SPREAD_JOB", "spread_job", true);
                }
                Ok(())
            }
            Form::UseMinNodes => {
                if values::switch(value)? {
                    self.flag_or("PREFER_MINIMUM_NODE_COUNT", "minimum_nodes", true);
                }
                Ok(())
            }
            Form::NoKill => {
                let survives = values::switch(value)?;
                let old = if survives { "set" } else { "off" };
                self.either("no_kill", json!(old), "kill_on_node_fail", json!(!survives));
                Ok(())
            }
            Form::Requeue { is_yes } => {
                let again = values::switch(value)? == is_yes;
                // Before the data parsers both are options without a value: `requeue: false` turns it on.
                if new || again {
                    self.fields.insert("requeue".to_owned(), json!(again));
                } else {
                    self.fields.insert("no_requeue".to_owned(), json!(true));
                }
                Ok(())
            }
            Form::Ignored => Ok(()),
            Form::Refused(why) => Err(why.to_owned()),
            _ => Err("it cannot be used here".to_owned()),
        }
    }

    fn name(&self, field: Field) -> Result<&'static str, Problem> {
        field.name(self.version).ok_or_else(|| self.lacks(if field.new.is_empty() { field.old } else { field.new }))
    }

    fn lacks(&self, field: &str) -> Problem {
        format!("Slurm's API {} has no field `{field}`; remove it", self.version)
    }

    fn put(&mut self, field: Field, value: Value) -> Result<(), Problem> {
        let name = self.name(field)?;
        self.fields.insert(name.to_owned(), value);
        Ok(())
    }

    fn either(&mut self, old: &str, old_value: Value, new: &str, new_value: Value) {
        if self.version.has_data_parser() {
            self.fields.insert(new.to_owned(), new_value);
        } else {
            self.fields.insert(old.to_owned(), old_value);
        }
    }

    /// A switch that the data parsers keep in the list `flags`.
    fn flag_or(&mut self, flag: &str, old: &str, value: bool) {
        if !self.version.has_data_parser() {
            self.fields.insert(old.to_owned(), json!(value));
        } else if let Value::Array(flags) = self.fields.entry("flags").or_insert_with(|| json!([])) {
            flags.push(json!(flag));
        }
    }

    fn minutes(&mut self, name: &str, limit: Limit) {
        let value = match (self.version.has_data_parser(), limit) {
            (true, Limit::Minutes(minutes)) => values::boxed(minutes),
            (true, Limit::Unlimited) => values::boxed_infinite(),
            (false, Limit::Minutes(minutes)) => json!(minutes),
            (false, Limit::Unlimited) => json!("UNLIMITED"),
        };
        self.fields.insert(name.to_owned(), value);
    }

    fn nodes(&mut self, value: &Value) -> Result<(), Problem> {
        let text = values::nodes(value)?;
        if !self.version.has_data_parser() && text.contains(':') {
            return Err(format!("Slurm's API {} takes no step in a number of nodes; write 2-4", self.version));
        }
        // 22.05 documents a list and ignores it.
        self.fields.insert("nodes".to_owned(), json!(text));
        Ok(())
    }

    fn resource(&mut self, old: &str, list: &str, resource: Resource, value: &Value) -> Result<(), Problem> {
        let text = match resource {
            Resource::GpuMemory => values::megabytes(value)?.to_string(),
            _ => values::text(value)?.trim().to_owned(),
        };
        if !self.version.has_data_parser() {
            if old.is_empty() {
                return Err(self.lacks(list));
            }
            let value = if resource == Resource::GpuMemory { json!(values::megabytes(value)?) } else { json!(text) };
            self.fields.insert(old.to_owned(), value);
            return Ok(());
        }
        // 23.02 wrote `gres:gpu:2`, later versions write `gres/gpu:2`.
        let prefix = if self.version.number() == 39 { "gres:" } else { "gres/" };
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(|entry| match resource {
            Resource::Trackable => entry.to_owned(),
            Resource::Generic if entry.starts_with("gres") => entry.to_owned(),
            Resource::Generic => format!("{prefix}{entry}"),
            Resource::Gpu | Resource::GpuMemory => format!("{prefix}gpu:{entry}"),
        });
        let added = entries.collect::<Vec<_>>().join(",");
        let all = match self.fields.get(list).and_then(Value::as_str) {
            Some(before) => format!("{before},{added}"),
            None => added,
        };
        self.fields.insert(list.to_owned(), json!(all));
        Ok(())
    }

    fn mail(&mut self, value: &Value) -> Result<(), Problem> {
        let words = values::names(value)?.iter().map(|word| word.to_ascii_uppercase()).collect::<Vec<_>>();
        let mut flags: Vec<&str> = Vec::new();
        for word in &words {
            flags.extend(match word.as_str() {
                "NONE" => &[][..],
                "ALL" => &["BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPENDENCY", "STAGE_OUT"],
                "BEGIN" => &["BEGIN"],
                "END" => &["END"],
                "FAIL" => &["FAIL"],
                "REQUEUE" => &["REQUEUE"],
                "STAGE_OUT" => &["STAGE_OUT"],
                "ARRAY_TASKS" => &["ARRAY_TASKS"],
                "INVALID_DEPEND" | "INVALID_DEPENDENCY" => &["INVALID_DEPENDENCY"],
                "TIME_LIMIT" => &["TIME=100%"],
                "TIME_LIMIT_90" => &["TIME=90%"],
                "TIME_LIMIT_80" => &["TIME=80%"],
                "TIME_LIMIT_50" => &["TIME=50%"],
                _ => return Err(format!("`{word}` is no event to mail about; write BEGIN, END, FAIL or ALL")),
            });
        }
        self.either("mail_type", json!(words.join(",")), "mail_type", json!(flags));
        Ok(())
    }

    fn export(&mut self, value: &Value) -> Result<(), Problem> {
        for entry in values::names(value)? {
            match entry.split_once('=') {
                Some(_) => self.environment.extend(values::environment(&json!([entry]))?),
                // There is no shell here whose variables could go along.
                None if matches!(entry.as_str(), "ALL" | "NONE" | "NIL") => {}
                None => return Err(format!("variable {entry} has no value here; write {entry}=value")),
            }
        }
        Ok(())
    }

    /// The token comes before the user's own comment, so that no comment can push it out or imitate it.
    fn token(&mut self, job: &Submission) {
        let comment = match self.fields.get("comment").and_then(Value::as_str) {
            Some(own) => format!("{} {own}", job.token),
            None => job.token.to_string(),
        };
        self.fields.insert("comment".to_owned(), json!(comment));
        if self.version.has_data_parser() {
            // The site may give `extra` a meaning of its own, so the user's stays as it is.
            self.fields.entry("extra").or_insert_with(|| json!(job.token));
        }
    }

    fn environment(&mut self) {
        self.environment.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
        let value = if self.version.has_data_parser() {
            json!(self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        } else {
            json!(self.environment)
        };
        self.fields.insert("environment".to_owned(), value);
    }
}

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
