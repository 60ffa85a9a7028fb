//! Kubernetes objects in the place of a configuration: a KubeletConfiguration is accepted, and the
//! error for any other says which part to paste.

use super::given::Given;
use super::source::{ConfigError, Source};
use super::yaml::{YamlNode, YamlValue};
use wording::nearest;

/// Where the manifests have the configuration in their ConfigMap.
const FILE: &str = "config.yaml";

const KIND: &str = "KubeletConfiguration";
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

/// Checks that `kind` and `apiVersion`, if the text has them, are those of a KubeletConfiguration.
pub(super) fn check(source: &Source) -> Result<(), ConfigError> {
    if let Some((kind, given)) = header(source, "kind")?
        && kind != KIND
    {
        let why = match &*kind {
            "ConfigMap" => config_map(&source.root),
            _ if nearest(&kind, &[KIND]).is_empty() => {
                format!("this is a Kubernetes object ({kind}): paste the configuration alone")
            }
            _ => return Err(given.wrong(wording::unknown(&kind, &[KIND]))),
        };
        return Err(source.wrong(given.line, &why));
    }
    match header(source, "apiVersion")? {
        Some((version, given)) if version != API_VERSION => {
            Err(given.wrong(wording::unknown(&version, &[API_VERSION])))
        }
        _ => Ok(()),
    }
}

fn header<'a>(
    source: &'a Source,
    field: &'static str,
) -> Result<Option<(String, Given<'a>)>, ConfigError> {
    let Some((key, node)) = source.root.field(field) else { return Ok(None) };
    let given = Given { source, field, line: key.line, node };
    if node.is_null() { Ok(None) } else { Ok(Some((given.text()?, given))) }
}

fn config_map(root: &YamlNode) -> String {
    let data = root.field("data").map(|(_, data)| data);
    let file = data.and_then(|data| {
        data.field(FILE).or_else(|| data.fields().first().map(|(key, file)| (key, file)))
    });
    let Some((key, YamlValue::Scalar(text))) = file.map(|(key, file)| (key, &file.value)) else {
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
