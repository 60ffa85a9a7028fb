//! Uncore caches.

use super::groups::{CpuGroups, adopt, partition};
use super::tree::{Format, Lookup, SysfsTree};
use super::warning::{Fact, Problem, Warnings};
use crate::CacheSize;
use cpuset::CpuSet;
use std::collections::BTreeMap;

/// The socket and NUMA node of a CPU.
pub(super) type SocketAndNode = (usize, usize);

/// The level of uncore caches, if the machine has it. An L4 is not one: it lies in front of the
/// memory, and too many CPUs share it.
const UNCORE_LEVEL: u32 = 3;

pub(super) struct Caches {
    /// The uncore cache of each CPU, by the lowest online CPU that shares it.
    pub(super) of: BTreeMap<usize, usize>,
    pub(super) sizes: BTreeMap<usize, CacheSize>,
}

/// The uncore cache as the directory of one CPU describes it.
struct CacheEntry {
    shared: CpuSet,
    size: CacheSize,
}

/// Reads the uncore caches. The CPUs that share a cache identify it: the `id` files are optional,
/// and unique only in one level.
pub(super) fn read(
    tree: &SysfsTree<'_>,
    places: &BTreeMap<usize, SocketAndNode>,
    warnings: &mut Warnings,
) -> Caches {
    let online: CpuSet = places.keys().flat_map(|&cpu| CpuSet::of(cpu)).collect();
    let mut claims = BTreeMap::new();
    let mut sizes = BTreeMap::new();
    let mut silent = CpuSet::EMPTY;
    for &cpu in places.keys() {
        match claim(tree, cpu, warnings) {
            Some(claim) => {
                claims.insert(cpu, claim.shared & online);
                sizes.insert(cpu, claim.size);
            }
            // Cannot fail: the CPU comes from a set.
            None => silent.insert(cpu).unwrap_or_default(),
        }
    }
    adopt(&mut claims, &silent);
    let CpuGroups { groups: mut of, conflicting, example } = partition(&claims);
    if let Some(example) = example {
        warnings.of_all(conflicting, Fact::Caches, Problem::Conflicting, example);
    }
    // A cache has the size that its lowest CPU reports, of those that report one.
    let mut sizes_of_caches = BTreeMap::new();
    for (cpu, size) in sizes {
        if let Some(&cache) = of.get(&cpu) {
            sizes_of_caches.entry(cache).or_insert(size);
        }
    }
    let mut lowest_at = BTreeMap::new();
    for (&cpu, &place) in places {
        of.entry(cpu).or_insert_with(|| *lowest_at.entry(place).or_insert(cpu));
    }
    Caches { of, sizes: sizes_of_caches }
}

/// The L3 of a CPU, or its last level if it has no L3.
fn claim(tree: &SysfsTree<'_>, cpu: usize, warnings: &mut Warnings) -> Option<CacheEntry> {
    let caches = format!("devices/system/cpu/cpu{cpu}/cache");
    let indices = tree.numbered(&caches, "index");
    let mut trouble = indices.trouble;
    let mut best: Option<(u32, String)> = None;
    for index in indices.value.unwrap_or_default() {
        let dir = format!("{caches}/index{index}");
        if tree.text(&format!("{dir}/type")).value.as_deref() == Some("Instruction") {
            continue;
        }
        let level = tree.number(&format!("{dir}/level"));
        trouble = trouble.or(level.trouble);
        let Some(level) = level.value.and_then(|level| u32::try_from(level).ok()) else { continue };
        let rank = |level: u32| (level == UNCORE_LEVEL, level);
        if best.as_ref().is_none_or(|(best, _)| rank(*best) < rank(level)) {
            best = Some((level, dir));
        }
    }
    let mut shared = match &best {
        Some((_, dir)) => {
            tree.cpus(dir, &[("shared_cpu_list", Format::List), ("shared_cpu_map", Format::Mask)])
        }
        None => Lookup { value: None, trouble: None },
    };
    shared.trouble = trouble.or(shared.trouble);
    let shared = warnings.judge(cpu, Fact::Caches, shared, || match &best {
        Some((_, dir)) => format!("{dir}: neither shared_cpu_list nor shared_cpu_map"),
        None => format!("{caches}: no cache is described"),
    })?;
    let (level, dir) = best?;
    let bytes = tree.text(&format!("{dir}/size")).value.as_deref().and_then(bytes);
    Some(CacheEntry { shared, size: CacheSize { level, bytes } })
}

/// Reads the `size` of a cache, such as `32768K`. The kernel always writes KiB.
fn bytes(text: &str) -> Option<u64> {
    text.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}
