//! [`Reservation`]: the CPUs that are never exclusive, given as a list or chosen.

use super::take::take;
use crate::cpuset::CpuSet;
use crate::placement::options::Options;
use crate::topology::Topology;

/// The node's configuration of the reserved CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// `reservedSystemCPUs`; empty to have them chosen.
    pub cpus: CpuSet,
    /// `systemReserved` plus `kubeReserved`, in thousandths of a CPU; with a list, its size.
    pub milli_cpus: u64,
}

/// Why CPUs cannot be reserved, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// Nothing is reserved: shared containers could be left without CPUs.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    Nothing,
    /// The list has another size than the amount, or the machine has fewer CPUs.
    #[error(
        "[cpumanager] unable to reserve the required amount of CPUs (size of {cpus} did not equal {amount})"
    )]
    Size {
        /// The CPUs listed or chosen, in list format.
        cpus: String,
        /// The whole CPUs to reserve.
        amount: u64,
    },
    /// The list names a CPU that is not online.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    Unknown(usize),
}

impl Reservation {
    /// This list, and as many CPUs as it has.
    pub fn list(cpus: CpuSet) -> Reservation {
        Reservation { cpus, milli_cpus: cpus.len() as u64 * 1000 }
    }

    /// So many CPUs, wherever they are chosen.
    pub fn amount(milli_cpus: u64) -> Reservation {
        Reservation { cpus: CpuSet::EMPTY, milli_cpus }
    }

    /// The reserved CPUs. A fraction reserves a whole CPU.
    ///
    /// Without a list they are what a first container of that size would get on the empty machine,
    /// options included: the kubelet does so, and on most machines it means the lowest cores.
    ///
    /// # Errors
    /// If the amount is zero, a list of another size is given, the machine has too few CPUs, or one
    /// is not online.
    pub fn resolve(&self, topology: &Topology, options: &Options) -> Result<CpuSet, ReserveError> {
        let amount = self.milli_cpus.div_ceil(1000);
        if amount == 0 {
            return Err(ReserveError::Nothing);
        }
        let cpus = match self.cpus.is_empty() {
            false => self.cpus,
            true => usize::try_from(amount)
                .ok()
                .and_then(|n| {
                    take(topology, &topology.online(), n, options.strategy(topology)).ok()
                })
                .unwrap_or_default(),
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
    use crate::placement::machines::{Shape, set};

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
    fn reservations() {
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
