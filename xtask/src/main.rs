//! The one entry point for people and CI: `cargo xtask test`, `lint`, `generate`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "usage: cargo xtask <command>

  test      everything CI checks: format, lints, all tests, the lab's among them
            (BRIDGE_LAB=off leaves the lab's tests out and says which)
  lint      format and lints only
  generate  write the generated files: CRD, API reference, install manifest";

fn main() -> ExitCode {
    let argument = env::args().nth(1);
    let result = match argument.as_deref() {
        Some("test") => test(),
        Some("lint") => lint(),
        Some("generate") => generate(),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

fn lab_is_off() -> bool {
    env::var("BRIDGE_LAB").is_ok_and(|value| value == "off")
}

fn test() -> Result<(), String> {
    lint()?;
    if lab_is_off() {
        return test_without_lab();
    }
    run("install what the lab needs", "lab/install", &["kubernetes", "slurm", "ray", "s3"])?;
    check_scripts()?;
    cargo("build all tests", &["test", "--workspace", "--no-run"])?;
    // An unoptimised image builds in half the time, and the tests do not measure.
    run("make the project's image", "lab/image", &["bridge", "dev"])?;
    // The tests take this image instead of building one.
    let tested = run("start the lab", "lab/up", &["kubernetes", "slurm", "slurm-purge", "ray", "s3"]).and_then(|()| {
        let image = "BRIDGE_TEST_IMAGE=localhost/bridge:lab";
        // The lab's tests wait most of the time, so more of them than there are cores may run side by side.
        let threads = format!("RUST_TEST_THREADS={}", std::thread::available_parallelism().map_or(2, usize::from) * 2);
        run("run all tests", "env", &[image, &threads, &program("cargo"), "test", "--workspace", "--no-fail-fast"])
    });
    let stopped = run("stop the lab", "lab/down", &[]);
    tested.and(stopped)
}

/// Libtest calls a test that was left out "ok", so what was left out is said here, by name and number.
fn test_without_lab() -> Result<(), String> {
    let list = env::temp_dir().join(format!("bridge-skipped-{}", std::process::id()));
    let listed = format!("BRIDGE_LAB_SKIPPED={}", list.display());
    let tested = run(
        "run all tests but the lab's",
        "env",
        &[&listed, &program("cargo"), "test", "--workspace", "--no-fail-fast"],
    );
    let names = std::fs::read_to_string(&list).unwrap_or_default();
    let _ = std::fs::remove_file(&list);
    for name in names.lines() {
        println!("xtask: left out, because BRIDGE_LAB=off: {name}");
    }
    println!("xtask: {} tests that need the lab were left out", names.lines().count());
    tested
}

fn lint() -> Result<(), String> {
    cargo("check the format", &["fmt", "--all", "--check"])?;
    cargo("lint", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn check_scripts() -> Result<(), String> {
    // The lists of packages of a fresh machine are empty or old.
    let install = "command -v shellcheck || { apt-get update -o Acquire::Retries=5 && apt-get install --yes --no-install-recommends -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 shellcheck; }";
    run("get shellcheck", "bash", &["-c", install])?;
    let scripts = "cd lab && shellcheck -x up down status env exec install image check rounds user lib/*.sh */*.sh";
    run("lint the lab's scripts", "bash", &["-c", scripts])
}

fn generate() -> Result<(), String> {
    write_output("deploy/crd.yaml", &["crd"])?;
    write_output("deploy/install.yaml", &["manifest"])?;
    write_output("docs/api-reference.md", &["crd", "--reference"])
}

fn write_output(file: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program("cargo"))
        .current_dir(root())
        .args(["run", "--quiet", "--package", "bridge", "--"])
        .args(arguments)
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("{file}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::write(root().join(file), output.stdout).map_err(|error| format!("{file} cannot be written: {error}"))?;
    println!("xtask: wrote {file}");
    Ok(())
}

fn cargo(what: &str, arguments: &[&str]) -> Result<(), String> {
    run(what, &program("cargo"), arguments)
}

fn program(name: &str) -> String {
    env::var(name.to_uppercase()).unwrap_or_else(|_| name.to_owned())
}

fn run(what: &str, program: &str, arguments: &[&str]) -> Result<(), String> {
    let start = Instant::now();
    println!("xtask: {what}: {program} {}", arguments.join(" "));
    let path = root().join(program);
    let program = if path.is_file() { path.into_os_string() } else { program.into() };
    let status = Command::new(&program)
        .current_dir(root())
        .args(arguments)
        // A lab of the tests' own: a developer's is left alone.
        .env("BRIDGE_LAB_NAME", env::var("BRIDGE_LAB_NAME").unwrap_or_else(|_| "ci".to_owned()))
        .status()
        .map_err(|error| format!("xtask: {what}: {} cannot be started: {error}", program.display()))?;
    let seconds = start.elapsed().as_secs();
    if status.success() {
        println!("xtask: {what}: done in {seconds} s");
        Ok(())
    } else {
        Err(format!("xtask: {what}: failed after {seconds} s ({status})"))
    }
}
