//! The ledger's events as text.

use ledger::{Admission, Call, Container, CpuRequest, Event, MilliCpu, Pod};

/// One line on an event. CPUs are request/limit.
pub(super) fn describe(call: &Call) -> String {
    match call {
        Call::Admission(Admission::Create { pod, container }) => {
            format!("create  {} {}", of(pod, container), cpu(container.cpu))
        }
        Call::Admission(Admission::Update { pod, container, requested }) => {
            let quota = if requested.sets_quota { " with quota" } else { "" };
            let before = cpu(container.cpu);
            let after = cpu(requested.cpu);
            format!("update  {} {before} to {after}{quota}", of(pod, container))
        }
        Call::Event(event) => match event {
            Event::RunPod(pod) => {
                format!("pod     {} {:?} budget {}", name(pod), pod.qos, milli(pod.budget))
            }
            Event::UpdatePod(pod) => format!("resize  {} to {}", name(pod), milli(pod.budget)),
            Event::Starting { pod, container } => format!("starts  {}", of(pod, container)),
            Event::Started { pod, container } => format!("started {}", of(pod, container)),
            Event::Stop(id) => format!("stop    {id}"),
            Event::Remove(id) => format!("remove  {id}"),
            Event::StopPod(id) => format!("stop pod {id}"),
            Event::RemovePod(id) => format!("remove pod {id}"),
            Event::Synchronize { pods, containers } => {
                format!("list    {} pods, {} containers", pods.len(), containers.len())
            }
            _ => call.name().to_owned(),
        },
    }
}

fn name(pod: &Pod) -> String {
    let uid: String = pod.uid.0.chars().take(8).collect();
    format!("{}/{} ({} {uid})", pod.namespace, pod.name, pod.sandbox)
}

fn of(pod: &Pod, container: &Container) -> String {
    assert_eq!(pod.sandbox, container.sandbox);
    format!("{}/{} {:?}: {} {}", pod.namespace, pod.name, pod.qos, container.name, container.id)
}

fn cpu(cpu: CpuRequest) -> String {
    format!("{}/{}", milli(cpu.request), milli(cpu.limit))
}

fn milli(milli: Option<MilliCpu>) -> String {
    milli.map_or_else(|| "-".to_owned(), |milli| milli.to_string())
}
