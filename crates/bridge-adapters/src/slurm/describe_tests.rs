use bridge_core::ids::SubmitToken;

use super::*;

fn version(number: u16) -> ApiVersion {
    ApiVersion::parse(&format!("v0.0.{number}")).unwrap()
}

fn job(script: &str, properties: Value) -> Submission {
    let Value::Object(properties) = properties else { panic!("a map of properties") };
    Submission {
        token: SubmitToken::derive("abc", 1),
        name: "my-job".to_owned(),
        script: Script::Text(script.to_owned()),
        metadata: String::new(),
        parameters: String::new(),
        properties: properties.into_iter().collect(),
        inputs: Vec::new(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn fields(properties: Value, number: u16) -> Value {
    let described = describe(&job("#!/bin/sh\ntrue\n", properties), version(number), now()).unwrap();
    described.body["job"].clone()
}

fn refusal(properties: Value, number: u16) -> String {
    describe(&job("#!/bin/sh\ntrue\n", properties), version(number), now()).unwrap_err().to_string()
}

#[test]
fn the_seeds_properties_are_understood_by_old_and_new_servers() {
    let properties = json!({
        "Queue": "skylake", "NodesNumber": "2", "Tasks": "4", "slurmJobName": "sim", "currentWorkingDir": "/work/me",
        "envPath": "/opt/bin:/bin", "envLibPath": "/opt/lib", "OutputFileName": "sim.out", "ErrorFileName": "sim.err",
        "RunLimitHour": "1", "RunLimitMinute": "30"
    });
    assert_eq!(
        fields(properties.clone(), 37),
        json!({
            "partition": "skylake", "nodes": "2", "tasks": 4, "name": "sim", "current_working_directory": "/work/me",
            "environment": {"PATH": "/opt/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib"}, "standard_output": "sim.out",
            "standard_error": "sim.err", "time_limit": 90, "comment": "bridge-abc-1", "hold": true
        })
    );
    assert_eq!(
        fields(properties, 40),
        json!({
            "partition": "skylake", "nodes": "2", "tasks": 4, "name": "sim", "current_working_directory": "/work/me",
            "environment": ["LD_LIBRARY_PATH=/opt/lib", "PATH=/opt/bin:/bin"], "standard_output": "sim.out",
            "standard_error": "sim.err", "time_limit": {"set": true, "infinite": false, "number": 90},
            "comment": "bridge-abc-1", "extra": "bridge-abc-1", "hold": true
        })
    );
}

#[test]
fn slurms_own_names_become_each_versions_fields() {
    let boxed = |number: i64| json!({"set": true, "infinite": false, "number": number});
    let table: &[(Value, Value, Value)] = &[
        (
            json!({"account": "a1", "qos": "high"}),
            json!({"account": "a1", "qos": "high"}),
            json!({"account": "a1", "qos": "high"}),
        ),
        (json!({"cpus-per-task": "4"}), json!({"cpus_per_task": 4}), json!({"cpus_per_task": 4})),
        (json!({"memory": "4G"}), json!({"memory_per_node": 4096}), json!({"memory_per_node": boxed(4096)})),
        (json!({"mem-per-cpu": 512}), json!({"memory_per_cpu": 512}), json!({"memory_per_cpu": boxed(512)})),
        (json!({"time": "1-00:00:00"}), json!({"time_limit": 1440}), json!({"time_limit": boxed(1440)})),
        (json!({"runlimit": 20}), json!({"time_limit": 20}), json!({"time_limit": boxed(20)})),
        (
            json!({"gres": "gpu:2,lic:1"}),
            json!({"gres": "gpu:2,lic:1"}),
            json!({"tres_per_node": "gres/gpu:2,gres/lic:1"}),
        ),
        (json!({"gpus": 2}), json!({"gpus": "2"}), json!({"tres_per_job": "gres/gpu:2"})),
        (
            json!({"gpus_per_task": "a100:1"}),
            json!({"gpus_per_task": "a100:1"}),
            json!({"tres_per_task": "gres/gpu:a100:1"}),
        ),
        (json!({"cpus_per_gpu": 4}), json!({"cpus_per_gpu": "4"}), json!({"cpus_per_tres": "gres/gpu:4"})),
        (json!({"nodes": "2-4"}), json!({"nodes": "2-4"}), json!({"nodes": "2-4"})),
        (json!({"exclusive": true}), json!({"exclusive": "exclusive"}), json!({"shared": ["none"]})),
        (json!({"exclusive": "user"}), json!({"exclusive": "user"}), json!({"shared": ["user"]})),
        (json!({"mail_type": "END,FAIL"}), json!({"mail_type": "END,FAIL"}), json!({"mail_type": ["END", "FAIL"]})),
        (json!({"mail_user": "me@here"}), json!({"mail_user": "me@here"}), json!({"mail_user": "me@here"})),
        (
            json!({"signal": "USR1@60"}),
            json!({"signal": "USR1@60"}),
            json!({"kill_warning_signal": "USR1", "kill_warning_delay": boxed(60)}),
        ),
        (json!({"begin": "now+1hour"}), json!({"begin_time": "now+3600"}), json!({"begin_time": boxed(1_003_600)})),
        (json!({"open-mode": "append"}), json!({"open_mode": "append"}), json!({"open_mode": ["APPEND"]})),
        (json!({"constraint": "avx"}), json!({"constraints": "avx"}), json!({"constraints": "avx"})),
        (json!({"dependency": "afterok:1"}), json!({"dependency": "afterok:1"}), json!({"dependency": "afterok:1"})),
        (json!({"array": "0-3%2"}), json!({"array": "0-3%2"}), json!({"array": "0-3%2"})),
        (json!({"reservation": "r"}), json!({"reservation": "r"}), json!({"reservation": "r"})),
        (json!({"requeue": "false"}), json!({"requeue": null, "no_requeue": true}), json!({"requeue": false})),
        (json!({"requeue": true}), json!({"requeue": true, "no_requeue": null}), json!({"requeue": true})),
        (json!({"no-requeue": "yes"}), json!({"requeue": null, "no_requeue": true}), json!({"requeue": false})),
        (
            json!({"kill-on-invalid-dep": "yes"}),
            json!({"kill_on_invalid_dependency": true}),
            json!({"flags": ["KILL_INVALID_DEPENDENCY"]}),
        ),
        (
            json!({"time": "UNLIMITED"}),
            json!({"time_limit": "UNLIMITED"}),
            json!({"time_limit": {"set": false, "infinite": true, "number": 0}}),
        ),
        (json!({"no-kill": true}), json!({"no_kill": "set"}), json!({"kill_on_node_fail": false})),
    ];
    for (properties, old, new) in table {
        for (number, expected) in [(38, old), (45, new)] {
            let fields = fields(properties.clone(), number);
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(fields[name], *value, "{properties} as {name} in v0.0.{number}");
            }
        }
    }
}

#[test]
fn gpus_and_other_resources_add_up() {
    let fields = fields(json!({"gres": "nic:1", "gpus-per-node": 2, "tres_per_node": "license/x:1"}), 41);
    let list = fields["tres_per_node"].as_str().unwrap();
    assert!(list.contains("gres/nic:1") && list.contains("gres/gpu:2") && list.contains("license/x:1"), "{list}");
    assert_eq!(self::fields(json!({"gres": "gpu:2"}), 39)["tres_per_node"], "gres:gpu:2");
}

#[test]
fn a_property_that_only_the_server_knows_is_handed_on_and_others_are_refused_by_name() {
    assert_eq!(fields(json!({"segment_size": 4}), 42)["segment_size"], 4);
    assert_eq!(fields(json!({"cpu_binding_hint": "x"}), 38)["cpu_binding_hint"], "x");
    for (properties, number, expected) in [
        (json!({"nosuchfield": 1}), 45, "job property `nosuchfield` is not known to Slurm's API v0.0.45; remove it"),
        (json!({"segment_size": 4}), 41, "job property `segment_size` is not known to Slurm's API v0.0.41; remove it"),
        (json!({"nodelist": "n1"}), 38, "`nodelist`: Slurm's API v0.0.38 has no field `required_nodes`; remove it"),
        (json!({"extra": "x"}), 38, "`extra`: Slurm's API v0.0.38 has no field `extra`; remove it"),
        (
            json!({"priority": 7}),
            38,
            "`priority`: a job is submitted held, which is priority 0, and its release sets the priority anew; use `nice`",
        ),
        (json!({"hold": true}), 45, "`hold`: jobs are held and released by the bridge; use `suspend` of the BridgeJob"),
        (json!({"Tasks": "many"}), 45, "`Tasks`: `\"many\"` is not a whole number"),
        (json!({"signal": "BOGUS"}), 45, "`signal`: `BOGUS` names no signal; write it as USR1@60 or B:USR1@60"),
        (json!({"user_id": 0}), 45, "`user_id`: the job runs as the user of the Secret"),
        (
            json!({"Queue": "a", "partition": "b"}),
            45,
            "job properties `Queue` and `partition` mean the same; remove one of them",
        ),
        (
            json!({"RunLimitHour": 1, "time_limit": 5}),
            45,
            "RunLimitHour/RunLimitMinute and time_limit mean the same; remove one",
        ),
    ] {
        assert_eq!(refusal(properties, number), expected);
    }
    assert_eq!(fields(json!({"Queue": "", "Tasks": null}), 45).get("partition"), None, "empty is absent");
}

#[test]
fn the_token_comes_before_the_users_comment_and_the_users_extra_stays() {
    let fields = fields(json!({"comment": "my words", "extra": "site=1"}), 42);
    assert_eq!((fields["comment"].as_str(), fields["extra"].as_str()), (Some("bridge-abc-1 my words"), Some("site=1")));
    assert!(refusal(json!({"comment": "x".repeat(3000)}), 42).contains("longer than 2500"));
}

#[test]
fn directives_count_up_to_the_first_command_and_properties_win() {
    let script = "#!/bin/bash\n#SBATCH --partition=long -t 10 --comment=hi\n#SBATCH --exclusive -J theirs\n\
        #SBATCH --export=ALL,A=1\nsleep 1\n#SBATCH --qos=late\n";
    let described =
        describe(&job(script, json!({"Queue": "debug", "environment": {"A": "2", "B": "3"}})), version(42), now())
            .unwrap();
    let fields = &described.body["job"];
    assert_eq!(fields["partition"], "debug");
    assert_eq!(fields["time_limit"]["number"], 10);
    assert_eq!(fields["comment"], "bridge-abc-1 hi");
    assert_eq!(fields["shared"], json!(["none"]));
    assert_eq!(fields["name"], "theirs");
    assert_eq!(fields.get("qos"), None);
    let environment: Vec<&str> = fields["environment"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(environment.contains(&"A=2") && environment.contains(&"B=3"), "{environment:?}");
    assert_eq!(fields["script"], script, "with nothing to stage the script is sent as it is");

    let refused = |directive: &str| {
        let script = format!("#!/bin/sh\n#SBATCH {directive}\n");
        describe(&job(&script, json!({})), version(38), now()).unwrap_err().to_string()
    };
    assert_eq!(
        refused("--frobnicate=1"),
        "#SBATCH --frobnicate in line 2 is not known; remove it or use a job property"
    );
    assert_eq!(
        refused("-w n1"),
        "#SBATCH --nodelist in line 2: Slurm's API v0.0.38 has no field `required_nodes`; remove it"
    );
    assert!(refused("-H").contains("use `suspend`"));
    assert!(refused("--export=HOME").contains("HOME=value"));
    assert_eq!(refused("-Z"), "#SBATCH of the script, line 2: option -Z is not known");
}

#[test]
fn the_script_stands_where_the_version_wants_it() {
    for (number, pointer) in
        [(36, "/script"), (38, "/script"), (40, "/script"), (41, "/job/script"), (45, "/job/script")]
    {
        let described = describe(&job("#!/bin/sh\ntrue\n", json!({})), version(number), now()).unwrap();
        assert_eq!(described.body.pointer(pointer).and_then(Value::as_str), Some("#!/bin/sh\ntrue\n"), "v0.0.{number}");
    }
}

#[test]
fn scripts_that_slurm_would_take_and_never_run_are_refused() {
    for script in ["", " \n", "echo hello\n", "#!/bin/sh\r\necho\r\n", "#!/bin/sh\n\0"] {
        assert!(describe(&job(script, json!({})), version(38), now()).is_err(), "{script:?}");
    }
}

#[test]
fn a_remote_script_is_run_through_its_own_interpreter_and_the_user_is_told() {
    let mut submission = job("", json!({}));
    submission.script = Script::Remote("/home/me/it's here.sh".to_owned());
    submission.parameters = r#"["--steps", 10]"#.to_owned();
    let described = describe(&submission, version(38), now()).unwrap();
    assert_eq!(described.body["script"], "#!/bin/sh\nexec '/home/me/it'\\''s here.sh' '--steps' '10'\n");
    assert_eq!(described.body["job"].get("argv"), None);
    assert!(described.notes.iter().any(|note| note.contains("#SBATCH lines cannot be seen")), "{:?}", described.notes);
    submission.parameters = r#"{"steps": 10}"#.to_owned();
    assert!(describe(&submission, version(38), now()).unwrap_err().to_string().contains("not a map"));
}

#[test]
fn what_every_version_demands_is_always_there() {
    for number in 36..=45 {
        let fields = fields(json!({}), number);
        assert_eq!(fields["current_working_directory"], "/tmp", "v0.0.{number}");
        assert_eq!(fields["name"], "my-job");
        assert_eq!(fields["hold"], true);
        assert!(!fields["environment"].is_null());
        assert_eq!(fields.get("extra").is_some(), number >= 39);
    }
}
