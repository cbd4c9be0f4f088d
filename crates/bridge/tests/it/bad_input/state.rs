//! A state folder that is unreadable, damaged, newer, or somebody else's.

use super::refused;
use crate::support::Bench;

const SCRIPT: &str = "echo ran >> $D/ran";

/// A bench with a job that has run once.
fn bench() -> (Bench, std::path::PathBuf) {
    let bench = Bench::new();
    let file = bench.job("sample", SCRIPT);
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    (bench, file)
}

fn replace(bench: &Bench, name: &str, from: &str, to: &str) {
    let path = bench.state().join("jobs/sample").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_state_folder_that_cannot_be_used_is_refused() {
    let bench = Bench::new();
    let file = bench.job("sample", SCRIPT);
    std::fs::write(bench.state(), "a file").unwrap();
    assert_eq!(
        refused(&bench, std::slice::from_ref(&file), &[]),
        ["the state folder state cannot be used: something in its path is not a folder; give another with --state-dir"]
    );
    std::fs::remove_file(bench.state()).unwrap();
    std::fs::create_dir(bench.state()).unwrap();
    for (version, message) in [
        (
            "9\n",
            "the state folder state has format 9, this program knows up to 1; use the newer program, or another folder with --state-dir",
        ),
        (
            "x\n",
            "the state folder state is damaged: state/version holds no number; if it is not a state folder, give another with --state-dir",
        ),
    ] {
        std::fs::write(bench.state().join("version"), version).unwrap();
        assert_eq!(refused(&bench, std::slice::from_ref(&file), &[]), [message]);
        assert!(bench.bridge(&["list"]).ends(2).err.contains("state"));
    }
    assert!(!bench.path("ran").exists());
}

#[test]
fn a_damaged_job_is_never_run_again_by_guessing() {
    let restore = "restore the file, or move the folder state/jobs/sample away if the job is not wanted any more (it may \
                   still run on its remote system)";
    let table = [
        ("job.json", "{", "[", "invalid type: string \"format\", expected u32 at line"),
        ("job.json", "\"format\"", "\"forma\"", "missing field `format` at line"),
        ("job.json", "\"name\": \"sample\"", "\"name\": \"other\"", "it belongs to another job"),
        ("record.json", "{", "", "invalid type: string \"version\", expected struct Versioned at line 1 column 9"),
        (
            "record.json",
            "\"attempt\":1",
            "\"attempt\":\"x\"",
            "invalid type: string \"x\", expected u32 at line 1 column",
        ),
    ];
    for (name, from, to, why) in table {
        let (bench, file) = bench();
        replace(&bench, name, from, to);
        for more in [&[][..], &["--again"]] {
            let said = refused(&bench, std::slice::from_ref(&file), more).join("\n");
            assert!(
                said.starts_with(&format!("the state of job sample is damaged: state/jobs/sample/{name}: ")),
                "{said}"
            );
            assert!(said.ends_with(restore), "{said}");
            assert!(said.contains(why.split(" at line").next().unwrap()), "{said}");
        }
        assert_eq!(bench.read("ran"), "ran\n", "{name}");
    }
}

#[test]
fn state_of_a_newer_program_is_refused() {
    for (name, from, to) in
        [("job.json", "\"format\": 1", "\"format\": 7"), ("record.json", "\"version\":1", "\"version\":7")]
    {
        let (bench, file) = bench();
        replace(&bench, name, from, to);
        assert_eq!(
            refused(&bench, &[file], &["--again"]),
            [format!(
                "the state of job sample was written by a newer program: state/jobs/sample/{name} has format 7, this program \
                 knows up to 1; use the newer program"
            )]
        );
        for command in [&["logs", "sample"][..], &["kill", "sample"], &["list"]] {
            assert!(bench.bridge(command).ends(2).err.contains("newer program"));
        }
        assert_eq!(bench.read("ran"), "ran\n");
    }
}

#[test]
fn one_damaged_job_does_not_hide_the_others() {
    let (bench, _) = bench();
    bench.job("second", "true");
    bench.bridge(&["run", "second.yaml"]).ends(0);
    replace(&bench, "job.json", "{", "[");
    let done = bench.bridge(&["list"]).ends(2);
    assert!(done.out.contains("second") && done.err.contains("job sample is damaged"), "{done:?}");
}

#[test]
fn a_job_that_is_not_there_is_named() {
    let bench = Bench::new();
    bench.bridge(&["list"]).ends(0);
    for verb in ["logs", "kill"] {
        let done = bench.bridge(&[verb, "nobody"]).ends(2);
        assert!(done.err.contains("there is no job \"nobody\" in"), "{done:?}");
    }
    assert!(!bench.state().exists());
}
