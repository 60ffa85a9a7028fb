//! Follows changes of the configuration file.
//!
//! The follower reads the file by its name every second. The kubelet changes a mounted ConfigMap by
//! pointing a symbolic link to another directory, which causes no event on the file itself. A
//! change counts when two reads in a row return the same text: an editor may be in the middle of
//! writing the file, and half a file can be valid.

use super::{Config, ConfigError, NodeIdentity};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time between two reads.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The configuration of this node, not yet checked against the machine; or why the file cannot be
/// used.
pub type Reading = Result<Config, Mistake>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1; `None` if there is no text.
    pub line: Option<usize>,
    /// With file and line.
    pub why: String,
}

impl From<ConfigError> for Mistake {
    fn from(error: ConfigError) -> Mistake {
        Mistake { line: error.line(), why: error.to_string() }
    }
}

#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The file's name in errors.
    name: String,
    node: NodeIdentity,
    last_read: Result<String, Mistake>,
    /// What [`Follower::read`] last returned.
    reported: Result<String, Mistake>,
}

impl Follower {
    pub fn new(path: &Path, config: &Config, node: &NodeIdentity) -> Follower {
        let text = Ok(config.text().to_owned());
        Follower {
            path: path.to_owned(),
            name: config.name().to_owned(),
            node: node.clone(),
            last_read: text.clone(),
            reported: text,
        }
    }

    /// The content of the file, if it is new and two reads have returned it.
    pub fn read(&mut self) -> Option<Reading> {
        let read = Config::text_of(&self.path).map_err(Mistake::from);
        let before = std::mem::replace(&mut self.last_read, read);
        if self.last_read != before || self.last_read == self.reported {
            return None;
        }
        self.reported.clone_from(&self.last_read);
        let config = |text: &String| Config::parse(&self.name, text)?.for_node(&self.node);
        Some(self.reported.as_ref().map_err(Clone::clone).and_then(|text| Ok(config(text)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// As the kubelet does with a ConfigMap's volume: a new directory, and a link to it put in the
    /// place of the old one.
    fn swap(volume: &Path, directory: &str, text: &str) {
        fs::create_dir(volume.join(directory)).unwrap();
        fs::write(volume.join(directory).join("config.yaml"), text).unwrap();
        symlink(directory, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    }

    #[test]
    fn a_change_is_reported_once_when_it_has_settled() {
        let volume = tempfile::tempdir().unwrap();
        swap(volume.path(), "..1", "strict: true\n");
        let path = volume.path().join("config.yaml");
        symlink("..data/config.yaml", &path).unwrap();
        let config = Config::read(&path).unwrap();
        let mut follower = Follower::new(&path, &config, &NodeIdentity::default());
        let mut read = || {
            let text = |config: Config| config.text().to_owned();
            follower.read().map(|reading| reading.map(text).map_err(|mistake| mistake.why))
        };
        assert_eq!([read(), read()], [None, None]);

        swap(volume.path(), "..2", "strict: false\n");
        assert_eq!(read(), None);
        assert_eq!(read(), Some(Ok("strict: false\n".to_owned())));
        assert_eq!([read(), read()], [None, None]);

        // An editor is writing it.
        fs::write(&path, "").unwrap();
        assert_eq!(read(), None);
        fs::write(&path, "strict: true\n").unwrap();
        assert_eq!(read(), None);
        assert_eq!(read(), Some(Ok("strict: true\n".to_owned())));

        // It was missing for a moment, and then permanently.
        fs::remove_file(&path).unwrap();
        assert_eq!(read(), None);
        fs::write(&path, "strict: true\n").unwrap();
        assert_eq!([read(), read()], [None, None]);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(), None);
        let gone = read().unwrap().unwrap_err();
        assert!(gone.contains("config.yaml") && gone.contains("No such file"), "{gone}");
    }
}
