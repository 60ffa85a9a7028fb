//! `kubeletStateDir`: where the kubelet on the same node has its state files.

use super::given::Given;
use super::source::Mistakes;
use super::values::absolute_path;
use std::path::PathBuf;

/// The kubelet's default `--root-dir`.
pub(super) const KUBELET_STATE_DIR: &str = "/var/lib/kubelet";

/// `None` if the plugin ignores the kubelet's state files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeletStateDir(pub(super) Option<PathBuf>);

impl Default for KubeletStateDir {
    fn default() -> KubeletStateDir {
        KubeletStateDir(Some(PathBuf::from(KUBELET_STATE_DIR)))
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
