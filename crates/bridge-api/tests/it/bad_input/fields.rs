//! Fields that do not exist, or not there.

use super::Input::Edit;
use super::{Case, JOBDATA};

pub(super) const CASES: &[Case] = &[
    (
        "misspelt field in the spec",
        Edit("resourcesecret:", "resourcesecet:"),
        &[r#"job.yaml:7:3: spec.resourcesecet: unknown field; did you mean "resourcesecret"?"#],
    ),
    (
        "field in another case",
        Edit("resourceURL:", "resourceUrl:"),
        &[r#"job.yaml:6:3: spec.resourceUrl: unknown field; did you mean "resourceURL"?"#],
    ),
    (
        "field with underscores",
        Edit("updateinterval:", "update_interval:"),
        &[r#"job.yaml:8:3: spec.update_interval: unknown field; did you mean "updateinterval"?"#],
    ),
    (
        "misspelt field in jobdata",
        Edit("scriptlocation:", "scriptlocatoin:"),
        &[r#"job.yaml:13:5: spec.jobdata.scriptlocatoin: unknown field; did you mean "scriptlocation"?"#],
    ),
    (
        "misspelt required script",
        Edit("jobscript:", "jobscrpt:"),
        &[r#"job.yaml:10:5: spec.jobdata.jobscrpt: unknown field; did you mean "jobscript"?"#],
    ),
    (
        "short name of a field",
        Edit("resourceURL:", "url:"),
        &[r#"job.yaml:6:3: spec.url: unknown field; did you mean "resourceURL"?"#],
    ),
    (
        "field of a neighbour",
        Edit("  updateinterval: 20", "  queue: debug"),
        &[
            "job.yaml:8:3: spec.queue: unknown field; the fields here are: activeDeadlineSeconds, backoffLimit, deletionPolicy, image, imagepullpolicy, jobdata, jobproperties, kill, podTemplate, resourceManager, resourceURL, resourcesecret, s3storage, s3upload, suspend, ttlSecondsAfterFinished, updateinterval; what the resource manager is to know goes into spec.jobproperties",
        ],
    ),
    (
        "jobscript one level too high",
        Edit(JOBDATA, "  jobscript: /home/run.sh\n  jobdata:\n    scriptlocation: remote"),
        &["job.yaml:9:3: spec.jobscript: unknown field; it belongs in spec.jobdata"],
    ),
    (
        "jobdata is not indented",
        Edit(JOBDATA, "  jobscript: /home/run.sh\n  scriptlocation: remote"),
        &[
            "job.yaml:9:3: spec.jobscript: unknown field; it belongs in spec.jobdata",
            "job.yaml:10:3: spec.scriptlocation: unknown field; it belongs in spec.jobdata",
        ],
    ),
    (
        "jobdata at the top level",
        Edit("  jobdata:", "jobdata:"),
        &["job.yaml:9:1: jobdata: unknown field; it belongs in spec"],
    ),
    (
        "spec fields in metadata",
        Edit("  name: hello\n", "  name: hello\n  kill: true\n"),
        &["job.yaml:5:3: metadata.kill: unknown field; it belongs in spec"],
    ),
    (
        "bucket outside of s3upload",
        Edit("  updateinterval: 20", "  bucket: results"),
        &["job.yaml:8:3: spec.bucket: unknown field; it belongs in spec.s3upload"],
    ),
    (
        "backoffLimit in jobdata",
        Edit("    scriptlocation: inline", "    scriptlocation: inline\n    backofflimit: 2"),
        &[
            r#"job.yaml:14:5: spec.jobdata.backofflimit: unknown field; it belongs in spec, and is spelt "backoffLimit""#,
        ],
    ),
    (
        "unknown top level field",
        Edit("kind: BridgeJob", "kind: BridgeJob\nspce: {}"),
        &[r#"job.yaml:3:1: spce: unknown field; did you mean "spec"?"#],
    ),
    (
        "field that is not built",
        Edit("  updateinterval: 20", "  execution: Shared"),
        &[
            "job.yaml:8:3: spec.execution: unknown field; the fields here are: activeDeadlineSeconds, backoffLimit, deletionPolicy, image, imagepullpolicy, jobdata, jobproperties, kill, podTemplate, resourceManager, resourceURL, resourcesecret, s3storage, s3upload, suspend, ttlSecondsAfterFinished, updateinterval; what the resource manager is to know goes into spec.jobproperties",
        ],
    ),
    (
        "misspelt metadata",
        Edit("metadata:\n  name", "metdata:\n  name"),
        &[r#"job.yaml:3:1: metdata: unknown field; did you mean "metadata"?"#],
    ),
    (
        "misspelt name",
        Edit("  name: hello", "  nmae: hello"),
        &[r#"job.yaml:4:3: metadata.nmae: unknown field; did you mean "name"?"#],
    ),
];
