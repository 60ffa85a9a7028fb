//! `admit`: a node fills up with pods, and the last one is timed.

use crate::runner::options::Config;
use crate::runner::simulated::{Node, PodSpec};
use crate::timing::{Timing, time_each};
use ledger::{Admission, CpuSetting, Event, Ledger, Pod, Policy, Settings};
use placement::{EngineKind, Rejection};
use serde::Deserialize;
use std::error::Error;
use topology::Topology;

#[derive(Deserialize)]
struct Sequence {
    #[serde(flatten)]
    config: Config,
    steps: Vec<Step>,
}

/// Always an admission: the one kind of step that names a pod.
#[derive(Deserialize)]
struct Step {
    pod: PodSpec,
}

pub(crate) fn time_admission(
    topology: &Topology,
    line: &str,
    engine: EngineKind,
) -> Result<Timing, Box<dyn Error>> {
    let Sequence { config, steps } = serde_json::from_str(line)?;
    let mut placement = config.settings(topology).ok_or("not a configuration")??;
    placement.engine = engine;
    let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
    let mut node = Node::with_settings(topology.clone(), settings);
    let (last, others) = steps.split_last().ok_or("no pod to admit")?;
    for step in others {
        node.admit(&step.pod)??;
    }
    let (pod, creations) = calls(&mut node, &last.pod)?;
    // A refusal or a shared container would be fast, and no comparison.
    let adjustments = admit(&mut node.ledger.clone(), pod.clone(), creations.clone())?;
    if !adjustments.iter().flatten().any(CpuSetting::is_exclusive) {
        return Err("the last pod gets no exclusive CPUs".into());
    }
    Ok(time_each(
        || (node.ledger.clone(), pod.clone(), creations.clone()),
        |(ledger, pod, creations)| admit(ledger, pod.clone(), std::mem::take(creations)),
    ))
}

/// The calls of the runtime for a pod until all its containers are created.
fn calls(node: &mut Node, spec: &PodSpec) -> Result<(Pod, Vec<Admission>), String> {
    let pod = node.pod(spec)?;
    let creations = spec.all().map(|(kind, container)| {
        let container = node.container(&pod, kind, container);
        Admission::Create { pod: pod.clone(), container }
    });
    let creations = creations.collect();
    Ok((pod, creations))
}

fn admit(
    ledger: &mut Ledger,
    pod: Pod,
    creations: Vec<Admission>,
) -> Result<Vec<Option<CpuSetting>>, Rejection> {
    ledger.apply(Event::RunPod(pod));
    let mut adjustments = Vec::with_capacity(creations.len());
    for creation in creations {
        let decision = ledger.admit(creation)?;
        adjustments.push(decision.setting());
        ledger.apply(Event::Answered(decision));
    }
    Ok(adjustments)
}
