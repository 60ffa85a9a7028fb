//! podresources: another program reads which container has which CPUs.

use std::collections::BTreeMap;
use std::fmt::Debug;

use cpuset::CpuSet;
use nri_cpu_manager::view::status::{ContainerStatus, NodeStatus, Status};
use serde_json::Value;

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, Pod};
use crate::podresources::{Authority, PodResources};
use crate::step::Step;
use crate::view::View;

/// Exclusive CPUs of the largest set of pods.
const NEEDED: usize = 4;
const CHANGED: &str = "config: reloaded; in force: ";
/// The pod that `Get` asks for, and its container in the answer.
const POD: &str = "db";
const ASKED: &str = "default/db/main";
const UNKNOWN: &str = "NOT_FOUND pod another in namespace default not found";

/// No kubelet answers here, so clients get the plugin's part alone. Their answers must be what
/// `status` has, and where the kernel lets the containers run.
pub(super) fn answers(shape: &Shape) -> Option<Script> {
    // No overlay has both the mount for podresources and the privileges for partitions.
    if shape.room() < NEEDED || shape.exclusivity == "kernel" {
        return None;
    }
    let config = |policy: &str| {
        shape.config(&format!(
            "topologyManagerPolicy: {policy}\n\
             podResources: {{listen: /var/lib/nri-cpu-manager/pod-resources}}"
        ))
    };
    let mut script = Script::new(shape);
    script.plugin(config("none"));
    script.shared("web");
    script.exclusive(POD, 2);
    // A Guaranteed pod with an exclusive container and a shared one.
    let fraction = Container::guaranteed("log", 500);
    script.run(Pod::new("mixed", [super::guaranteed("main", 1), fraction]));
    script.view();
    asks(&mut script, "none");
    script.does(Step::Resize(POD.to_owned(), super::milli(3)));
    script.view();
    asks(&mut script, "none");
    script.remove("mixed");
    let before = script.view();
    script.does(Step::KillPlugin);
    script.unmoved(before);
    script.does(Step::SwapConfig(config("best-effort")));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    asks(&mut script, "best-effort");
    Some(script)
}

fn asks(script: &mut Script, policy: &'static str) {
    for authority in [Authority::Default, Authority::Path] {
        script.pod_resources(POD, authority, move |answer, view| check(answer, view, policy));
    }
}

fn check(answer: &PodResources, view: &View, policy: &str) -> Result<(), String> {
    let status: Status = serde_json::from_str(&answer.status).map_err(|e| e.to_string())?;
    let node = status.node.ok_or("status has no node")?;
    check_cpus(answer, view, &node)?;
    same("status", &node.config.topology_manager_policy.as_str(), &policy)?;
    let file: Value = serde_yaml::from_str(&answer.policy).map_err(|e| e.to_string())?;
    for (field, expected) in [
        ("apiVersion", "kubelet.config.k8s.io/v1beta1"),
        ("kind", "KubeletConfiguration"),
        ("cpuManagerPolicy", "static"),
        ("topologyManagerPolicy", policy),
        ("reservedSystemCPUs", &node.cpus.reserved.to_string()),
    ] {
        same(field, &file[field], &expected)?;
    }
    Ok(())
}

fn check_cpus(answer: &PodResources, view: &View, node: &NodeStatus) -> Result<(), String> {
    let exclusive = |c: &ContainerStatus| if c.exclusive { c.cpus } else { CpuSet::EMPTY };
    let name = |c: &ContainerStatus| format!("{}/{}/{}", c.namespace, c.pod, c.container);
    let by_status: BTreeMap<String, CpuSet> =
        node.containers.iter().map(|c| (name(c), exclusive(c))).collect();
    let listed = containers(line(answer, "List")?);
    same("List", &listed, &by_status)?;
    for container in &view.containers {
        let name = format!("default/{}/{}", container.pod, container.container);
        let is_exclusive = container.decided.is_some();
        let cpus = if is_exclusive { parse(&container.allowed) } else { CpuSet::EMPTY };
        same(&name, &listed.get(&name), &Some(&cpus))?;
    }
    let asked: BTreeMap<String, CpuSet> =
        listed.into_iter().filter(|(name, _)| name == ASKED).collect();
    same("Get", &containers(line(answer, "Get")?), &asked)?;
    same("Get of another pod", &line(answer, "Get of another pod")?, &UNKNOWN)?;
    let allocatable = parse(line(answer, "GetAllocatableResources")?);
    same("GetAllocatableResources", &allocatable, &(node.cpus.online - node.cpus.reserved))
}

fn same<A, B>(what: &str, is: &A, expected: &B) -> Result<(), String>
where
    A: PartialEq<B> + Debug,
    B: Debug,
{
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, expected {expected:?}")) }
}

/// What the client printed for this call.
fn line<'a>(answer: &'a PodResources, call: &str) -> Result<&'a str, String> {
    let mut lines = answer.answers.lines();
    let line = lines.find_map(|line| line.strip_prefix(call)?.strip_prefix(": "));
    line.ok_or_else(|| format!("no {call} in {:?}", answer.answers))
}

/// Reads `NAMESPACE/POD/CONTAINER CPUS; ..`, where no CPUs are `none`.
fn containers(line: &str) -> BTreeMap<String, CpuSet> {
    let items = line.split("; ").filter_map(|item| item.split_once(' '));
    items.map(|(name, cpus)| (name.to_owned(), parse(cpus))).collect()
}
