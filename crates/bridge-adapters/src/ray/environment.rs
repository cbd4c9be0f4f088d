//! `scriptmetadata` and how it becomes Ray's `runtime_env`.

use serde_json::{Map, Value};

/// What Ray takes in a `runtime_env`.
const KEYS: [&str; 20] = [
    "env_vars",
    "pip",
    "uv",
    "conda",
    "working_dir",
    "py_modules",
    "py_executable",
    "excludes",
    "image_uri",
    "container",
    "config",
    "worker_process_setup_hook",
    "nsight",
    "rocprof_sys",
    "mpi",
    "java_jars",
    "_nsight",
    "_rocprof_sys",
    "_inherit_env",
    "_ray_commit",
];

/// The seeds' word for `env_vars`.
const ENV: &str = "env";
const ENV_VARS: &str = "env_vars";
const WORKING_DIR: &str = "working_dir";

/// Reads `scriptmetadata`. `packaged`: the script or inputs need the working folder.
pub(super) fn runtime_env(metadata: &str, packaged: bool) -> Result<Map<String, Value>, String> {
    let metadata = metadata.trim();
    if metadata.is_empty() {
        return Ok(Map::new());
    }
    let hint = r#"write a JSON object, such as {"pip": {"numpy": "2.1.0"}, "env": {"LEVEL": "3"}}"#;
    let given: Value =
        serde_json::from_str(metadata).map_err(|error| format!("scriptmetadata is no JSON: {error}; {hint}"))?;
    let Value::Object(given) = given else { return Err(format!("scriptmetadata is no JSON object; {hint}")) };
    let mut environment = Map::new();
    let mut variables = Map::new();
    for (key, value) in given {
        match key.as_str() {
            ENV | ENV_VARS => add_variables(&mut variables, &key, &value)?,
            "pip" | "uv" => drop(environment.insert(key.clone(), packages(&key, value)?)),
            WORKING_DIR if packaged => {
                return Err("scriptmetadata.working_dir is taken: the script and its inputs are the working folder; \
                     leave it out, or use scriptlocation: remote"
                    .to_owned());
            }
            known if KEYS.contains(&known) => drop(environment.insert(key, value)),
            unknown => return Err(unknown_key(unknown)),
        }
    }
    if !variables.is_empty() {
        environment.insert(ENV_VARS.to_owned(), Value::Object(variables));
    }
    Ok(environment)
}

fn add_variables(variables: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), String> {
    let Value::Object(given) = value else {
        return Err(format!("scriptmetadata.{key} is {value}; write an object of names and texts"));
    };
    for (name, value) in given {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            other => return Err(format!("scriptmetadata.{key}.{name} is {other}; write a text")),
        };
        if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
            return Err(format!(
                "scriptmetadata.{key} has the variable {name:?}, which no process can have; rename it"
            ));
        }
        let value = Value::String(text);
        if variables.get(name).is_some_and(|other| *other != value) {
            return Err(format!("scriptmetadata sets {name} twice, in env and in env_vars; remove one of them"));
        }
        variables.insert(name.clone(), value);
    }
    Ok(())
}

/// The seeds write packages as `{name: version}`; Ray wants a list, a file's name or `{"packages": …}`.
fn packages(key: &str, value: Value) -> Result<Value, String> {
    match value {
        Value::Object(map) if map.get("packages").is_some_and(|value| value.is_array() || value.is_string()) => {
            Ok(Value::Object(map))
        }
        Value::Object(map) => {
            map.iter().map(|(name, version)| requirement(key, name, version).map(Value::String)).collect()
        }
        Value::Array(list) if list.iter().all(Value::is_string) => Ok(Value::Array(list)),
        // A file of requirements on the cluster.
        Value::String(path) => Ok(Value::String(path)),
        other => Err(format!(
            "scriptmetadata.{key} is {other}; write {{\"name\": \"version\"}} or a list such as [\"name==version\"]"
        )),
    }
}

fn requirement(key: &str, name: &str, version: &Value) -> Result<String, String> {
    let version = match version {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null => String::new(),
        other => return Err(format!("scriptmetadata.{key}.{name} is {other}; write the version as a text")),
    };
    let name = name.trim();
    Ok(match version.chars().next() {
        None | Some('*') => name.to_owned(),
        Some('=' | '<' | '>' | '~' | '!') => format!("{name}{version}"),
        Some('@') => format!("{name} {version}"),
        Some(_) => format!("{name}=={version}"),
    })
}

fn unknown_key(name: &str) -> String {
    let known = || KEYS.into_iter().filter(|key| !key.starts_with('_')).chain([ENV]);
    match super::properties::nearest(name, known()) {
        Some(known) => format!("scriptmetadata.{name} is unknown to Ray; did you mean \"{known}\"?"),
        None => {
            format!("scriptmetadata.{name} is unknown to Ray; it knows: {}", known().collect::<Vec<_>>().join(", "))
        }
    }
}

