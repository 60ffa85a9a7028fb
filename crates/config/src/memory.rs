//! `memoryManagerPolicy`, `reservedMemory` and `evictionHard`: how much memory containers can be
//! given, by NUMA node.
//!
//! [`placement::memory_manager`] has the kubelet's checks. They compare what is reserved by NUMA node
//! with what is reserved for the machine, so the memory of `systemReserved` and `kubeReserved` counts,
//! too.

use super::given::Given;
use super::source::Mistakes;
use super::values::{Pairs, Text};
use placement::memory_manager::{
    Amounts, MemoryKind, MemoryManagerConfig, MemoryReservation, NodeMemory, WrittenAmount,
};
use quantity::Quantity;
use serde::Deserialize;
use topology::{MemorySize, Topology};

pub(super) const POLICY: &str = "memoryManagerPolicy";
pub(super) const RESERVED: &str = "reservedMemory";
pub(super) const EVICTION: &str = "evictionHard";

/// The name of memory among resources.
pub(super) const MEMORY: &str = "memory";
/// The only signal of `evictionHard` that counts.
pub(super) const AVAILABLE: &str = "memory.available";

/// The signals that a kubelet knows.
const SIGNALS: [&str; 9] = [
    AVAILABLE,
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

/// The kubelet's threshold of [`AVAILABLE`] without `evictionHard`.
const DEFAULT_THRESHOLD: u64 = 100 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MemoryPolicy {
    #[default]
    None,
    Static,
}

impl MemoryPolicy {
    pub(super) const ALL: [MemoryPolicy; 2] = [MemoryPolicy::None, MemoryPolicy::Static];

    pub(crate) fn name(self) -> &'static str {
        match self {
            MemoryPolicy::None => "None",
            MemoryPolicy::Static => "Static",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct MemoryFields {
    pub(super) policy: MemoryPolicy,
    pub(super) reserved: Vec<MemoryReservation>,
    /// `None` without the field.
    pub(super) eviction: Option<EvictionThreshold>,
}

impl MemoryFields {
    /// The fields that have no effect unless memory is counted.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        let reserved = if self.reserved.is_empty() { None } else { Some(RESERVED) };
        let eviction = if self.eviction.is_some() { Some(EVICTION) } else { None };
        reserved.into_iter().chain(eviction)
    }

    /// The threshold of [`AVAILABLE`].
    pub(super) fn threshold(&self) -> EvictionThreshold {
        let default = EvictionThreshold::Amount(WrittenAmount::binary(DEFAULT_THRESHOLD));
        self.eviction.unwrap_or(default)
    }
}

/// How much memory stays free, because the kubelet evicts pods otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EvictionThreshold {
    Amount(WrittenAmount),
    /// Of the machine's memory. As exact as in the kubelet.
    Share(f32),
}

impl EvictionThreshold {
    /// Reads a threshold of this signal: `100Mi`, `5%`. The kubelet takes `0%` and `100%` for no
    /// threshold.
    ///
    /// # Errors
    /// The kubelet's message, except for what is no number.
    pub fn parse(signal: &str, text: &str) -> Result<EvictionThreshold, String> {
        if matches!(text, "0%" | "100%") {
            return Ok(EvictionThreshold::Amount(WrittenAmount::default()));
        }
        let invalid =
            || format!("invalid threshold {text:?} of {signal}: expected one like 100Mi or 5%");
        let Some(percent) = text.strip_suffix('%') else {
            let milli = milli_bytes(text).ok_or_else(invalid)?;
            if milli == 0 {
                return Err(format!("eviction threshold {signal} must be positive: {text}"));
            }
            return Ok(EvictionThreshold::Amount(WrittenAmount::new(text, milli)));
        };
        let percent = percent.parse::<f32>().ok().filter(|percent| percent.is_finite());
        let share = percent.ok_or_else(invalid)? / 100.0;
        if share < 0.0 {
            return Err(format!("eviction percentage threshold {signal} must be >= 0%: {text}"));
        }
        if share > 1.0 {
            return Err(format!("eviction percentage threshold {signal} must be <= 100%: {text}"));
        }
        Ok(EvictionThreshold::Share(share))
    }

    /// The amount on a machine with this much memory.
    pub fn of(self, total: u64) -> WrittenAmount {
        match self {
            EvictionThreshold::Amount(amount) => amount,
            EvictionThreshold::Share(share) => {
                WrittenAmount::binary((total as f64 * f64::from(share)) as u64)
            }
        }
    }
}

/// A Kubernetes quantity of bytes.
///
/// # Errors
/// If it is none, or more than 16 PiB.
pub fn memory_amount(text: &str) -> Result<WrittenAmount, String> {
    let milli = milli_bytes(text).ok_or_else(|| {
        format!("invalid amount of memory {text:?}: expected one like 1Gi or 512Mi")
    })?;
    Ok(WrittenAmount::new(text, milli))
}

/// In thousandths of a byte.
fn milli_bytes(text: &str) -> Option<u64> {
    let milli = Quantity::parse(text).ok().map(Quantity::milli);
    milli.filter(|milli| *milli < u64::MAX)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReservationEntry {
    numa_node: Option<Text>,
    limits: Pairs,
}

impl ReservationEntry {
    fn reservation(&self) -> Result<MemoryReservation, String> {
        let Some(Text(node)) = &self.numa_node else {
            let why =
                "entry without numaNode: expected one like {numaNode: 0, limits: {memory: 1Gi}}";
            return Err(why.to_owned());
        };
        let id = node.parse::<i32>();
        let id = id.map_err(|_| format!("numaNode: {node:?} is no number of a NUMA node"))?;
        let mut limits = Vec::new();
        for (kind, text) in &self.limits.0 {
            let amount = memory_amount(text).map_err(|why| format!("limits: {kind}: {why}"))?;
            limits.push((kind.clone(), amount));
        }
        Ok(MemoryReservation { node: id.into(), limits })
    }
}

/// The list is one value, as that of `namespaces`.
pub(super) fn read_reserved(
    given: &Given<'_>,
    reserved: &mut Vec<MemoryReservation>,
) -> Result<(), Mistakes> {
    let entries: Vec<ReservationEntry> = given.parse()?;
    let mut read = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let reservation = entry.reservation();
        read.push(reservation.map_err(|why| given.source.at_item(RESERVED, at, why))?);
    }
    // Finds only what is wrong on every machine.
    let written = MemoryManagerConfig {
        policy: MemoryPolicy::None.name(),
        reserved: &read,
        node_allocatable: WrittenAmount::default(),
    };
    written.check(&[], |_| true).map_err(|error| given.wrong(error.to_string()))?;
    *reserved = read;
    Ok(())
}

/// Without `memory.available` in the field there is no threshold.
pub(super) fn read_eviction(
    given: &Given<'_>,
    eviction: &mut Option<EvictionThreshold>,
) -> Result<(), Mistakes> {
    let thresholds: Pairs = given.parse()?;
    if let Some(signal) = thresholds.names().find(|signal| !SIGNALS.contains(signal)) {
        return Err(given.wrong(wording::unknown(signal, &SIGNALS)).into());
    }
    let threshold = match thresholds.get(AVAILABLE) {
        Some(text) => EvictionThreshold::parse(AVAILABLE, text),
        None => Ok(EvictionThreshold::Amount(WrittenAmount::default())),
    };
    *eviction = Some(threshold.map_err(|why| given.wrong(why))?);
    Ok(())
}

/// The memory of each NUMA node.
///
/// # Errors
/// A node whose memory is unknown.
pub(super) fn nodes(topology: &Topology) -> Result<Vec<NodeMemory>, usize> {
    let mut nodes = Vec::new();
    for node in topology.nodes() {
        let nothing = MemorySize::default();
        let size = match &node.memory {
            Some(size) => size,
            None if node.memoryless => &nothing,
            None => return Err(node.id),
        };
        let mut huge_pages = Amounts::new();
        for (&page, pages) in &size.huge_pages {
            huge_pages.insert(MemoryKind::HugePages(page), page.saturating_mul(*pages));
        }
        let reserved = Amounts::new();
        nodes.push(NodeMemory { id: node.id, total: size.bytes, huge_pages, reserved });
    }
    Ok(nodes)
}
