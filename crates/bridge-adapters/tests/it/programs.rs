//! Programs that a test writes and another process executes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes it by a process that ends: what this one writes cannot be executed while a child that another test starts at
/// the same moment holds it open.
pub(crate) fn write(program: &Path, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
        .arg(program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}
