//! The text of a configuration, and errors that point at its lines.
//!
//! The YAML reader gives positions for its own errors only, so the lines of keys and list items are
//! found by their indentation. Text in braces has no lines of its own.

use super::values::Text;
use crate::placement::options::OptionError;
use crate::placement::topology_manager::TopologyManagerError;
use crate::placement::{Options, SettingsError, TopologyManager};
use crate::wording::nearest;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read configuration {path}: {source}. Create it, or set another file with --config", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{name}, line {line}: {why}. Nothing was changed")]
    Wrong {
        name: String,
        /// Counted from 1.
        line: usize,
        why: String,
    },
}

impl ConfigError {
    /// Counted from 1; `None` if there is no text.
    pub fn line(&self) -> Option<usize> {
        match self {
            ConfigError::Unreadable { .. } => None,
            ConfigError::Wrong { line, .. } => Some(*line),
        }
    }
}

/// A valid field without the effect that it seems to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Counted from 1.
    pub line: usize,
    /// With the field.
    pub text: String,
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// A text and its name.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) text: Arc<str>,
    /// The lines of `nodes`, and of each of its entries.
    overrides: Arc<(Range<usize>, Vec<Range<usize>>)>,
    /// Where fields are searched, as lines counted from 0, in this order.
    places: Vec<Range<usize>>,
}

impl Source {
    /// The text without its overrides.
    pub(super) fn new(name: &str, text: &str) -> Source {
        let overrides = of_nodes(text);
        let places = vec![0..overrides.0.start, overrides.0.end..text.lines().count()];
        let overrides = Arc::new(overrides);
        Source { name: name.into(), text: text.into(), overrides, places }
    }

    /// The same text with one of its overrides, which is searched first.
    pub(super) fn with_entry(mut self, at: usize) -> Source {
        let entry = self.entry(at);
        self.places.splice(0..0, entry.places);
        self
    }

    pub(super) fn entry(&self, at: usize) -> Source {
        let (block, entries) = &*self.overrides;
        let place = entries.get(at).unwrap_or(block).clone();
        Source { places: vec![place], ..self.clone() }
    }

    /// The first line of the search, counted from 1.
    pub(super) fn first_line(&self) -> usize {
        self.places.first().map_or(1, |place| place.start + 1)
    }

    /// An error about a field, on the first line with this key.
    pub(super) fn at(&self, field: &str, why: String) -> ConfigError {
        let line = self.find(field).map(|(line, _)| line);
        self.on(line, format!("{field}: {why}"))
    }

    pub(super) fn warning(&self, field: &str, why: &str) -> Warning {
        let line = self.find(field).map_or(self.first_line(), |(line, _)| line + 1);
        Warning { line, text: format!("{field}: {why}") }
    }

    pub(super) fn at_item(&self, field: &str, item: usize, why: String) -> ConfigError {
        let lines: Vec<&str> = self.text.lines().collect();
        let line = self.find(field).map(|(line, column)| {
            let (_, items) = block(&lines, line, column);
            items.get(item).map_or(line, |item| item.start)
        });
        self.on(line, format!("{field}[{item}]: {why}"))
    }

    /// `line` counts from 0.
    fn on(&self, line: Option<usize>, why: String) -> ConfigError {
        let line = line.map_or(self.first_line(), |line| line + 1);
        ConfigError::Wrong { name: self.name.to_string(), line, why }
    }

    /// Line and column of a field's key, counted from 0.
    fn find(&self, field: &str) -> Option<(usize, usize)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut places = self.places.iter().cloned().flatten();
        places.find_map(|at| Some((at, key(lines.get(at)?, field)?)))
    }

    /// The value with the name `text`; the default without a text.
    pub(super) fn one_of<T: Copy + Default>(
        &self,
        field: &str,
        text: &Option<Text>,
        values: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let Some(Text(text)) = text else { return Ok(T::default()) };
        if let Some((_, value)) = values.iter().find(|(name, _)| name == text) {
            return Ok(*value);
        }
        let names: Vec<&str> =
            values.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        let why = format!(
            "{text:?} is unknown, expected {}{}",
            names.join(" or "),
            nearest(text, &names)
        );
        Err(self.at(field, why))
    }

    /// An error about the CPU manager's options, in the kubelet's words.
    pub(super) fn cpu_option(&self, error: &OptionError) -> ConfigError {
        let hint = match error {
            OptionError::Unknown(name) => expected(name, Options::NAMES),
            OptionError::Value(..) => A_BOOLEAN.to_owned(),
            _ => String::new(),
        };
        let words = SettingsError::from(error.clone());
        self.at(error.option(), format!("{words}{hint}"))
    }

    /// An error about the topology manager, in the kubelet's words.
    pub(super) fn topology_manager(&self, error: &TopologyManagerError) -> ConfigError {
        let hint = match error {
            TopologyManagerError::UnknownOption(name) => expected(name, TopologyManager::OPTIONS),
            TopologyManagerError::Value(..) => A_BOOLEAN.to_owned(),
            TopologyManagerError::NotANumber(..) => " (expected a number like 8)".to_owned(),
            _ => String::new(),
        };
        let words = SettingsError::from(error.clone());
        self.at(error.field(), format!("{words}{hint}"))
    }

    /// An error of the YAML reader, which knows the line.
    pub(super) fn yaml(&self, error: &serde_yaml::Error) -> ConfigError {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        let text = error.to_string();
        // The reader repeats the position at the end of its text.
        let text = text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]);
        let line = self.second(text, line, column).unwrap_or(line);
        ConfigError::Wrong { name: self.name.to_string(), line, why: suggest(text) }
    }

    /// The line of the second occurrence of a field, if `message` is about that: the YAML reader
    /// gives the line and column of the mapping instead. All count from 1.
    fn second(&self, message: &str, line: usize, column: usize) -> Option<usize> {
        let (_, field) = message.split_once("duplicate field `")?;
        let field = field.split('`').next()?;
        let lines = self.text.lines().enumerate().skip(line - 1);
        let mut occurrences = lines.filter(|(_, text)| key(text, field) == Some(column - 1));
        Some(occurrences.nth(1)?.0 + 1)
    }
}

const A_BOOLEAN: &str = " (expected \"true\" or \"false\")";

/// The nearest known name, or all names.
fn expected(unknown: &str, known: &[&str]) -> String {
    let near = nearest(unknown, known);
    if near.is_empty() { format!(" (expected one of {})", known.join(", ")) } else { near }
}

/// Adds the nearest known name to serde's message about an unknown field or value.
fn suggest(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next() {
        Some(unknown) if message.contains("unknown ") => {
            format!("{message}{}", nearest(unknown, &names.collect::<Vec<_>>()))
        }
        _ => message.to_owned(),
    }
}

/// The column in which a line has `name` as a key, counted from 0.
fn key(line: &str, name: &str) -> Option<usize> {
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
fn block(lines: &[&str], at: usize, column: usize) -> (Range<usize>, Vec<Range<usize>>) {
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
fn of_nodes(text: &str) -> (Range<usize>, Vec<Range<usize>>) {
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
