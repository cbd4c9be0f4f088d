use bridge_core::staging::{Cargo, Incoming, Outgoing, OutgoingSource, SignedUrl};
use jiff::Timestamp;

use super::*;

fn cargo() -> Cargo {
    let file = |name: &str| Outgoing {
        name: name.to_owned(),
        source: OutgoingSource::File(name.to_owned()),
        url: SignedUrl::new("http://store/@SCRIPT@?sig=1"),
    };
    Cargo {
        inputs: vec![Incoming {
            name: "it's @OUTPUTS@".to_owned(),
            url: SignedUrl::new("http://store/in"),
            size: 3,
            sha256: Some("AB".repeat(32)),
        }],
        outputs: vec![file("-n $(id)"), file("/abs/ä")],
        report: Some(SignedUrl::new("http://store/report")),
        mark: ("x-amz-meta-bridge-token".to_owned(), "bridge-1-1".to_owned()),
        expires: Timestamp::from_second(4_000_000_000).unwrap(),
        authorities: None,
    }
}

#[test]
fn directives_stay_where_they_were_and_names_are_only_names() {
    let script = "#!/usr/bin/python3\n#SBATCH -n 2\n\n# remark\nprint('@INPUTS@')\n#SBATCH --late=1\n";
    let text = wrap(script, &cargo(), &SubmitToken::derive("1", 1));
    assert!(text.starts_with("#!/bin/sh\n#SBATCH -n 2\n\n# remark\n\n# This job"), "{text}");
    assert!(!text.contains("print(") && !text.contains("--late"), "the script is encoded");
    assert!(text.contains("bridge_input './it'\\''s @OUTPUTS@' 3 abab"), "{text}");
    assert!(text.contains("abab 'http://store/in'\n"), "{text}");
    assert!(text.contains("bridge_send '-n $(id)' './-n $(id)' 'http://store/@SCRIPT@?sig=1'\n"), "{text}");
    assert!(text.contains("bridge_send '/abs/ä' '/abs/ä' "), "{text}");
    assert!(text.contains("bridge_known './-n $(id)'\nbridge_known '/abs/ä'\nbridge_input "), "{text}");
    assert!(text.contains("--header 'x-amz-meta-bridge-token: bridge-1-1'"), "{text}");
    assert!(text.contains("bridge_expires=4000000000\n"), "{text}");
    // Only as its first argument does it keep curl from the user's own settings.
    assert_eq!((text.matches("| curl ").count(), text.matches("| curl -q ").count()), (2, 2), "{text}");
    for shell in ["dash", "bash", "sh"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, &text).unwrap();
        let Ok(checked) = std::process::Command::new(shell).arg("-n").arg(&path).output() else { continue };
        assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn what_an_earlier_attempt_wrote_is_not_called_another_job_s() {
    let marked =
        |attempt| wrap("#!/bin/sh\n", &cargo(), &SubmitToken::derive("1", attempt)).matches("\nbridge_known '").count();
    assert_eq!([marked(1), marked(2)], [2, 0]);
}

#[test]
fn only_what_looks_like_a_checksum_is_compared() {
    for odd in [None, Some("wAbc=="), Some("'; id #")] {
        let mut cargo = cargo();
        cargo.inputs[0].sha256 = odd.map(str::to_owned);
        let text = wrap("#!/bin/sh\n", &cargo, &SubmitToken::derive("1", 1));
        assert!(text.contains("@OUTPUTS@' 3 - 'http://store/in'\n"), "{text}");
    }
}
