//! `podResources`: where the plugin answers as the kubelet's podresources does, and where the kubelet
//! itself does.

use super::given::Given;
use super::source::{ConfigError, Mistakes, Source};
use super::values::{Text, path_without_parents};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The kubelet's default. All clients expect this file name in the directory that they mount.
const KUBELET_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// The longest path of a unix socket, in bytes.
const MAX_PATH: usize = 107;

/// Where the plugin listens, and which socket it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodResources {
    /// The directory of the socket and of the file with the policy in force.
    pub listen: PathBuf,
    /// The kubelet's own socket.
    pub kubelet: PathBuf,
}

impl PodResources {
    /// With the kubelet at its usual socket.
    ///
    /// # Errors
    /// Why the plugin cannot listen in this directory.
    pub fn in_directory(listen: &str) -> Result<PodResources, String> {
        PodResources::new(path_without_parents(listen)?, PathBuf::from(KUBELET_SOCKET))
    }

    fn new(listen: PathBuf, kubelet: PathBuf) -> Result<PodResources, String> {
        let settings = PodResources { listen, kubelet };
        let socket = settings.socket();
        // It is bound under a longer name, and then renamed.
        if socket.as_os_str().len() + ".new".len() > MAX_PATH {
            return Err(format!("{} is too long for the path of a socket", socket.display()));
        }
        if [settings.kubelet.as_path(), Path::new(KUBELET_SOCKET)].contains(&socket.as_path()) {
            return Err(format!("{} is the kubelet's own socket", socket.display()));
        }
        Ok(settings)
    }

    pub fn socket(&self) -> PathBuf {
        self.listen.join("kubelet.sock")
    }

    /// A KubeletConfiguration of the policy in force.
    pub fn config_file(&self) -> PathBuf {
        self.listen.join("config.yaml")
    }
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodResourcesField {
    /// `None` if the plugin does not answer itself.
    pub(super) served: Option<PodResources>,
    /// The kubelet's own socket, which the plugin asks for the devices of containers.
    pub(super) kubelet: PathBuf,
}

impl Default for PodResourcesField {
    fn default() -> PodResourcesField {
        PodResourcesField { served: None, kubelet: PathBuf::from(KUBELET_SOCKET) }
    }
}

pub(super) fn read(given: &Given<'_>, field: &mut PodResourcesField) -> Result<(), Mistakes> {
    *field = resolve(given.source, &given.parse()?)?;
    Ok(())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PodResourcesFields {
    listen: Option<Text>,
    kubelet: Option<Text>,
}

fn resolve(source: &Source, fields: &PodResourcesFields) -> Result<PodResourcesField, ConfigError> {
    if fields.listen.is_none() && fields.kubelet.is_none() {
        let why = "expected a directory like {listen: /var/lib/nri-cpu-manager/pod-resources}";
        return Err(source.at("podResources", why.to_owned()));
    }
    let kubelet = match &fields.kubelet {
        None => PathBuf::from(KUBELET_SOCKET),
        Some(Text(path)) => path_without_parents(path).map_err(|why| source.at("kubelet", why))?,
    };
    let served = match &fields.listen {
        None => None,
        Some(Text(listen)) => {
            let listen = path_without_parents(listen).map_err(|why| source.at("listen", why))?;
            let served = PodResources::new(listen, kubelet.clone());
            Some(served.map_err(|why| source.at("listen", why))?)
        }
    };
    Ok(PodResourcesField { served, kubelet })
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[track_caller]
    fn refuses(text: &str, expect: &str) {
        let error = Config::parse("config.yaml", text).unwrap_err().to_string();
        assert_eq!(error, format!("config.yaml, {expect}. Nothing was changed"), "{text}");
    }

    #[test]
    fn it_is_off_without_the_field_and_has_the_kubelets_default() {
        let of = |text: &str| Config::parse("c", text).unwrap().pod_resources().cloned();
        assert_eq!(of(""), None);
        let settings = of("podResources: {listen: /run/x/}\n").unwrap();
        assert_eq!(settings.socket().to_str(), Some("/run/x/kubelet.sock"));
        assert_eq!(settings.kubelet.to_str(), Some("/var/lib/kubelet/pod-resources/kubelet.sock"));
        let settings = of("podResources:\n  listen: /run/x\n  kubelet: /k.sock\n").unwrap();
        assert_eq!(settings.kubelet.to_str(), Some("/k.sock"));
        // With the kubelet's socket alone, the plugin serves none.
        let config = Config::parse("c", "podResources: {kubelet: /k.sock}\n").unwrap();
        assert_eq!(config.pod_resources(), None);
        assert_eq!(config.kubelet_socket().to_str(), Some("/k.sock"));
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        refuses(
            "strict: true\npodResources: {}\n",
            "line 2: podResources: expected a directory like {listen: /var/lib/nri-cpu-manager/pod-resources}",
        );
        refuses(
            "podResources:\n  listen: run/x\n",
            "line 2: listen: \"run/x\" is not an absolute path",
        );
        refuses(
            "podResources:\n  listen: /run/x\n  kubelet: ../k.sock\n",
            "line 3: kubelet: \"../k.sock\" is not an absolute path",
        );
        refuses(
            "podResources:\n  listen: /run/x\n  kubelet: /run/../k.sock\n",
            "line 3: kubelet: \"/run/../k.sock\" has \"..\" in it: expected a path without",
        );
        refuses(
            "podResources: {listen: /var/lib/kubelet//pod-resources/}\n",
            "line 1: listen: /var/lib/kubelet//pod-resources/kubelet.sock is the kubelet's own socket",
        );
        refuses(
            "podResources: {listen: /run/x, kubelet: /run/x/kubelet.sock}\n",
            "line 1: listen: /run/x/kubelet.sock is the kubelet's own socket",
        );
        let long = "x".repeat(90);
        refuses(
            &format!("podResources: {{listen: /{long}}}\n"),
            &format!("line 1: listen: /{long}/kubelet.sock is too long for the path of a socket"),
        );
        let error = Config::parse("c", "\npodResources: {dir: /x}\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("unknown field \"dir\""), "{error}");
    }
}
