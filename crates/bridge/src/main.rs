//! The one program of the Bridge Operator.

use std::process::ExitCode;

fn main() -> ExitCode {
    bridge::main(std::env::args_os().collect())
}
