//! The command that Ray hands to a shell.

use bridge_core::plan::Script;
use serde_json::{Map, Value};

/// The script's name in the working folder.
pub(super) const SCRIPT_NAME: &str = "script.py";

/// The command, with the parameters quoted so that the shell changes nothing in them.
pub(super) fn entrypoint(script: &Script, parameters: &str) -> Result<String, String> {
    let mut command = match script {
        Script::Text(text) => interpreter(text)?,
        Script::Remote(command) if command.trim().is_empty() => {
            return Err("jobscript is empty; write the command that is to be run on the Ray cluster".to_owned());
        }
        Script::Remote(command) => command.trim().to_owned(),
    };
    for argument in arguments(parameters)? {
        command.push(' ');
        command.push_str(&quoted(&argument));
    }
    // A shell reads a command up to the first of these, and Ray's own checks let it pass.
    if command.contains('\0') {
        return Err("jobscript or jobparameters hold a zero byte, which no command can; remove it".to_owned());
    }
    Ok(command)
}

/// What runs the script: the cluster's Python, or what the first line names if that is something else.
fn interpreter(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("jobscript is empty; write the Python script that is to be run".to_owned());
    }
    let line = text.strip_prefix("#!").and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let (program, argument) = line.split_once([' ', '\t']).map_or((line, ""), |(one, other)| (one, other.trim()));
    let named = if program.ends_with("/env") { argument } else { program };
    let name = named.rsplit('/').next().unwrap_or_default();
    // The Python of the job's environment is first in the path; the one that the line names lacks its packages.
    if name.is_empty() || name.starts_with("python") {
        return Ok(format!("python {SCRIPT_NAME}"));
    }
    let words = [program, argument, SCRIPT_NAME];
    Ok(words.into_iter().filter(|word| !word.is_empty()).map(quoted).collect::<Vec<_>>().join(" "))
}

/// `jobparameters`: an object becomes `--kwargs k=v …`, a list (in JSON or with commas) becomes arguments.
fn arguments(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    let broken = |error: serde_json::Error| format!("jobparameters begins like JSON and is none: {error}; correct it");
    match text.chars().next() {
        Some('{') => keyword_arguments(&serde_json::from_str(text).map_err(broken)?),
        Some('[') => {
            let list: Vec<Value> = serde_json::from_str(text).map_err(broken)?;
            list.iter().map(value_text).collect()
        }
        _ => Ok(bridge_api::split_list(text).map(str::to_owned).collect()),
    }
}

fn keyword_arguments(object: &Map<String, Value>) -> Result<Vec<String>, String> {
    if object.is_empty() {
        return Ok(Vec::new());
    }
    let pairs = object.iter().map(|(key, value)| {
        if key.is_empty() || key.contains('=') {
            return Err(format!("jobparameters has the name {key:?}; write one that is not empty and has no \"=\""));
        }
        Ok(format!("{key}={}", value_text(value)?))
    });
    std::iter::once(Ok("--kwargs".to_owned())).chain(pairs).collect()
}

/// Text as it is, anything else as JSON.
fn value_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => serde_json::to_string(other).map_err(|error| format!("a value of jobparameters is no JSON: {error}")),
    }
}

/// One word of a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_reach_the_script_as_they_are() {
        let table = [
            ("", "python script.py"),
            ("{}", "python script.py"),
            (r#"{"iterations": 15}"#, "python script.py --kwargs iterations=15"),
            (r#"{"iterations": "15", "name": "x"}"#, "python script.py --kwargs iterations=15 name=x"),
            (
                r#"{"a": "two words", "b": true, "c": null, "d": 1.50}"#,
                "python script.py --kwargs 'a=two words' b=true c=null d=1.5",
            ),
            (r#"{"a": {"b": [1, "x"]}}"#, r#"python script.py --kwargs 'a={"b":[1,"x"]}'"#),
            (
                r#"{"a": "$(rm -rf /); `id` && 'q' \"d\" \\ !h #c ~ * ?"}"#,
                r#"python script.py --kwargs 'a=$(rm -rf /); `id` && '\''q'\'' "d" \ !h #c ~ * ?'"#,
            ),
            ("{\"a\": \"line\\nbreak\"}", "python script.py --kwargs 'a=line\nbreak'"),
            (r#"{"ä": "ö"}"#, "python script.py --kwargs 'ä=ö'"),
            (r#"{"-x": "-y"}"#, "python script.py --kwargs -x=-y"),
            (r#"["--steps", 10, "", "a b"]"#, "python script.py --steps 10 '' 'a b'"),
            ("--steps, 10 , x;y", "python script.py --steps 10 'x;y'"),
        ];
        for (parameters, expected) in table {
            assert_eq!(entrypoint(&Script::Text("print(1)".into()), parameters).unwrap(), expected, "{parameters}");
        }
    }

    /// The shell itself is asked what it makes of the words.
    #[test]
    fn a_shell_gives_every_word_back() {
        let words = [
            "",
            " ",
            "'",
            "''",
            "\\",
            "\"$HOME\"",
            "`id`",
            "$(id)",
            "a\nb",
            "*",
            "~",
            "!x",
            "-n",
            "ä=ö",
            "#",
            ";",
            "&",
            "|",
            "\t",
            "=",
            "%s\\n",
        ];
        let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("for word in {}; do printf '%s\\001' \"$word\"; done", line.join(" "))])
            .output()
            .unwrap();
        let seen: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().split_terminator('\u{1}').collect();
        assert_eq!(seen, words);
    }

    #[test]
    fn the_first_line_names_what_runs_the_script() {
        let table = [
            ("import ray", "python script.py"),
            ("#!/usr/bin/env python3\nimport ray", "python script.py"),
            ("#!/usr/bin/python3.11 -u\nimport ray", "python script.py"),
            ("#!\nx", "python script.py"),
            ("#!/bin/sh\necho hi", "/bin/sh script.py"),
            ("#!/bin/bash -eu\necho hi", "/bin/bash -eu script.py"),
            ("#!/usr/bin/env bash\r\necho hi", "/usr/bin/env bash script.py"),
        ];
        for (script, expected) in table {
            assert_eq!(entrypoint(&Script::Text(script.into()), "").unwrap(), expected, "{script}");
        }
        let remote = Script::Remote(" python /srv/train.py && echo \"$DONE\" ".into());
        assert_eq!(entrypoint(&remote, "").unwrap(), "python /srv/train.py && echo \"$DONE\"", "as given");
        assert_eq!(entrypoint(&Script::Remote("run".into()), r#"{"a": "b c"}"#).unwrap(), "run --kwargs 'a=b c'");
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        let text = Script::Text("print(1)".into());
        for (script, parameters, hint) in [
            (&Script::Text(" \n".into()), "", "jobscript is empty"),
            (&Script::Remote(String::new()), "", "jobscript is empty"),
            (&text, "{nope", "begins like JSON"),
            (&text, "[1, ", "begins like JSON"),
            (&text, r#"{"": 1}"#, "the name \"\""),
            (&text, r#"{"a=b": 1}"#, "no \"=\""),
            (&text, r#"{"a": "\u0000"}"#, "zero byte"),
        ] {
            let error = entrypoint(script, parameters).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
