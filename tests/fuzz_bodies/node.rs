//! A small node for the targets: 16 CPUs, two uncore caches, CPUs 0-1 reserved.

use cpuset::CpuSet;
use ledger::pod_option::PodOption;
use ledger::{
    Bounds, Claim, Container, ContainerId, ContainerKind, CpuRequest, Event, Ledger, MilliCpu,
    Namespaces, Pod, PodUid, Policy, Qos, SandboxId, Settings,
};
use machines::synthetic::Machine;
use std::sync::LazyLock;
use topology::Topology;

static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    Machine { caches: 2, cores: 16, ..Machine::default() }.topology().expect("a machine")
});

pub fn topology() -> &'static Topology {
    &TOPOLOGY
}

pub fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list of CPUs")
}

pub fn ledger(remembered: Vec<Claim>) -> Ledger {
    let placement = placement::PlacementSettings {
        reserved: cpus("0-1"),
        ..placement::PlacementSettings::default()
    };
    let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
    Ledger::new(TOPOLOGY.clone(), settings, remembered)
}

/// A ledger that allows every pod option.
pub fn ledger_with_pod_options() -> Ledger {
    let mut ledger = ledger(Vec::new());
    let bounds = Bounds { allow: PodOption::all().collect(), ..Bounds::default() };
    let namespaces = Namespaces::new(vec![(vec!["*".to_owned()], bounds)]).expect("one pattern");
    ledger.apply(Event::Settings(Settings { namespaces, ..ledger.settings().clone() }));
    ledger
}

/// A Guaranteed pod with one container that is pinned to `set`, or was never pinned.
pub fn running(name: &str, milli: u64, set: Option<CpuSet>) -> (Pod, Container) {
    let amount = Some(MilliCpu(milli));
    let sandbox = SandboxId(format!("sandbox-{name}").into());
    let pod = Pod {
        sandbox: sandbox.clone(),
        uid: PodUid(format!("uid-{name}").into()),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        qos: Qos::Guaranteed,
        budget: amount,
        limits: Default::default(),
        own_resources: None,
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    };
    // The plugin lifts the limit of a container with exclusive CPUs.
    let limit = if set.is_some() { None } else { amount };
    let cpu = CpuRequest { request: amount, limit };
    let id = ContainerId(format!("id-{name}").into());
    let container = Container { cpus: set, ..Container::new(id, sandbox, "c", cpu) };
    (pod, container)
}
