//! [`Planned`]: a file that has to be written.

use crate::originals::{Originals, Record, Setting, SettingValue};
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;

/// A file, what it says, and what it has to say.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) setting: Setting,
    pub(crate) path: PathBuf,
    pub(crate) observed: SettingValue,
    pub(crate) target: SettingValue,
    pub(crate) original: SettingValue,
    /// Whether another program has replaced this program's value.
    pub(crate) is_drift: bool,
    /// The handlers of an interrupt.
    pub(crate) names: Vec<String>,
}

/// The return of a file to its original value. `None` if the file is gone, or another program has set it
/// since: then the record is forgotten.
pub(crate) fn back(
    path: PathBuf,
    observed: io::Result<SettingValue>,
    setting: Setting,
    originals: &mut Originals,
) -> Option<Planned> {
    let Record { names, before, ours, .. } = originals.get(&setting)?.clone();
    let observed = match observed {
        Ok(observed) if ours.contains(&observed) => observed,
        Ok(_) => {
            originals.forget(&setting);
            return None;
        }
        Err(error) if is_gone(&error) => {
            originals.forget(&setting);
            return None;
        }
        // The write says what is wrong.
        Err(_) => ours.last()?.clone(),
    };
    let original = before.clone();
    Some(Planned { setting, path, observed, target: before, original, is_drift: false, names })
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::ENOENT, Errno::ENODEV, Errno::ENXIO];
    error.kind() == io::ErrorKind::NotFound
        || gone.iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}
