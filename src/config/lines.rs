//! The lines of keys and list items in a YAML text, found by their indentation: the YAML reader
//! gives positions for its own errors only. Text in braces has no lines of its own.

use std::ops::Range;

/// The column in which a line has `name` as a key, counted from 0.
pub(super) fn key(line: &str, name: &str) -> Option<usize> {
    line.match_indices(name).find_map(|(at, _)| {
        let (before, after) = line.split_at_checked(at)?;
        let after = after.strip_prefix(name)?;
        let quotes = before.trim_end_matches(['"', '\'']);
        let starts = quotes.trim_end_matches(' ');
        let item = starts.ends_with('-') && quotes.ends_with(' ');
        let starts = starts.is_empty() || starts.ends_with(['{', ',']) || item;
        let ends = after.trim_start_matches(['"', '\'', ' ']).starts_with(':');
        (starts && ends).then_some(quotes.len())
    })
}

/// The lines of the value of a key on line `at` in this column, and of each of its items if it is a
/// list. All lines count from 0.
pub(super) fn block(lines: &[&str], at: usize, column: usize) -> (Range<usize>, Vec<Range<usize>>) {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let dash = |line: &str| line.trim_start_matches(' ').starts_with('-');
    let inside = |line: &&&str| {
        line.trim().is_empty()
            || line.trim_start().starts_with('#')
            || indent(line) > column
            || indent(line) == column && dash(line)
    };
    let below = lines.get(at + 1..).unwrap_or_default();
    let end = at + 1 + below.iter().take_while(inside).count();
    let below = lines.get(at + 1..end).unwrap_or_default();
    let items = below.iter().find(|line| dash(line)).map(|line| indent(line));
    let starts = (at + 1..end).zip(below);
    let starts = starts.filter(|(_, line)| dash(line) && Some(indent(line)) == items);
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([end]);
    (at..end, starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
}

/// The lines of the block `nodes` and of each of its entries, counted from 0.
pub(super) fn of_nodes(text: &str) -> (Range<usize>, Vec<Range<usize>>) {
    let lines: Vec<&str> = text.lines().collect();
    match lines.iter().position(|line| key(line, "nodes") == Some(0)) {
        Some(start) => block(&lines, start, 0),
        None => (0..0, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_entries_are() {
        for (text, block, entries) in [
            ("a: 1\n", 0..0, vec![]),
            (
                "nodes:\n  - names: [a]\n    x: 1\n\n  # b\n  - labels: {b: c}\nz: 1\n",
                0..6,
                vec![1..5, 5..6],
            ),
            ("a: 1\nnodes:\n- names:\n  - a\n  - b\n- names: [b]\n", 1..6, vec![2..5, 5..6]),
            ("\"nodes\": [{names: [a]}, {names: [b]}]\nz: 1\n", 0..1, vec![]),
            ("'nodes':\n- names: [a]\n# b\n- names: [b]\r\n\r\nz: 1\n", 0..5, vec![1..3, 3..5]),
            ("nodesx: 1\n", 0..0, vec![]),
        ] {
            assert_eq!(of_nodes(text), (block, entries), "{text}");
        }
    }

    #[test]
    fn comments_end_no_list() {
        let lines = ["x:", "  a:", "  - b", "  # c", "# d", "  - e", "  f: 1"];
        assert_eq!(block(&lines, 1, 2), (1..6, vec![2..5, 5..6]));
    }

    #[test]
    fn keys_and_no_keys() {
        for (line, column) in [
            ("strict: true", Some(0)),
            ("  \"strict\" : true", Some(2)),
            ("- strict: true", Some(2)),
            ("a: {x: 1, strict: true}", Some(10)),
            ("a: strict", None),
            ("a-strict: 1", None),
            ("# strict: 1", None),
            ("strictly: 1", None),
        ] {
            assert_eq!(key(line, "strict"), column, "{line}");
        }
    }
}
