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

/// Fields of other files that have a kubelet's configuration below them, and whose files these are.
const WRAPPERS: [(&[&str], &str); 5] = [
    (&["machine", "kubelet", "extraConfig"], "the machine configuration of Talos"),
    (&["spec", "kubelet"], "an object of Karpenter or kOps"),
    (&["spec", "kubeletConfig"], "an object around a kubelet's configuration"),
    (&["kubeletConfig"], "a file around a kubelet's configuration"),
    (&["kubelet"], "a file around a kubelet's configuration"),
];
/// A field of k3s and RKE2 with command-line flags.
const FLAGS: &str = "kubelet-arg";

/// Why a text is a kubelet's command line, and what to give instead; `None` for other texts.
pub(super) fn command_line(text: &str) -> Option<&'static str> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let first = first?.trim_start_matches("KUBELET_EXTRA_ARGS=").trim_start_matches(['"', '\'']);
    if !first.starts_with("--") {
        return None;
    }
    Some(
        "these are a kubelet's command-line flags: give the file that its flag --config names, and write reserved \
         CPUs of flags in it as reservedSystemCPUs, systemReserved and kubeReserved",
    )
}

/// The sentence for a file that has a kubelet's configuration somewhere inside.
fn wrapper(source: &Source) -> Option<ConfigError> {
    if let Some((key, _)) = source.root.field(FLAGS) {
        let why = "this is a configuration of k3s or RKE2, whose kubelet-arg are command-line flags: give the file \
                   that the flag config names";
        return Some(source.wrong(key.line, why));
    }
    WRAPPERS.iter().find_map(|(path, what)| {
        let mut at = (0, &*source.root);
        for name in *path {
            let (key, node) = at.1.field(name)?;
            at = (key.line, node);
        }
        let why = format!(
            "this is {what}: give only the fields below {}, without their indentation",
            path.join(".")
        );
        Some(source.wrong(at.0, &why))
    })
}

/// Checks that the text is not a file around a kubelet's, and that `kind` and `apiVersion`, if it has
/// them, are those of a KubeletConfiguration.
pub(super) fn check(source: &Source) -> Result<(), ConfigError> {
    if let Some(mistake) = wrapper(source) {
        return Err(mistake);
    }
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
