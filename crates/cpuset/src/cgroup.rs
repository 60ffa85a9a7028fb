//! [`CgroupPath`]: the path of a cgroup.

use std::fmt;
use std::sync::Arc;

/// A cgroup, as a path below the root of the hierarchy, without a slash at either end.
///
/// It never leads out of the hierarchy: it has no parts like `..`. Copies share the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupPath(Arc<str>);

impl CgroupPath {
    /// Reads a path like `/kubepods/podUID/ID`. `None` for the root, and for a path with `.`, `..`, an
    /// empty part or a NUL.
    pub fn new(path: &str) -> Option<CgroupPath> {
        let path = path.trim_matches('/');
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if path.split('/').all(plain) { Some(CgroupPath(path.into())) } else { None }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` directly below the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        self.0.rsplit_once('/').map(|(parent, _)| CgroupPath(parent.into()))
    }

    /// The topmost ancestor; `None` directly below the root.
    pub fn top(&self) -> Option<CgroupPath> {
        self.0.split_once('/').map(|(top, _)| CgroupPath(top.into()))
    }

    pub fn is_below(&self, above: &CgroupPath) -> bool {
        let rest = self.0.strip_prefix(&*above.0);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// All cgroups above this one, from the one directly below the root to its parent.
    pub fn ancestors(&self) -> Vec<CgroupPath> {
        self.0.match_indices('/').map(|(end, _)| CgroupPath(self.0[..end].into())).collect()
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for CgroupPath {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for CgroupPath {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<CgroupPath, D::Error> {
        let path = String::deserialize(from)?;
        CgroupPath::new(&path)
            .ok_or_else(|| serde::de::Error::custom(format!("{path:?} is no cgroup")))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for CgroupPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CgroupPath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A path below the root of the hierarchy." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_below_the_root_are_accepted() {
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
    fn ancestors_end_with_the_parent_and_begin_with_the_topmost_cgroup() {
        let path = CgroupPath::new("kubepods/poda/c").unwrap();
        let names: Vec<String> = path.ancestors().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["kubepods", "kubepods/poda"]);
        assert_eq!(path.top().unwrap().as_str(), "kubepods");
        assert_eq!(path.parent().unwrap().as_str(), "kubepods/poda");
        let top = CgroupPath::new("kubepods").unwrap();
        assert_eq!((top.parent(), top.top()), (None, None));
    }
}
