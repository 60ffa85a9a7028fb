//! `admit`: a node fills up with pods, and the last one is timed.

use crate::runner::options::Config;
use crate::runner::simulated::{Node, PodSpec};
use crate::timing::{Timing, time_each};
use nri_cpu_manager::ledger::{Admission, Call, Decision, Event, Ledger};
use nri_cpu_manager::placement::{EngineKind, Rejection};
use nri_cpu_manager::topology::Topology;
use serde::Deserialize;
use std::error::Error;
use std::iter::once;

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
    let mut settings = config.settings(topology).ok_or("not a configuration")??;
    settings.engine = engine;
    let mut node = Node::new(topology.clone(), settings);
    let (last, others) = steps.split_last().ok_or("no pod to admit")?;
    for step in others {
        node.admit(&step.pod)??;
    }
    let events = events(&mut node, &last.pod)?;
    // A refusal or a shared container would be fast, and no comparison.
    let trial = admit(&mut node.ledger.clone(), events.clone());
    let decisions: Vec<Decision> = trial.into_iter().collect::<Result<_, _>>()?;
    let mut adjustments = decisions.iter().filter_map(|decision| decision.adjustment);
    if !adjustments.any(|adjustment| adjustment.is_exclusive()) {
        return Err("the last pod gets no exclusive CPUs".into());
    }
    Ok(time_each(
        || (node.ledger.clone(), events.clone()),
        |(ledger, events)| admit(ledger, std::mem::take(events)),
    ))
}

/// The calls of the runtime for a pod until all its containers are created.
fn events(node: &mut Node, spec: &PodSpec) -> Result<Vec<Call>, String> {
    let pod = node.pod(spec)?;
    let creates = spec.all().map(|(kind, container)| {
        let container = node.container(&pod, kind, container);
        Call::from(Admission::Create { pod: pod.clone(), container })
    });
    Ok(once(Event::RunPod(pod.clone()).into()).chain(creates).collect())
}

fn admit(ledger: &mut Ledger, events: Vec<Call>) -> Vec<Result<Decision, Rejection>> {
    events.into_iter().map(|event| ledger.handle(event)).collect()
}
