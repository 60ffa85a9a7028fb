//! What has changed in the configuration file.
//!
//! The file is read every now and then, by its name: the kubelet changes a mounted ConfigMap by
//! pointing a symbolic link to another directory, of which no event of the file's own tells. A
//! change counts when two looks in a row have found the same: an editor may be in the middle of
//! writing the file, and half a file can be a valid one.

use super::{Config, ConfigError, NodeIdentity};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long after a look the next one is.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// What the file holds for this node, as far as that can be told without looking at the machine; or
/// why it cannot be used.
pub type Reading = Result<Config, Mistake>;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line at fault, counted from 1; `None` if there is no text.
    pub line: Option<usize>,
    /// What is wrong, with file and line.
    pub why: String,
}

impl From<ConfigError> for Mistake {
    fn from(error: ConfigError) -> Mistake {
        Mistake { line: error.line(), why: error.to_string() }
    }
}

/// Follows a file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// What errors call it.
    name: String,
    node: NodeIdentity,
    /// What the last look found: its text, or why that cannot be read.
    found: Result<String, Mistake>,
    /// What was last told.
    told: Result<String, Mistake>,
}

impl Follower {
    /// Follows the file from which `config` was read, on this node.
    pub fn new(path: &Path, config: &Config, node: &NodeIdentity) -> Follower {
        let (name, text) = (config.name().to_owned(), Ok(config.text().to_owned()));
        Follower {
            path: path.to_owned(),
            name,
            node: node.clone(),
            found: text.clone(),
            told: text,
        }
    }

    /// What is there, if that is news and has been there for two looks.
    pub fn look(&mut self) -> Option<Reading> {
        let found = Config::text_of(&self.path).map_err(Mistake::from);
        let before = std::mem::replace(&mut self.found, found);
        if self.found != before || self.found == self.told {
            return None;
        }
        self.told.clone_from(&self.found);
        let config = |text: &String| Config::parse(&self.name, text)?.for_node(&self.node);
        Some(self.told.as_ref().map_err(Clone::clone).and_then(|text| Ok(config(text)?)))
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
    fn a_change_is_told_once_when_it_has_settled() {
        let volume = tempfile::tempdir().unwrap();
        swap(volume.path(), "..1", "strict: true\n");
        let path = volume.path().join("config.yaml");
        symlink("..data/config.yaml", &path).unwrap();
        let config = Config::read(&path).unwrap();
        let mut follower = Follower::new(&path, &config, &NodeIdentity::default());
        let mut look = || {
            let text = |config: Config| config.text().to_owned();
            follower.look().map(|reading| reading.map(text).map_err(|mistake| mistake.why))
        };
        assert_eq!([look(), look()], [None, None]);

        swap(volume.path(), "..2", "strict: false\n");
        assert_eq!(look(), None);
        assert_eq!(look(), Some(Ok("strict: false\n".to_owned())));
        assert_eq!([look(), look()], [None, None]);

        // An editor is writing it.
        fs::write(&path, "").unwrap();
        assert_eq!(look(), None);
        fs::write(&path, "strict: true\n").unwrap();
        assert_eq!(look(), None);
        assert_eq!(look(), Some(Ok("strict: true\n".to_owned())));

        // It was away for a moment, and then for good.
        fs::remove_file(&path).unwrap();
        assert_eq!(look(), None);
        fs::write(&path, "strict: true\n").unwrap();
        assert_eq!([look(), look()], [None, None]);
        fs::remove_file(&path).unwrap();
        assert_eq!(look(), None);
        let gone = look().unwrap().unwrap_err();
        assert!(gone.contains("config.yaml") && gone.contains("No such file"), "{gone}");
    }
}
