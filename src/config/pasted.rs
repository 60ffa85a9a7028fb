//! Kubernetes objects in the place of a configuration: which part of them to paste.

use super::fields::OF_KUBELET;
use super::source::{ConfigError, Source};
use super::yaml::{Node, Value};

/// Where the manifests have the configuration in their ConfigMap.
const FILE: &str = "config.yaml";

/// An error about a text that is a Kubernetes object.
pub(super) fn refuse(source: &Source) -> Result<(), ConfigError> {
    let root = &source.root;
    let Some((header, _)) = root.field("kind").or_else(|| root.field("apiVersion")) else {
        return Ok(());
    };
    let text = |name| root.field(name).and_then(|(_, value)| value.text()).unwrap_or_default();
    let why = match text("kind") {
        "ConfigMap" => config_map(root),
        "KubeletConfiguration" => kubelet_configuration(root),
        _ if text("apiVersion").starts_with("kubelet.config.k8s.io/") => {
            kubelet_configuration(root)
        }
        "" => "this is a Kubernetes object: paste the configuration alone".to_owned(),
        kind => format!("this is a Kubernetes object ({kind}): paste the configuration alone"),
    };
    Err(source.wrong(header.line, &why))
}

fn config_map(root: &Node) -> String {
    let data = root.field("data").map(|(_, data)| data);
    let file = data.and_then(|data| {
        data.field(FILE).or_else(|| data.fields().first().map(|(key, file)| (key, file)))
    });
    let Some((key, Value::Scalar(text))) = file.map(|(key, file)| (key, &file.value)) else {
        return "this is a ConfigMap without data: paste the configuration alone".to_owned();
    };
    let first = key.line + 1;
    let last = key.line + text.lines().count();
    let lines =
        if first == last { format!("line {first}") } else { format!("lines {first} to {last}") };
    format!(
        "this is a ConfigMap: paste only the text below data.{}, {lines}, without its indentation",
        key.name
    )
}

fn kubelet_configuration(root: &Node) -> String {
    let names = root.fields().iter().map(|(key, _)| &*key.name);
    let (read, other): (Vec<&str>, Vec<&str>) =
        names.partition(|name| OF_KUBELET.iter().any(|field| field.name() == *name));
    let read = if read.is_empty() { "none".to_owned() } else { read.join(", ") };
    format!(
        "this is a KubeletConfiguration, of which this plugin reads some fields: keep {read}, and remove {}",
        other.join(", ")
    )
}
