//! The distances between NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology::NumaNode;

/// The most nodes in a table. With more nodes, distances are grouped.
const LARGEST_TABLE: usize = 16;

/// Draws the distances: in a line if all nodes are alike, otherwise as a table, or in groups if
/// there are many nodes.
pub(super) fn draw(f: &mut fmt::Formatter<'_>, nodes: &[NumaNode]) -> fmt::Result {
    if nodes.iter().all(|node| node.distances.is_empty()) {
        return writeln!(f, "NUMA distances: unknown");
    }
    let row = |at: usize, node: &NumaNode| -> (Option<u32>, BTreeSet<u32>) {
        let others = node.distances.iter().enumerate().filter(|(to, _)| *to != at);
        (node.distances.get(at).copied(), others.map(|(_, &distance)| distance).collect())
    };
    let rows: BTreeSet<_> = nodes.iter().enumerate().map(|(at, node)| row(at, node)).collect();
    if let (1, Some((Some(local), others))) = (rows.len(), rows.first())
        && let (1, Some(remote)) = (others.len(), others.first())
    {
        return writeln!(f, "NUMA distances: {local} from a node to itself, {remote} to any other");
    }
    if LARGEST_TABLE < nodes.len() { grouped(f, nodes) } else { table(f, nodes) }
}

fn table(f: &mut fmt::Formatter<'_>, nodes: &[NumaNode]) -> fmt::Result {
    let widest = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| number.to_string().len()).max().unwrap_or(1)
    };
    let id = widest(&mut nodes.iter().map(|node| node.id));
    let all =
        nodes.iter().flat_map(|node| node.distances.iter().map(|&distance| distance as usize));
    let column = widest(&mut all.into_iter()).max(id);
    write!(f, "NUMA distances{:id$}", "")?;
    for node in nodes {
        write!(f, "  {:>column$}", node.id)?;
    }
    writeln!(f)?;
    for node in nodes {
        write!(f, "     from node {:>id$}", node.id)?;
        if node.distances.is_empty() {
            write!(f, "  unknown")?;
        }
        for distance in &node.distances {
            write!(f, "  {distance:>column$}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Draws a line per node, with the other nodes grouped by distance.
fn grouped(f: &mut fmt::Formatter<'_>, nodes: &[NumaNode]) -> fmt::Result {
    writeln!(f, "NUMA distances")?;
    for node in nodes {
        let mut at: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (to, &distance) in nodes.iter().zip(&node.distances) {
            at.entry(distance).or_default().push(to.id);
        }
        let groups: Vec<String> =
            at.iter().map(|(distance, to)| format!("{distance} to {}", ranges(to))).collect();
        let groups = if groups.is_empty() { "unknown".to_owned() } else { groups.join(", ") };
        writeln!(f, "  from node {}: {groups}", node.id)?;
    }
    Ok(())
}

/// Ascending numbers in list format. Unlike in a set, they may be of any size.
fn ranges(numbers: &[usize]) -> String {
    let mut words = Vec::new();
    for run in numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        match run {
            [] => {}
            [one] => words.push(one.to_string()),
            [first, .., last] => words.push(format!("{first}-{last}")),
        }
    }
    words.join(",")
}
