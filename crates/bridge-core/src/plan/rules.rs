//! What a spec, its manager and its plan mean for the driver.

use std::time::Duration;

use bridge_api::BridgeJobSpec;

use super::{JobPlan, ScriptSource, TextSource};
use crate::manager::ResourceManager;
use crate::staging::has_outputs;
use crate::state::{Rules, Tuning};

/// The rules under which the driver runs a job.
#[must_use]
pub fn rules_for(spec: &BridgeJobSpec, manager: &dyn ResourceManager, plan: &JobPlan) -> Rules {
    Rules {
        guarantee: manager.guarantee(),
        can_hold: manager.hold().is_some(),
        stages_in: brings_objects(plan),
        stages_out: has_outputs(plan),
        backoff_limit: spec.backoff_limit,
        deadline: spec.active_deadline_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        poll_interval: Duration::from_secs(plan.poll_seconds.max(1).into()),
        tuning: Tuning::default(),
    }
}

fn brings_objects(plan: &JobPlan) -> bool {
    let fetched = |text: &TextSource| matches!(text, TextSource::Object(_));
    matches!(plan.script, ScriptSource::Object(_))
        || fetched(&plan.metadata)
        || fetched(&plan.parameters)
        || !plan.inputs.is_empty()
}
