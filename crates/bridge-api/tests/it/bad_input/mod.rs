//! What people get wrong, and the whole of what they are told.

mod fields;
mod meaning;
mod text;
mod types;

use bridge_api::reader::{self, Document};

const BASE: &str = "\
apiVersion: bridgejob.ibm.com/v1alpha1
kind: BridgeJob
metadata:
  name: hello
spec:
  resourceURL: http://slurm.example.org:6820
  resourcesecret: slurm-token
  updateinterval: 20
  jobdata:
    jobscript: |
      #!/bin/sh
      echo hello
    scriptlocation: inline
";
const SPEC: &str = "\
spec:
  resourceURL: http://slurm.example.org:6820
  resourcesecret: slurm-token
  updateinterval: 20
  jobdata:
    jobscript: |
      #!/bin/sh
      echo hello
    scriptlocation: inline
";
const JOBDATA: &str = "  jobdata:\n    jobscript: |\n      #!/bin/sh\n      echo hello\n    scriptlocation: inline";
const SCRIPT: &str = "    jobscript: |\n      #!/bin/sh\n      echo hello\n";

/// Name, input, and every line that is said about it.
type Case = (&'static str, Input, &'static [&'static str]);

enum Input {
    /// The first replaced by the second in [`BASE`].
    Edit(&'static str, &'static str),
    /// The whole file.
    Whole(&'static str),
    /// [`BASE`], and this after it.
    Then(&'static str),
    /// [`BASE`] twice.
    Twice,
    /// Eighty lists in each other.
    Deep,
}

impl Input {
    fn text(&self) -> String {
        match self {
            Self::Edit(from, to) => {
                assert!(BASE.contains(from), "{from:?} is not in the base");
                BASE.replacen(from, to, 1)
            }
            Self::Whole(text) => (*text).to_owned(),
            Self::Then(text) => format!("{BASE}{text}"),
            Self::Twice => format!("{BASE}---\n{BASE}"),
            Self::Deep => format!("a: {}{}\n", "[".repeat(80), "]".repeat(80)),
        }
    }
}

fn problems(bytes: &[u8]) -> Vec<String> {
    let reading = reader::read("job.yaml", bytes);
    reading.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_case_is_told_in_full() {
    let cases: Vec<&Case> = [fields::CASES, types::CASES, meaning::CASES, text::CASES].into_iter().flatten().collect();
    assert!(cases.len() >= 100);
    for (name, input, wanted) in cases {
        assert_eq!(problems(input.text().as_bytes()), *wanted, "{name}");
    }
}

#[test]
fn the_base_itself_is_fine() {
    let (documents, notes) = reader::read("job.yaml", BASE.as_bytes()).into_result().unwrap();
    assert!(notes.is_empty());
    assert!(matches!(&documents[..], [Document::Job(_)]));
}

#[test]
fn what_is_not_text() {
    let not_utf8 = "is not UTF-8 text; give a YAML or JSON file";
    assert_eq!(
        problems(&[0x7F, b'E', b'L', b'F', 2, 1, 1, 0]),
        ["job.yaml:1:1: holds control characters; give a YAML or JSON file"]
    );
    assert_eq!(problems(b"kind: BridgeJob\nname: \xE9t\xE9\n"), [format!("job.yaml:2:7: {not_utf8}")]);
    assert_eq!(problems(b"\xFF\xFEk\0i\0"), ["job.yaml: is UTF-16 text; save it as UTF-8"]);
    assert_eq!(problems(b"\0\0\0\0"), ["job.yaml:1:1: holds control characters; give a YAML or JSON file"]);
    assert_eq!(problems(&vec![b'a'; 17 * 1024 * 1024]), ["job.yaml: is larger than 16 MiB; no BridgeJob is"]);
}

#[test]
fn texts_that_are_too_long() {
    let script = BASE.replace("echo hello", &"x".repeat(256 * 1024));
    assert_eq!(
        problems(script.as_bytes()),
        ["job.yaml:11:7: spec.jobdata.jobscript: has 262155 characters; 256 KiB are allowed; put it into S3"]
    );
    let parameters = format!("{BASE}    jobparameters: {}\n", "x".repeat(64 * 1024 + 1));
    assert_eq!(
        problems(parameters.as_bytes()),
        ["job.yaml:14:20: spec.jobdata.jobparameters: has 65537 characters; 64 KiB are allowed; put it into S3"]
    );
    let properties = BASE.replace("  updateinterval: 20", &format!("  jobproperties: {{a: {}}}", "é".repeat(300_000)));
    assert_eq!(
        problems(properties.as_bytes()),
        ["job.yaml:9:3: spec.jobdata: all texts of the job together are larger than 512 KiB; \
          put the script or the parameters into S3"]
    );
}

#[test]
fn no_message_shows_what_a_secret_holds() {
    for field in [
        "data: {password: hunter2!}",
        "data: hunter2",
        "stringData: {password: [hunter2]}",
        "stringData: [hunter2]",
        "type: {a: hunter2}",
    ] {
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{field}\n");
        let said = problems(text.as_bytes());
        assert!(!said.is_empty(), "{field}");
        assert!(!said.concat().contains("hunter2"), "{said:?}");
    }
}

#[test]
fn not_even_a_number_of_a_secret() {
    let said =
        problems(b"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: 04711, b: 4711, c: !x 4711}\n");
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(!said.concat().contains("4711"), "{said:?}");
}

/// Whatever is cut off or damaged: an answer, and no panic.
#[test]
fn damaged_files_are_answered() {
    for end in (0..BASE.len()).step_by(3) {
        let _ = problems(&BASE.as_bytes()[..end]);
        let mut damaged = BASE.as_bytes().to_vec();
        damaged[end] ^= 0x15;
        let _ = problems(&damaged);
    }
}
