//! [`OddSizes`]: what the cores of a machine and its reserved CPUs mean for the numbers of CPUs that
//! containers may ask for.

use super::cores::{CoreSizes, Reachable, only_whole_cores, sums_by_domains};
use super::rejection::Rejection;
use super::settings::PlacementSettings;
use super::topology_manager::TopologyPolicy;
use cpuset::CpuSet;
use std::fmt;
use std::ops::RangeInclusive;
use topology::Topology;

/// Facts about a node on which not every number of CPUs can be exclusive to one container, beyond
/// what its options say by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OddSizes {
    /// The machine's cores; `None` if all have one size.
    pub cores: Option<CoreSizes>,
    /// Numbers up to that of all assignable CPUs that no container gets, even without others. A
    /// number that is no multiple of a core, where all cores have one size, is not listed.
    pub never_fit: Vec<RangeInclusive<usize>>,
}

/// Which numbers of CPUs a container can get of some CPUs, as far as cores and the topology manager's
/// policy decide.
pub(crate) struct Fitting {
    /// By number of NUMA nodes, those of nodes that may be used.
    usable: Vec<Reachable>,
    /// By number of NUMA nodes, those of the empty machine.
    empty: Vec<Reachable>,
    policy: TopologyPolicy,
}

impl Fitting {
    pub(crate) fn new(
        machine: &Topology,
        settings: &PlacementSettings,
        usable: &CpuSet,
    ) -> Fitting {
        let limit = machine.online().len();
        let pieces = |cpus: &CpuSet| -> Vec<CoreSizes> {
            let nodes = machine.nodes().iter().map(|node| node.cpus & *cpus);
            let nodes = nodes.filter(|cpus| !cpus.is_empty());
            nodes
                .map(|cpus| {
                    if settings.options.full_pcpus_only {
                        CoreSizes::of(machine, &only_whole_cores(machine, &cpus))
                    } else {
                        cpus.iter().map(|_| 1).collect()
                    }
                })
                .collect()
        };
        Fitting {
            usable: sums_by_domains(&pieces(usable), limit),
            empty: sums_by_domains(&pieces(&machine.online()), limit),
            // Nodes of one socket are as good as the fewest nodes, which is not counted here.
            policy: if settings.options.align_by_socket {
                TopologyPolicy::None
            } else {
                settings.topology_manager.policy
            },
        }
    }

    pub(crate) fn fits(&self, cpus: usize) -> bool {
        let last = self.usable.len() - 1;
        let most = match self.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => last,
            TopologyPolicy::Restricted => {
                self.empty.iter().position(|sums| sums.has(cpus)).unwrap_or(last).min(last)
            }
            TopologyPolicy::SingleNumaNode => last.min(1),
        };
        self.usable[most].has(cpus)
    }
}

/// The nearest numbers below and above `n`, up to `most`, that fit.
pub(crate) fn nearest(n: usize, most: usize, fits: impl Fn(usize) -> bool) -> Vec<usize> {
    let smaller = (1..n.min(most + 1)).rev().find(|&other| fits(other));
    let larger = (n + 1..=most).find(|&other| fits(other));
    smaller.into_iter().chain(larger).collect()
}

/// The refusal of a request for `n` of the `usable` CPUs, whose whole cores do not add up to it.
pub(crate) fn no_sum(
    machine: &Topology,
    settings: &PlacementSettings,
    usable: &CpuSet,
    n: usize,
) -> Rejection {
    let cores = CoreSizes::of(machine, &only_whole_cores(machine, usable));
    let fits = if machine.cores_are_equal() {
        Vec::new()
    } else {
        let fitting = Fitting::new(machine, settings, usable);
        nearest(n, cores.total(), |other| fitting.fits(other))
    };
    Rejection::whole_cores(machine, n, &cores, &fits)
}

impl OddSizes {
    pub fn of(machine: &Topology, settings: &PlacementSettings) -> OddSizes {
        let equal = machine.cores_are_equal();
        let cores = if equal { None } else { Some(CoreSizes::of(machine, &machine.online())) };
        let assignable = machine.online() - settings.reserved;
        let assignable = settings.isolated.allowed(machine, &assignable);
        let mut never_fit: Vec<RangeInclusive<usize>> = Vec::new();
        let whole = settings.options.full_pcpus_only;
        let unit = if equal && whole { machine.threads_per_core() } else { 1 };
        let fitting = Fitting::new(machine, settings, &assignable);
        for cpus in (unit..=assignable.len()).step_by(unit) {
            match never_fit.last_mut() {
                _ if fitting.fits(cpus) => {}
                Some(last) if last.end() + unit == cpus => *last = *last.start()..=cpus,
                _ => never_fit.push(cpus..=cpus),
            }
        }
        OddSizes { cores, never_fit }
    }

    pub fn is_empty(&self) -> bool {
        *self == OddSizes::default()
    }

    /// The numbers that never fit, as a list.
    pub fn numbers(&self) -> String {
        let numbers = self.never_fit.iter().map(|range| {
            if range.start() == range.end() {
                range.start().to_string()
            } else {
                format!("{}-{}", range.start(), range.end())
            }
        });
        numbers.collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for OddSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(cores) = &self.cores {
            write!(f, "cores differ in size: {cores}")?;
            separator = "; ";
        }
        if !self.never_fit.is_empty() {
            write!(f, "{separator}requests that never fit here: {} CPUs", self.numbers())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::machines::{Shape, set};
    use super::*;
    use crate::{Options, TopologyManager};

    fn settings(
        full_pcpus_only: bool,
        policy: TopologyPolicy,
        reserved: &str,
    ) -> PlacementSettings {
        PlacementSettings {
            options: Options { full_pcpus_only, ..Options::default() },
            topology_manager: TopologyManager { policy, ..TopologyManager::default() },
            reserved: set(reserved),
            ..PlacementSettings::default()
        }
    }

    #[test]
    fn numbers_that_no_container_gets_are_listed() {
        use TopologyPolicy::{None, Restricted, SingleNumaNode};
        // Two nodes of four cores: 0-3 and 4-7 with siblings 8-11 and 12-15.
        let machine = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 4, threads: 2 }.build();
        let shown = |machine: &Topology, settings| OddSizes::of(machine, &settings).to_string();
        assert_eq!(shown(&machine, settings(true, None, "0")), "");
        // Each node has 7 CPUs for requests that one of 8 could hold.
        assert_eq!(
            shown(&machine, settings(false, Restricted, "0,4")),
            "requests that never fit here: 8 CPUs"
        );
        assert_eq!(
            shown(&machine, settings(true, SingleNumaNode, "0,8")),
            "requests that never fit here: 10-14 CPUs"
        );
        let hole = machine.without(&set("15")).unwrap();
        assert_eq!(
            shown(&hole, settings(true, None, "0,8,7")),
            "cores differ in size: 7 of 2 cpus, 1 of 1 cpu; requests that never fit here: 1,3,5,7,9,11 CPUs"
        );
        assert_eq!(
            shown(&hole, settings(false, None, "0")),
            "cores differ in size: 7 of 2 cpus, 1 of 1 cpu"
        );
    }
}
