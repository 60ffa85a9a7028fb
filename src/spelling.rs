//! Words of messages: what somebody may have meant, and one or several.

use std::fmt::Display;

/// ` (did you mean NAME?)` if a known name is near, nothing else.
pub fn nearest(unknown: &str, known: &[&str]) -> String {
    let distance =
        |name: &str| strsim::damerau_levenshtein(&unknown.to_lowercase(), &name.to_lowercase());
    let near = known.iter().map(|name| (distance(name), name)).min();
    match near {
        Some((distance, name)) if distance <= unknown.len().max(3) / 3 => {
            format!(" (did you mean {name}?)")
        }
        _ => String::new(),
    }
}

/// So many of something: `1 NUMA node`, `2 NUMA nodes`.
pub fn count<N: Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    let plural = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_several() {
        let counted = [0, 1, 2].map(|n| count(n, "uncore cache"));
        assert_eq!(counted, ["0 uncore caches", "1 uncore cache", "2 uncore caches"]);
    }
}
