//! Values of the wrong type or beyond their limits.

use super::Input::Edit;
use super::{Case, JOBDATA, SPEC};

pub(super) const CASES: &[Case] = &[
    (
        "unknown location",
        Edit("scriptlocation: inline", "scriptlocation: local"),
        &[r#"job.yaml:13:21: spec.jobdata.scriptlocation: unknown value "local"; write one of: remote, inline, s3"#],
    ),
    (
        "location in upper case",
        Edit("scriptlocation: inline", "scriptlocation: S3"),
        &[
            r#"job.yaml:13:21: spec.jobdata.scriptlocation: unknown value "S3"; did you mean "s3"? The choices are: remote, inline, s3"#,
        ],
    ),
    (
        "misspelt location",
        Edit("scriptlocation: inline", "scriptlocation: inlne"),
        &[
            r#"job.yaml:13:21: spec.jobdata.scriptlocation: unknown value "inlne"; did you mean "inline"? The choices are: remote, inline, s3"#,
        ],
    ),
    (
        "extra location that only scripts have",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    scriptextralocation: remote"),
        &[r#"job.yaml:14:26: spec.jobdata.scriptextralocation: unknown value "remote"; write one of: inline, s3"#],
    ),
    (
        "unknown manager",
        Edit("  updateinterval: 20", "  resourceManager: pbs"),
        &[r#"job.yaml:8:20: spec.resourceManager: unknown value "pbs"; write one of: slurm, lsf, ray, quantum, local"#],
    ),
    (
        "manager in upper case",
        Edit("  updateinterval: 20", "  resourceManager: SLURM"),
        &[
            r#"job.yaml:8:20: spec.resourceManager: unknown value "SLURM"; did you mean "slurm"? The choices are: slurm, lsf, ray, quantum, local"#,
        ],
    ),
    (
        "unknown pull policy",
        Edit("  updateinterval: 20", "  imagepullpolicy: Sometimes"),
        &[
            r#"job.yaml:8:20: spec.imagepullpolicy: unknown value "Sometimes"; write one of: Always, IfNotPresent, Never"#,
        ],
    ),
    (
        "pull policy in lower case",
        Edit("  updateinterval: 20", "  imagepullpolicy: always"),
        &[
            r#"job.yaml:8:20: spec.imagepullpolicy: unknown value "always"; did you mean "Always"? The choices are: Always, IfNotPresent, Never"#,
        ],
    ),
    (
        "unknown deletion policy",
        Edit("  updateinterval: 20", "  deletionPolicy: Keep"),
        &[r#"job.yaml:8:19: spec.deletionPolicy: unknown value "Keep"; write one of: Cancel, Orphan"#],
    ),
    (
        "location is a number",
        Edit("scriptlocation: inline", "scriptlocation: 3"),
        &[
            "job.yaml:13:21: spec.jobdata.scriptlocation: must be a word, but is the number 3; write one of: remote, inline, s3",
        ],
    ),
    (
        "interval in quotes",
        Edit("updateinterval: 20", r#"updateinterval: "20""#),
        &[
            r#"job.yaml:8:19: spec.updateinterval: must be a whole number, but is the text "20"; write it without quotes: 20"#,
        ],
    ),
    (
        "interval as a duration",
        Edit("updateinterval: 20", "updateinterval: 20s"),
        &[
            r#"job.yaml:8:19: spec.updateinterval: must be a whole number, but is the text "20s"; write it like this: 20"#,
        ],
    ),
    (
        "interval of zero",
        Edit("updateinterval: 20", "updateinterval: 0"),
        &["job.yaml:8:19: spec.updateinterval: 0 is out of range; write a number from 1 to 2147483647"],
    ),
    (
        "negative interval",
        Edit("updateinterval: 20", "updateinterval: -5"),
        &["job.yaml:8:19: spec.updateinterval: -5 is out of range; write a number from 1 to 2147483647"],
    ),
    (
        "interval with a fraction",
        Edit("updateinterval: 20", "updateinterval: 2.5"),
        &["job.yaml:8:19: spec.updateinterval: must be a whole number, but is the number 2.5; write it like this: 20"],
    ),
    (
        "interval too large",
        Edit("updateinterval: 20", "updateinterval: 99999999999"),
        &["job.yaml:8:19: spec.updateinterval: 99999999999 is out of range; write a number from 1 to 2147483647"],
    ),
    (
        "negative backoff limit",
        Edit("updateinterval: 20", "backoffLimit: -1"),
        &["job.yaml:8:17: spec.backoffLimit: -1 is out of range; write a number from 0 to 2147483647"],
    ),
    (
        "deadline of zero",
        Edit("updateinterval: 20", "activeDeadlineSeconds: 0"),
        &["job.yaml:8:26: spec.activeDeadlineSeconds: 0 is out of range; write a number from 1 to 2147483647"],
    ),
    (
        "number with a leading zero",
        Edit("updateinterval: 20", "updateinterval: 020"),
        &[
            "job.yaml:8:19: spec.updateinterval: a number that begins with 0 is octal to some programs; put it in quotes if it is text, or leave out the 0",
        ],
    ),
    (
        "kill in quotes",
        Edit("  updateinterval: 20", r#"  kill: "true""#),
        &[r#"job.yaml:8:9: spec.kill: must be true or false, but is the text "true"; write it without quotes: true"#],
    ),
    (
        "kill is a number",
        Edit("  updateinterval: 20", "  kill: 1"),
        &["job.yaml:8:9: spec.kill: must be true or false, but is the number 1; write one of the two words"],
    ),
    (
        "text is a number",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    jobparameters: 5"),
        &[r#"job.yaml:14:20: spec.jobdata.jobparameters: must be text, but is the number 5; put it in quotes: "5""#],
    ),
    (
        "text is a boolean",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    jobparameters: true"),
        &[r#"job.yaml:14:20: spec.jobdata.jobparameters: must be text, but is true; put it in quotes: "true""#],
    ),
    (
        "text is a list",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    additionaldata: [a, b]"),
        &[
            r#"job.yaml:14:21: spec.jobdata.additionaldata: must be text, but is a list; write one line, or a block after "|""#,
        ],
    ),
    (
        "script is a map",
        Edit("    jobscript: |\n      #!/bin/sh\n      echo hello", "    jobscript:\n      path: /home/run.sh"),
        &[r#"job.yaml:11:7: spec.jobdata.jobscript: must be text, but is a map; write one line, or a block after "|""#],
    ),
    (
        "jobdata is text",
        Edit(JOBDATA, "  jobdata: echo hello"),
        &[
            r#"job.yaml:9:12: spec.jobdata: must be a map, but is the text "echo hello"; write it as a map of: additionaldata, jobScript, jobparameters, jobscript, scriptextralocation, scriptlocation, scriptmetadata"#,
        ],
    ),
    (
        "spec is a list",
        Edit(SPEC, "spec:\n- resourceURL: x\n"),
        &[
            "job.yaml:6:3: spec: must be a map, but is a list; write it as a map of: activeDeadlineSeconds, backoffLimit, deletionPolicy, image, imagepullpolicy, jobdata, jobproperties, kill, podTemplate, resourceManager, resourceURL, resourcesecret, s3storage, s3upload, suspend, ttlSecondsAfterFinished, updateinterval",
        ],
    ),
    (
        "tolerations are a map",
        Edit("  updateinterval: 20", "  podTemplate:\n    tolerations: {key: gpu}"),
        &[
            r#"job.yaml:9:18: spec.podTemplate.tolerations: must be a list, but is a map; write one entry per line, each after "- ""#,
        ],
    ),
    (
        "label is a number",
        Edit("  updateinterval: 20", "  podTemplate:\n    labels: {tier: 1}"),
        &[r#"job.yaml:9:20: spec.podTemplate.labels.tier: must be text, but is the number 1; put it in quotes: "1""#],
    ),
    (
        "amount is nonsense",
        Edit("  updateinterval: 20", "  podTemplate:\n    resources: {limits: {memory: much}}"),
        &[
            r#"job.yaml:9:34: spec.podTemplate.resources.limits.memory: must be an amount, but is the text "much"; write it like this: 250m, 1, 512Mi"#,
        ],
    ),
    (
        "env as a map",
        Edit("  updateinterval: 20", "  podTemplate:\n    env: {A: b}"),
        &[
            r#"job.yaml:9:10: spec.podTemplate.env: must be a list, but is a map; write one entry per line, each after "- ""#,
        ],
    ),
    (
        "env from a Secret",
        Edit(
            "  updateinterval: 20",
            "  podTemplate:\n    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
        ),
        &["job.yaml:9:21: spec.podTemplate.env[0].valueFrom: unknown field; the fields here are: name, value"],
    ),
    (
        "reserved env",
        Edit(
            "  updateinterval: 20",
            "  podTemplate:\n    env: [{name: OK}, {name: JOBNAME, value: x}, {name: BRIDGE_URL, value: y}]",
        ),
        &[
            "job.yaml:9:30: spec.podTemplate.env[1].name: NAMESPACE, JOBNAME and names that begin with BRIDGE_ are set by the operator; choose another name",
            "job.yaml:9:57: spec.podTemplate.env[2].name: NAMESPACE, JOBNAME and names that begin with BRIDGE_ are set by the operator; choose another name",
        ],
    ),
    (
        "same env twice",
        Edit("  updateinterval: 20", "  podTemplate:\n    env: [{name: A, value: x}, {name: A, value: y}]"),
        &[r#"job.yaml:9:32: spec.podTemplate.env[1]: a second entry named "A"; names must differ"#],
    ),
];
