//! Bad input gets one clear message, exit code 2, and nothing is run.

mod state;
mod table;

use std::path::{Path, PathBuf};

use bridge::cli::{Cli, Command};
use bridge::failure::{BAD_INPUT, Failure};
use clap::Parser as _;

use crate::support::Bench;

/// The content of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// All of it.
    Whole(&'static str),
    /// The sound job with texts replaced; what replaces "" is added at the end.
    Edits(&'static [(&'static str, &'static str)]),
}

impl What {
    fn text(self) -> String {
        match self {
            Self::Whole(text) => text.to_owned(),
            Self::Edits(edits) => edits.iter().fold(table::SOUND.to_owned(), |text, (from, to)| {
                assert!(text.contains(from), "{from:?} is not in:\n{text}");
                if from.is_empty() { text + to } else { text.replacen(from, to, 1) }
            }),
        }
    }
}

/// Runs `bridge run` in this process; bad input ends it before anything is started.
fn run(bench: &Bench, files: &[PathBuf], more: &[&str]) -> Result<u8, Failure> {
    let state = bench.state();
    let words = [Path::new("bridge"), Path::new("--state-dir"), &state, Path::new("run")];
    let words = words.into_iter().map(Path::as_os_str).chain(more.iter().map(AsRef::as_ref));
    let cli = Cli::try_parse_from(words.chain(files.iter().map(|file| file.as_os_str()))).unwrap();
    let Command::Run(arguments) = cli.command else { panic!("{cli:?}") };
    bridge::commands::run::run(&arguments, cli.state_dir.as_deref())
}

fn refused(bench: &Bench, files: &[PathBuf], more: &[&str]) -> Vec<String> {
    let failure = run(bench, files, more).expect_err("it was taken");
    assert_eq!(failure.code, BAD_INPUT, "{failure}");
    let folder = bench.path("").display().to_string();
    failure.messages.into_iter().map(|message| message.replace(&folder, "")).collect()
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place_and_a_way_out() {
    assert!(table::CASES.len() >= 60);
    let mut wrong = Vec::new();
    for (name, what, messages) in table::CASES {
        let bench = Bench::new();
        let file = bench.file("job.yaml", &what.text());
        let said = refused(&bench, &[file], &[]);
        let expected: Vec<String> = messages.iter().map(|message| format!("job.yaml{message}")).collect();
        if said != expected {
            wrong.push(format!("{name}:\n  said     {said:#?}\n  expected {expected:#?}"));
        }
        assert!(!bench.state().exists(), "{name}: something was saved");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_sound_file_is_sound() {
    let bench = Bench::new();
    let file = bench.file("job.yaml", table::SOUND);
    assert!(bench.bridge(&["plan", file.to_str().unwrap()]).ends(0).out.contains("manager   local"));
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let bench = Bench::new();
    let folder = bench.path("folder.yaml");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(bench.path("binary.yaml"), [0x6b, 0xff, 0xfe, 0x00]).unwrap();
    std::fs::write(bench.path("utf16.yaml"), [0xff, 0xfe, 0x61, 0x00]).unwrap();
    let files = ["none.yaml", "folder.yaml", "binary.yaml", "utf16.yaml"].map(|name| bench.path(name));
    assert_eq!(
        refused(&bench, &files, &[]),
        [
            "none.yaml: there is no such file; check its name",
            "folder.yaml: is a folder; name the files in it",
            "binary.yaml:1:2: is not UTF-8 text; give a YAML or JSON file",
            "utf16.yaml: is UTF-16 text; save it as UTF-8",
        ]
    );
}

#[test]
fn names_differ_across_files() {
    let bench = Bench::new();
    let files = ["one.yaml", "two.yaml"].map(|name| bench.file(name, table::SOUND));
    assert_eq!(
        refused(&bench, &files, &[]),
        [
            "two.yaml:4:9: metadata.name: a second BridgeJob named \"sample\" (the first is in one.yaml:4); give it another name"
        ]
    );
}

#[test]
fn one_bad_document_keeps_all_from_running() {
    let bench = Bench::new();
    let good = bench.job("good", "echo ran >> $D/ran");
    let bad = bench.file("bad.yaml", &What::Edits(&[("sample", "bad"), ("inline", "cloud")]).text());
    refused(&bench, &[good, bad], &[]);
    assert!(!bench.path("ran").exists() && !bench.state().exists());
}

#[test]
fn all_faults_of_all_files_are_said_at_once() {
    let bench = Bench::new();
    let one = bench.file("one.yaml", &What::Edits(&[("inline", "cloud"), ("resourceURL", "resourceUrl")]).text());
    let two = bench.file("two.yaml", &What::Edits(&[("kind: BridgeJob", "kind: Pod")]).text());
    assert_eq!(refused(&bench, &[one, two], &[]).len(), 3);
}

#[test]
fn arguments_are_checked_without_repeating_what_may_be_a_secret() {
    let bench = Bench::new();
    let file = bench.file("job.yaml", table::SOUND);
    let files = std::slice::from_ref(&file);
    std::fs::create_dir(bench.path("folder")).unwrap();
    let folder = format!("creds={}", bench.path("folder").display());
    let none = format!("creds={}", bench.path("none").display());
    let table: [(&[&str], &str); 5] = [
        (&["--secret", "hunter2"], "--secret takes NAME=FOLDER, a folder with a file for each key"),
        (&["--secret", "=hunter2"], "--secret takes NAME=FOLDER, a folder with a file for each key"),
        (&["--secret", "creds="], "--secret takes NAME=FOLDER, a folder with a file for each key"),
        (&["--secret", &none], "--secret creds: none is not a folder; give a folder with a file for each key"),
        (&["--secret", &folder, "--secret", &folder], "--secret creds is given twice; give it once"),
    ];
    for (arguments, message) in table {
        assert_eq!(refused(&bench, files, arguments), [message]);
    }
}

/// The same through the program: the messages on standard error, nothing on standard output, exit code 2.
#[test]
fn the_program_says_it_on_standard_error() {
    for index in [0, 2, 7, 22, 51, 57, 95] {
        let (name, what, messages) = table::CASES[index];
        let bench = Bench::new();
        bench.file("job.yaml", &what.text());
        for verb in ["run", "plan"] {
            let done = bench.bridge(&[verb, "job.yaml"]).ends(2);
            let expected =
                messages.iter().map(|message| format!("error: job.yaml{message}\n")).collect::<Vec<_>>().concat();
            assert_eq!((done.out.as_str(), done.err), ("", expected), "{name}");
        }
    }
    let bench = Bench::new();
    assert!(bench.bridge(&["run"]).ends(2).err.contains("required arguments"));
    assert!(bench.bridge(&["runn", "x"]).ends(2).err.contains("similar subcommand exists: 'run'"));
    assert!(bench.bridge(&["run", "--agian", "x"]).ends(2).err.contains("'--again'"));
}
