//! Kubernetes' strategic merge of a patch into a resource, as far as the overlays need it.
//!
//! Objects are merged, lists with a known merge key by that key, other lists of plain values are
//! replaced, and so is everything else. Deletion (null), directives (`$patch` and others) and lists
//! of objects without a known key are errors.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Lists that are merged by element, and the field that tells elements apart (`patchMergeKey` in
/// Kubernetes' API).
const MERGE_KEYS: [(&str, &str); 5] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("env", "name"),
];

pub(super) fn merge(target: &mut Value, patch: &Value) -> Result<()> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        bail!("a patch and what it changes have to be objects");
    };
    for (key, value) in patch {
        if key.starts_with('$') || value.is_null() {
            bail!("directives and deletion are not understood: {key}");
        }
        let place = target.entry(key.clone()).or_insert(Value::Null);
        match value {
            Value::Object(_) => {
                if place.is_null() {
                    *place = Value::Object(serde_json::Map::new());
                }
                merge(place, value).with_context(|| format!("in {key}"))?;
            }
            Value::Array(elements) if elements.iter().any(Value::is_object) => {
                merge_list(key, place, elements).with_context(|| format!("in {key}"))?;
            }
            _ => *place = value.clone(),
        }
    }
    Ok(())
}

fn merge_list(name: &str, target: &mut Value, patch: &[Value]) -> Result<()> {
    let key = MERGE_KEYS.iter().find(|(list, _)| *list == name).map(|(_, key)| *key);
    let key = key.context("it is not known by which field this list is merged")?;
    if target.is_null() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else { bail!("it is a list in the patch only") };
    for element in patch {
        if element[key].is_null() {
            bail!("an element has no {key}");
        }
        match target.iter_mut().find(|there| there[key] == element[key]) {
            Some(there) => merge(there, element)?,
            // Merged into nothing: what is not understood is found inside of new elements as well.
            None => {
                let mut new = Value::Object(serde_json::Map::new());
                merge(&mut new, element)?;
                target.push(new);
            }
        }
    }
    Ok(())
}
