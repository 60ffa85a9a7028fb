//! [`CpuManagerConfig`]: a kubelet's configuration as text, and the checks that a kubelet makes when it
//! starts. [`Reservation`]: the CPUs that are never exclusive, as a list or as an amount.

use super::take::take;
use crate::options::{OptionError, Options};
use crate::settings::PlacementSettings;
use crate::topology_manager::{NodeLimit, TopologyManager, TopologyManagerError, TopologyPolicy};
use cpuset::CpuSet;
use topology::Topology;

/// A configuration of CPU manager policy `static` and of the topology manager, as text.
#[derive(Debug, Clone, Copy)]
pub struct CpuManagerConfig<'a> {
    /// `cpuManagerPolicyOptions`.
    pub cpu_options: &'a [(&'a str, &'a str)],
    pub topology_policy: &'a str,
    pub topology_scope: &'a str,
    /// `topologyManagerPolicyOptions`.
    pub topology_options: &'a [(&'a str, &'a str)],
    pub reservation: Reservation,
}

/// Why a configuration is refused, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("topology manager: {0}")]
    TopologyManager(#[from] TopologyManagerError),
    #[error("cpu manager: new static policy error: {0}")]
    Options(#[from] OptionError),
    /// No CPU is reserved. The kubelet checks this before the options, so the text has no prefix.
    #[error("cpu manager: {}", ReserveError::Nothing)]
    NothingReserved,
    #[error("cpu manager: new static policy error: {0}")]
    Reserve(#[from] ReserveError),
}

impl CpuManagerConfig<'_> {
    /// Checks the configuration in the kubelet's order, and returns the first error.
    pub fn check(
        &self,
        topology: &Topology,
        limit: NodeLimit,
    ) -> Result<PlacementSettings, SettingsError> {
        let topology_manager = TopologyManager::parse(
            self.topology_policy,
            self.topology_scope,
            self.topology_options.iter().copied(),
            topology,
            limit,
        )?;
        if self.reservation.milli_cpus == 0 {
            return Err(SettingsError::NothingReserved);
        }
        let options = Options::parse(self.cpu_options.iter().copied())?;
        options.check_machine(topology, topology_manager.policy)?;
        let reserved = self.reservation.resolve(topology, &options)?;
        Ok(PlacementSettings {
            options,
            topology_manager,
            reserved,
            ..PlacementSettings::default()
        })
    }
}

impl Options {
    /// Checks that the machine and the topology manager's policy allow `align-by-socket`.
    pub fn check_machine(
        &self,
        topology: &Topology,
        policy: TopologyPolicy,
    ) -> Result<(), OptionError> {
        if self.align_by_socket && policy == TopologyPolicy::SingleNumaNode {
            return Err(OptionError::AlignBySocketPolicy);
        }
        if self.align_by_socket && topology.cpu_nodes() < topology.sockets().len() {
            return Err(OptionError::AlignBySocketMachine);
        }
        Ok(())
    }
}

/// Which CPUs to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// `reservedSystemCPUs`; if empty, they are chosen by amount.
    pub cpus: CpuSet,
    /// `systemReserved` plus `kubeReserved`, in thousandths of a CPU; with a list, its size.
    pub milli_cpus: u64,
}

/// Why CPUs cannot be reserved, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// Without reserved CPUs, shared containers could be left without any CPU.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    Nothing,
    /// The amount differs from the size of the list, or exceeds the CPUs of the machine.
    #[error(
        "[cpumanager] unable to reserve the required amount of CPUs (size of {cpus} did not equal {amount})"
    )]
    Size { cpus: String, amount: u64 },
    /// The list names a CPU that is not online.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    Unknown(usize),
}

impl Reservation {
    pub fn list(cpus: CpuSet) -> Reservation {
        Reservation { cpus, milli_cpus: cpus.len() as u64 * 1000 }
    }

    pub fn amount(milli_cpus: u64) -> Reservation {
        Reservation { cpus: CpuSet::EMPTY, milli_cpus }
    }

    /// The reserved CPUs. A fraction reserves a whole CPU.
    ///
    /// Without a list, these are the CPUs that a container of that size would get on the empty
    /// machine with these options, as in the kubelet. On most machines they are the lowest cores.
    pub fn resolve(&self, topology: &Topology, options: &Options) -> Result<CpuSet, ReserveError> {
        let amount = self.milli_cpus.div_ceil(1000);
        if amount == 0 {
            return Err(ReserveError::Nothing);
        }
        let cpus = if self.cpus.is_empty() {
            let n = usize::try_from(amount).unwrap_or(usize::MAX);
            // If the machine is too small, the kubelet reports the size of an empty set.
            take(topology, &topology.online(), n, options.strategy(topology, 0)).unwrap_or_default()
        } else {
            self.cpus
        };
        if cpus.len() as u64 != amount {
            return Err(ReserveError::Size { cpus: cpus.to_string(), amount });
        }
        match (cpus - topology.online()).first() {
            Some(cpu) => Err(ReserveError::Unknown(cpu)),
            None => Ok(cpus),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Shape, set};

    #[track_caller]
    fn check(reservation: Reservation, expect: &str) {
        // Cores 0-3 with threads 4-7.
        let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        match reservation.resolve(&shape.build(), &Options::default()) {
            Ok(cpus) => assert_eq!(cpus.to_string(), expect),
            Err(error) => assert!(error.to_string().contains(expect), "{error}"),
        }
    }

    #[test]
    fn cpus_are_reserved_by_list_or_amount_or_refused() {
        check(Reservation::amount(500), "0");
        check(Reservation::amount(2000), "0,4");
        check(Reservation::amount(3000), "0-1,4");
        check(Reservation::amount(9000), "(size of  did not equal 9)");
        check(Reservation::amount(0), "greater than zero");
        check(Reservation::list(set("2,6")), "2,6");
        check(Reservation::list(set("2,8")), "unknown CPU ID: 8");
        check(Reservation { milli_cpus: 3000, ..Reservation::list(set("2,6")) }, "(size of 2,6");
    }
}
