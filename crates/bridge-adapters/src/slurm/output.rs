//! Where a job's output is on the remote system.

use super::wire::JobInfo;

/// The resolved paths of standard output and error of one job or array task.
#[must_use]
pub(super) fn paths(job: &JobInfo) -> (Option<String>, Option<String>) {
    resolve(job, &Values::of(job))
}

/// The same for an array as a whole: the task's number stays a pattern.
#[must_use]
pub(super) fn array_paths(job: &JobInfo) -> (Option<String>, Option<String>) {
    let mut values = Values::of(job);
    values.job.clone_from(&values.array_job);
    "%a".clone_into(&mut values.task);
    // Newer servers expand the pattern for one task; what the user wrote is what is true of all.
    let mut job = job.clone();
    job.stdout_expanded.0.clear();
    job.stderr_expanded.0.clear();
    if !job.standard_output.0.contains('%') && job.standard_output.get().is_some() {
        return (None, None);
    }
    resolve(&job, &values)
}

fn resolve(job: &JobInfo, values: &Values) -> (Option<String>, Option<String>) {
    let is_known = job.current_working_directory.get().is_some() || job.standard_output.get().is_some();
    let default = if values.is_array { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    let stdout = job
        .stdout_expanded
        .get()
        .map(str::to_owned)
        .or_else(|| is_known.then(|| values.expand(job.standard_output.get().unwrap_or(default))));
    let stdout = stdout.map(|path| absolute(&path, job));
    let stderr = job
        .stderr_expanded
        .get()
        .map(str::to_owned)
        .or_else(|| job.standard_error.get().map(|pattern| values.expand(pattern)))
        .map(|path| absolute(&path, job))
        // Without a name of its own, standard error goes where standard output goes.
        .or_else(|| stdout.clone());
    (stdout, stderr)
}

fn absolute(path: &str, job: &JobInfo) -> String {
    match job.current_working_directory.get() {
        Some(folder) if !path.starts_with('/') => format!("{}/{path}", folder.trim_end_matches('/')),
        _ => path.to_owned(),
    }
}

/// What the patterns of `sbatch --output` stand for.
struct Values {
    is_array: bool,
    job: String,
    array_job: String,
    task: String,
    name: String,
    user: String,
    node: String,
}

impl Values {
    fn of(job: &JobInfo) -> Self {
        let text = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
        let first_node = job.batch_host.get().unwrap_or_else(|| job.nodes.0.split(',').next().unwrap_or_default());
        Self {
            is_array: job.array_job_id.positive().is_some(),
            job: text(job.job_id.0),
            array_job: text(job.root()),
            task: text(job.array_task_id.0),
            name: job.name.0.clone(),
            user: job.user_name.0.clone(),
            node: first_node.split('.').next().unwrap_or_default().to_owned(),
        }
    }

    fn expand(&self, pattern: &str) -> String {
        if pattern.contains('\\') {
            // A backslash switches patterns off.
            return pattern.replace('\\', "");
        }
        let mut path = String::with_capacity(pattern.len());
        let mut rest = pattern.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                path.push(c);
                continue;
            }
            let mut width = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                width.push(digit);
            }
            let Some(letter) = rest.next() else {
                path.push('%');
                path.push_str(&width);
                break;
            };
            let value = match letter {
                '%' => Some("%"),
                'j' | 'J' => Some(self.job.as_str()),
                'A' => Some(self.array_job.as_str()),
                'a' => Some(self.task.as_str()),
                'x' => Some(self.name.as_str()),
                'u' => Some(self.user.as_str()),
                'N' => Some(self.node.as_str()),
                'n' | 't' => Some("0"),
                's' => Some("batch"),
                _ => None,
            };
            match value {
                Some(value) if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() => {
                    let width = width.parse::<usize>().unwrap_or_default().min(10);
                    path.extend(std::iter::repeat_n('0', width.saturating_sub(value.len())));
                    path.push_str(value);
                }
                Some(value) => path.push_str(value),
                None => path.extend(['%', letter]),
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Number, Text};
    use super::*;

    fn job(output: &str, error: &str) -> JobInfo {
        JobInfo {
            job_id: Number(Some(57)),
            name: Text("sim".to_owned()),
            user_name: Text("alice".to_owned()),
            nodes: Text("n1.example,n2".to_owned()),
            standard_output: Text(output.to_owned()),
            standard_error: Text(error.to_owned()),
            current_working_directory: Text("/home/alice/".to_owned()),
            ..JobInfo::default()
        }
    }

    #[test]
    fn patterns_are_filled_in() {
        let table = [
            ("", "", "/home/alice/slurm-57.out", "/home/alice/slurm-57.out"),
            ("out.txt", "", "/home/alice/out.txt", "/home/alice/out.txt"),
            ("/o/%j.out", "/o/%5j.err", "/o/57.out", "/o/00057.err"),
            ("/o/%x-%u-%N.out", "e", "/o/sim-alice-n1.out", "/home/alice/e"),
            ("/o/%%j", "", "/o/%j", "/o/%j"),
            ("/o/%q%", "", "/o/%q%", "/o/%q%"),
            ("/o/%j\\_", "", "/o/%j_", "/o/%j_"),
        ];
        for (output, error, stdout, stderr) in table {
            assert_eq!(paths(&job(output, error)), (Some(stdout.to_owned()), Some(stderr.to_owned())), "{output}");
        }
    }

    #[test]
    fn arrays_keep_the_tasks_number_open() {
        let mut task = job("", "/o/%A_%a.err");
        (task.array_job_id, task.array_task_id, task.job_id) = (Number(Some(50)), Number(Some(3)), Number(Some(53)));
        assert_eq!(paths(&task).0.unwrap(), "/home/alice/slurm-50_3.out");
        let (stdout, stderr) = array_paths(&task);
        assert_eq!(stdout.unwrap(), "/home/alice/slurm-50_%a.out");
        assert_eq!(stderr.unwrap(), "/o/50_%a.err");
    }

    #[test]
    fn nothing_is_made_up_where_accounting_tells_nothing() {
        assert_eq!(paths(&JobInfo::default()), (None, None));
    }
}
