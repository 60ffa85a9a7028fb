//! Files that a command reads, of which `-` is standard input.

use super::UsageError;
use super::output::cannot;
use config::{Config, ConfigError, MAX_SIZE};
use state::files;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The name of standard input in messages.
const NAME: &str = "standard input";

pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of this file in messages.
pub fn name(path: &Path) -> String {
    if is_standard(path) { NAME.to_owned() } else { path.display().to_string() }
}

/// Standard input has one content: only one argument can stand for it.
pub fn check_once<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), UsageError> {
    match paths.into_iter().filter(|path| is_standard(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(UsageError("several arguments are -: standard input is one file".to_owned())),
    }
}

pub fn text(path: &Path) -> io::Result<String> {
    if !is_standard(path) {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// A configuration's bytes. Does not use [`Config::read`]: its error for a missing file is about
/// `--config`, and it accepts no pipe, such as /dev/stdin.
pub fn config_bytes(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let bytes = if is_standard(path) {
        files::read_bounded(io::stdin().lock(), MAX_SIZE)
            .map_err(|error| format!("cannot read {NAME}: {error}"))?
    } else {
        File::open(path)
            .and_then(|file| files::read_bounded(file, MAX_SIZE))
            .map_err(cannot("read", path))?
    };
    Ok(bytes)
}

/// The configuration that `--config` names.
pub fn config(path: &Path) -> Result<Config, ConfigError> {
    if !is_standard(path) {
        return Config::read(path);
    }
    let bytes = files::read_bounded(io::stdin().lock(), MAX_SIZE)
        .map_err(|source| ConfigError::Unreadable { path: NAME.into(), source })?;
    Ok(Config::from_bytes(NAME, bytes)?)
}
