//! Which option a job property or a `#SBATCH` directive means, and what it is called on the wire.
//!
//! Names are compared without dashes, underlines and case, so `cpus-per-task`, `cpus_per_task` and `cpusPerTask` are one.

use super::wire::ApiVersion;

/// An option that is understood.
#[derive(Debug)]
pub(super) struct Choice {
    /// Its name in messages; also what decides whether two spellings mean the same.
    pub(super) name: &'static str,
    /// Its spellings, without dashes, underlines and case.
    spellings: &'static [&'static str],
    /// How its value is written.
    pub(super) form: Form,
}

/// How an option's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants that take no field name the option they are for")]
pub(super) enum Form {
    /// A text in a field.
    Text(Field),
    /// A whole number in a field.
    Integer(Field),
    /// True or false in a field.
    Switch(Field),
    /// A list of names.
    Names(Field),
    /// Minutes.
    Minutes(Field),
    /// Megabytes.
    Megabytes(Field),
    /// A moment: a text before the data parsers, boxed seconds since.
    BoxedMoment(Field),
    /// A moment as bare seconds since the data parsers.
    Moment(Field),
    /// An amount of a generic resource, in a field of its own before the data parsers and in a list of trackable
    /// resources since.
    Resource {
        old: &'static str,
        new: &'static str,
        resource: Resource,
    },
    Nodes,
    Environment,
    /// The value of one variable.
    Variable(&'static str),
    Export,
    RunHours,
    RunMinutes,
    Comment,
    Extra,
    Arguments,
    Exclusive,
    Oversubscribe,
    MailType,
    OpenMode,
    Signal,
    KillOnInvalidDependency,
    SpreadJob,
    UseMinNodes,
    NoKill,
    /// Whether Slurm may run the job again by itself; a switch for it, or against it.
    Requeue {
        is_yes: bool,
    },
    /// Means nothing to a job that is submitted from here.
    Ignored,
    /// Cannot be used here, and why.
    Refused(&'static str),
}

/// Which generic resource an option is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// The value is a list of resources.
    Generic,
    /// The value is a list of trackable resources, as Slurm writes them.
    Trackable,
    /// The value is a number of GPUs, or `type:number`.
    Gpu,
    /// The value is memory per GPU.
    GpuMemory,
}

/// A field's name on the wire, and where it exists. An empty name is "not there".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// Its name up to v0.0.38.
    pub(super) old: &'static str,
    /// Its name from v0.0.39 on.
    pub(super) new: &'static str,
    /// The oldest version that has it.
    since: u16,
}

impl Field {
    /// Its name in this version, if it exists there.
    #[must_use]
    pub(super) fn name(self, version: ApiVersion) -> Option<&'static str> {
        let name = if version.has_data_parser() { self.new } else { self.old };
        Some(name).filter(|name| !name.is_empty() && version.number() >= self.since)
    }
}

const fn both(name: &'static str) -> Field {
    Field { old: name, new: name, since: 0 }
}

const fn since(name: &'static str, since: u16) -> Field {
    Field { old: name, new: name, since }
}

const fn only_new(name: &'static str) -> Field {
    Field { old: "", new: name, since: 0 }
}

const fn choice(name: &'static str, spellings: &'static [&'static str], form: Form) -> Choice {
    Choice { name, spellings, form }
}

/// Finds an option by any of its spellings.
#[must_use]
pub(super) fn find(spelling: &str) -> Option<&'static Choice> {
    let plain = plain(spelling);
    CHOICES.iter().find(|choice| choice.spellings.contains(&plain.as_str()))
}

