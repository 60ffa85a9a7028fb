//! The KEPs' own promises: exact sets where a KEP gives them, what it says in words elsewhere.

use nri_cpu_manager::cpuset::CpuSet;

use super::invariants::parse;
use super::script::{Script, exclusive};
use super::shape::Shape;
use super::{Order, RESERVED, config};
use crate::hardware::Hardware;
use crate::step::Step;
use crate::view::View;

/// Nothing but a look: the machine as Linux tells it, and as the plugin's reader has it, is the one described.
pub(super) fn machine(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    let described = Hardware::of(&shape.topology);
    script.look_for(move |view| {
        same("Linux", &view.hardware, &described)?;
        same("the plugin's reader", &view.read, &described)
    });
    Some(script)
}

fn same(who: &str, found: &Hardware, described: &Hardware) -> Result<(), String> {
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
    for ((what, found), (_, described)) in parts(found).into_iter().zip(parts(described)) {
        if found != described {
            return Err(format!("{who} has the {what} {found}, described are {described}"));
        }
    }
    Ok(())
}

fn cpus(list: &str) -> CpuSet {
    parse(list)
}

/// Whether this is a node of KEP-4800's examples: caches of eight CPUs in one NUMA node.
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
    // Where cores have lost CPUs, and one on average is left, the option asks for nothing.
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
    script.look_for(move |view| {
        for pod in ["one", "two"] {
            let own = parse(view.allowed(pod));
            let split = cores.iter().find(|core| !core.is_disjoint(&own) && !core.is_subset(&own));
            if let Some(core) = split {
                return Err(format!("{pod} has {own}, and with it half of the core {core}"));
            }
        }
        Ok(())
    });
    Some(script)
}

/// KEP-2902.
pub(super) fn distributed(shape: &Shape) -> Option<Script> {
    let nodes = shape.nodes();
    let threads = shape.threads();
    let half = (shape.most_in(&nodes) / 2 / threads + 1) * threads;
    if nodes.len() < 2 || nodes.iter().filter(|n| (**n & shape.free()).len() >= half).count() < 2 {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config("cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\"}"));
    script.shared("web");
    script.exclusive("db", 2 * half);
    script.look_for(move |view| {
        let parts = parts(view, "db", &nodes);
        let even = parts.iter().all(|part| Some(part) == parts.first());
        if parts.len() < 2 || !even {
            return Err(format!("db has {parts:?} CPUs on its NUMA nodes: that is not even"));
        }
        Ok(())
    });
    Some(script)
}

/// How many CPUs a pod has in each of the sets in which it has some.
fn parts(view: &View, pod: &str, sets: &[CpuSet]) -> Vec<usize> {
    let own = parse(view.allowed(pod));
    sets.iter().map(|set| (*set & own).len()).filter(|count| *count > 0).collect()
}

/// KEP-3327: a container of more than a NUMA node, once the first socket has less room than it needs.
pub(super) fn one_socket(shape: &Shape) -> Option<Script> {
    let (nodes, sockets) = (shape.nodes(), shape.sockets());
    let size = shape.most_in(&nodes) + shape.threads();
    if sockets.len() < 2 || nodes.len() <= sockets.len() || shape.most_in(&sockets) < size {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(
        "cpuManagerPolicyOptions: {align-by-socket: \"true\"}\ntopologyManagerPolicy: best-effort",
    ));
    script.shared("web");
    script.exclusive("small", shape.threads());
    script.exclusive("db", size);
    script.look_for(move |view| match parts(view, "db", &sockets).len() {
        1 => Ok(()),
        count => Err(format!("db is in {count} sockets: {}", view.allowed("db"))),
    });
    Some(script)
}

/// KEP-3545: of all pairs of NUMA nodes with room one of the nearest.
pub(super) fn closest(shape: &Shape) -> Option<Script> {
    let nodes = shape.topology.nodes();
    let free = shape.free();
    let size = shape.most_in(&shape.nodes()) + 1;
    let distance = |a: usize, b: usize| {
        nodes.get(a).and_then(|node| node.distances.get(b)).copied().unwrap_or_default()
    };
    let pairs: Vec<(usize, usize)> = (0..nodes.len())
        .flat_map(|a| (a + 1..nodes.len()).map(move |b| (a, b)))
        .filter(|(a, b)| {
            let room = |at: &usize| nodes.get(*at).map_or(0, |node| (node.cpus & free).len());
            room(a) > 0 && room(b) > 0 && room(a) + room(b) >= size
        })
        .collect();
    let near = pairs.iter().map(|(a, b)| distance(*a, *b)).min()?;
    let far = pairs.iter().map(|(a, b)| distance(*a, *b)).max()?;
    if near == far {
        return None;
    }
    let good: Vec<CpuSet> = pairs
        .iter()
        .filter(|(a, b)| distance(*a, *b) == near)
        .filter_map(|(a, b)| Some(nodes.get(*a)?.cpus | nodes.get(*b)?.cpus))
        .collect();
    let mut script = Script::new(shape);
    script.plugin(shape.config(
        "topologyManagerPolicy: restricted\n\
         topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}",
    ));
    script.shared("web");
    script.exclusive("db", size);
    script.look_for(move |view| {
        let own = parse(view.allowed("db"));
        if good.iter().any(|pair| own.is_subset(pair)) {
            return Ok(());
        }
        Err(format!("db is on {own}: not in two NUMA nodes that are {near} from each other"))
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
    script.look();
    script.exclusive("more", shape.room() - 2);
    script.look();
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
    // One in each node that is left; another one of that size would have to be split.
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
    script.look_for(move |view| {
        let split = names.iter().find(|name| parts(view, name, &nodes).len() != 1);
        split.map_or(Ok(()), |name| Err(format!("{name} is split: {}", view.allowed(name))))
    });
    Some(script)
}
