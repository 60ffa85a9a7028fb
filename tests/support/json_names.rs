//! Field names of JSON output, for tests that its documentation has all of them.

use serde_json::Value;
use std::collections::BTreeSet;

/// The names of all fields, at any depth.
pub(crate) fn names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| names(value).into_iter().chain([name.clone()]))
            .collect(),
        Value::Array(values) => values.iter().flat_map(names).collect(),
        _ => BTreeSet::new(),
    }
}

/// The names that `text` does not have in backticks.
pub(crate) fn undocumented(names: &BTreeSet<String>, text: &str) -> Vec<String> {
    names.iter().filter(|name| !text.contains(&format!("`{name}`"))).cloned().collect()
}
