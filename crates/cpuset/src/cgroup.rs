//! Where a container is in the kernel's hierarchy of cgroups.

use std::fmt;

/// A cgroup, as a path below the root of the hierarchy, without a slash at either end.
///
/// It never leads out of the hierarchy: parts like `..` cannot be in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupPath(String);

impl CgroupPath {
    /// Reads a path like `/kubepods/podUID/ID`. `None` for the root itself, and for what is no
    /// plain path.
    pub fn new(path: &str) -> Option<CgroupPath> {
        let path = path.trim_matches('/');
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        path.split('/').all(plain).then(|| CgroupPath(path.to_owned()))
    }

    /// The text, relative to the root of the hierarchy.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The group that this one is in; `None` directly below the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        self.0.rsplit_once('/').map(|(parent, _)| CgroupPath(parent.to_owned()))
    }

    /// The topmost group that this one is in; `None` directly below the root.
    pub fn top(&self) -> Option<CgroupPath> {
        self.0.split_once('/').map(|(top, _)| CgroupPath(top.to_owned()))
    }

    pub fn is_below(&self, above: &CgroupPath) -> bool {
        let rest = self.0.strip_prefix(&above.0);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// All groups that this one is in, from the one directly below the root to its parent.
    pub fn ancestors(&self) -> Vec<CgroupPath> {
        self.0.match_indices('/').map(|(end, _)| CgroupPath(self.0[..end].to_owned())).collect()
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (text, expected) in [
            ("/kubepods/poda/c", Some("kubepods/poda/c")),
            ("kubepods.slice/", Some("kubepods.slice")),
            ("", None),
            ("/", None),
            ("/kubepods/../system.slice", None),
            ("/kubepods//poda", None),
            ("./a", None),
        ] {
            assert_eq!(
                CgroupPath::new(text).as_ref().map(CgroupPath::as_str),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn families() {
        let path = CgroupPath::new("kubepods/poda/c").unwrap();
        let names: Vec<String> = path.ancestors().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["kubepods", "kubepods/poda"]);
        assert_eq!(path.top().unwrap().as_str(), "kubepods");
        assert_eq!(path.parent().unwrap().as_str(), "kubepods/poda");
        let top = CgroupPath::new("kubepods").unwrap();
        assert_eq!((top.parent(), top.top()), (None, None));
    }
}