/// A spelling without dashes, underlines and case.
#[must_use]
pub(super) fn plain(spelling: &str) -> String {
    spelling.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether this version has a field of this name, so that a property of that name can be handed on as it is.
#[must_use]
pub(super) fn exists(field: &str, version: ApiVersion) -> bool {
    let fields = if version.has_data_parser() { NEW_FIELDS } else { OLD_FIELDS };
    fields.iter().any(|(name, since, until)| *name == field && (*since..=*until).contains(&version.number()))
}

const HELD: &str = "jobs are held and released by the bridge; use `suspend` of the BridgeJob";
// From v0.0.39 on it is the same field as the hold, and the job would run before its id is saved. Set later it does
// nothing: tried on 22.05, a held job keeps its own, a release sets one anew, and after it the job may run already.
const PRIORITY: &str =
    "a job is submitted held, which is priority 0, and its release sets the priority anew; use `nice`";
const IDENTITY: &str = "the job runs as the user of the Secret";
const OWN: &str = "the bridge sets this itself";

static CHOICES: &[Choice] = &[
    choice("partition", &["queue", "partition"], Form::Text(both("partition"))),
    choice("name", &["slurmjobname", "jobname", "name"], Form::Text(both("name"))),
    choice("nodes", &["nodesnumber", "numnodes", "nodes", "nodecount"], Form::Nodes),
    choice("tasks", &["tasks", "ntasks", "numtasks"], Form::Integer(both("tasks"))),
    choice(
        "current_working_directory",
        &["currentworkingdir", "currentworkingdirectory", "workdir", "workingdirectory", "chdir", "cwd"],
        Form::Text(both("current_working_directory")),
    ),
    choice("envPath", &["envpath"], Form::Variable("PATH")),
    choice("envLibPath", &["envlibpath"], Form::Variable("LD_LIBRARY_PATH")),
    choice("environment", &["environment", "env"], Form::Environment),
    choice("export", &["export"], Form::Export),
    choice(
        "standard_output",
        &["outputfilename", "standardoutput", "standardout", "output", "stdout"],
        Form::Text(both("standard_output")),
    ),
    choice(
        "standard_error",
        &["errorfilename", "standarderror", "error", "stderr"],
        Form::Text(both("standard_error")),
    ),
    choice("standard_input", &["standardinput", "standardin", "input", "stdin"], Form::Text(both("standard_input"))),
    choice("time_limit", &["timelimit", "time", "runlimit", "walltime"], Form::Minutes(both("time_limit"))),
    choice("RunLimitHour", &["runlimithour"], Form::RunHours),
    choice("RunLimitMinute", &["runlimitminute"], Form::RunMinutes),
    choice("time_minimum", &["timeminimum", "timemin"], Form::Minutes(both("time_minimum"))),
    choice("account", &["account"], Form::Text(both("account"))),
    choice("qos", &["qos"], Form::Text(both("qos"))),
    choice("reservation", &["reservation"], Form::Text(both("reservation"))),
    choice("constraints", &["constraints", "constraint"], Form::Text(both("constraints"))),
    choice("prefer", &["prefer"], Form::Text(since("prefer", 38))),
    choice("dependency", &["dependency"], Form::Text(both("dependency"))),
    choice("array", &["array"], Form::Text(both("array"))),
    choice("licenses", &["licenses"], Form::Text(both("licenses"))),
    choice("wckey", &["wckey"], Form::Text(both("wckey"))),
    choice("mcs_label", &["mcslabel"], Form::Text(since("mcs_label", 38))),
    choice("network", &["network"], Form::Text(only_new("network"))),
    choice("burst_buffer", &["burstbuffer", "bb"], Form::Text(both("burst_buffer"))),
    choice("container", &["container"], Form::Text(since("container", 38))),
    choice("container_id", &["containerid"], Form::Text(only_new("container_id"))),
    choice("clusters", &["clusters", "cluster"], Form::Text(only_new("clusters"))),
    choice("cluster_constraint", &["clusterconstraint"], Form::Text(both("cluster_constraint"))),
    choice("batch_features", &["batchfeatures", "batch"], Form::Text(both("batch_features"))),
    choice("cpu_frequency", &["cpufrequency", "cpufreq"], Form::Text(both("cpu_frequency"))),
    choice("distribution", &["distribution"], Form::Text(both("distribution"))),
    choice(
        "gpu_frequency",
        &["gpufrequency", "gpufreq"],
        Form::Text(Field { old: "gpu_frequency", new: "tres_freq", since: 0 }),
    ),
    choice(
        "gpu_binding",
        &["gpubinding", "gpubind"],
        Form::Text(Field { old: "gpu_binding", new: "tres_bind", since: 0 }),
    ),
    choice("comment", &["comment"], Form::Comment),
    choice("extra", &["extra"], Form::Extra),
    choice("mail_type", &["mailtype"], Form::MailType),
    choice("mail_user", &["mailuser"], Form::Text(both("mail_user"))),
    choice("cpus_per_task", &["cpuspertask"], Form::Integer(both("cpus_per_task"))),
    choice("tasks_per_node", &["taskspernode", "ntaskspernode"], Form::Integer(both("tasks_per_node"))),
    choice("tasks_per_core", &["taskspercore", "ntaskspercore"], Form::Integer(both("tasks_per_core"))),
    choice("tasks_per_socket", &["taskspersocket", "ntaskspersocket"], Form::Integer(both("tasks_per_socket"))),
    choice("threads_per_core", &["threadspercore"], Form::Integer(both("threads_per_core"))),
    choice("sockets_per_node", &["socketspernode"], Form::Integer(both("sockets_per_node"))),
    choice("minimum_cpus_per_node", &["minimumcpuspernode", "mincpus"], Form::Integer(both("minimum_cpus_per_node"))),
    choice("core_specification", &["corespecification", "corespec"], Form::Integer(both("core_specification"))),
    choice("thread_specification", &["threadspecification", "threadspec"], Form::Integer(both("thread_specification"))),
    choice("ntasks_per_tres", &["ntaskspertres", "ntaskspergpu"], Form::Integer(only_new("ntasks_per_tres"))),
    choice(
        "temporary_disk_per_node",
        &["temporarydiskpernode", "tmp"],
        Form::Megabytes(only_new("temporary_disk_per_node")),
    ),
    choice("nice", &["nice"], Form::Integer(both("nice"))),
    choice("priority", &["priority"], Form::Refused(PRIORITY)),
    choice("delay_boot", &["delayboot"], Form::Integer(both("delay_boot"))),
    choice("memory_per_node", &["memorypernode", "memory", "mem"], Form::Megabytes(both("memory_per_node"))),
    choice("memory_per_cpu", &["memorypercpu", "mempercpu"], Form::Megabytes(both("memory_per_cpu"))),
    choice("gres", &["gres"], Form::Resource { old: "gres", new: "tres_per_node", resource: Resource::Generic }),
    choice("gpus", &["gpus"], Form::Resource { old: "gpus", new: "tres_per_job", resource: Resource::Gpu }),
    choice(
        "gpus_per_node",
        &["gpuspernode"],
        Form::Resource { old: "gpus_per_node", new: "tres_per_node", resource: Resource::Gpu },
    ),
    choice(
        "gpus_per_task",
        &["gpuspertask"],
        Form::Resource { old: "gpus_per_task", new: "tres_per_task", resource: Resource::Gpu },
    ),
    choice(
        "gpus_per_socket",
        &["gpuspersocket"],
        Form::Resource { old: "gpus_per_socket", new: "tres_per_socket", resource: Resource::Gpu },
    ),
    choice(
        "cpus_per_gpu",
        &["cpuspergpu"],
        Form::Resource { old: "cpus_per_gpu", new: "cpus_per_tres", resource: Resource::Gpu },
    ),
    choice(
        "memory_per_gpu",
        &["memorypergpu", "mempergpu"],
        Form::Resource { old: "memory_per_gpu", new: "memory_per_tres", resource: Resource::GpuMemory },
    ),
    choice("tres_per_job", &["tresperjob"], tres("tres_per_job")),
    choice("tres_per_node", &["trespernode"], tres("tres_per_node")),
    choice("tres_per_task", &["trespertask"], tres("tres_per_task")),
    choice("tres_per_socket", &["trespersocket"], tres("tres_per_socket")),
    choice("required_nodes", &["requirednodes", "nodelist"], Form::Names(only_new("required_nodes"))),
    choice("excluded_nodes", &["excludednodes", "exclude"], Form::Names(only_new("excluded_nodes"))),
    choice("exclusive", &["exclusive"], Form::Exclusive),
    choice("oversubscribe", &["oversubscribe", "share"], Form::Oversubscribe),
    choice("contiguous", &["contiguous"], Form::Switch(only_new("contiguous"))),
    choice("overcommit", &["overcommit"], Form::Switch(only_new("overcommit"))),
    choice("reboot", &["reboot"], Form::Switch(only_new("reboot"))),
    choice("requeue", &["requeue"], Form::Requeue { is_yes: true }),
    choice("requeue", &["norequeue"], Form::Requeue { is_yes: false }),
    choice("wait_all_nodes", &["waitallnodes"], Form::Switch(both("wait_all_nodes"))),
    choice(
        "get_user_environment",
        &["getuserenvironment", "getuserenv"],
        Form::Switch(Field { old: "get_user_environment", new: "", since: 0 }),
    ),
    choice(
        "kill_on_invalid_dependency",
        &["killoninvaliddependency", "killoninvaliddep"],
        Form::KillOnInvalidDependency,
    ),
    choice("spread_job", &["spreadjob"], Form::SpreadJob),
    choice("use-min-nodes", &["useminnodes"], Form::UseMinNodes),
    choice("no_kill", &["nokill"], Form::NoKill),
    choice("open_mode", &["openmode"], Form::OpenMode),
    choice("signal", &["signal"], Form::Signal),
    choice("begin_time", &["begintime", "begin"], Form::BoxedMoment(both("begin_time"))),
    choice("deadline", &["deadline"], Form::Moment(both("deadline"))),
    choice("argv", &["argv"], Form::Arguments),
    choice("hold", &["hold"], Form::Refused(HELD)),
    choice("script", &["script"], Form::Refused("the script is `jobdata.jobscript`")),
    choice("user_id", &["userid", "uid"], Form::Refused(IDENTITY)),
    choice("group_id", &["groupid", "gid"], Form::Refused(IDENTITY)),
    choice("job_id", &["jobid"], Form::Refused(OWN)),
    choice("verbose", &["verbose", "quiet", "parsable", "wait", "ignorepbs"], Form::Ignored),
];

const fn tres(field: &'static str) -> Form {
    Form::Resource { old: "", new: field, resource: Resource::Trackable }
}

/// Fields of a job description from v0.0.39 on, with the versions that have them.
static NEW_FIELDS: &[(&str, u16, u16)] = &[
    ("account_gather_frequency", 39, 99),
    ("admin_comment", 39, 99),
    ("allocation_node_list", 39, 99),
    ("allocation_node_port", 39, 99),
    ("flags", 39, 99),
    ("cores_per_socket", 40, 41),
    ("cpu_binding", 39, 99),
    ("cpu_binding_flags", 39, 99),
    ("cpus_per_tres", 39, 99),
    ("end_time", 39, 99),
    ("rlimits", 40, 99),
    ("immediate", 39, 99),
    ("kill_on_node_fail", 39, 99),
    ("memory_binding", 39, 99),
    ("memory_binding_type", 39, 99),
    ("memory_per_tres", 39, 99),
    ("oom_kill_step", 41, 99),
    ("reserve_ports", 39, 99),
    ("distribution_plane_size", 39, 99),
    ("profile", 39, 99),
    ("shared", 39, 99),
    ("site_factor", 39, 99),
    ("spank_environment", 39, 99),
    ("tres_bind", 39, 99),
    ("tres_freq", 39, 99),
    ("kill_warning_flags", 39, 99),
    ("kill_warning_signal", 39, 99),
    ("kill_warning_delay", 39, 99),
    ("minimum_cpus", 39, 99),
    ("maximum_cpus", 39, 99),
    ("minimum_nodes", 39, 99),
    ("maximum_nodes", 39, 99),
    ("minimum_boards_per_node", 39, 99),
    ("minimum_sockets_per_board", 39, 99),
    ("tasks_per_board", 39, 99),
    ("selinux_context", 39, 99),
    ("required_switches", 39, 99),
    ("segment_size", 42, 99),
    ("wait_for_switch", 39, 99),
];

/// Fields of a job description up to v0.0.38, with the versions that have them.
static OLD_FIELDS: &[(&str, u16, u16)] = &[
    ("account_gather_freqency", 36, 36),
    ("account_gather_frequency", 37, 38),
    ("cluster_constraints", 36, 36),
    ("cores_per_socket", 36, 38),
    ("cpu_binding", 36, 38),
    ("cpu_binding_hint", 36, 38),
    ("gres_flags", 36, 38),
    ("memory_binding", 36, 38),
    ("minimum_nodes", 36, 38),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_spelling_means_two_things() {
        let mut seen = BTreeSet::new();
        for spelling in CHOICES.iter().flat_map(|choice| choice.spellings) {
            assert_eq!(*spelling, plain(spelling), "spellings are kept plain");
            assert!(seen.insert(spelling), "{spelling} means two things");
        }
        for (field, _, _) in NEW_FIELDS.iter().chain(OLD_FIELDS) {
            assert!(find(field).is_none(), "{field} is understood and need not be handed on as it is");
        }
    }

    #[test]
    fn the_seeds_names_and_slurms_own_are_found() {
        let table = [
            ("Queue", "partition"),
            ("NodesNumber", "nodes"),
            ("Tasks", "tasks"),
            ("slurmJobName", "name"),
            ("currentWorkingDir", "current_working_directory"),
            ("envPath", "envPath"),
            ("envLibPath", "envLibPath"),
            ("OutputFileName", "standard_output"),
            ("ErrorFileName", "standard_error"),
            ("RunLimitHour", "RunLimitHour"),
            ("runlimit", "time_limit"),
            ("cpus-per-task", "cpus_per_task"),
            ("tres_per_task", "tres_per_task"),
            ("mail_user", "mail_user"),
        ];
        for (spelling, name) in table {
            assert_eq!(find(spelling).map(|choice| choice.name), Some(name), "{spelling}");
        }
        assert!(find("nosuchfield").is_none());
    }

    #[test]
    fn fields_exist_where_the_version_has_them() {
        let version = |text| ApiVersion::parse(text).unwrap();
        assert!(exists("segment_size", version("v0.0.42")) && !exists("segment_size", version("v0.0.41")));
        assert!(exists("gres_flags", version("v0.0.38")) && !exists("gres_flags", version("v0.0.39")));
        assert_eq!(since("mcs_label", 38).name(version("v0.0.37")), None);
        assert_eq!(only_new("network").name(version("v0.0.38")), None);
        assert_eq!(only_new("network").name(version("v0.0.40")), Some("network"));
    }
}
