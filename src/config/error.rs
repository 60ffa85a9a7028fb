//! Errors that point at a line.

use super::lines;
use super::values::Text;
use crate::placement::options::OptionError;
use crate::placement::topology_manager::TopologyManagerError;
use crate::placement::{Options, SettingsError, TopologyManager};
use crate::wording::nearest;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {path}: {source}. Create it, or name another file with --config", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text has a mistake.
    #[error("{name}, line {line}: {why}. Nothing was changed")]
    Wrong {
        /// The file's name.
        name: String,
        /// The line at fault, counted from 1.
        line: usize,
        /// What is wrong and what was expected.
        why: String,
    },
}

impl ConfigError {
    /// The line at fault, counted from 1; `None` if there is no text.
    pub fn line(&self) -> Option<usize> {
        match self {
            ConfigError::Unreadable { .. } => None,
            ConfigError::Wrong { line, .. } => Some(*line),
        }
    }
}

/// A text and its name.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) text: Arc<str>,
    /// The lines of all overrides, and of each.
    overrides: Arc<(Range<usize>, Vec<Range<usize>>)>,
    /// Where to look for fields, as lines counted from 0, in the order of the search.
    places: Vec<Range<usize>>,
}

impl Source {
    /// The text without its overrides.
    pub(super) fn new(name: &str, text: &str) -> Source {
        let overrides = lines::of_nodes(text);
        let places = vec![0..overrides.0.start, overrides.0.end..text.lines().count()];
        let overrides = Arc::new(overrides);
        Source { name: name.into(), text: text.into(), overrides, places }
    }

    /// The same text with one of its overrides, which the search looks at first.
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

    /// An error about a field, on the first line that has it as a key.
    pub(super) fn at(&self, field: &str, why: String) -> ConfigError {
        let line = self.find(field).map(|(line, _)| line);
        self.on(line, format!("{field}: {why}"))
    }

    pub(super) fn at_item(&self, field: &str, item: usize, why: String) -> ConfigError {
        let lines: Vec<&str> = self.text.lines().collect();
        let line = self.find(field).map(|(line, column)| {
            let (_, items) = lines::block(&lines, line, column);
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
        places.find_map(|at| Some((at, lines::key(lines.get(at)?, field)?)))
    }

    /// The value with the name `text`; the default without a text.
    pub(super) fn one_of<T: Copy + Default>(
        &self,
        field: &str,
        text: Option<&Text>,
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
        let mut found = lines.filter(|(_, text)| lines::key(text, field) == Some(column - 1));
        Some(found.nth(1)?.0 + 1)
    }
}

const A_BOOLEAN: &str = " (expected \"true\" or \"false\")";

/// A hint: the nearest known name, or all names.
fn expected(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        near if near.is_empty() => format!(" (expected one of {})", known.join(", ")),
        near => near,
    }
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
