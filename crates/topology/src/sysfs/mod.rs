//! Reads a machine from sysfs, or from a copy of it.
//!
//! The files below `/sys`, and the kernel documents that describe them:
//!
//! ```text
//! devices/
//!   system/cpu/                       Documentation/ABI/testing/sysfs-devices-system-cpu
//!     online  present  isolated         CPU lists
//!     cpuN/online                       only if the list of online CPUs is missing
//!     cpuN/nodeM                        a link; only for CPUs that no node lists (offline ones)
//!     cpuN/topology/                  Documentation/admin-guide/cputopology.rst
//!       core_cpus_list                  or thread_siblings_list, before Linux 5.3; or masks
//!       physical_package_id  die_id     -1 where the kernel does not know
//!     cpuN/cache/indexK/              Documentation/ABI/testing/sysfs-devices-system-cpu
//!       level  type  size               K says nothing about the level
//!       shared_cpu_list                 or shared_cpu_map
//!   system/node/nodeM/                Documentation/ABI/stable/sysfs-devices-node
//!     cpulist  distance  meminfo        or cpumap
//!     hugepages/hugepages-KkB/nr_hugepages
//!   system/node/has_memory            a list of nodes
//!   .../numa_node                     of a container's devices, when one comes
//! bus/pci/devices/ADDRESS/numa_node   of NVIDIA's GPUs, which have no entry in dev/char
//!   cpu_core/cpus  cpu_atom/cpus      core kinds of hybrid machines (the kernel's perf units)
//! ```
//!
//! Much of this is wrong on real machines: firmware and virtual machines report false facts, and
//! old kernels lack files. The reader replaces a doubtful fact by the most careful assumption and
//! returns a [`Warning`]. Only if no machine can be read at all, it returns a [`ReadError`].
//!
//! An uncore cache is the set of CPUs that share the L3, or the last level if there is no L3. It
//! may be smaller or larger than a NUMA node.

mod caches;
mod cores;
mod cpus;
mod devices;
mod groups;
mod nodes;
mod nvidia;
mod tree;
mod warning;

pub use devices::{LocatedDevice, located_device};
pub use nvidia::{Gpu, gpus};
pub use tree::ReadError;
pub use warning::{Fact, Problem, Warning};

use super::model::{Cpu, Facts, OfflineCpu, Sizes};
use cpuset::CpuSet;
use kernel::Kernel;
use std::collections::BTreeMap;
use std::path::Path;
use tree::SysfsTree;
use warning::Warnings;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub facts: Facts,
    pub sizes: Sizes,
    /// Empty on a sane machine.
    pub warnings: Vec<Warning>,
}

/// Reads the machine. The sysfs directory is `root` or `root/sys`.
pub fn read(kernel: &dyn Kernel, root: &Path) -> Result<Reading, ReadError> {
    let tree = SysfsTree::find(kernel, root)?;
    let mut warnings = Warnings::default();
    let cpus::Population { online, offline, isolated } = cpus::read(&tree, &mut warnings)?;
    // Each of these maps has every online CPU, whatever files are missing.
    let nodes = nodes::read(&tree, online | offline, online, &mut warnings);
    let cores = cores::read(&tree, online, &mut warnings);
    let sockets = cores::sockets(&tree, online, &cores, &nodes.of, &mut warnings);
    let places: BTreeMap<usize, caches::SocketAndNode> =
        sockets.iter().map(|(&cpu, &socket)| (cpu, (socket, nodes.of[&cpu]))).collect();
    let caches = caches::read(&tree, &places, &mut warnings);
    let kinds = cores::kinds(&tree, &mut warnings);

    let cpus: Vec<Cpu> = online
        .iter()
        .map(|id| Cpu {
            id,
            core: cores[&id],
            uncore: caches.of[&id],
            numa: nodes.of[&id],
            socket: sockets[&id],
            die: cores::die(&tree, id),
            kind: kinds.of(id),
        })
        .collect();
    let offline = offline
        .iter()
        .map(|id| OfflineCpu {
            id,
            numa: nodes.of.get(&id).copied(),
            socket: cores::package(&tree, id).value,
        })
        .collect();
    warn_of_spanning_cores(&cpus, &mut warnings);
    Ok(Reading {
        facts: Facts { cpus, offline, nodes: nodes.nodes, isolated },
        sizes: Sizes { caches: caches.sizes, memory: nodes.memory, huge_pages: nodes.huge_pages },
        warnings: warnings.into_warnings(),
    })
}

/// The online CPUs from the kernel's list alone, which is cheap enough to poll. `None` if it cannot
/// be read, although [`read`] may succeed with other files.
pub fn online(kernel: &dyn Kernel, root: &Path) -> Option<CpuSet> {
    let tree = SysfsTree::at(kernel, root.to_owned());
    let listed = tree.cpus("devices/system/cpu", &[("online", tree::Format::List)]);
    listed.value.filter(|online| !online.is_empty())
}

/// The CPUs that the machine could have, online or not.
pub fn possible(kernel: &dyn Kernel, root: &Path) -> Option<CpuSet> {
    let tree = SysfsTree::at(kernel, root.to_owned());
    tree.cpus("devices/system/cpu", &[("possible", tree::Format::List)]).value
}

/// Warns of cores in several uncore caches, nodes or sockets, which some hypervisors report.
fn warn_of_spanning_cores(cpus: &[Cpu], warnings: &mut Warnings) {
    let by_id: BTreeMap<usize, &Cpu> = cpus.iter().map(|cpu| (cpu.id, cpu)).collect();
    for cpu in cpus {
        let Some(first) = by_id.get(&cpu.core) else { continue };
        let places = [
            ("uncore caches", first.uncore, cpu.uncore),
            ("NUMA nodes", first.numa, cpu.numa),
            ("sockets", first.socket, cpu.socket),
        ];
        for (what, a, b) in places {
            if a != b {
                let example = format!(
                    "CPUs {} and {} are one core, but in {what} {a} and {b}",
                    first.id, cpu.id
                );
                let both = [first.id, cpu.id].into_iter().flat_map(CpuSet::of).collect();
                warnings.of_all(both, Fact::Cores, Problem::Spanning, example);
            }
        }
    }
}
