//! Values that are missing, or that do not go together.

use super::Input::Edit;
use super::{Case, SCRIPT, SPEC};

pub(super) const CASES: &[Case] = &[
    (
        "no URL",
        Edit("  resourceURL: http://slurm.example.org:6820\n", ""),
        &["job.yaml:5:1: spec.resourceURL: is missing; write resourceURL: <value>"],
    ),
    (
        "empty URL",
        Edit("resourceURL: http://slurm.example.org:6820", r#"resourceURL: """#),
        &["job.yaml:6:16: spec.resourceURL: is empty; write a value"],
    ),
    (
        "null URL",
        Edit("resourceURL: http://slurm.example.org:6820", "resourceURL:"),
        &["job.yaml:5:1: spec.resourceURL: is missing; write resourceURL: <value>"],
    ),
    (
        "no jobdata",
        Edit("  jobdata:\n    jobscript: |\n      #!/bin/sh\n      echo hello\n    scriptlocation: inline\n", ""),
        &["job.yaml:5:1: spec.jobdata: is missing; write jobdata: with its fields below it"],
    ),
    (
        "no script",
        Edit(SCRIPT, ""),
        &[
            "job.yaml:9:3: spec.jobdata: write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
        ],
    ),
    (
        "empty script",
        Edit(SCRIPT, "    jobscript: \"\"\n"),
        &[
            "job.yaml:9:3: spec.jobdata: write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
        ],
    ),
    (
        "both spellings",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    jobScript: /home/run.sh"),
        &[
            "job.yaml:9:3: spec.jobdata: write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
        ],
    ),
    ("no spec", Edit(SPEC, ""), &["job.yaml:1:1: spec: is missing; write spec: with its fields below it"]),
    (
        "no metadata",
        Edit("metadata:\n  name: hello\n", ""),
        &["job.yaml:1:1: metadata: is missing; write metadata: with its fields below it"],
    ),
    (
        "no name",
        Edit("  name: hello", "  namespace: default"),
        &["job.yaml:3:1: metadata.name: is missing; write name: <a name>"],
    ),
    ("empty name", Edit("name: hello", r#"name: """#), &["job.yaml:4:9: metadata.name: is empty; write a name"]),
    (
        "name too long",
        Edit("name: hello", "name: a-name-that-is-just-longer-than-fifty-two-characters-in-all"),
        &[
            "job.yaml:4:9: metadata.name: metadata.name is longer than 52 characters; choose a shorter one, because the names of the pod and the ConfigMap are derived from it",
        ],
    ),
    (
        "name in upper case",
        Edit("name: hello", "name: Hello_World"),
        &[
            r#"job.yaml:4:9: metadata.name: "Hello_World" is not a name; write lower case letters, digits and "-", a letter or digit first and last, for example "hello-world""#,
        ],
    ),
    (
        "name is a number",
        Edit("name: hello", "name: 42"),
        &[r#"job.yaml:4:9: metadata.name: must be text, but is the number 42; put it in quotes: "42""#],
    ),
    (
        "bad namespace",
        Edit("name: hello", "name: hello\n  namespace: my.space"),
        &[
            r#"job.yaml:5:14: metadata.namespace: "my.space" is not a name; write lower case letters, digits and "-", a letter or digit first and last, for example "my-space""#,
        ],
    ),
    (
        "no secret for slurm",
        Edit("  resourcesecret: slurm-token", "  resourceManager: slurm"),
        &[
            "job.yaml:5:1: spec.resourcesecret: resourcesecret is missing; name the Secret that holds the credentials (only ray and local need none)",
        ],
    ),
    (
        "script in S3 without s3storage",
        Edit("scriptlocation: inline", "scriptlocation: s3"),
        &[
            "job.yaml:13:21: spec.jobdata.scriptlocation: scriptlocation is s3, but there is no s3storage; add s3storage with s3secret and endpoint",
        ],
    ),
    (
        "parameters in S3 without s3storage",
        Edit(
            "    scriptlocation: inline",
            "    scriptlocation: inline\n    scriptextralocation: s3\n    jobparameters: bucket:params.json",
        ),
        &[
            "job.yaml:14:26: spec.jobdata.scriptextralocation: scriptextralocation is s3, but there is no s3storage; add s3storage with s3secret and endpoint",
        ],
    ),
    (
        "data in S3 without s3storage",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    additionaldata: /home/x, bucket:data.csv"),
        &[
            "job.yaml:14:21: spec.jobdata.additionaldata: additionaldata names objects in S3, but there is no s3storage; add s3storage with s3secret and endpoint",
        ],
    ),
    (
        "upload without s3storage",
        Edit("  updateinterval: 20", "  s3upload: {bucket: results, files: out.txt}"),
        &[
            "job.yaml:8:3: spec.s3upload: s3upload is there, but there is no s3storage; add s3storage with s3secret and endpoint",
        ],
    ),
    (
        "upload without a bucket",
        Edit("  updateinterval: 20", "  s3upload: {files: out.txt}\n  s3storage: {s3secret: s3, endpoint: minio:9000}"),
        &["job.yaml:8:3: spec.s3upload.bucket: is missing; write bucket: <value>"],
    ),
    (
        "upload with an empty bucket",
        Edit(
            "  updateinterval: 20",
            "  s3upload: {bucket: '', files: out.txt}\n  s3storage: {s3secret: s3, endpoint: minio:9000}",
        ),
        &["job.yaml:8:22: spec.s3upload.bucket: s3upload.files needs s3upload.bucket; name the bucket the files go to"],
    ),
    (
        "s3storage without endpoint",
        Edit("  updateinterval: 20", "  s3storage:\n    s3secret: s3"),
        &[
            "job.yaml:8:3: spec.s3storage: s3storage needs both s3secret and endpoint; write both, or leave s3storage out",
        ],
    ),
    (
        "s3storage without secret",
        Edit("  updateinterval: 20", "  s3storage:\n    endpoint: minio:9000"),
        &[
            "job.yaml:8:3: spec.s3storage: s3storage needs both s3secret and endpoint; write both, or leave s3storage out",
        ],
    ),
    (
        "endpoint with a scheme",
        Edit("  updateinterval: 20", "  s3storage: {s3secret: s3, endpoint: 'https://minio:9000'}"),
        &[
            "job.yaml:8:39: spec.s3storage.endpoint: endpoint is a bare host[:port]; leave out the scheme (`secure: true` means https) and the path",
        ],
    ),
    (
        "unknown addressing",
        Edit("  updateinterval: 20", "  s3storage: {s3secret: s3, endpoint: 'minio:9000', addressing: VirtualHost}"),
        &[r#"job.yaml:8:65: spec.s3storage.addressing: unknown value "VirtualHost"; write one of: path, virtual"#],
    ),
    (
        "unknown field in s3storage",
        Edit("  updateinterval: 20", "  s3storage: {s3secret: s3, endpoint: 'minio:9000', acceskey: x}"),
        &[
            "job.yaml:8:53: spec.s3storage.acceskey: unknown field; the fields here are: addressing, endpoint, region, remoteEndpoint, s3secret, secure",
        ],
    ),
    (
        "properties are no JSON",
        Edit("  updateinterval: 20", "  jobproperties: 'Queue=debug'"),
        &[
            "job.yaml:8:18: spec.jobproperties: is not valid JSON: expected value (line 1, column 1 of the text); write the text of a JSON object, or the properties as a YAML map",
        ],
    ),
    (
        "properties with a trailing comma",
        Edit("  updateinterval: 20", "  jobproperties: |\n    {\n      \"Queue\": \"debug\",\n    }"),
        &[
            "job.yaml:11:5: spec.jobproperties: is not valid JSON: trailing comma (line 3, column 1 of the text); write the text of a JSON object, or the properties as a YAML map",
        ],
    ),
    (
        "properties with typographic quotes",
        Edit("  updateinterval: 20", "  jobproperties: |\n    { ”Queue”: ”V100” }"),
        &[
            r#"job.yaml:9:7: spec.jobproperties: is not valid JSON: key must be a string (line 1, column 3 of the text); write straight quotes (") in place of the typographic ones"#,
        ],
    ),
    (
        "properties with single quotes",
        Edit("  updateinterval: 20", r#"  jobproperties: "{'Queue': 'V100'}""#),
        &[
            r#"job.yaml:8:18: spec.jobproperties: is not valid JSON: key must be a string (line 1, column 2 of the text); write double quotes (") in place of single ones"#,
        ],
    ),
    (
        "properties as a JSON list",
        Edit("  updateinterval: 20", "  jobproperties: '[1, 2]'"),
        &[r#"job.yaml:8:18: spec.jobproperties: is JSON, but a list and not an object; write {"name": "value", …}"#],
    ),
    (
        "properties as a YAML list",
        Edit("  updateinterval: 20", "  jobproperties: [Queue, debug]"),
        &[
            "job.yaml:8:18: spec.jobproperties: must be a map or the text of a JSON object, but is a list; write name: value pairs below it",
        ],
    ),
    (
        "properties as a number",
        Edit("  updateinterval: 20", "  jobproperties: 20"),
        &[
            "job.yaml:8:18: spec.jobproperties: must be a map or the text of a JSON object, but is the number 20; write name: value pairs below it",
        ],
    ),
    (
        "property twice",
        Edit("  updateinterval: 20", "  jobproperties:\n    Queue: a\n    Queue: b"),
        &["job.yaml:10:5: spec.jobproperties.Queue: is written twice (first on line 9); keep one of them"],
    ),
    (
        "field twice",
        Edit("  updateinterval: 20", "  updateinterval: 20\n  updateinterval: 30"),
        &["job.yaml:9:3: spec.updateinterval: is written twice (first on line 8); keep one of them"],
    ),
    (
        "several errors at once",
        Edit(
            "  resourcesecret: slurm-token\n  updateinterval: 20\n  jobdata:",
            "  resourcesecrt: slurm-token\n  updateinterval: soon\n  backoffLimit: -1\n  s3storage: {s3secret: s3}\n  jobdata:",
        ),
        &[
            r#"job.yaml:7:3: spec.resourcesecrt: unknown field; did you mean "resourcesecret"?"#,
            r#"job.yaml:8:19: spec.updateinterval: must be a whole number, but is the text "soon"; write it like this: 20"#,
            "job.yaml:9:17: spec.backoffLimit: -1 is out of range; write a number from 0 to 2147483647",
            "job.yaml:10:3: spec.s3storage: s3storage needs both s3secret and endpoint; write both, or leave s3storage out",
        ],
    ),
];
