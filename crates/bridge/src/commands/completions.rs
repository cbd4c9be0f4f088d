//! `bridge completions`: scripts that complete commands in a shell.

use clap::CommandFactory as _;

use super::crd::print;
use crate::cli::Cli;
use crate::failure::Failure;

/// Prints the script for a shell.
pub fn run(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bridge", &mut script);
    print(&String::from_utf8_lossy(&script))
}
