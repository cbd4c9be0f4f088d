//! `bridge crd`: the `CustomResourceDefinition`.

use std::io::Write as _;

use crate::cli::CrdArguments;
use crate::failure::Failure;

/// Prints the CRD, or the reference of its fields.
pub fn run(arguments: &CrdArguments) -> Result<u8, Failure> {
    print(&if arguments.reference { bridge_api::reference_markdown() } else { bridge_api::crd_yaml() })
}

/// Prints a text; a reader who went away is no failure.
pub fn print(text: &str) -> Result<u8, Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::trouble(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(0),
    }
}
