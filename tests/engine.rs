//! The ledger does not depend on the placement engine: it keeps its invariants with another one.

use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::{
    Admission, Container, ContainerId, CpuRequest, Event, Ledger, MilliCpu, Pod, PodUid, Policy,
    Qos, SandboxId, Settings,
};
use nri_cpu_manager::placement::request::Weighed;
use nri_cpu_manager::placement::{self, Engine, Hint, NotEnough, Placement, Rejection, Request};
use nri_cpu_manager::topology::Topology;
use nri_cpu_manager::topology::synthetic::Machine;
use std::sync::Arc;

/// Takes the lowest free CPUs and ignores the topology.
#[derive(Debug)]
struct FirstFree;

impl Engine for FirstFree {
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        let free = (request.free | request.reuse.cpus()) & machine.online();
        let cpus = (free - request.settings.reserved).lowest(request.cpus);
        let requested = request.cpus;
        let available = cpus.len();
        if available == requested {
            Ok(Placement { cpus, hint: Hint::ANY })
        } else {
            Err(NotEnough { requested, available }.into())
        }
    }

    fn resize(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
    ) -> Result<CpuSet, Rejection> {
        let more = request.cpus.saturating_sub(held.len());
        let rest = Request { cpus: more, free: request.free - *held, ..*request };
        Ok(held.lowest(request.cpus) | self.place(machine, &rest)?.cpus)
    }

    fn complete(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
        _: &CpuSet,
    ) -> Option<CpuSet> {
        self.resize(machine, request, held).ok()
    }

    fn explain(&self, _: &Topology, _: &Request, _: Option<&Placement>) -> Weighed {
        Weighed { reasons: vec!["The first free CPUs.".to_owned()], ..Weighed::default() }
    }
}

fn create(ledger: &mut Ledger, name: &str, cpus: u64) -> Result<String, String> {
    let amount = MilliCpu(cpus * 1000);
    let pod = Pod {
        sandbox: SandboxId(format!("sandbox-{name}")),
        uid: PodUid(format!("uid-{name}")),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        qos: Qos::Guaranteed,
        budget: Some(amount),
        annotations: Vec::new(),
        cgroup: None,
    };
    let cpu = CpuRequest { request: Some(amount), limit: Some(amount) };
    let id = ContainerId(format!("id-{name}"));
    let container = Container::new(id, pod.sandbox.clone(), "c", cpu);
    let decision = ledger
        .handle(Admission::Create { pod, container })
        .map_err(|rejection| rejection.to_string())?;
    ledger.check()?;
    let adjustment = decision.adjustment.ok_or("not pinned")?;
    Ok(adjustment.cpus().to_string())
}

#[test]
fn the_ledger_runs_with_another_engine() {
    let topology = "pack:1 l3:2 core:4 pu:1".parse::<Machine>().unwrap().topology().unwrap();
    let reserved = "0".parse().unwrap();
    let placement = placement::Settings { reserved, ..placement::Settings::default() };
    let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
    let mut ledger = Ledger::with_engine(Arc::new(FirstFree), topology, settings, Vec::new());
    // Across both caches, which the kubelet's engine would avoid.
    assert_eq!(create(&mut ledger, "a", 2).unwrap(), "1-2");
    assert_eq!(create(&mut ledger, "b", 3).unwrap(), "3-5");
    assert!(create(&mut ledger, "c", 3).unwrap_err().contains("not enough cpus available"));
    ledger.handle(Event::StopPod(SandboxId("sandbox-a".to_owned()))).unwrap();
    assert_eq!(create(&mut ledger, "c", 3).unwrap(), "1-2,6");
    let view = ledger.view();
    assert_eq!(view.containers.iter().filter(|one| one.exclusive.is_some()).count(), 2);
}
