//! The names in what is written as JSON, for tests that their reference is complete.

use serde_json::Value;
use std::collections::BTreeSet;

/// The names of all fields of objects, however deep.
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

/// Those that `text` does not have in backticks.
pub(crate) fn undocumented(names: &BTreeSet<String>, text: &str) -> Vec<String> {
    names.iter().filter(|name| !text.contains(&format!("`{name}`"))).cloned().collect()
}
