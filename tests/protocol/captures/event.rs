//! What the ledger hears, for people to read.

use nri_cpu_manager::ledger::{Container, CpuRequest, Event, MilliCpu, Pod};

/// An event as a person would tell it. CPU time is request/limit.
pub(super) fn told(event: &Event) -> String {
    match event {
        Event::RunPod(pod) => {
            format!("pod     {} {:?} budget {}", name(pod), pod.qos, milli(pod.budget))
        }
        Event::UpdatePod(pod) => format!("resize  {} to {}", name(pod), milli(pod.budget)),
        Admission::Create { pod, container } => {
            format!("create  {} {}", of(pod, container), cpu(container.cpu))
        }
        Event::Starting { pod, container } => format!("starts  {}", of(pod, container)),
        Event::Started { pod, container } => format!("started {}", of(pod, container)),
        Admission::Update { pod, container, wanted } => {
            let quota = if wanted.sets_quota { " with quota" } else { "" };
            let (before, after) = (cpu(container.cpu), cpu(wanted.cpu));
            format!("update  {} {before} to {after}{quota}", of(pod, container))
        }
        Event::Stop(id) => format!("stop    {id}"),
        Event::Remove(id) => format!("remove  {id}"),
        Event::StopPod(id) => format!("stop pod {id}"),
        Event::RemovePod(id) => format!("remove pod {id}"),
        Event::Synchronize { pods, containers } => {
            format!("list    {} pods, {} containers", pods.len(), containers.len())
        }
        Event::QuietPeriod => "lull".to_owned(),
        Event::Kubelet { stance, .. } => format!("kubelet {stance:?}"),
        Event::Machine(machine) => format!("online  {}", machine.online()),
        Event::Settings(_)
        | Event::Mechanism(_)
        | Event::Unbound(_)
        | Event::Deliver(_)
        | Event::Undelivered(_)
        | Event::Revoked { .. }
        | Event::PartitionRefused(_)
        | Event::Drifted(_) => event.name().to_owned(),
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
