//! Secrets appear in no output and in no file of the state folder.

use rustix::process::Signal;

use crate::support::{Bench, files_below, until};

const VALUE: &str = "correct-horse-battery-staple";

/// A Slurm that nobody answers for.
fn job(bench: &Bench, name: &str) -> String {
    let yaml = format!(
        "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: {name}\nspec:\n  \
         resourceURL: http://127.0.0.1:9/slurm/v0.0.40\n  resourcesecret: creds\n  jobdata:\n    scriptlocation: inline\n    \
         jobscript: |\n      #!/bin/sh\n      echo {VALUE}-in-a-script\n"
    );
    bench.file(&format!("{name}.yaml"), &yaml);
    yaml
}

fn document() -> String {
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: creds\nstringData:\n  username: me\n  password: {VALUE}\n  \
         token: {VALUE}\n"
    )
}

#[test]
fn they_come_from_documents_folders_and_the_environment_and_are_shown_nowhere() {
    let bench = Bench::new();
    let folder = bench.path("creds");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("username"), "me\n").unwrap();
    std::fs::write(folder.join("token"), format!("{VALUE}\n")).unwrap();
    std::fs::write(folder.join("password"), format!("{VALUE}\n")).unwrap();
    let argument = format!("creds={}", folder.display());
    let in_file = job(&bench, "with-document") + &document();
    bench.file("with-document.yaml", &in_file);
    job(&bench, "with-folder");
    job(&bench, "with-environment");
    let variables = [
        ("BRIDGE_SECRET_CREDS_USERNAME", "me"),
        ("BRIDGE_SECRET_CREDS_PASSWORD", VALUE),
        ("BRIDGE_SECRET_CREDS_TOKEN", VALUE),
    ];

    for (file, more, environment) in [
        ("with-document.yaml", &[][..], &[][..]),
        ("with-folder.yaml", &["--secret", argument.as_str()], &[]),
        ("with-environment.yaml", &[], &variables),
    ] {
        let arguments: Vec<&str> = ["plan", file].into_iter().chain(more.iter().copied()).collect();
        let plan = bench.command(&arguments).envs(environment.iter().copied()).output().unwrap();
        let plan = crate::support::Done::of(&plan).ends(0);
        assert!(plan.out.contains("creds (") && plan.out.contains("<redacted>-in-a-script"), "{plan:?}");
        assert!(!plan.out.contains(VALUE) && !plan.err.contains(VALUE), "{plan:?}");
        assert!(!bench.state().exists());
    }
    for (file, more) in [("with-document.yaml", &[][..]), ("with-folder.yaml", &["--secret", argument.as_str()])] {
        let script_free = bench.read(file).replace(&format!("{VALUE}-in-a-script"), "nothing");
        bench.file(file, &script_free);
        let arguments: Vec<&str> = ["run", "-o", "json", file].into_iter().chain(more.iter().copied()).collect();
        let runner = bench.start(&arguments);
        until("it is tried", || runner.out().contains("127.0.0.1:9"));
        runner.signal(Signal::INT);
        until("the first is heard", || runner.out().contains("a second signal leaves at once"));
        runner.signal(Signal::INT);
        let done = runner.wait();
        assert!(!done.out.contains(VALUE) && !done.err.contains(VALUE), "{done:?}");
    }
    let state = files_below(&bench.state());
    assert!(state.iter().any(|file| file.ends_with("job.json")), "{state:?}");
    for file in state {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(VALUE), "{}", file.display());
    }
}

#[test]
fn they_are_not_in_the_environment_of_a_job() {
    let bench = Bench::new();
    bench.job("sample", "env");
    let output = bench.command(&["run", "sample.yaml"]).env("BRIDGE_SECRET_CREDS_TOKEN", VALUE).output().unwrap();
    let done = crate::support::Done::of(&output).ends(0);
    assert!(done.out.contains("JOBNAME=sample") && !done.out.contains(VALUE), "{done:?}");
}

#[test]
fn what_others_may_read_is_not_in_the_state_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    bench.job("sample", "true");
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    let mode = std::fs::metadata(bench.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
