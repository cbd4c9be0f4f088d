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
    let with_lab = !lab_is_off();
    if with_lab {
        run("install what the lab needs", "lab/install", &[])?;
    }
    cargo("build all tests", &["test", "--workspace", "--no-run"])?;
    if !with_lab {
        list_lab_tests()?;
        return cargo("run all tests but the lab's", &["test", "--workspace", "--no-fail-fast"]);
    }
    // An unoptimised image builds in half the time, and the tests do not measure.
    run("make the project's image", "env", &["BRIDGE_IMAGE_PROFILE=dev", "lab/image", "bridge"])?;
    run("start the lab", "lab/up", &[])?;
    let tested = cargo("run all tests", &["test", "--workspace", "--no-fail-fast"]);
    let stopped = run("stop the lab", "lab/down", &[]);
    tested.and(stopped)
}

fn lint() -> Result<(), String> {
    cargo("check the format", &["fmt", "--all", "--check"])?;
    cargo("lint", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// Libtest hides what passing tests print, so what is left out is said here, by name and number.
fn list_lab_tests() -> Result<(), String> {
    let output = Command::new(program("cargo"))
        .current_dir(root())
        .args(["test", "--workspace", "--quiet", "--", "--list", "--format", "terse", "lab"])
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    println!("xtask: BRIDGE_LAB=off leaves out {} tests that need the lab:", names.len());
    for name in names {
        println!("xtask:   {name}");
    }
    Ok(())
}

fn generate() -> Result<(), String> {
    write_output("deploy/crd.yaml", &["crd"])?;
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
