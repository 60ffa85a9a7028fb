//! [`Field`]: one field of the file, with everything that is to be said about it, and [`OneOf`] for
//! fields that take one of a few words.

use super::fields::Values;
use super::source::{ConfigError, Source};
use super::values::Text;
use super::yaml::Node;
use serde::Deserialize;

/// A field of the file and of the entries of `nodes`. An entry is read over the values of the file,
/// so what reading does to an earlier value is what an override does.
pub(super) trait Field {
    fn name(&self) -> &'static str;

    /// The words that it takes, without the kubelet's empty one; none if it takes other values.
    fn words(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What it is without the field, as in the file; `None` if no text says that.
    fn default(&self) -> Option<String> {
        None
    }

    /// Takes over what the text says.
    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), ConfigError>;

    /// Checks it together with the other fields, where they are in force.
    fn check(&self, _: &Values) -> Result<(), String> {
        Ok(())
    }
}

/// The value of a field in the text.
pub(super) struct Given<'a> {
    /// Searched in the file without its overrides, or in one entry alone.
    pub(super) source: &'a Source,
    pub(super) field: &'a str,
    /// The line of the field's name, counted from 1.
    pub(super) line: usize,
    pub(super) node: &'a Node,
}

impl<'a> Given<'a> {
    /// The value as a type. Errors name its whole path.
    pub(super) fn parse<T: Deserialize<'a>>(&self) -> Result<T, ConfigError> {
        T::deserialize(self.node)
            .map_err(|mistake| self.source.mistaken(mistake.on(self.line).within(self.field)))
    }

    pub(super) fn text(&self) -> Result<String, ConfigError> {
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

/// A field that takes one of a few words.
pub(super) struct OneOf<T: 'static> {
    name: &'static str,
    /// In the order of errors.
    all: &'static [T],
    word: fn(T) -> &'static str,
    value: fn(&mut Values) -> &mut T,
    /// Whether an empty text is the default, as for the kubelet.
    or_empty: bool,
}

impl<T> OneOf<T> {
    /// `word` is the text for a value, and `value` is where it is kept.
    pub(super) const fn new(
        name: &'static str,
        all: &'static [T],
        word: fn(T) -> &'static str,
        value: fn(&mut Values) -> &mut T,
    ) -> OneOf<T> {
        OneOf { name, all, word, value, or_empty: false }
    }

    pub(super) const fn or_empty(
        name: &'static str,
        all: &'static [T],
        word: fn(T) -> &'static str,
        value: fn(&mut Values) -> &mut T,
    ) -> OneOf<T> {
        OneOf { name, all, word, value, or_empty: true }
    }
}

impl OneOf<bool> {
    pub(super) const fn boolean(
        name: &'static str,
        value: fn(&mut Values) -> &mut bool,
    ) -> OneOf<bool> {
        OneOf::new(name, &[true, false], boolean_word, value)
    }
}

impl<T: Copy> OneOf<T> {
    fn default_value(&self) -> T {
        *(self.value)(&mut Values::default())
    }
}

impl<T: Copy> Field for OneOf<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn words(&self) -> Vec<&'static str> {
        self.all.iter().map(|value| (self.word)(*value)).collect()
    }

    fn default(&self) -> Option<String> {
        Some((self.word)(self.default_value()).to_owned())
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), ConfigError> {
        let text = given.text()?;
        *(self.value)(values) = if self.or_empty && text.is_empty() {
            self.default_value()
        } else {
            one_of(&text, self.all, self.word).map_err(|why| given.wrong(why))?
        };
        Ok(())
    }
}
