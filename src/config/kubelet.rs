//! `kubeletStateDir`: where the kubelet on the same node has its state files.

use super::given::Given;
use super::source::Mistakes;
use super::values::absolute_path;
use ledger::Stance;
use std::path::PathBuf;

/// The kubelet's default `--root-dir`.
pub(super) const KUBELET_STATE_DIR: &str = "/var/lib/kubelet";

/// Settings about the kubelet on the same node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeletNearby {
    /// `None` if the plugin ignores the kubelet's state files.
    pub(super) state_dir: Option<PathBuf>,
    pub(super) when_active: Stance,
}

impl Default for KubeletNearby {
    fn default() -> KubeletNearby {
        let state_dir = Some(PathBuf::from(KUBELET_STATE_DIR));
        KubeletNearby { state_dir, when_active: Stance::Refuse }
    }
}

pub(super) fn read(given: &Given<'_>, state_dir: &mut Option<PathBuf>) -> Result<(), Mistakes> {
    let text = given.text()?;
    *state_dir = if text.is_empty() {
        None
    } else {
        let path = absolute_path(&text).map_err(|why| {
            given.wrong(format!("{why}: expected one like {KUBELET_STATE_DIR:?}, or \"\" for none"))
        })?;
        Some(path)
    };
    Ok(())
}
