//! The mirror of the host's apt, from its source lists in both formats.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The URI of Debian's main packages.
pub(super) fn mirror(etc_apt: &Path) -> Result<String> {
    find(etc_apt, is_release).with_context(|| {
        format!("no Debian mirror in {}: add one (see sources.list(5))", etc_apt.display())
    })
}

/// The URI of security updates, if there is one.
pub(super) fn security(etc_apt: &Path, codename: &str) -> Option<String> {
    find(etc_apt, |suite| suite.strip_suffix("-security") == Some(codename))
}

/// The first URI of a wanted suite.
fn find(etc_apt: &Path, wanted: impl Fn(&str) -> bool + Copy) -> Option<String> {
    let mut texts: Vec<String> =
        fs::read_to_string(etc_apt.join("sources.list")).into_iter().collect();
    let mut parts: Vec<_> =
        fs::read_dir(etc_apt.join("sources.list.d")).into_iter().flatten().flatten().collect();
    parts.sort_by_key(std::fs::DirEntry::file_name);
    for part in parts {
        let extension = part.path().extension().map(|e| e.to_os_string()).unwrap_or_default();
        if extension == "list" || extension == "sources" {
            texts.extend(fs::read_to_string(part.path()));
        }
    }
    texts.iter().find_map(|text| one_line(text, wanted).or_else(|| stanza(text, wanted)))
}

/// `deb [options] URI bookworm main`
fn one_line(text: &str, wanted: impl Fn(&str) -> bool) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let mut words = rest.split_whitespace();
        let uri = words.next()?;
        wanted(words.next()?).then(|| uri.to_owned())
    })
}

/// The deb822 format: stanzas of `Field: value`, separated by empty lines.
fn stanza(text: &str, wanted: impl Fn(&str) -> bool) -> Option<String> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            stanza.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let enabled = field("Enabled").is_none_or(|value| value != "no");
        let suites = field("Suites")?;
        if !enabled || !suites.split_whitespace().any(&wanted) {
            return None;
        }
        field("URIs")?.split_whitespace().next().map(str::to_owned)
    })
}

/// Not updates and security fixes, which may be on another mirror.
fn is_release(suite: &str) -> bool {
    ["bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing", "unstable"]
        .contains(&suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let line = "# comment\ndeb-src http://a.example/debian bookworm main\n\
                    deb [signed-by=/k.gpg] http://b.example/debian bookworm main\n";
        assert_eq!(one_line(line, is_release).as_deref(), Some("http://b.example/debian"));
        let deb822 = "Types: deb\nURIs: http://s.example/security\nSuites: bookworm-security\n\n\
                      Types: deb\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n";
        assert_eq!(stanza(deb822, is_release).as_deref(), Some("http://m.example/debian"));
        assert_eq!(
            stanza("Types: deb\nEnabled: no\nURIs: x\nSuites: bookworm\n", is_release),
            None
        );
    }
}