/// Names of variables that look as if they held a secret: Ray shows them to everyone who may look at jobs.
pub(super) fn tell_tale_variables(environment: &Map<String, Value>) -> Vec<String> {
    const SIGNS: [&str; 8] =
        ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"];
    let Some(Value::Object(variables)) = environment.get(ENV_VARS) else { return Vec::new() };
    let suspicious = |name: &&String| {
        let name = name.to_ascii_uppercase();
        SIGNS.iter().any(|sign| name.contains(sign))
    };
    variables.keys().filter(suspicious).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_seeds_form_and_rays_own_are_understood() {
        let table = [
            ("", json!({})),
            ("{}", json!({})),
            (
                r#"{"pip": {"requests": "2.26.0", "numpy": ">=1.2", "a": "", "b": "*", "c": null, "d": 2}, "env": {"LEVEL": 3, "ON": true, "NAME": "x y"}}"#,
                json!({
                    "pip": ["requests==2.26.0", "numpy>=1.2", "a", "b", "c", "d==2"],
                    "env_vars": {"LEVEL": "3", "ON": "true", "NAME": "x y"},
                }),
            ),
            (r#"{"pip": ["a==1", "b"]}"#, json!({"pip": ["a==1", "b"]})),
            (r#"{"pip": "/srv/requirements.txt"}"#, json!({"pip": "/srv/requirements.txt"})),
            (
                r#"{"pip": {"packages": ["a"], "pip_check": false}, "env_vars": {"A": "1"}, "env": {"A": "1", "B": "2"}}"#,
                json!({"pip": {"packages": ["a"], "pip_check": false}, "env_vars": {"A": "1", "B": "2"}}),
            ),
            (r#"{"pip": {"packages": "1.0"}}"#, json!({"pip": {"packages": "1.0"}})),
            (
                r#"{"pip": {"own": "@ https://example.com/own.whl"}}"#,
                json!({"pip": ["own @ https://example.com/own.whl"]}),
            ),
            (
                r#"{"conda": {"dependencies": ["x"]}, "py_modules": ["s3://b/m.zip"], "config": {"setup_timeout_seconds": 60}}"#,
                json!({"conda": {"dependencies": ["x"]}, "py_modules": ["s3://b/m.zip"], "config": {"setup_timeout_seconds": 60}}),
            ),
        ];
        for (metadata, expected) in table {
            let mut seen = Value::Object(runtime_env(metadata, true).unwrap());
            // A map has no order.
            let mut expected = expected;
            for value in [&mut seen, &mut expected] {
                if let Some(Value::Array(list)) = value.get_mut("pip") {
                    list.sort_by_key(ToString::to_string);
                }
            }
            assert_eq!(seen, expected, "{metadata}");
        }
        let own = runtime_env(r#"{"working_dir": "s3://bucket/code.zip"}"#, false).unwrap();
        assert_eq!(own["working_dir"], "s3://bucket/code.zip");
    }

    #[test]
    fn what_ray_would_not_understand_is_refused_by_name() {
        for (metadata, hint) in [
            ("numpy", "is no JSON"),
            ("[1]", "no JSON object"),
            (r#"{"pips": {}}"#, "scriptmetadata.pips is unknown to Ray; did you mean \"pip\"?"),
            (r#"{"envs": {}}"#, "did you mean \"env\"?"),
            (r#"{"weather": 1}"#, "it knows: env_vars, pip"),
            (r#"{"env": ["A=1"]}"#, "scriptmetadata.env is"),
            (r#"{"env": {"A": ["x"]}}"#, "scriptmetadata.env.A"),
            (r#"{"env": {"A=B": "x"}}"#, "rename it"),
            (r#"{"env": {"A": "1"}, "env_vars": {"A": "2"}}"#, "sets A twice"),
            (r#"{"pip": 3}"#, "scriptmetadata.pip is 3"),
            (r#"{"pip": {"a": ["x"]}}"#, "scriptmetadata.pip.a"),
            (r#"{"working_dir": "/srv"}"#, "scriptmetadata.working_dir is taken"),
        ] {
            let error = runtime_env(metadata, true).unwrap_err();
            assert!(error.contains(hint), "{metadata}: {error}");
        }
    }

    #[test]
    fn variables_that_look_like_secrets_are_named() {
        let environment =
            runtime_env(r#"{"env": {"AWS_SECRET_ACCESS_KEY": "x", "HF_TOKEN": "y", "LEVEL": "3"}}"#, true).unwrap();
        assert_eq!(tell_tale_variables(&environment), ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN"]);
    }
}
