//! How busy the cluster is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bridge_core::manager::{Capacity, LoadProbe, QueueLoad, Result};

use super::Slurm;
use super::client::{Call, read};
use super::wire::{JobInfo, Node, Nodes, Number, Partitions};

const OPERATION: &str = "load";

#[async_trait]
impl LoadProbe for Slurm {
    async fn load(&self) -> Result<Vec<QueueLoad>> {
        let failed = |error: super::CallError| error.into_error(OPERATION);
        let partitions = self.api.call(Call::get(OPERATION, &["partitions"])).await.map_err(failed)?;
        let partitions: Partitions = read(&partitions).map_err(failed)?;
        let nodes = self.api.call(Call::get(OPERATION, &["nodes"])).await.map_err(failed)?;
        let nodes: Nodes = read(&nodes).map_err(failed)?;

        let pending: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let count = Arc::clone(&pending);
        let counted = move |job: &JobInfo| {
            if job.job_state.0.iter().any(|word| word == "PENDING") {
                let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
                *count.entry(job.partition.0.clone()).or_default() += 1;
            }
            false
        };
        self.api.jobs(OPERATION, counted).await.map_err(failed)?;
        let pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(summarise(&partitions, &nodes, &pending))
    }
}

fn summarise(partitions: &Partitions, nodes: &Nodes, pending: &BTreeMap<String, u64>) -> Vec<QueueLoad> {
    let loads = partitions.partitions.iter().map(|partition| {
        let members: BTreeSet<String> = hosts(partition.node_names()).into_iter().collect();
        let mut load = QueueLoad {
            name: partition.name.0.clone(),
            // A job may name several partitions and waits in each of them.
            pending_jobs: pending
                .iter()
                .filter(|(names, _)| names.split(',').any(|name| name == partition.name.0))
                .map(|(_, jobs)| jobs)
                .sum(),
            ..QueueLoad::default()
        };
        load.nodes.total = partition.total_nodes();
        load.cpus.total = partition.total_cpus();
        let is_member = |node: &&Node| node.partitions.0.contains(&partition.name.0) || members.contains(&node.name.0);
        for node in nodes.nodes.iter().filter(is_member) {
            count(node, &mut load.nodes, &mut load.cpus);
        }
        load
    });
    loads.collect()
}

fn count(node: &Node, nodes: &mut Capacity, cpus: &mut Capacity) {
    let words = node.state.0.iter().chain(&node.state_flags.0);
    let words: Vec<String> = words.map(|word| word.to_ascii_uppercase()).collect();
    let has = |word: &str| words.iter().any(|own| own == word);
    let out_of_use = ["DOWN", "DRAIN", "ERROR", "FAIL", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "POWERED_DOWN"];
    if out_of_use.iter().any(|word| has(word)) {
        return;
    }
    let unsigned = |number: Number| number.0.and_then(|number| u64::try_from(number).ok());
    let all = unsigned(node.cpus).unwrap_or_default();
    // v0.0.36 does not tell the CPUs in use: a node that is not idle counts as full.
    let used = unsigned(node.alloc_cpus).unwrap_or_else(|| if has("IDLE") { 0 } else { all }).min(all);
    cpus.allocated += used;
    cpus.idle += all - used;
    if used == 0 && has("IDLE") {
        nodes.idle += 1;
    } else {
        nodes.allocated += 1;
    }
}

/// The names in a host list such as `login,n[1-3,07],gpu[01-02]`; bounded, and what is odd is taken as it is.
fn hosts(list: &str) -> Vec<String> {
    const MOST: usize = 100_000;
    let mut names = Vec::new();
    for part in super::values::names(&serde_json::Value::String(list.to_owned())).unwrap_or_default() {
        let Some((prefix, rest)) = part.split_once('[') else {
            names.push(part);
            continue;
        };
        let (ranges, suffix) = rest.split_once(']').unwrap_or((rest, ""));
        for range in ranges.split(',') {
            let (first, end) = range.split_once('-').unwrap_or((range, range));
            let width = first.len();
            let (Ok(first), Ok(end)) = (first.parse::<usize>(), end.parse::<usize>()) else { continue };
            let room = MOST.saturating_sub(names.len());
            names.extend((first..=end).take(room).map(|number| format!("{prefix}{number:0>width$}{suffix}")));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_node_is_out_of_use_wherever_its_flags_stand() {
        let idle = |node: serde_json::Value| {
            let (mut nodes, mut cpus) = (Capacity::default(), Capacity::default());
            count(&serde_json::from_value(node).unwrap(), &mut nodes, &mut cpus);
            (nodes.idle, cpus.idle)
        };
        let v38 =
            |flags: &[&str]| serde_json::json!({"state": "idle", "state_flags": flags, "cpus": 4, "alloc_cpus": 0});
        assert_eq!(idle(v38(&[])), (1, 4));
        assert_eq!(idle(v38(&["DRAIN"])), (0, 0));
        assert_eq!(idle(serde_json::json!({"state": ["IDLE", "DRAIN"], "cpus": 4, "alloc_cpus": 0})), (0, 0));
    }

    #[test]
    fn host_lists_are_spelled_out() {
        assert_eq!(hosts("login,n[1-3,07],g[01-02]x"), ["login", "n1", "n2", "n3", "n07", "g01x", "g02x"]);
        assert_eq!(hosts(""), [""; 0]);
        assert_eq!(hosts("n[1-999999999]").len(), 100_000);
    }
}
