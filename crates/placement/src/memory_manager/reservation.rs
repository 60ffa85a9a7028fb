//! [`MemoryManagerConfig`]: a kubelet's configuration of its Memory Manager as text and amounts, and the
//! checks that a kubelet makes of it when it starts.

use super::amounts::{HUGE_PAGES, MemoryKind, binary};
use super::capacity::{Capacity, CapacityError, NodeMemory};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const MEMORY: &str = "memory";

/// A configuration of the Memory Manager.
#[derive(Debug, Clone, Copy)]
pub struct MemoryManagerConfig<'a> {
    /// `memoryManagerPolicy`.
    pub policy: &'a str,
    /// `reservedMemory`.
    pub reserved: &'a [MemoryReservation],
    /// The memory of `systemReserved`, `kubeReserved` and `evictionHard`, added in this order.
    pub node_allocatable: WrittenAmount,
}

/// An item of `reservedMemory`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReservation {
    /// `numaNode`.
    pub node: i64,
    /// Amounts by type. The kubelet goes through those of a node in random order.
    pub limits: Vec<(String, WrittenAmount)>,
}

/// Why a configuration is refused, in the kubelet's words except for [`CapacityError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryConfigError {
    /// Items of `reservedMemory` that no policy and no machine allows.
    #[error("{}", together(.0))]
    Limits(Vec<LimitError>),
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    /// It exists for Windows only, where `Static` does not.
    #[error("policy \"BestEffort\" is not available for platform \"linux\"")]
    BestEffort,
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not \
         exist on this machine"
    )]
    UnknownNode(i64),
    /// What is reserved by node and what is reserved for the machine have to be the same.
    #[error(
        "the total amount \"{total}\" of type {kind:?} is not equal to the value \
         \"{node_allocatable}\" determined by Node Allocatable feature"
    )]
    Sum { kind: String, total: WrittenAmount, node_allocatable: WrittenAmount },
    /// An amount is a fraction of a byte. The kubelet's text is misspelled.
    #[error("could not covert a variable of type Quantity to int64")]
    Fraction,
    #[error("[memorymanager] you should specify the system reserved memory")]
    NothingReserved,
    #[error(
        "invalid Node Allocatable configuration. Resource \"memory\" has a reservation of \
         {} but capacity of {}. Expected capacity >= reservation.",
        .reservation.go_value(),
        .capacity.go_value()
    )]
    ExceedsMachine { reservation: WrittenAmount, capacity: WrittenAmount },
    /// The kubelet starts, with an enormous node if more is reserved than that node has.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}

/// What is wrong with a limit by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error(
        "invalid configuration: the limit type {kind:?} for NUMA node {node} is not \
         supported, only [memory hugepages-<HugePageSize>] is accepted"
    )]
    UnknownKind { node: i64, kind: String },
    #[error(
        "invalid configuration: reserved memory may not be zero for NUMA node {node} and \
         resource {kind:?}"
    )]
    Zero { node: i64, kind: String },
    #[error(
        "invalid configuration: the reserved memory has a duplicate value for NUMA node \
         {node} and resource {kind:?}"
    )]
    Twice { node: i64, kind: String },
}

