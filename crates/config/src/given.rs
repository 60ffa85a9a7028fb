//! [`Given`]: the value of a field in the text, and [`one_of`] a few words.

use super::source::{ConfigError, Source};
use super::values::Text;
use super::yaml::YamlNode;
use serde::Deserialize;
pub(super) struct Given<'a> {
    /// Searched in the file without its overrides, or in one entry alone.
    pub(super) source: &'a Source,
    pub(super) field: &'a str,
    /// The line of the field's name, counted from 1.
    pub(super) line: usize,
    pub(super) node: &'a YamlNode,
}

impl<'a> Given<'a> {
    /// The value as a type. Errors name its whole path.
    pub(super) fn parse<T: Deserialize<'a>>(&self) -> Result<T, ConfigError> {
        T::deserialize(self.node)
            .map_err(|mistake| self.source.mistaken(mistake.on(self.line).within(self.field)))
    }

    pub(crate) fn text(&self) -> Result<String, ConfigError> {
        self.parse().map(|Text(text)| text)
    }

    pub(super) fn wrong(&self, why: impl AsRef<str>) -> ConfigError {
        self.source.wrong(self.line, &format!("{}: {}", self.field, why.as_ref()))
    }
}

/// The value whose word is `text`.
///
/// # Errors
/// The words that are expected.
pub(super) fn one_of<T: Copy>(
    text: &str,
    all: &[T],
    word: fn(T) -> &'static str,
) -> Result<T, String> {
    let value = all.iter().copied().find(|value| word(*value) == text);
    value.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|value| word(*value)).collect();
        wording::unknown(text, &words)
    })
}

pub(super) fn boolean_word(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}
