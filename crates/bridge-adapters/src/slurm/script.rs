//! The text that Slurm is given to run.

use bridge_core::ids::SubmitToken;
use bridge_core::plan::Script;

use super::wire::ApiVersion;

/// Shells that take `set --`.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"];

/// What is run, and the arguments that still have to be given to it by Slurm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runnable {
    pub(super) text: String,
    pub(super) arguments: Vec<String>,
}

/// The user's script, as it is where nothing has to be added.
pub(super) fn runnable(
    script: &Script,
    arguments: Vec<String>,
    token: &SubmitToken,
    version: ApiVersion,
) -> Result<Runnable, String> {
    let refuse = |why: &str| Err(why.to_owned());
    match script {
        Script::Text(text) if text.trim().is_empty() => refuse("the script is empty"),
        // As `sbatch` does: slurmctld takes such a script, and the job fails or is held for ever.
        Script::Text(text) if !text.starts_with("#!") => {
            refuse("the script's first line must name its interpreter, such as #!/bin/sh")
        }
        Script::Text(text) if text.contains("\r\n") => {
            refuse("the script has DOS line ends, which no interpreter takes; save it with Unix ones")
        }
        Script::Text(text) if text.contains('\0') => refuse("the script holds a NUL character"),
        Script::Text(text) if arguments.is_empty() || version.has_data_parser() => {
            Ok(Runnable { text: text.clone(), arguments })
        }
        // slurmrestd of 22.05 dies of `argv`, after the job was taken.
        Script::Text(text) => Ok(Runnable { text: with_arguments(text, &arguments, token), arguments: Vec::new() }),
        Script::Remote(path) if path.trim().is_empty() || path.contains(['\0', '\n', '\r']) => {
            refuse("jobscript must be the path of a script on the cluster")
        }
        Script::Remote(path) => {
            let text = format!("#!/bin/sh\nexec {}{}\n", quoted(path.trim()), listed(&arguments));
            Ok(Runnable { text, arguments: Vec::new() })
        }
    }
}

/// The script with its arguments inside.
fn with_arguments(script: &str, arguments: &[String], token: &SubmitToken) -> String {
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    let interpreter = first.trim_start_matches("#!").trim();
    let words: Vec<&str> = interpreter.split_whitespace().collect();
    let program = match words.as_slice() {
        [env, program, ..] if env.ends_with("/env") => program,
        [program, ..] => program,
        [] => "",
    };
    let program = program.rsplit('/').next().unwrap_or_default();
    let listed = listed(arguments);
    if SHELLS.contains(&program) {
        return format!("{first}\nset --{listed}\n{rest}");
    }
    // Any other interpreter gets the script as a file; not started by itself, because /tmp may forbid that.
    let command = match interpreter.split_once(char::is_whitespace) {
        Some((program, option)) => format!("{} {}", quoted(program), quoted(option.trim())),
        None => quoted(interpreter),
    };
    let end = format!("END-OF-{token}");
    let newline = if script.ends_with('\n') { "" } else { "\n" };
    format!(
        "#!/bin/sh\nbridge_script=$(mktemp) || exit 1\ntrap 'rm -f \"$bridge_script\"' EXIT\n\
         cat >\"$bridge_script\" <<'{end}'\n{script}{newline}{end}\n{command} \"$bridge_script\"{listed}\n"
    )
}

/// The arguments for a shell, each quoted, with a space before each.
fn listed(arguments: &[String]) -> String {
    arguments.iter().flat_map(|argument| [" ".to_owned(), quoted(argument)]).collect()
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(script: &str, arguments: &[&str], version: &str) -> Runnable {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let version = ApiVersion::parse(version).unwrap();
        runnable(&Script::Text(script.to_owned()), arguments, &SubmitToken::derive("abc", 1), version).unwrap()
    }

    #[test]
    fn without_arguments_the_script_is_sent_as_it_is() {
        let script = "#!/usr/bin/python3\nprint(1)";
        for version in ["v0.0.36", "v0.0.45"] {
            assert_eq!(of(script, &[], version).text, script);
        }
        assert_eq!(of(script, &["a"], "v0.0.39").text, script);
        assert_eq!(of(script, &["a"], "v0.0.39").arguments, ["a"]);
    }

    #[test]
    fn where_arguments_cannot_be_given_they_go_into_the_script() {
        let shell = of("#!/usr/bin/env bash\n#SBATCH -n1\necho $1\n", &["a b", "it's"], "v0.0.38");
        assert_eq!(shell.text, "#!/usr/bin/env bash\nset -- 'a b' 'it'\\''s'\n#SBATCH -n1\necho $1\n");
        assert!(shell.arguments.is_empty());
        assert_eq!(of("#!/bin/sh", &["a"], "v0.0.36").text, "#!/bin/sh\nset -- 'a'\n");
    }

    #[test]
    fn an_interpreter_that_is_no_shell_gets_its_script_and_arguments() {
        let text = of("#!/usr/bin/env awk -f\nBEGIN { print ARGV[1] \"!\" }", &["it's me"], "v0.0.38").text;
        let run = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("script");
            std::fs::write(&path, text).unwrap();
            let output = std::process::Command::new("sh").arg(&path).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        // env(1) of a shebang line gets one argument; only newer ones split it, so that is not tried here.
        assert!(text.contains("'/usr/bin/env' 'awk -f' \"$bridge_script\" 'it'\\''s me'"), "{text}");
        let awk = of("#!/usr/bin/awk -f\nBEGIN { print ARGV[1] \"!\"; exit 4 }", &["it's me"], "v0.0.38").text;
        if std::path::Path::new("/usr/bin/awk").exists() {
            assert_eq!(run(&awk), (Some(4), "it's me!\n".to_owned(), String::new()));
        }
    }
}
