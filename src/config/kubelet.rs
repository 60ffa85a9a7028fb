//! `kubeletStateDir`: where the kubelet on the same node has its state files.

use super::field::{Field, Given};
use super::fields::Values;
use super::source::ConfigError;
use super::values::absolute_path;
use ledger::Stance;
use std::path::PathBuf;

/// The kubelet's default `--root-dir`.
const KUBELET_STATE_DIR: &str = "/var/lib/kubelet";

/// How the plugin gets on with the kubelet on the same node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeletNearby {
    /// `None` if the plugin ignores its state files.
    pub(super) state_dir: Option<PathBuf>,
    pub(super) when_active: Stance,
}

impl Default for KubeletNearby {
    fn default() -> KubeletNearby {
        let state_dir = Some(PathBuf::from(KUBELET_STATE_DIR));
        KubeletNearby { state_dir, when_active: Stance::Refuse }
    }
}

pub(super) struct KubeletStateDir;

impl Field for KubeletStateDir {
    fn name(&self) -> &'static str {
        "kubeletStateDir"
    }

    fn default(&self) -> Option<String> {
        Some(KUBELET_STATE_DIR.to_owned())
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), ConfigError> {
        let text = given.text()?;
        values.kubelet.state_dir = if text.is_empty() {
            None
        } else {
            let path = absolute_path(&text).map_err(|why| {
                given.wrong(format!(
                    "{why}: expected one like {KUBELET_STATE_DIR:?}, or \"\" for none"
                ))
            })?;
            Some(path)
        };
        Ok(())
    }
}
