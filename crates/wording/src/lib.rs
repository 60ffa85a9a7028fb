//! The wording of messages: lists of CPUs, singular and plural, the nearest known name; and how often the log has one.
//!
//! ```
//! assert_eq!(wording::cpus("0-3"), "CPUs 0-3");
//! assert_eq!(wording::count(1, "core"), "1 core");
//! assert_eq!(
//!     wording::unknown("sttaic", &["none", "static"]),
//!     "\"sttaic\" is unknown, expected none or static (did you mean static?)"
//! );
//! ```

mod moment;
mod repeats;

pub use moment::{Moment, Stamp};
pub use repeats::{Repeats, Times};

use std::cmp::Ordering;
use std::fmt::Display;

/// The longest text, in bytes, for which a similar name is searched.
const LONGEST_NAME: usize = 80;
/// The shortest beginning of a name that stands for it.
const SHORTEST_BEGINNING: usize = 4;
/// Names of a pass's objects in a line.
const FEW: usize = 3;
/// The length of an id in messages, as container runtimes' own programs show it.
const SHORT_ID: usize = 12;

/// The first names and how many more there are, for one line about all: `a, b, c and 597 more`.
pub fn few<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(FEW).map(|name| name.to_string()).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The beginning of a container's or sandbox's id, by which people and `crictl` find it.
pub fn short_id(id: &str) -> &str {
    id.char_indices().nth(SHORT_ID).map_or(id, |(end, _)| &id[..end])
}

/// ` (did you mean NAME?)` if a known name is similar, otherwise empty.
pub fn nearest(unknown: &str, known: &[&str]) -> String {
    // The distance takes memory in proportion to the product of both lengths.
    if unknown.len() > LONGEST_NAME {
        return String::new();
    }
    let plain = letters(unknown);
    let distance = |name: &str| strsim::damerau_levenshtein(&plain, &letters(name));
    let near = known.iter().map(|name| (distance(name), name)).min();
    if let Some((distance, name)) = near
        && distance <= plain.len().max(3) / 3
    {
        return format!(" (did you mean {name}?)");
    }
    let longer: Vec<&&str> =
        known.iter().filter(|name| letters(name).starts_with(&plain)).collect();
    match longer.as_slice() {
        [name] if plain.len() >= SHORTEST_BEGINNING => format!(" (did you mean {name}?)"),
        _ => String::new(),
    }
}

/// A name without what people leave out or write otherwise.
fn letters(name: &str) -> String {
    name.to_lowercase().replace(['-', '_', '.'], "")
}

/// `"TEXT" is unknown, expected ONE or OTHER`, followed by [`nearest`].
pub fn unknown(text: &str, known: &[&str]) -> String {
    let text = shortened(text, LONGEST_NAME);
    format!("{text:?} is unknown, expected {}{}", known.join(" or "), nearest(&text, known))
}

/// A text of about `most` characters at most: the middle of a longer one is left out.
pub fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most / 2).collect();
    let tail: String = text.chars().skip(length - most / 2).collect();
    format!("{head}...({} characters)...{tail}", length - most / 2 * 2)
}

