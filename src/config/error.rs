//! Errors that point at a line.

use super::file::Text;
pub(super) use crate::spelling::nearest;
use std::io;
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

/// A text and what to call it.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

impl Source {
    /// An error about a field; its line is where the text first has the field as a key.
    pub(super) fn at(&self, field: &str, why: String) -> ConfigError {
        let has_key = |line: &str| {
            line.match_indices(field).any(|(at, _)| {
                let (before, after) = (&line[..at], line[at..].trim_start_matches(field));
                let starts = before.trim_end_matches(['"', '\'', ' ']);
                let starts = starts.is_empty() || starts.ends_with(['{', ',']);
                starts && after.trim_start_matches(['"', '\'', ' ']).starts_with(':')
            })
        };
        let line = self.text.lines().position(has_key).map_or(1, |at| at + 1);
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
