//! Patterns of names: `*` matches any text, `?` any character, everything else itself.

use std::sync::Arc;
use wildmatch::WildMatch;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns(Arc<[String]>);

impl Patterns {
    pub fn new(patterns: Vec<String>) -> Patterns {
        Patterns(patterns.into())
    }

    pub fn match_name(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| closeness(pattern, name).is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// How specific a pattern is. The greater one is more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// The number of characters that are not wildcards.
    Pattern(usize),
    Exact,
}

impl Closeness {
    pub fn of(pattern: &str) -> Closeness {
        let literals = pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
        if literals == pattern.chars().count() {
            Closeness::Exact
        } else {
            Closeness::Pattern(literals)
        }
    }
}

/// How specific a pattern is for a name; `None` if it does not match.
pub fn closeness(pattern: &str, name: &str) -> Option<Closeness> {
    let closeness = Closeness::of(pattern);
    let matches = match closeness {
        Closeness::Exact => pattern == name,
        Closeness::Pattern(_) => WildMatch::new(pattern).matches(name),
    };
    if matches { Some(closeness) } else { None }
}

/// Whether two patterns can match the same text.
///
/// Dynamic programming over the prefixes of both, row by row: the cost is the product of their
/// lengths. An element of a row is whether the two prefixes overlap.
pub fn overlap(one: &str, other: &str) -> bool {
    let mut row = vec![true];
    for y in other.bytes() {
        row.push(y == b'*' && row.last() == Some(&true));
    }
    for x in one.bytes() {
        let mut next = vec![x == b'*' && row.first() == Some(&true)];
        for (y, pair) in other.bytes().zip(row.windows(2)) {
            let [before, above] = pair else { continue };
            let left = next.last() == Some(&true);
            next.push(match (x, y) {
                (b'*', _) | (_, b'*') => *above || left,
                (b'?', _) | (_, b'?') => *before,
                (x, y) => *before && x == y,
            });
        }
        row = next;
    }
    row.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A text of eight characters is enough for two patterns of four.
        #[test]
        fn patterns_overlap_if_and_only_if_a_text_matches_both(one in "[ab*?]{0,4}", other in "[ab*?]{0,4}") {
            let mut texts = vec![String::new()];
            let mut longest = texts.clone();
            for _ in 0..8 {
                longest = longest.iter().flat_map(|t| [format!("{t}a"), format!("{t}b")]).collect();
                texts.extend(longest.iter().cloned());
            }
            let both = texts.iter().any(|text| overlap(&one, text) && overlap(&other, text));
            prop_assert_eq!(overlap(&one, &other), both);
        }

        #[test]
        fn a_text_without_wildcards_matches_only_itself(one in "[ab]{0,6}", other in "[ab]{0,6}") {
            prop_assert_eq!(overlap(&one, &other), one == other);
        }
    }
}