/// The order in which people expect names: numbers in them count by their value, so that `small-2`
/// comes before `small-10`.
///
/// ```
/// let mut names = ["small-10", "small-2", "large-1"];
/// names.sort_by(|a, b| wording::natural_order(a, b));
/// assert_eq!(names, ["large-1", "small-2", "small-10"]);
/// ```
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let mut left = a;
    let mut right = b;
    while !left.is_empty() && !right.is_empty() {
        let (number, other) = (digits(left), digits(right));
        let order = if number > 0 && other > 0 {
            let (x, y) = (value(&left[..number]), value(&right[..other]));
            (left, right) = (&left[number..], &right[other..]);
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            let (x, y) = (first(left), first(right));
            (left, right) = (&left[x.len()..], &right[y.len()..]);
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    // Equal up to leading zeros, or one is the beginning of the other.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Digits without leading zeros: of two, the longer one is the larger number.
fn value(digits: &str) -> &str {
    digits.trim_start_matches('0')
}

/// The first character of a text that has one.
fn first(text: &str) -> &str {
    let length = text.chars().next().map_or(0, char::len_utf8);
    &text[..length]
}

/// A number with its noun: `1 NUMA node`, `2 NUMA nodes`.
pub fn count<N: Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    let plural = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// `CPU 0`, `CPUs 0-3` or `no CPUs`. `list` is a list in the kernel's format, or a word instead of it.
pub fn cpus(list: impl Display) -> String {
    let list = list.to_string();
    if list.is_empty() {
        "no CPUs".to_owned()
    } else {
        format!("{} {list}", agree(&list, "CPU", "CPUs"))
    }
}

/// A list, or `none` if it is empty.
pub fn or_none(list: impl ToString) -> String {
    let list = list.to_string();
    if list.is_empty() { "none".to_owned() } else { list }
}

/// The word that agrees with a list of CPUs: `one` for a single CPU, otherwise `several`.
pub fn agree<'a>(list: impl Display, one: &'a str, several: &'a str) -> &'a str {
    // The text of a single CPU is a number.
    if list.to_string().parse::<usize>().is_ok() { one } else { several }
}

/// Parts in as few lines of at most `width` characters as their order allows. A longer part has a line
/// of its own.
///
/// ```
/// assert_eq!(wording::fill("a list of words".split(' '), " ", 9), ["a list of", "words"]);
/// ```
pub fn fill<P: AsRef<str>>(
    parts: impl IntoIterator<Item = P>,
    separator: &str,
    width: usize,
) -> Vec<String> {
    let columns = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let part = part.as_ref();
        match lines.last_mut() {
            Some(line) if columns(line) + columns(separator) + columns(part) <= width => {
                line.push_str(separator);
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

/// For terminals and log lines: text from a pod's author or a hostile runtime, without control
/// characters, other ends of lines, and marks that change the direction of writing.
pub fn printable(text: &str) -> String {
    text.replace(
        |c: char| {
            c.is_control()
                || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        },
        "\u{fffd}",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_agrees_with_its_number() {
        let counted = [0, 1, 2].map(|n| count(n, "uncore cache"));
        assert_eq!(counted, ["0 uncore caches", "1 uncore cache", "2 uncore caches"]);
    }

    #[test]
    fn a_line_has_few_names_and_short_ids() {
        let names = ["a", "b", "c", "d", "e"];
        assert_eq!(
            [0, 3, 5].map(|most| few(&names[..most])),
            ["", "a, b, c", "a, b, c and 2 more"]
        );
        assert_eq!(["0123456789abcdef", "é", ""].map(short_id), ["0123456789ab", "é", ""]);
    }

    #[test]
    fn a_name_without_its_signs_or_its_end_is_known() {
        let known = ["single-numa-node", "restricted", "epyc-9654", "epyc-9754"];
        for (text, name) in [
            ("single-numa", "single-numa-node"),
            ("epyc9654", "epyc-9654"),
            ("Restrict", "restricted"),
        ] {
            assert_eq!(nearest(text, &known), format!(" (did you mean {name}?)"));
        }
        for text in ["epyc", "sin", "numa"] {
            assert_eq!(nearest(text, &known), "", "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_in_their_middle() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("0123456789", 4), "01...(6 characters)...89");
        assert_eq!(shortened("ééééé", 2), "é...(3 characters)...é");
        let long = "x".repeat(1 << 20);
        assert_eq!(nearest(&long, &["x"]), "");
        assert!(unknown(&long, &["a", "b"]).len() < 200);
    }

    #[test]
    fn words_agree_with_a_list_of_cpus() {
        let named = ["", "0", "17", "0-1", "0,2", "none"].map(cpus);
        assert_eq!(named, ["no CPUs", "CPU 0", "CPU 17", "CPUs 0-1", "CPUs 0,2", "CPUs none"]);
        assert_eq!(["", "0", "0-1"].map(|list| agree(list, "is", "are")), ["are", "is", "are"]);
    }

    #[test]
    fn numbers_in_names_count_by_their_value() {
        let sorted = [
            "",
            "a",
            "a-1",
            "a-1-9",
            "a-01-10",
            "a-1-10",
            "a-2",
            "a-10",
            "a-10b",
            "a-18446744073709551616",
            "a-36893488147419103232",
            "a.1",
            "b",
            "b/1",
            "é-2",
            "é-10",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(natural_order(one, other), at.cmp(&other_at), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            printable("a\x1b[2J\u{202e}b\n\u{9b}é"),
            "a\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}é"
        );
        assert_eq!(printable("a\u{2028}b\u{2029}c\u{61c}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
    }
}
