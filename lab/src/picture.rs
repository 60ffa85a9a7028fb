//! A node for people: where processes may run, as a picture of the plugin's, and a table with the
//! decisions.

use std::fmt::Write;

use cpuset::CpuSet;
use status::badge::Badge;
use status::picture::text::{self, Style, WIDTH};
use status::picture::{Occupancy, Picture, Tenant, Usage};
use topology::Topology;

use crate::view::{ContainerView, View};

pub fn draw(view: &View, topology: &Topology, reserved: CpuSet, colour: bool) -> String {
    let tenants = tenants(view, topology);
    let shared = tenants.iter().fold(topology.online(), |rest, tenant| rest - tenant.cpus);
    let occupancy = Occupancy { tenants, reserved, shared, ..Occupancy::default() };
    let picture = Picture::of(topology, occupancy);
    let table = table(view, &picture, shared);
    format!("{}\n{table}", text::draw(&picture, Style { width: WIDTH, colour }))
}

/// The containers with exclusive CPUs, with letters in the order of their lowest CPUs: the plugin
/// assigns the same ones on a node that it takes over, and in `simulate`.
fn tenants(view: &View, topology: &Topology) -> Vec<Tenant> {
    let mut exclusive: Vec<(CpuSet, &ContainerView)> = view
        .containers
        .iter()
        .filter(|container| container.claimed.is_some())
        .map(|container| (parse(&container.allowed), container))
        .collect();
    exclusive.sort_by_key(|(cpus, _)| cpus.first());
    let mut tenants = Vec::new();
    for ((cpus, container), badge) in exclusive.into_iter().zip((0..).map(Badge)) {
        tenants.push(Tenant {
            badge,
            is_pod: false,
            name: container.pod.clone(),
            cpus,
            idle: CpuSet::EMPTY,
            placement: spread(topology, cpus),
        });
    }
    tenants
}

/// Says whether processes and decisions agree, and where they do not.
pub fn verdict(view: &View) -> String {
    let wrong = view.disagreements();
    if wrong.is_empty() {
        return format!("processes and decisions agree ({} containers)", view.containers.len());
    }
    format!("processes and decisions DISAGREE:\n  {}", wrong.join("\n  "))
}

fn table(view: &View, picture: &Picture, shared: CpuSet) -> String {
    let mut text = format!(
        "     {:<12} {:<22} {:<24} {:<24} {}\n",
        "pod", "request", "process may run on", "claimed", "uncore caches"
    );
    for container in &view.containers {
        let ContainerView { pod, allowed, .. } = container;
        let tenant = picture.tenants.iter().find(|tenant| tenant.name == *pod);
        let (usage, claimed, caches) = match (&container.claimed, tenant) {
            (Some(claimed), Some(tenant)) => {
                (Usage::Held(tenant.badge), claimed.clone(), &*tenant.placement)
            }
            _ => (Usage::Shared, format!("{shared} (shared)"), ""),
        };
        let request = match container.request {
            milli if milli % 1000 == 0 => {
                format!("{}, {:?}", wording::count(milli / 1000, "CPU"), container.qos)
            }
            milli => format!("{milli}m CPU, {:?}", container.qos),
        };
        let mark = usage.sign();
        let line =
            format!("  {mark}  {pod:<12} {request:<22} {allowed:<24} {claimed:<24} {caches}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The uncore caches of a set of CPUs, and whether fewer would suffice.
fn spread(topology: &Topology, cpus: CpuSet) -> String {
    let caches = topology.uncores();
    let used: Vec<String> = caches
        .iter()
        .filter(|cache| !(cache.cpus & cpus).is_empty())
        .map(|cache| cache.id.to_string())
        .collect();
    let largest = caches.iter().map(|cache| cache.cpus.len()).max().unwrap_or(1).max(1);
    let enough = cpus.len().div_ceil(largest);
    let split = if used.len() > enough {
        format!(": SPLIT, {enough} would suffice")
    } else {
        String::new()
    };
    format!("{}{split}", used.join(" and "))
}

fn parse(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;
    use crate::pod::Qos;
    use crate::vm::Machine;

    /// The README shows what `hack/demo` prints: its sets are those that the scenario `kep-4800`
    /// expects of processes.
    #[test]
    fn the_readme_shows_what_the_demo_prints() {
        let topology = Machine::load("kep-4800").unwrap().topology().unwrap();
        let container = |pod: &str, milli, allowed: &str| {
            let exclusive = milli % 1000 == 0;
            ContainerView {
                pod: pod.into(),
                container: "main".into(),
                qos: if exclusive { Qos::Guaranteed } else { Qos::Burstable },
                request: milli,
                allowed: allowed.into(),
                quota: None,
                claimed: exclusive.then(|| allowed.to_owned()),
            }
        };
        let mut view = View {
            hardware: Hardware { online: "0-31".into(), ..Hardware::default() },
            read: Hardware::default(),
            busy: Vec::new(),
            containers: vec![
                container("web", 500, "0-1,18-23"),
                container("batch", 500, "0-1,18-23"),
                container("cpus-10", 10_000, "8-17"),
                container("cpus-8", 8_000, "24-31"),
                container("cpus-6", 6_000, "2-7"),
            ],
        };
        let reserved = parse(crate::demo::RESERVED);
        let text = format!("{}\n{}\n", draw(&view, &topology, reserved, false), verdict(&view));
        println!("{text}");
        assert!(include_str!("../../README.md").contains(&format!("```\n{text}```\n")));
        view.containers[0].allowed = "0-31".into();
        let wrong = "processes and decisions DISAGREE:\n  web: may run on 0-31, claimed: 0-1,18-23";
        assert_eq!(verdict(&view), wrong);
    }
}
