//! Files that are not YAML, or not a job.

use super::Case;
use super::Input::{Deep, Edit, Then, Twice, Whole};

pub(super) const CASES: &[Case] = &[
    (
        "wrong kind",
        Edit("kind: BridgeJob", "kind: BridgeJobs"),
        &[r#"job.yaml:2:7: kind: unknown kind "BridgeJobs"; write BridgeJob"#],
    ),
    (
        "kind in lower case",
        Edit("kind: BridgeJob", "kind: bridgejob"),
        &[r#"job.yaml:2:7: kind: unknown kind "bridgejob"; write BridgeJob"#],
    ),
    ("no kind", Edit("kind: BridgeJob\n", ""), &["job.yaml:1:1: kind: is missing; write kind: BridgeJob"]),
    (
        "misspelt kind key",
        Edit("kind: BridgeJob", "Kind: BridgeJob"),
        &[r#"job.yaml:2:1: kind: is missing, but there is "Kind"; write kind: BridgeJob"#],
    ),
    (
        "another kind",
        Edit("apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob", "apiVersion: batch/v1\nkind: Job"),
        &["job.yaml:2:7: kind: a Job of batch/v1 cannot be used here; write a BridgeJob, or a Secret beside it"],
    ),
    (
        "unknown version",
        Edit("v1alpha1", "v1"),
        &[r#"job.yaml:1:13: apiVersion: unknown version "v1"; write bridgejob.ibm.com/v1alpha1"#],
    ),
    (
        "unknown group",
        Edit("apiVersion: bridgejob.ibm.com", "apiVersion: bridgejobs.ibm.com"),
        &[
            r#"job.yaml:1:13: apiVersion: a BridgeJob of "bridgejobs.ibm.com/v1alpha1" is unknown; write bridgejob.ibm.com/v1alpha1"#,
        ],
    ),
    (
        "no apiVersion",
        Edit("apiVersion: bridgejob.ibm.com/v1alpha1\n", ""),
        &["job.yaml:1:1: apiVersion: is missing; write apiVersion: bridgejob.ibm.com/v1alpha1"],
    ),
    (
        "apiVersion without a version",
        Edit("apiVersion: bridgejob.ibm.com/v1alpha1", "apiVersion: v1alpha1"),
        &[r#"job.yaml:1:13: apiVersion: a BridgeJob of "v1alpha1" is unknown; write bridgejob.ibm.com/v1alpha1"#],
    ),
    (
        "tab as indentation",
        Edit("  updateinterval: 20", "\tupdateinterval: 20"),
        &["job.yaml:8:1: a tab is used for indentation; write spaces"],
    ),
    (
        "tab after spaces",
        Edit("    scriptlocation: inline", "  \tscriptlocation: inline"),
        &["job.yaml:13:3: a tab is used for indentation; write spaces"],
    ),
    (
        "wrong indentation",
        Edit("  updateinterval: 20", "   updateinterval: 20"),
        &[
            r#"job.yaml:8:18: not valid YAML: mapping values are not allowed in this context; check the indentation, and put text that contains ": " in quotes"#,
        ],
    ),
    (
        "unclosed quote",
        Edit("name: hello", r#"name: "hello"#),
        &["job.yaml:5:1: not valid YAML: invalid indentation in multiline quoted scalar; close the quote"],
    ),
    (
        "unclosed brace",
        Edit("  updateinterval: 20", "  jobproperties: {Queue: debug"),
        &[
            "job.yaml:9:10: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'; close every { and [ that is opened",
        ],
    ),
    (
        "colon in text",
        Edit("  resourcesecret: slurm-token", "  resourcesecret: slurm: token"),
        &[
            r#"job.yaml:7:24: not valid YAML: mapping values are not allowed in this context; check the indentation, and put text that contains ": " in quotes"#,
        ],
    ),
    (
        "alias without an anchor",
        Edit("name: hello", "name: *hello"),
        &[
            "job.yaml:4:9: not valid YAML: while parsing node, found unknown anchor; text that begins with * or & needs quotes",
        ],
    ),
    (
        "star at the start of a text",
        Edit("updateinterval: 20", "jobproperties: {cores: *}"),
        &[
            "job.yaml:8:26: not valid YAML: while scanning an anchor or alias, did not find expected alphabetic or numeric character; text that begins with * or & needs quotes",
        ],
    ),
    (
        "YAML tag",
        Edit("name: hello", "name: !name hello"),
        &["job.yaml:4:15: metadata.name: the YAML tag !name has no meaning here; remove it"],
    ),
    (
        "list as a key",
        Edit("  updateinterval: 20", "  [a, b]: 20"),
        &["job.yaml:8:3: spec: a list or map is used as a key; write a word before the colon"],
    ),
    (
        "alias in its own anchor",
        Edit("  updateinterval: 20", "  jobproperties: &p {a: *p}"),
        &["job.yaml:8:25: spec.jobproperties.a: an alias inside of its own anchor; write the value out"],
    ),
    (
        "empty file",
        Whole(""),
        &["job.yaml: holds no document; write a BridgeJob (apiVersion: bridgejob.ibm.com/v1alpha1)"],
    ),
    (
        "only comments",
        Whole("# nothing here\n---\n# nor here\n"),
        &["job.yaml: holds no document; write a BridgeJob (apiVersion: bridgejob.ibm.com/v1alpha1)"],
    ),
    (
        "plain text",
        Whole("hello world\n"),
        &[
            "job.yaml:1:1: is not a Kubernetes object; a BridgeJob begins with apiVersion: bridgejob.ibm.com/v1alpha1 and kind: BridgeJob",
        ],
    ),
    (
        "a list",
        Whole("- a\n- b\n"),
        &[
            "job.yaml:1:1: is not a Kubernetes object; a BridgeJob begins with apiVersion: bridgejob.ibm.com/v1alpha1 and kind: BridgeJob",
        ],
    ),
    (
        "a shell script",
        Whole("#!/bin/sh\necho hello\n"),
        &[
            "job.yaml:2:1: is not a Kubernetes object; a BridgeJob begins with apiVersion: bridgejob.ibm.com/v1alpha1 and kind: BridgeJob",
        ],
    ),
    (
        "some other YAML",
        Whole("name: ci\non: push\n"),
        &["job.yaml:1:1: has no kind, so it is no Kubernetes object; write kind: BridgeJob"],
    ),
    (
        "a ConfigMap",
        Whole("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"),
        &["job.yaml:2:7: kind: a ConfigMap of v1 cannot be used here; write a BridgeJob, or a Secret beside it"],
    ),
    (
        "an empty List",
        Whole("apiVersion: v1\nkind: List\nitems: []\n"),
        &["job.yaml:1:1: items: the list is empty; write at least one BridgeJob"],
    ),
    (
        "a List with a Job",
        Whole("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: batch/v1, kind: Job}\n"),
        &["job.yaml:4:32: kind: a Job of batch/v1 cannot be used here; write a BridgeJob, or a Secret beside it"],
    ),
    (
        "JSON with an error",
        Whole(
            "{\n  \"apiVersion\": \"bridgejob.ibm.com/v1alpha1\",\n  \"kind\": \"BridgeJob\",\n  \"metadata\": {\"name\": \"a\"},\n  \"spec\": {\"resourceURL\": \"http://x\", \"jobdata\": {\"jobscrip\": \"/x\"}}\n}\n",
        ),
        &[r#"job.yaml:5:51: spec.jobdata.jobscrip: unknown field; did you mean "jobscript"?"#],
    ),
    (
        "JSON cut off",
        Whole(r#"{"apiVersion": "bridgejob.ibm.com/v1alpha1", "kind": "BridgeJob""#),
        &["job.yaml:1:1: not valid YAML: unclosed bracket '{'; close every { and [ that is opened"],
    ),
    (
        "Secret with bad base64",
        Whole("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  password: not base64!\n"),
        &["job.yaml:5:13: data.password: is not base64; encode it, or write it as it is under stringData"],
    ),
    (
        "Secret with a number",
        Whole("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  password: 1234\n"),
        &["job.yaml:5:13: stringData.password: must be text, but is another kind of value; put it in quotes"],
    ),
    (
        "Secret without a name",
        Whole("apiVersion: v1\nkind: Secret\nstringData: {password: x}\n"),
        &["job.yaml:1:1: metadata: is missing; write metadata: with its fields below it"],
    ),
    (
        "Secret with a misspelt field",
        Whole("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringdata: {password: hunter2}\n"),
        &[r#"job.yaml:4:1: stringdata: unknown field; did you mean "stringData"?"#],
    ),
    (
        "Secret with a list",
        Whole("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: [hunter2]\n"),
        &["job.yaml:4:7: data: must be a map, but is a list; write it as a map of name: value"],
    ),
    (
        "two jobs of one name",
        Twice,
        &[
            r#"job.yaml:18:9: metadata.name: a second BridgeJob named "hello" (the first is on line 4); give it another name"#,
        ],
    ),
    (
        "second document is broken",
        Then("---\nkind: BridgeJob\n  bad: [\n"),
        &[
            r#"job.yaml:16:6: not valid YAML: mapping values are not allowed in this context; check the indentation, and put text that contains ": " in quotes"#,
        ],
    ),
    (
        "anchor bomb",
        Whole(
            "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e]\n",
        ),
        &["job.yaml:5:28: e[5]: the file grows beyond all limits when its anchors are expanded; write it with fewer"],
    ),
    ("deep nesting", Deep, &["job.yaml:1:67: nested deeper than 64 levels; no field of a BridgeJob is"]),
];
