//! Pieces of `OpenAPI` schema that the derive cannot express: limits on every string, list and map.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The longest `jobscript`.
pub const MAX_SCRIPT: usize = 256 * 1024;
/// The longest of every other text of a job.
pub const MAX_TEXT: usize = 64 * 1024;
/// The longest of all texts of a job together, in bytes: they travel in one `ConfigMap`, which holds 1 MiB.
pub const MAX_TEXTS: usize = 512 * 1024;
/// The longest `status.message`.
pub const MAX_MESSAGE: usize = 4 * 1024;
/// The most entries of `status.outputs`.
pub const MAX_OUTPUTS: usize = 64;

/// A type's own schema, without the `nullable` that `Option` adds: the API server then drops an explicit `null`
/// instead of storing it, and defaults apply.
pub(crate) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(crate) fn text<const MAX: usize>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": MAX })
}

pub(crate) fn non_empty<const MAX: usize>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX })
}

/// Signed 32 bits at most, as in the Kubernetes API; nothing here needs more.
pub(crate) fn int<const MIN: i64>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": MIN, "maximum": i32::MAX })
}

pub(crate) fn long<const MIN: i64>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": MIN })
}

/// An exit code may be negative: some managers say so for a job ended by a signal.
pub(crate) fn exit_code(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32" })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 64 })
}

/// JSON text or a map. A structural schema has no `oneOf` with types, so the API server checks nothing here.
pub(crate) fn properties(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// metav1.Condition, with the limits that Kubernetes documents for it.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the job's state.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "What the condition is about, see \"Conditions\".",
                    "type": "string", "minLength": 1, "maxLength": 316
                },
                "status": {
                    "description": "Whether it holds: True, False or Unknown.",
                    "type": "string", "enum": ["True", "False", "Unknown"]
                },
                "observedGeneration": {
                    "description": "The `metadata.generation` the condition was computed from.",
                    "type": "integer", "format": "int64", "minimum": 0
                },
                "lastTransitionTime": {
                    "description": "When `status` last changed (RFC 3339).",
                    "type": "string", "format": "date-time", "maxLength": 64
                },
                "reason": {
                    "description": "Why, in one word, see \"Reasons\".",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "message": {
                    "description": "Why, in a sentence for people.",
                    "type": "string", "maxLength": 32768
                }
            }
        }
    })
}

/// Label-like maps: labels and node selectors.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 63 }
    })
}

pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 4096 }
    })
}

pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": "A taint the pod tolerates.",
            "properties": {
                "key": {
                    "description": "Taint key; empty with operator Exists matches all.",
                    "type": "string", "maxLength": 317
                },
                "operator": {
                    "description": "Exists or Equal (default).",
                    "type": "string", "enum": ["Exists", "Equal"]
                },
                "value": { "description": "Taint value for Equal.", "type": "string", "maxLength": 63 },
                "effect": {
                    "description": "NoSchedule, PreferNoSchedule or NoExecute; absent matches all.",
                    "type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]
                },
                "tolerationSeconds": {
                    "description": "How long a NoExecute taint is tolerated; absent means for ever.",
                    "type": "integer", "format": "int64"
                }
            }
        }
    })
}

pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = |what: &str| {
        serde_json::json!({
            "description": what,
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {
                "x-kubernetes-int-or-string": true,
                "maxLength": 64,
                "pattern": QUANTITY
            }
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "requests": quantities("What the pod asks for."),
            "limits": quantities("What the pod may use at most.")
        }
    })
}

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(crate) fn image_pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "description": "A Secret of the job's namespace.",
            "required": ["name"],
            "properties": {
                "name": { "description": "Name of the Secret.", "type": "string", "minLength": 1, "maxLength": 253 }
            }
        }
    })
}

pub(crate) fn env(generator: &mut SchemaGenerator) -> Schema {
    list_map::<crate::EnvVar, 64>(generator, "name")
}

pub(crate) fn outputs(generator: &mut SchemaGenerator) -> Schema {
    list_map::<crate::Output, MAX_OUTPUTS>(generator, "name")
}

fn list_map<T: JsonSchema, const MAX: usize>(generator: &mut SchemaGenerator, key: &str) -> Schema {
    let items = generator.subschema_for::<T>();
    json_schema!({
        "type": "array",
        "maxItems": MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": items
    })
}
