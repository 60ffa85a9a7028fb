//! Fields and values of the configuration, read from declarations and from the plugin's own errors.

#![allow(clippy::expect_used, reason = "a test that cannot go on should stop")]

use config::{Config, declarations};
use std::collections::BTreeSet;

/// The error of a configuration; empty if it is valid.
pub(crate) fn error(text: &str) -> String {
    Config::parse("c", text).err().map(|error| error.to_string()).unwrap_or_default()
}

/// The fields that serde lists as expected when it meets an unknown one.
pub(crate) fn fields(text: &str) -> BTreeSet<String> {
    let error = error(text);
    let (_, expected) = error.split_once(", expected one of ").expect("a list of fields");
    let (expected, _) = expected.split_once('.').expect("an end");
    expected.split(", ").map(str::to_owned).collect()
}

/// The words that a field accepts; none for a field with other values.
pub(crate) fn values(field: &str) -> Vec<&'static str> {
    let declared = declarations().find(|declared| declared.name == field);
    declared.map(|declared| declared.words).unwrap_or_default()
}
