//! State folders that released programs have written stay readable.

use bridge::state::JobFile;

use crate::support::Bench;

const JOB: &str = include_str!("golden/job-1.json");
const RECORD: &str = include_str!("golden/record-1.json");
const FILE: &str = include_str!("golden/job.yaml");

#[test]
fn the_form_of_a_job_has_not_changed() {
    let job: JobFile = serde_json::from_str(JOB).unwrap();
    assert_eq!(
        serde_json::to_string_pretty(&job).unwrap(),
        JOB.trim_end(),
        "raise the format, and keep reading the old one"
    );
}

#[test]
fn a_job_of_an_earlier_program_is_known_again() {
    let bench = Bench::new();
    let folder = bench.state().join("jobs/team_golden");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(bench.state().join("version"), "1\n").unwrap();
    std::fs::write(folder.join("job.json"), JOB).unwrap();
    std::fs::write(folder.join("record.json"), RECORD).unwrap();
    bench.file("golden.yaml", FILE);
    let keys =
        ["LOGIN_TOKEN", "KEYS_ACCESSKEY", "KEYS_SECRETKEY"].map(|key| (format!("BRIDGE_SECRET_{key}"), "abcdef"));
    let output = bench.command(&["run", "golden.yaml"]).envs(keys).output().unwrap();
    let done = crate::support::Done::of(&output).ends(130);
    assert!(done.err.contains("team/golden: it ended before and is not run again"), "{done:?}");
    assert!(bench.bridge(&["list"]).ends(0).out.contains("team/golden  KILLED  slurm"));
}
