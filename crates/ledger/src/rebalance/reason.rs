//! The gain of a move, in words for the log.

use crate::node::numa_nodes;
use cpuset::CpuSet;
use topology::Topology;

/// The gain of a container by the CPUs `after`; `before` is `None` if it would be refused.
pub(super) fn reason(
    machine: &Topology,
    subject: &str,
    before: Option<CpuSet>,
    after: CpuSet,
) -> String {
    let Some(before) = before else {
        return format!("{subject} can be admitted");
    };
    let caches = |cpus: &CpuSet| {
        machine.uncores().iter().filter(|cache| !cache.cpus.is_disjoint(cpus)).count()
    };
    let nodes = |cpus: &CpuSet| numa_nodes(machine, cpus).len();
    let compared = [
        ("NUMA node", nodes(&before), nodes(&after)),
        ("uncore cache", caches(&before), caches(&after)),
    ];
    let gains = compared.into_iter().find(|(_, before, after)| after < before);
    match gains {
        Some((domain, _, 1)) => format!("{subject} fits into one {domain}"),
        Some((domain, before, after)) => {
            format!("{subject} needs {after} {domain}s instead of {before}")
        }
        None => format!("{subject} is placed better"),
    }
}
