//! [`NodeSet`]: NUMA nodes as a set.

use std::fmt;

/// The limit of a [`NodeSet`]: node numbers are `0..MAX_NODES`.
///
/// The kubelet's limit is 64. Nodes past the limit get no affinity, but placement uses their CPUs.
pub const MAX_NODES: usize = 128;

/// A set of NUMA nodes, by the kernel's numbers.
///
/// Sets are ordered like binary numbers with node 0 as the lowest digit: of two sets, the lower one lacks
/// the highest node that is in only one of them. The topology manager breaks ties in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeSet(u128);

impl NodeSet {
    pub const EMPTY: NodeSet = NodeSet(0);

    /// Empty if the node's number is [`MAX_NODES`] or more.
    pub fn of(node: usize) -> NodeSet {
        let shift = u32::try_from(node).ok();
        NodeSet(shift.and_then(|shift| 1u128.checked_shl(shift)).unwrap_or(0))
    }

    pub fn contains(self, node: usize) -> bool {
        self.0 & NodeSet::of(node).0 != 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn intersection(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    pub fn union(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    pub fn is_subset(self, other: NodeSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let node = if rest == 0 { None } else { Some(rest.trailing_zeros() as usize) };
            rest &= rest.wrapping_sub(1);
            node
        })
    }

    /// The set as a binary number, with node 0 as the lowest digit.
    pub fn bits(self) -> u128 {
        self.0
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> NodeSet {
        nodes.into_iter().map(NodeSet::of).fold(NodeSet::EMPTY, NodeSet::union)
    }
}

impl fmt::Display for NodeSet {
    /// Writes the numbers separated by commas: `0,1,4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.iter().map(|node| node.to_string()).collect();
        f.write_str(&nodes.join(","))
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A list of numbers.
#[cfg(feature = "serde")]
impl serde::Serialize for NodeSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for NodeSet {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<NodeSet, D::Error> {
        let nodes = Vec::<usize>::deserialize(from)?.into_iter();
        Ok(nodes.map(NodeSet::of).fold(NodeSet::EMPTY, NodeSet::union))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for NodeSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodeSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "array", "items": { "type": "integer" }, "description": "Numbers of NUMA nodes." })
    }
}