/// Several errors are a list in brackets, and equal ones are shown once, as Kubernetes does.
fn together(errors: &[LimitError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(LimitError::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [text] => text.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

impl MemoryManagerConfig<'_> {
    /// Checks the configuration in the kubelet's order.
    ///
    /// `machine` has nothing reserved yet. The result is what containers can be given of the nodes
    /// that are `counted`, or `None` if the policy counts no memory.
    ///
    /// # Errors
    /// The first reason not to start.
    pub fn check(
        &self,
        machine: &[NodeMemory],
        counted: impl Fn(usize) -> bool,
    ) -> Result<Option<Capacity>, MemoryConfigError> {
        self.check_limits()?;
        let nodes = match self.policy {
            "None" => None,
            "Static" => Some(self.reserve(machine)?),
            "BestEffort" => return Err(MemoryConfigError::BestEffort),
            other => return Err(MemoryConfigError::UnknownPolicy(other.to_owned())),
        };
        self.check_total(machine)?;
        // The kubelet counts by node only after it has checked the machine as a whole.
        let Some(nodes) = nodes else { return Ok(None) };
        Ok(Some(Capacity::new(nodes.into_iter().filter(|node| counted(node.id)))?))
    }

    fn check_limits(&self) -> Result<(), MemoryConfigError> {
        let mut errors = Vec::new();
        let mut seen = BTreeSet::new();
        for MemoryReservation { node, limits } in self.reserved {
            for (name, amount) in limits {
                let (node, kind) = (*node, name.clone());
                if name != MEMORY && !name.starts_with(HUGE_PAGES) {
                    errors.push(LimitError::UnknownKind { node, kind: kind.clone() });
                }
                if amount.milli == 0 {
                    errors.push(LimitError::Zero { node, kind: kind.clone() });
                }
                if !seen.insert((node, name)) {
                    errors.push(LimitError::Twice { node, kind });
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(MemoryConfigError::Limits(errors)) }
    }

    /// The machine's nodes with what is reserved on them.
    fn reserve(&self, machine: &[NodeMemory]) -> Result<Vec<NodeMemory>, MemoryConfigError> {
        self.check_sums(machine)?;
        let mut nodes = machine.to_vec();
        for node in &mut nodes {
            let id = node.id;
            let own = self.reserved.iter().filter(|reservation| reservation.is_on(id));
            // Only memory is left, and once for each node: huge pages never have the right sum.
            for (_, amount) in own.flat_map(|reservation| &reservation.limits) {
                let bytes = amount.bytes().ok_or(MemoryConfigError::Fraction)?;
                node.reserved.insert(MemoryKind::Memory, bytes);
            }
        }
        if self.node_allocatable.milli == 0 {
            return Err(MemoryConfigError::NothingReserved);
        }
        Ok(nodes)
    }

    fn check_sums(&self, machine: &[NodeMemory]) -> Result<(), MemoryConfigError> {
        let nothing = WrittenAmount::default();
        let mut sums = BTreeMap::from([(MEMORY, nothing)]);
        for reservation in self.reserved {
            if !machine.iter().any(|node| reservation.is_on(node.id)) {
                return Err(MemoryConfigError::UnknownNode(reservation.node));
            }
            for (kind, amount) in &reservation.limits {
                let sum = sums.entry(kind).or_default();
                *sum = amount.plus(*sum);
            }
        }
        for (kind, total) in sums {
            // `systemReserved` and `kubeReserved` cannot have huge pages.
            let node_allocatable = if kind == MEMORY { self.node_allocatable } else { nothing };
            if total.milli != node_allocatable.milli {
                let kind = kind.to_owned();
                return Err(MemoryConfigError::Sum { kind, total, node_allocatable });
            }
        }
        Ok(())
    }

    fn check_total(&self, machine: &[NodeMemory]) -> Result<(), MemoryConfigError> {
        let total = machine.iter().fold(0u64, |sum, node| sum.saturating_add(node.total));
        let (reservation, capacity) = (self.node_allocatable, WrittenAmount::binary(total));
        if reservation.milli > capacity.milli {
            return Err(MemoryConfigError::ExceedsMachine { reservation, capacity });
        }
        Ok(())
    }
}

impl MemoryReservation {
    fn is_on(&self, node: usize) -> bool {
        usize::try_from(self.node) == Ok(node)
    }
}

/// An amount of bytes that messages show in the style in which it was written, as the kubelet's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenAmount {
    /// In thousandths of a byte.
    milli: u128,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Style {
    /// `1500m`, `1073741824`, `1G`.
    #[default]
    Decimal,
    /// `1Gi`.
    Binary,
}

/// Suffixes and their values in thousandths, largest first.
const DECIMAL: &[(&str, u128)] = &[
    ("E", 10u128.pow(21)),
    ("P", 10u128.pow(18)),
    ("T", 10u128.pow(15)),
    ("G", 10u128.pow(12)),
    ("M", 10u128.pow(9)),
    ("k", 10u128.pow(6)),
    ("", 1000),
    ("m", 1),
];

impl WrittenAmount {
    /// A quantity's text, of which only the suffix counts, and its value in thousandths of a byte.
    pub fn new(text: &str, milli: u64) -> WrittenAmount {
        let style = if text.ends_with('i') { Style::Binary } else { Style::Decimal };
        WrittenAmount { milli: milli.into(), style }
    }

    /// Bytes that the kubelet measures itself, such as the memory of the machine or a share of it.
    pub fn binary(bytes: u64) -> WrittenAmount {
        WrittenAmount { milli: u128::from(bytes) * 1000, style: Style::Binary }
    }

    /// The sum, in the style of the first amount unless that is zero.
    #[must_use]
    pub fn plus(self, other: WrittenAmount) -> WrittenAmount {
        let style = if self.milli == 0 { other.style } else { self.style };
        WrittenAmount { milli: self.milli.saturating_add(other.milli), style }
    }

    /// The amount in whole bytes. None if it is no whole number, or does not fit into the type.
    ///
    /// The kubelet also refuses whole numbers that are written as a fraction, such as `1.5Gi`.
    fn bytes(self) -> Option<u64> {
        if self.milli.is_multiple_of(1000) { u64::try_from(self.milli / 1000).ok() } else { None }
    }

    /// The fields of Kubernetes' `Quantity`, which the kubelet prints in one message.
    fn go_value(self) -> String {
        let (number, exponent) =
            if self.milli.is_multiple_of(1000) { (self.milli / 1000, 0) } else { (self.milli, -3) };
        let style = match self.style {
            Style::Decimal => "DecimalSI",
            Style::Binary => "BinarySI",
        };
        format!("{{{{{number} {exponent}}} {{<nil>}}  {style}}}")
    }
}

impl fmt::Display for WrittenAmount {
    /// Kubernetes' canonical form: a whole number with the largest suffix that allows one. Small
    /// amounts and fractions are decimal in both styles.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_whole = self.milli >= 1_024_000 && self.milli.is_multiple_of(1000);
        if self.style == Style::Binary && is_whole {
            return f.write_str(&binary(self.milli / 1000));
        }
        match DECIMAL.iter().find(|(_, unit)| self.milli.is_multiple_of(*unit)) {
            Some((suffix, unit)) if self.milli > 0 => write!(f, "{}{suffix}", self.milli / unit),
            _ => f.write_str("0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_manager::Amounts;

    const HUGE: MemoryKind = MemoryKind::HugePages(2 << 20);

    /// Nodes 0 and 2 of 4 GiB each. A quarter of node 2 is huge pages.
    fn machine() -> Vec<NodeMemory> {
        let node = |id, pool| {
            let huge_pages = Amounts::from([(HUGE, pool)]);
            NodeMemory { id, total: 4 << 30, huge_pages, reserved: Amounts::new() }
        };
        vec![node(0, 0), node(2, 1 << 30)]
    }

    fn mebibytes(amount: u64) -> WrittenAmount {
        WrittenAmount::binary(amount << 20)
    }

    fn decimal(milli: u64) -> WrittenAmount {
        WrittenAmount::new("", milli)
    }

    fn answer(
        policy: &str,
        limits: &[(i64, &str, WrittenAmount)],
        node_allocatable: WrittenAmount,
    ) -> Result<Option<Capacity>, MemoryConfigError> {
        let reservation = |(node, kind, amount): &(i64, &str, WrittenAmount)| MemoryReservation {
            node: *node,
            limits: vec![((*kind).to_owned(), *amount)],
        };
        let reserved: Vec<MemoryReservation> = limits.iter().map(reservation).collect();
        MemoryManagerConfig { policy, reserved: &reserved, node_allocatable }
            .check(&machine(), |_| true)
    }

    #[track_caller]
    fn refused(
        policy: &str,
        limits: &[(i64, &str, WrittenAmount)],
        node_allocatable: WrittenAmount,
        expect: &str,
    ) {
        let error = answer(policy, limits, node_allocatable).unwrap_err();
        assert_eq!(error.to_string(), expect);
    }

    #[test]
    fn containers_get_what_is_not_reserved() {
        let limits = [(0, MEMORY, mebibytes(1024)), (2, MEMORY, mebibytes(3072))];
        let capacity = answer("Static", &limits, decimal(4000 << 30)).unwrap().unwrap();
        let memory = |bytes, huge| Amounts::from([(MemoryKind::Memory, bytes), (HUGE, huge)]);
        let expect = [(0, &memory(3 << 30, 0)), (2, &memory(0, 1 << 30))];
        assert!(capacity.nodes().eq(expect), "{capacity:?}");
        // Policy None neither adds up nor needs a reservation.
        assert_eq!(answer("None", &limits, mebibytes(1)), Ok(None));
        assert_eq!(answer("None", &[(7, MEMORY, decimal(1))], decimal(0)), Ok(None));
    }

    #[test]
    fn limits_are_refused_that_are_wrong_by_themselves() {
        let one = mebibytes(1);
        let kind = "invalid configuration: the limit type \"cpu\" for NUMA node 0 is not \
            supported, only [memory hugepages-<HugePageSize>] is accepted";
        refused("None", &[(0, "cpu", one)], one, kind);
        let zero = "invalid configuration: reserved memory may not be zero for NUMA node -1 and \
            resource \"memory\"";
        refused("Foo", &[(-1, MEMORY, mebibytes(0))], one, zero);
        let twice = "invalid configuration: the reserved memory has a duplicate value for NUMA \
            node 0 and resource \"memory\"";
        refused("Static", &[(0, MEMORY, one); 3], one, twice);
        let all = [(0, "cpu", one), (0, MEMORY, one), (-1, MEMORY, mebibytes(0)), (0, MEMORY, one)];
        refused("Static", &all, one, &format!("[{kind}, {zero}, {twice}]"));
    }

    #[test]
    fn policies_are_named_exactly() {
        let one = mebibytes(1);
        refused("static", &[], one, "unknown policy: \"static\"");
        refused("", &[], one, "unknown policy: \"\"");
        let windows = "policy \"BestEffort\" is not available for platform \"linux\"";
        refused("BestEffort", &[], one, windows);
    }

    #[test]
    fn reserved_memory_is_what_is_reserved_for_the_machine() {
        let one = mebibytes(1);
        let node = "the reserved memory configuration references a NUMA node 1 that does not exist \
            on this machine";
        refused("Static", &[(0, MEMORY, one), (1, MEMORY, one)], one, node);
        let sum = |total: &str, kind: &str, value: &str| {
            format!(
                "the total amount \"{total}\" of type \"{kind}\" is not equal to the value \
                 \"{value}\" determined by Node Allocatable feature"
            )
        };
        let limits = [(0, MEMORY, decimal(1000 << 30)), (2, MEMORY, mebibytes(512))];
        refused("Static", &limits, decimal(1000), &sum("1536Mi", MEMORY, "1"));
        refused("Static", &[], decimal(1500), &sum("0", MEMORY, "1500m"));
        let limits = [(0, MEMORY, one), (2, "hugepages-2Mi", mebibytes(2))];
        refused("Static", &limits, one, &sum("2Mi", "hugepages-2Mi", "0"));
        let fraction = "could not covert a variable of type Quantity to int64";
        refused("Static", &[(0, MEMORY, decimal(1500))], decimal(1500), fraction);
        let nothing = "[memorymanager] you should specify the system reserved memory";
        refused("Static", &[], decimal(0), nothing);
    }

    #[test]
    fn no_more_is_reserved_than_there_is() {
        let total = "invalid Node Allocatable configuration. Resource \"memory\" has a reservation \
            of {{8589934593 0} {<nil>}  DecimalSI} but capacity of {{8589934592 0} {<nil>}  \
            BinarySI}. Expected capacity >= reservation.";
        let reserved = decimal((8000 << 30) + 1000);
        refused("None", &[], reserved, total);
        refused("Static", &[(0, MEMORY, reserved)], reserved, total);
        // The kubelet starts, with 2^64 - 2^30 bytes on node 2.
        let node = "NUMA node 2 has 3221225472 bytes of memory besides other pools, and \
            4294967296 are reserved";
        refused("Static", &[(2, MEMORY, mebibytes(4096))], mebibytes(4096), node);
    }

    #[test]
    fn amounts_have_kubernetes_canonical_form() {
        for (amount, expect) in [
            (WrittenAmount::default(), "0"),
            (decimal(1500), "1500m"),
            (decimal(1_000_000), "1k"),
            (decimal(1000 << 30), "1073741824"),
            (mebibytes(1536), "1536Mi"),
            (mebibytes(2048), "2Gi"),
            (WrittenAmount::binary(1000), "1k"),
            (WrittenAmount::binary((1 << 20) + 1), "1048577"),
            (WrittenAmount::new("0.1Ki", 102_400), "102400m"),
            (mebibytes(0).plus(decimal(1000)).plus(mebibytes(1)), "1048577"),
            (decimal(0).plus(mebibytes(1)).plus(decimal(1000 << 20)), "2Mi"),
        ] {
            assert_eq!(amount.to_string(), expect);
        }
    }
}
