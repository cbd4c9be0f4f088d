//! Generated parts of the manual.

use std::fmt::Write as _;

use bridge_api::conditions::{REASONS, TYPES, Term};

fn table(title: &str, terms: &[Term]) -> String {
    let mut text = format!("\n## {title}\n| word | what it means | what to do |\n|---|---|---|\n");
    for term in terms {
        let _ = writeln!(text, "| `{}` | {} | {} |", term.name, term.meaning, term.action);
    }
    text
}

#[test]
fn the_terms_are_those_of_the_api() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshoot.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (head, rest) = text.split_once("<!-- terms").unwrap();
    let (mark, rest) = rest.split_once("-->\n").unwrap();
    let (_, tail) = rest.split_once("<!-- /terms -->").unwrap();
    let terms = format!("{}{}", table("Conditions", TYPES), table("Reasons", REASONS));
    let generated = format!("{head}<!-- terms{mark}-->\n{terms}<!-- /terms -->{tail}");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &generated).unwrap();
    } else {
        assert!(text == generated, "docs/troubleshoot.md is out of date: run this test with UPDATE=1 and commit it");
    }
}
