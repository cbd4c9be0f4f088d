//! Leaving the lab's tests out, visibly.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Lab;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The lab for the test with this path, or `None` (said on standard error) if `BRIDGE_LAB=off`.
#[doc(hidden)]
#[must_use]
pub fn for_test(path: &str) -> Option<&'static Lab> {
    if off() {
        skip(path, "BRIDGE_LAB=off");
        None
    } else {
        Some(Lab::shared())
    }
}

/// Says that the test with this path is skipped, and why.
#[doc(hidden)]
pub fn skip(path: &str, why: &str) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let name = test_name(path);
    // Straight to the descriptor, in one piece: the test harness hides what the print macros of passing tests write,
    // and a test that did nothing must not look like one that passed.
    let line = format!("{why}: skipped {name} (number {number} of this test program)\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("BRIDGE_LAB_SKIPPED")
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file)
    {
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
}

fn off() -> bool {
    std::env::var_os("BRIDGE_LAB").is_some_and(|value| value == "off")
}

/// `crate::module::test::{{closure}}::here` → `module::test`, as the harness prints it.
fn test_name(path: &str) -> &str {
    let path = path.strip_suffix("::here").unwrap_or(path);
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.split_once("::").map_or(path, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_as_the_harness_names_it() {
        assert_eq!(test_name("it::lab::pods::runs::{{closure}}::{{closure}}::here"), "lab::pods::runs");
        assert_eq!(test_name("it::lab::pods::runs::here"), "lab::pods::runs");
    }
}
