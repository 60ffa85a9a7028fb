//! Pods with annotations, within the bounds of their namespace.

use cpuset::CpuSet;

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use super::{exclusive, milli};
use crate::step::Step;
use crate::view::View;

const CONFIG: &str = "exposeCpus: true
exclusiveMems: follow-cpus
namespaces:
- names: [default]
  allow: {uncore: [require], smt: [isolate]}";

/// One container fills more than half of each uncore cache, so that the next one is refused
/// although the sum of free CPUs suffices. Then the siblings of a container stay idle, also after
/// the plugin is killed.
pub(super) fn wishes(shape: &Shape) -> Option<Script> {
    let caches: Vec<usize> =
        shape.caches().iter().map(|cache| (*cache & shape.free()).len()).collect();
    let size = shape.most_in(&shape.caches()) / 2 + 1;
    let mut script = Script::new(shape);
    script.plugin(shape.config(CONFIG));
    script.shared("web");
    let holding = caches.iter().filter(|room| **room >= size).count();
    for number in 0..holding {
        script.run(exclusive(&format!("whole-{number}"), size).wishing("uncore", "require"));
    }
    let known = shape.clone();
    let full = script.view_where(move |view| {
        (0..holding).try_for_each(|number| as_wished(&known, view, &format!("whole-{number}")))
    });
    let torn = exclusive("torn", size).wishing("uncore", "require");
    script.refused(Step::Run(torn), "UncoreAlignmentError");
    script.remove("torn");
    let typo = exclusive("typo", 1).wishing("uncor", "require");
    script.refused(Step::Run(typo), "did you mean uncore?");
    script.remove("typo");
    let more = exclusive("more", 1).wishing("numa", "single");
    script.refused(Step::Run(more), "WishNotAllowedError");
    script.remove("more");
    script.exclusive_unmoved(full);
    for number in 0..holding {
        script.remove(&format!("whole-{number}"));
    }
    let cores = shape.cores().iter().filter(|core| core.is_subset(&shape.free())).count();
    script.isolates("quiet");
    script.run(exclusive("quiet", cores.min(2)).wishing("smt", "isolate"));
    let known = shape.clone();
    let quiet = script.view_where(move |view| as_wished(&known, view, "quiet"));
    let loud = exclusive("loud", cores).wishing("smt", "isolate");
    script.refused(Step::Run(loud), "SMTAlignmentError");
    script.remove("loud");
    script.does(Step::KillPlugin);
    script.unmoved(quiet);
    script.remove("quiet");
    script.expect(&[("web", shape.online())]);
    Some(script)
}

const WHOLE: &str = "namespaces:
- names: [default]
  allow: {uncore: [exclusive]}";

/// Containers that fill no uncore cache have one each, as long as any is free as a whole. Beside
/// them a neighbour starts, ends, and fills what is left; then one of them grows and shrinks inside
/// its cache. The views show that no other container may run in these caches.
pub(super) fn uncore_exclusive(shape: &Shape) -> Option<Script> {
    let caches = shape.caches();
    let whole: Vec<CpuSet> =
        caches.iter().filter(|cache| cache.is_disjoint(&shape.reserved)).copied().collect();
    let smallest = whole.iter().map(CpuSet::len).min()?;
    // One CPU of each cache stays idle at least, and the neighbour needs one elsewhere.
    let elsewhere = shape.room() - whole.iter().map(CpuSet::len).sum::<usize>();
    if caches.len() < 2 || smallest < 2 || elsewhere == 0 {
        return None;
    }
    let size = smallest - 1;
    let alone =
        |number: usize| exclusive(&format!("alone-{number}"), size).wishing("uncore", "exclusive");
    let mut script = Script::new(shape);
    script.plugin(shape.config(WHOLE));
    script.shared("web");
    for number in 0..whole.len() {
        script.takes_whole_caches(&format!("alone-{number}"));
        script.run(alone(number));
        script.view();
    }
    let full = script.view();
    script.says(Step::Explain("alone-0".to_owned()), &["idle for it (uncore: exclusive)"]);
    let late = exclusive("late", 1).wishing("uncore", "exclusive");
    script.refused(Step::Run(late), "whole uncore caches wanted");
    script.remove("late");
    // Idle CPUs are not free.
    let large = exclusive("large", elsewhere + 1);
    script.refused(Step::Run(large), "UnexpectedAdmissionError");
    script.remove("large");
    let neighbour = exclusive("neighbour", elsewhere);
    script.watches(vec![Step::RunBusy(neighbour), Step::Wait(1)]);
    script.exclusive_unmoved(full);
    script.does(Step::KillPlugin);
    script.exclusive_unmoved(full);
    script.remove("neighbour");
    for more in [size + 1, 1, size] {
        script.does(Step::Resize("alone-0".to_owned(), milli(more)));
        script.view();
    }
    let beyond = Step::Resize("alone-0".to_owned(), milli(shape.room()));
    script.refused(beyond, "whole uncore caches wanted");
    script.remove("alone-0");
    script.run(exclusive("late", 1).wishing("uncore", "exclusive"));
    script.takes_whole_caches("late");
    script.view();
    script.remove("late");
    for number in 1..whole.len() {
        script.remove(&format!("alone-{number}"));
    }
    script.expect(&[("web", shape.online())]);
    Some(script)
}

/// An exclusive container is in one uncore cache, has its memory on the nodes of its CPUs, and has
/// both in its environment.
fn as_wished(shape: &Shape, view: &View, pod: &str) -> Result<(), String> {
    let Some(container) = view.containers.iter().find(|c| c.pod == pod) else {
        return Err(format!("{pod} does not run"));
    };
    let cpus = parse(&container.allowed);
    let caches: Vec<String> = parts(&shape.caches(), cpus);
    if pod != "quiet" && caches.len() != 1 {
        return Err(format!("{pod} is in several uncore caches: {}", caches.join(";")));
    }
    let nodes = shape.topology.nodes();
    let used = nodes.iter().filter(|node| !node.cpus.is_disjoint(&cpus));
    let used: CpuSet = used.filter_map(|node| CpuSet::of(node.id).ok()).collect();
    let expected = [
        format!("NRI_CPU_MANAGER_CPUS={cpus}"),
        format!("NRI_CPU_MANAGER_NUMA_NODES={used}"),
        format!("NRI_CPU_MANAGER_UNCORE_CACHES={}", caches.join(";")),
    ];
    if container.environment != expected {
        return Err(format!(
            "{pod} has the environment {:?}, expected {expected:?}",
            container.environment
        ));
    }
    // Never memory-only nodes, which can be a GPU's.
    if container.mems != used.to_string() {
        return Err(format!("{pod} has memory of NUMA nodes {}, not of {used}", container.mems));
    }
    Ok(())
}

/// The part of `cpus` in each set, without empty parts.
fn parts(sets: &[CpuSet], cpus: CpuSet) -> Vec<String> {
    let parts = sets.iter().map(|set| *set & cpus).filter(|part| !part.is_empty());
    parts.map(|part| part.to_string()).collect()
}
