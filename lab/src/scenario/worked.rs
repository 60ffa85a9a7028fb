//! The KEPs' examples: exact sets where a KEP gives them, its rules otherwise.

use cpuset::CpuSet;

use super::exclusive;
use super::invariants::parse;
use super::options::parts;
use super::script::Script;
use super::shape::Shape;
use super::{Order, RESERVED, config};
use crate::hardware::Hardware;
use crate::step::Step;

/// The machine as reported by Linux and by the plugin's reader is the one described.
pub(super) fn machine(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    let described = Hardware::of(&shape.topology);
    script.view_where(move |view| {
        same("Linux", &view.hardware, &described)?;
        same("the plugin's reader", &view.read, &described)
    });
    Some(script)
}

fn same(machine: &str, reported: &Hardware, described: &Hardware) -> Result<(), String> {
    let parts = |hardware: &Hardware| {
        let Hardware { online, cores, sockets, caches, nodes } = hardware;
        [
            ("online CPUs", online.clone()),
            ("cores", format!("{cores:?}")),
            ("sockets", format!("{sockets:?}")),
            ("uncore caches", format!("{caches:?}")),
            ("NUMA nodes", format!("{nodes:?}")),
        ]
    };
    for ((what, reported), (_, described)) in parts(reported).into_iter().zip(parts(described)) {
        if reported != described {
            return Err(format!("{machine} reports {what} {reported}, described: {described}"));
        }
    }
    Ok(())
}

fn cpus(list: &str) -> CpuSet {
    parse(list)
}

/// KEP-4800's nodes: uncore caches of eight CPUs in one NUMA node.
fn is_the_keps(shape: &Shape, caches: usize) -> bool {
    let whole = shape.caches().iter().all(|cache| cache.len() == 8);
    whole && shape.caches().len() == caches && shape.nodes().len() == 1
}

fn three(shape: &Shape, order: Order, sizes: [usize; 3], sets: [&str; 3], rest: &str) -> Script {
    // The examples reserve CPUs 0 and 1, with SMT and without.
    let mut script = Script::new(&Shape { reserved: cpus(RESERVED), ..shape.clone() });
    script.plugin(config(order, true));
    script.shared("web");
    let names = ["one", "two", "three"];
    for (name, size) in names.iter().zip(sizes) {
        script.exclusive(name, size);
    }
    let expected: Vec<(&str, CpuSet)> =
        names.into_iter().zip(sets.map(cpus)).chain([("web", cpus(rest))]).collect();
    let look = script.expect(&expected);
    script.does(Step::KillPlugin);
    script.unmoved(look);
    script
}

pub(super) fn uncore(shape: &Shape) -> Option<Script> {
    if is_the_keps(shape, 4) {
        let sets = ["8-17", "24-31", "2-7"];
        return Some(three(shape, Order::Numerical, [10, 8, 6], sets, "0-1,18-23"));
    }
    let sets = ["2-5", "8-11", "12-15"];
    is_the_keps(shape, 2).then(|| three(shape, Order::Numerical, [4, 4, 4], sets, "0-1,6-7"))
}

pub(super) fn uncore_kubelet(shape: &Shape) -> Option<Script> {
    let sets = ["2-3,8-15", "16-23", "24-29"];
    is_the_keps(shape, 4)
        .then(|| three(shape, Order::FewestFree, [10, 8, 6], sets, "0-1,4-7,30-31"))
}

/// KEP-2625.
pub(super) fn whole_cores(shape: &Shape) -> Option<Script> {
    let threads = shape.threads();
    // With one CPU per core on average left, the option requires nothing.
    if threads < 2 || shape.topology.cpus_per_core() < threads || shape.room() < 3 * threads {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config("cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}"));
    script.shared("web");
    script.refused(Step::Run(exclusive("half", threads - 1)), "SMTAlignmentError");
    script.remove("half");
    script.exclusive("one", threads);
    script.exclusive("two", 2 * threads);
    let cores = shape.cores();
    script.view_where(move |view| {
        for pod in ["one", "two"] {
            let own = parse(view.allowed(pod));
            let split = cores.iter().find(|core| !core.is_disjoint(&own) && !core.is_subset(&own));
            if let Some(core) = split {
                return Err(format!("{pod} has {own} with a part of core {core}"));
            }
        }
        Ok(())
    });
    Some(script)
}

/// KEP-4540.
pub(super) fn strict(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.strict();
    script.plugin(shape.config("cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}"));
    script.shared("web");
    script.exclusive("db", 1);
    script.view();
    script.exclusive("more", shape.room() - 2);
    script.view();
    Some(script)
}

/// KEP-693.
pub(super) fn single_node(shape: &Shape) -> Option<Script> {
    let nodes = shape.nodes();
    if nodes.len() < 2 {
        return None;
    }
    let most = shape.most_in(&nodes);
    let mut script = Script::new(shape);
    script.plugin(shape.config("topologyManagerPolicy: single-numa-node"));
    script.shared("web");
    script.refused(Step::Run(exclusive("large", most + 1)), "TopologyAffinityError");
    script.remove("large");
    script.exclusive("whole", most);
    // One per remaining node; another one would have to be split.
    let half = most / 2 + 1;
    let mut names = vec!["whole".to_owned()];
    let rooms = nodes.iter().filter(|node| (**node & shape.free()).len() >= half).count();
    for number in 1..rooms {
        let name = format!("half-{number}");
        script.exclusive(&name, half);
        names.push(name);
    }
    script.refused(Step::Run(exclusive("last", half)), "TopologyAffinityError");
    script.remove("last");
    script.view_where(move |view| {
        let split = names.iter().find(|name| parts(view, name, &nodes).len() != 1);
        split.map_or(Ok(()), |name| Err(format!("{name} is split: {}", view.allowed(name))))
    });
    Some(script)
}
