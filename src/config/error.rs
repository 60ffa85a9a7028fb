//! Errors that point at a line.

use super::file::Text;
use super::nodes;
pub(super) use crate::spelling::nearest;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

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
    /// The text is not what it should be.
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

/// A text and what to call it.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
    /// The lines in which fields are looked for, counted from 0: those that are believed first come first.
    places: Vec<Range<usize>>,
}

impl Source {
    /// A text, but for its overrides.
    pub(super) fn new(name: &str, text: &str) -> Source {
        let (block, _) = nodes::lines(text);
        let places = vec![0..block.start, block.end..text.lines().count()];
        Source { name: name.to_owned(), text: text.to_owned(), places }
    }

    /// The same text with one of its overrides: what is in that comes first.
    pub(super) fn with_entry(mut self, at: usize) -> Source {
        let entry = self.entry(at);
        self.places.splice(0..0, entry.places);
        self
    }

    /// One override of the text.
    pub(super) fn entry(&self, at: usize) -> Source {
        let (block, entries) = nodes::lines(&self.text);
        let place = entries.get(at).cloned().unwrap_or(block);
        Source { places: vec![place], ..self.clone() }
    }

    /// The first line of what is looked at, counted from 1.
    pub(super) fn first_line(&self) -> usize {
        self.places.first().map_or(1, |place| place.start + 1)
    }

    /// An error about a field; its line is where the text first has the field as a key.
    pub(super) fn at(&self, field: &str, why: String) -> ConfigError {
        let has_key = |line: &str| {
            line.match_indices(field).any(|(at, _)| {
                let (before, after) = (&line[..at], line[at..].trim_start_matches(field));
                let starts = before.trim_end_matches(['"', '\'', ' ']);
                let starts = starts.is_empty() || starts.ends_with(['{', ',', '-']);
                starts && after.trim_start_matches(['"', '\'', ' ']).starts_with(':')
            })
        };
        let lines: Vec<&str> = self.text.lines().collect();
        let mut places = self.places.iter().cloned().flatten();
        let found = places.find(|at| lines.get(*at).is_some_and(|line| has_key(line)));
        let line = found.map_or(self.first_line(), |at| at + 1);
        ConfigError::Wrong { name: self.name.clone(), line, why: format!("{field}: {why}") }
    }

    /// The value that `text` names; the default one if there is no text.
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

    /// An error of the YAML reader, which knows the line.
    pub(super) fn yaml(&self, error: &serde_yaml::Error) -> ConfigError {
        let line = error.location().map_or(1, |location| location.line());
        let text = error.to_string();
        // The reader names the position once more at the end of its text.
        let text = text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]);
        ConfigError::Wrong { name: self.name.clone(), line, why: suggest(text) }
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
