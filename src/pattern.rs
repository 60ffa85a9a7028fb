//! Patterns of names: `*` stands for any text, `?` for any character, everything else for itself.

use wildmatch::WildMatch;

/// How closely a pattern names what it means; the greater, the closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// By so many characters that are not wildcards.
    Pattern(usize),
    /// By the name itself.
    Exact,
}

impl Closeness {
    /// That of a pattern to whatever it means.
    pub fn of(pattern: &str) -> Closeness {
        let literals = pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
        match literals == pattern.chars().count() {
            true => Closeness::Exact,
            false => Closeness::Pattern(literals),
        }
    }
}

/// Whether a pattern means a name, and how closely.
pub fn closeness(pattern: &str, name: &str) -> Option<Closeness> {
    let closeness = Closeness::of(pattern);
    let means = match closeness {
        Closeness::Exact => pattern == name,
        Closeness::Pattern(_) => WildMatch::new(pattern).matches(name),
    };
    means.then_some(closeness)
}

/// Whether two patterns can mean the same text; a text is a pattern that means itself.
///
/// Row by row over the prefixes of `one`, each a row over the prefixes of `other`: the work is the
/// product of their lengths, whatever they are.
pub fn overlap(one: &str, other: &str) -> bool {
    let mut row = vec![true];
    for y in other.bytes() {
        row.push(y == b'*' && row.last() == Some(&true));
    }
    for x in one.bytes() {
        let mut next = vec![x == b'*' && row.first() == Some(&true)];
        for (y, pair) in other.bytes().zip(row.windows(2)) {
            let [before, above] = pair else { continue };
            let beside = next.last() == Some(&true);
            next.push(match (x, y) {
                (b'*', _) | (_, b'*') => *above || beside,
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
        /// Patterns overlap if a text that both mean is found by trying; and the other way round
        /// for short ones.
        #[test]
        fn overlap_is_what_trying_finds(one in "[ab*?]{0,4}", other in "[ab*?]{0,4}") {
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
        fn a_text_means_itself_alone(one in "[ab]{0,6}", other in "[ab]{0,6}") {
            prop_assert_eq!(overlap(&one, &other), one == other);
        }
    }
}
