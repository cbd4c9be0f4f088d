//! The texts of Ray 2.60, as it sends them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::jobs::{Progress, Request};

/// What Ray sends with 200 where it means an error (its state API does so).
pub(super) const ERROR_BODY: &str = r#"{"result": false, "msg": "Failed to get cluster status.", "data": {}}"#;

/// JSON in ASCII, as Python writes it.
pub(super) fn json_response(value: &Value) -> Response {
    let mut text = String::new();
    for char in value.to_string().chars() {
        if char.is_ascii() {
            text.push(char);
        } else {
            text.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], text).into_response()
}

pub(super) fn text_response(status: u16, text: impl Into<String>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.into()).into_response()
}

pub(super) fn no_such_job(id: &str) -> Response {
    text_response(404, format!("Job {id} does not exist"))
}

pub(super) fn in_trouble() -> Response {
    text_response(500, "500 Internal Server Error\n\nServer got itself in trouble")
}

/// What the head makes of its agent's 400.
pub(super) fn agent_refusal(function: &str, error: &str) -> Response {
    text_response(
        500,
        format!(
            "Traceback (most recent call last):\n  File \"job_head.py\", line 419, in {function}\n    \
             raise RuntimeError(f\"Request failed with status code {{status}}: {{error_text}}.\")\n\
             RuntimeError: Request failed with status code 400: Traceback (most recent call last):\n  \
             File \"job_agent.py\", line 45, in {function}\n{error}\n.\n"
        ),
    )
}

pub(super) fn bad_request(error: &str) -> Response {
    text_response(
        400,
        format!(
            "Traceback (most recent call last):\n  File \"utils.py\", line 128, in parse_and_validate_request\n    \
             return validate_request_type(json_data, request_type)\n{error}\n"
        ),
    )
}

/// The fields of a submission that Ray knows.
const FIELDS: [&str; 11] = [
    "entrypoint",
    "submission_id",
    "job_id",
    "runtime_env",
    "metadata",
    "entrypoint_num_cpus",
    "entrypoint_num_gpus",
    "entrypoint_memory",
    "entrypoint_resources",
    "entrypoint_label_selector",
    "virtual_cluster_id",
];

/// Reads the body of a submission, or says what Ray would.
pub(super) fn read_request(body: &[u8]) -> Result<Request, Box<Response>> {
    let Ok(Value::Object(given)) = serde_json::from_slice(body) else { return Err(Box::new(in_trouble())) };
    let wrong = |error: String| Box::new(bad_request(&format!("TypeError: {error}")));
    if let Some(unknown) = given.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(wrong(format!("JobSubmitRequest.__init__() got an unexpected keyword argument '{unknown}'")));
    }
    let entrypoint = match given.get("entrypoint") {
        Some(Value::String(entrypoint)) => entrypoint.clone(),
        Some(other) => return Err(wrong(format!("entrypoint must be a string, got {}", class(other)))),
        None => {
            return Err(wrong(
                "JobSubmitRequest.__init__() missing 1 required positional argument: 'entrypoint'".into(),
            ));
        }
    };
    for field in ["runtime_env", "metadata", "entrypoint_resources", "entrypoint_label_selector"] {
        if let Some(other) = given.get(field).filter(|value| !value.is_object() && !value.is_null()) {
            return Err(wrong(format!("{field} must be a dict, got {}", class(other))));
        }
    }
    for field in ["entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory"] {
        if let Some(other) = given.get(field).filter(|value| !value.is_number() && !value.is_null()) {
            return Err(wrong(format!("{field} must be a number, got {}", class(other))));
        }
    }
    if let Some(Value::Object(metadata)) = given.get("metadata")
        && let Some(other) = metadata.values().find(|value| !value.is_string())
    {
        return Err(wrong(format!("metadata values must be strings, got {}", class(other))));
    }
    let text = |field: &str| given.get(field).and_then(Value::as_str).map(str::to_owned);
    let object = |field: &str| given.get(field).and_then(Value::as_object).cloned();
    Ok(Request {
        entrypoint,
        submission_id: text("submission_id").or_else(|| text("job_id")),
        runtime_env: object("runtime_env"),
        metadata: object("metadata"),
        cpus: given.get("entrypoint_num_cpus").and_then(Value::as_f64).unwrap_or_default(),
    })
}

fn class(value: &Value) -> &'static str {
    match value {
        Value::Null => "<class 'NoneType'>",
        Value::Bool(_) => "<class 'bool'>",
        Value::Number(number) if number.is_f64() => "<class 'float'>",
        Value::Number(_) => "<class 'int'>",
        Value::String(_) => "<class 'str'>",
        Value::Array(_) => "<class 'list'>",
        Value::Object(_) => "<class 'dict'>",
    }
}

/// A job, as `GET` and the list tell it.
pub(super) fn job_details(id: &str, request: &Request, progress: &Progress) -> Value {
    let on_node = progress.has_node;
    json!({
        "type": "SUBMISSION",
        "job_id": null,
        "submission_id": id,
        "driver_info": null,
        "status": progress.status,
        "entrypoint": request.entrypoint,
        "message": progress.message,
        "error_type": progress.error_type,
        "start_time": progress.start_time,
        "end_time": progress.end_time,
        "metadata": request.metadata,
        "runtime_env": request.runtime_env,
        "driver_agent_http_address": on_node.then_some("http://127.0.0.1:52365"),
        "driver_node_id": on_node.then_some(NODE),
        "driver_exit_code": progress.exit_code,
    })
}

const NODE: &str = "40031e8a7793a71f5b1127710a50be6cc3343d8d0e421f30bf20c61b";

/// The answer to `GET /api/cluster_status`.
pub(super) fn cluster_status(cpus: f64, used: f64, waiting: &[f64]) -> Value {
    let mut usage = Map::new();
    usage.insert("CPU".to_owned(), json!([used, cpus]));
    usage.insert("memory".to_owned(), json!([0.0, 17_351_035_700.0]));
    usage.insert("node:127.0.0.1".to_owned(), json!([0.0, 1.0]));
    usage.insert("objectStoreMemory".to_owned(), json!([0.0, 7_436_158_156.0]));
    usage.insert("node:InternalHead".to_owned(), json!([0.0, 1.0]));
    let demand: Vec<Value> = waiting.iter().map(|cpus| json!([{"CPU": cpus}, 1])).collect();
    json!({
        "result": true,
        "msg": "Got cluster status.",
        "data": {
            "autoscalingStatus": null,
            "autoscalingError": null,
            "clusterStatus": {
                "time": 1_794_729_382.607_803_8,
                "autoscalerReport": {"activeNodes": {"node": 1}, "pendingNodes": [], "failedNodes": [], "legacy": true},
                "loadMetricsReport": {
                    "usage": usage,
                    "resourceDemand": demand,
                    "pgDemand": [],
                    "requestDemand": [],
                    "usageByNode": {(NODE): usage},
                }
            }
        }
    })
}
