//! Kubernetes' strategic merge of a patch into a resource, as far as the overlays need it.
//!
//! Objects are merged, lists of objects by their merge key, and everything else is replaced.
//! Deletion (null), directives (such as `$patch`) and lists of objects without a known key are
//! errors.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Lists that are merged by element, with `patchMergeKey` of Kubernetes' API.
const MERGE_KEYS: [(&str, &str); 5] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("env", "name"),
];

pub(super) fn merge(target: &mut Value, patch: &Value) -> Result<()> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        bail!("a patch and its target must be objects");
    };
    for (key, value) in patch {
        if key.starts_with('$') || value.is_null() {
            bail!("directives and deletion are not supported: {key}");
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
    let key = key.context("no known merge key for this list")?;
    if target.is_null() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else { bail!("a list in the patch, but not in the target") };
    for element in patch {
        if element[key].is_null() {
            bail!("an element has no {key}");
        }
        match target.iter_mut().find(|there| there[key] == element[key]) {
            Some(there) => merge(there, element)?,
            // Merged into an empty object, to find unsupported content in new elements as well.
            None => {
                let mut new = Value::Object(serde_json::Map::new());
                merge(&mut new, element)?;
                target.push(new);
            }
        }
    }
    Ok(())
}
