//! The one program of the Bridge Operator, and the place where its parts are put together.
//!
//! A library beside the program, so that tests can call its parts without starting a process.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cli;
pub mod commands;
pub mod content;
pub mod drive;
pub mod failure;
pub mod input;
pub mod registry;
pub mod screen;
pub mod secrets;
pub mod signals;
pub mod state;
pub mod tail;
pub mod view;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use failure::Failure;

/// Runs the command that the arguments ask for.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if arguments.get(1).is_some_and(|word| word == bridge_adapters::local::SUPERVISE) {
        return supervise();
    }
    let is_plugin = is_kubectl_plugin(&arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way as well; a closed pipe is no reason to complain.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::BAD_INPUT));
        }
    };
    log_to_stderr();
    // One provider in the whole program; a second installation is refused and changes nothing.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    match dispatch(cli, is_plugin) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

/// Whether this program runs as `kubectl bridge`: its jobs are those of the cluster then.
fn is_kubectl_plugin(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(std::path::Path::new).and_then(std::path::Path::file_name);
    program.and_then(std::ffi::OsStr::to_str).is_some_and(|name| name.starts_with("kubectl"))
}

fn dispatch(cli: Cli, is_plugin: bool) -> Result<u8, Failure> {
    let state_dir = cli.state_dir;
    match cli.command {
        Command::Run(arguments) => commands::run::run(&arguments, state_dir.as_deref()),
        Command::Plan(arguments) => commands::plan::run(&arguments, state_dir.as_deref()),
        Command::List(arguments) => commands::list::run(&arguments, state_dir.as_deref()),
        Command::Logs(arguments) if is_plugin || arguments.cluster.is_given() => {
            commands::cluster_logs::run(&arguments)
        }
        Command::Kill(arguments) if is_plugin || arguments.cluster.is_given() => {
            commands::cluster_jobs::kill(&arguments)
        }
        Command::Submit(arguments) => commands::cluster_jobs::submit(&arguments),
        Command::Get(arguments) => commands::cluster_jobs::get(&arguments),
        Command::Describe(arguments) => commands::cluster_jobs::describe(&arguments),
        Command::Wait(arguments) => commands::cluster_jobs::wait(&arguments),
        Command::Manifest(arguments) => commands::manifest::run(&arguments),
        Command::Logs(arguments) => commands::logs::run(&arguments, state_dir.as_deref()),
        Command::Kill(arguments) => commands::kill::run(&arguments, state_dir.as_deref()),
        Command::Forget(arguments) => commands::forget::run(&arguments, state_dir.as_deref()),
        Command::Operator(arguments) => commands::operator::run(arguments),
        Command::Worker(arguments) => commands::worker::run(arguments),
        Command::Crd(arguments) => commands::crd::run(&arguments),
        Command::Completions { shell } => commands::completions::run(shell),
    }
}

fn supervise() -> ExitCode {
    match bridge_adapters::local::supervise() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BRIDGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .finish();
    // Fails only where a subscriber is set already, as in tests.
    tracing::subscriber::set_global_default(subscriber).ok();
}
