//! The part of kustomize that `manifests/` uses.
//!
//! Supported: `resources` (files and other such directories), `namespace`, `patches` that are
//! strategic merge patches of one resource (in a file or inline, matched by kind and name), and
//! `images`. Everything else is an error: generators, components, JSON patches, targets, name
//! prefixes, labels, replacements, remote bases.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::merge::merge;
use crate::files;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
    #[serde(default)]
    images: Vec<ImageRule>,
}

/// Exactly one field is set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    path: Option<String>,
    patch: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImageRule {
    name: String,
    new_name: String,
    new_tag: Option<String>,
}

/// The resources of a directory with a `kustomization.yaml`, in order.
pub fn compose(directory: &Path) -> Result<Vec<Value>> {
    let file = directory.join("kustomization.yaml");
    let rules: Kustomization = yaml(&file)?;
    compose_by(&rules, directory).with_context(|| format!("in {}", file.display()))
}

fn compose_by(rules: &Kustomization, directory: &Path) -> Result<Vec<Value>> {
    ensure!(
        rules.api_version == "kustomize.config.k8s.io/v1beta1" && rules.kind == "Kustomization",
        "{} {} is not supported",
        rules.api_version,
        rules.kind
    );
    let mut resources = Vec::new();
    for name in &rules.resources {
        let path = directory.join(name);
        if path.is_dir() {
            resources.extend(compose(&path)?);
        } else {
            resources.push(yaml(&path)?);
        }
    }
    for patch in &rules.patches {
        let patch: Value = match patch {
            Patch { path: Some(path), patch: None } => yaml(&directory.join(path))?,
            Patch { path: None, patch: Some(text) } => {
                serde_yaml::from_str(text).context("an inline patch is not YAML")?
            }
            _ => bail!("a patch must have either path or patch"),
        };
        apply(&mut resources, &patch)?;
    }
    for resource in &mut resources {
        if let Some(namespace) = &rules.namespace {
            resource["metadata"]["namespace"] = namespace.clone().into();
        }
        for rule in &rules.images {
            set_images(resource, rule);
        }
    }
    Ok(resources)
}

/// A namespace in the patch must be that of the resource.
fn apply(resources: &mut [Value], patch: &Value) -> Result<()> {
    let identity = |value: &Value| {
        [&value["apiVersion"], &value["kind"], &value["metadata"]["name"]].map(Value::to_string)
    };
    let wanted = identity(patch);
    let mut matches = resources.iter_mut().filter(|resource| identity(resource) == wanted);
    let (Some(resource), None) = (matches.next(), matches.next()) else {
        bail!("a patch of {} does not match exactly one resource", wanted.join(" "));
    };
    let (of, here) = (&patch["metadata"]["namespace"], &resource["metadata"]["namespace"]);
    ensure!(
        of.is_null() || of == here,
        "a patch is for namespace {of}, but its resource is in {here}"
    );
    merge(resource, patch).with_context(|| format!("cannot patch {}", wanted.join(" ")))
}

fn set_images(resource: &mut Value, rule: &ImageRule) {
    for list in ["initContainers", "containers"] {
        let place = resource.pointer_mut(&format!("/spec/template/spec/{list}"));
        let Some(Value::Array(containers)) = place else { continue };
        for container in containers {
            let image = container["image"].as_str().unwrap_or_default();
            // A colon before a slash belongs to a registry's port.
            let (name, tag) = match image.rsplit_once(':') {
                Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
                _ => (image, None),
            };
            if name == rule.name {
                let tag = rule.new_tag.as_deref().or(tag).map(|tag| format!(":{tag}"));
                container["image"] = (rule.new_name.clone() + &tag.unwrap_or_default()).into();
            }
        }
    }
}

fn yaml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = files::read(path)?;
    serde_yaml::from_str(&text)
        .with_context(|| format!("unsupported content in {}", path.display()))
}
