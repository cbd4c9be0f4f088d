//! The rules of a `BridgeJob`: each is CEL for the API server and a wording shared with [`mod@crate::validate`].

use kube::core::Rule;

/// One rule: the CEL expression, what people read when it is broken, and the field they have to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CelRule {
    /// CEL over the object the rule is attached to.
    pub cel: &'static str,
    /// What to write instead.
    pub message: &'static str,
    /// Path from the object the rule is attached to, or empty for the object itself.
    pub field: &'static str,
}

impl CelRule {
    pub(crate) fn rule(self) -> Rule {
        let rule = Rule::new(self.cel).message(self.message);
        if self.field.is_empty() { rule } else { rule.field_path(format!(".{}", self.field)) }
    }
}

/// A field that never changes after creation, present or not.
macro_rules! immutable {
    ($name:ident, $field:literal) => {
        #[doc = concat!("`", $field, "` never changes.")]
        pub const $name: CelRule = CelRule {
            cel: concat!(
                "has(self.",
                $field,
                ") == has(oldSelf.",
                $field,
                ") && (!has(self.",
                $field,
                ") || self.",
                $field,
                " == oldSelf.",
                $field,
                ")"
            ),
            message: concat!($field, " cannot be changed after creation; delete the BridgeJob and create it again"),
            // A rule may not point at a field that the new object lacks, so it points at the spec.
            field: "",
        };
    };
}

immutable!(FIXED_RESOURCE_URL, "resourceURL");
immutable!(FIXED_RESOURCE_SECRET, "resourcesecret");
immutable!(FIXED_IMAGE, "image");
immutable!(FIXED_PULL_POLICY, "imagepullpolicy");
immutable!(FIXED_JOB_DATA, "jobdata");
immutable!(FIXED_S3_STORAGE, "s3storage");
immutable!(FIXED_S3_UPLOAD, "s3upload");
immutable!(FIXED_MANAGER, "resourceManager");
immutable!(FIXED_POD_TEMPLATE, "podTemplate");

/// `jobproperties` never change; CEL of a CRD cannot see them, so the admission policy of the install says this.
pub const FIXED_JOB_PROPERTIES: CelRule = CelRule {
    cel: "",
    message: "jobproperties cannot be changed after creation; delete the BridgeJob and create it again",
    field: "",
};

/// On the root: names of the pod and the `ConfigMap` are derived from it.
pub const NAME_LENGTH: CelRule = CelRule {
    cel: "self.metadata.name.size() <= 52",
    message: "metadata.name is longer than 52 characters; choose a shorter one, because the names of the pod \
              and the ConfigMap are derived from it",
    field: "",
};

/// On the spec: a kill cannot be taken back.
pub const KILL_IS_FINAL: CelRule = CelRule {
    cel: "!oldSelf.kill || self.kill",
    message: "kill cannot be taken back; create a new BridgeJob to run the job again",
    field: "kill",
};

/// On the spec: only where the manager is named, because otherwise it is found later from the URL or the image.
pub const SECRET_NEEDED: CelRule = CelRule {
    cel: "!has(self.resourceManager) || self.resourceManager in ['ray', 'local'] || \
          (has(self.resourcesecret) && self.resourcesecret != '')",
    message: "resourcesecret is missing; name the Secret that holds the credentials (only ray and local need none)",
    field: "",
};

/// On the spec: a script in S3 needs S3.
pub const SCRIPT_NEEDS_S3: CelRule = CelRule {
    cel: "self.jobdata.scriptlocation != 's3' || (has(self.s3storage) && self.s3storage.s3secret != '')",
    message: "scriptlocation is s3, but there is no s3storage; add s3storage with s3secret and endpoint",
    field: "jobdata.scriptlocation",
};

/// On the spec: metadata or parameters in S3 need S3; with both empty there is nothing to fetch.
pub const EXTRA_NEEDS_S3: CelRule = CelRule {
    cel: "self.jobdata.scriptextralocation != 's3' || \
          (self.jobdata.scriptmetadata == '' && self.jobdata.jobparameters == '') || \
          (has(self.s3storage) && self.s3storage.s3secret != '')",
    message: "scriptextralocation is s3, but there is no s3storage; add s3storage with s3secret and endpoint",
    field: "jobdata.scriptextralocation",
};

/// On the spec: `bucket:object` entries need S3; other entries are the manager's business.
pub const DATA_NEEDS_S3: CelRule = CelRule {
    cel: "!self.jobdata.additionaldata.matches(r'(^|,)\\s*[^,/:\\s]+:[^/,\\s]') || \
          (has(self.s3storage) && self.s3storage.s3secret != '')",
    message: "additionaldata names objects in S3, but there is no s3storage; add s3storage with s3secret and endpoint",
    field: "jobdata.additionaldata",
};

/// On the spec: an upload needs S3.
pub const UPLOAD_NEEDS_S3: CelRule = CelRule {
    cel: "!has(self.s3upload) || self.s3upload.bucket == '' || (has(self.s3storage) && self.s3storage.s3secret != '')",
    message: "s3upload is there, but there is no s3storage; add s3storage with s3secret and endpoint",
    field: "s3upload",
};

/// On `jobdata`: exactly one spelling holds the script.
pub const ONE_SCRIPT: CelRule = CelRule {
    cel: "(has(self.jobscript) && self.jobscript != '') != (has(self.jobScript) && self.jobScript != '')",
    message: "write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
    field: "",
};

/// On `jobdata`: everything travels in one `ConfigMap`. `jobproperties` is invisible to CEL, the reader counts it too.
pub const TOTAL_SIZE: CelRule = CelRule {
    cel: "(has(self.jobscript) ? bytes(self.jobscript).size() : 0) + \
          (has(self.jobScript) ? bytes(self.jobScript).size() : 0) + \
          bytes(self.scriptmetadata).size() + bytes(self.jobparameters).size() + \
          bytes(self.additionaldata).size() <= 524288",
    message: "all texts of the job together are larger than 512 KiB; put the script or the parameters into S3",
    field: "",
};

/// On `s3storage`: all or none.
pub const S3_COMPLETE: CelRule = CelRule {
    cel: "(self.s3secret == '') == (self.endpoint == '')",
    message: "s3storage needs both s3secret and endpoint; write both, or leave s3storage out",
    field: "",
};

/// On `s3storage`: the endpoint is a bare host and port.
pub const ENDPOINT_BARE: CelRule = CelRule {
    cel: "!self.endpoint.contains('/')",
    message: "endpoint is a bare host[:port]; leave out the scheme (`secure: true` means https) and the path",
    field: "endpoint",
};

/// On `s3upload`: files need a bucket.
pub const UPLOAD_BUCKET: CelRule = CelRule {
    cel: "self.bucket != '' || self.files == ''",
    message: "s3upload.files needs s3upload.bucket; name the bucket the files go to",
    field: "bucket",
};

/// On one entry of `podTemplate.env`: the names the pod itself relies on.
pub const ENV_RESERVED: CelRule = CelRule {
    cel: "!(self.name in ['NAMESPACE', 'JOBNAME']) && !self.name.startsWith('BRIDGE_')",
    message: "NAMESPACE, JOBNAME and names that begin with BRIDGE_ are set by the operator; choose another name",
    field: "name",
};
