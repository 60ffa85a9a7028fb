//! Names and facts of containers as words. The author of a pod, or a hostile runtime, chooses its
//! name.

use super::super::status::ContainerStatus;
use wording::printable;

/// A container's full name; empty if the status has no names.
pub fn container(one: &ContainerStatus) -> String {
    if one.pod.is_empty() && one.container.is_empty() {
        return String::new();
    }
    printable(&format!("{}/{}/{}", one.namespace, one.pod, one.container))
}

/// At most `most` characters; the last one is `…` if the text had more.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// The placement of exclusive CPUs: `uncore cache 3`, `NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial
/// cores`.
pub fn alignment(nodes: &[usize], caches: &[usize], whole_cores: bool) -> String {
    let mut parts = Vec::new();
    if nodes.len() > 1 {
        parts.push(format!("NUMA nodes {}", listed(nodes)));
    }
    match caches {
        [] => {}
        [one] => parts.push(format!("uncore cache {one}")),
        many => parts.push(format!("uncore caches {}", listed(many))),
    }
    if !whole_cores {
        parts.push("partial cores".to_owned());
    }
    parts.join(", ")
}

fn listed(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments() {
        assert_eq!(alignment(&[0], &[3], true), "uncore cache 3");
        assert_eq!(
            alignment(&[0, 1], &[2, 3, 4], false),
            "NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial cores"
        );
    }
}
