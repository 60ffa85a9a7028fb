//! What a runtime can do, from its name and versions.
//!
//! A runtime sends its name and version, and since NRI 0.12 also its NRI version. For older runtimes a
//! table has the NRI version. An unknown runtime gets the least capabilities, which work everywhere.

use crate::events::Events;
use crate::wire::Event;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runtime {
    /// `containerd` or `cri-o`; containerd 2.0.0 to 2.0.3 say `v2`.
    pub name: String,
    /// Such as `v2.1.9`, `1.7.28-0ubuntu1` or `2.1.9+unknown`.
    pub version: String,
    /// Empty before NRI 0.12. Later it may be a text that is not a version.
    pub nri_version: String,
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)?;
        match self.nri_version.as_str() {
            "" => Ok(()),
            version => write!(f, " with NRI {version}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

const fn v(major: u32, minor: u32, patch: u32) -> Version {
    Version { major, minor, patch }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// The version at the start of a text, and the rest of the text: `v2.4.0-beta.0` is 2.4.0 and
    /// `-beta.0`.
    fn parse(text: &str) -> Option<(Version, &str)> {
        let (major, rest) = number(text.trim().trim_start_matches('v'))?;
        let (minor, rest) = number(rest.strip_prefix('.')?)?;
        // Some distributions cut off the patch number.
        let (patch, rest) = rest.strip_prefix('.').and_then(number).unwrap_or((0, rest));
        Some((v(major, minor, patch), rest))
    }
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The NRI version that the runtime has at least; `None` if unknown.
    pub nri: Option<Version>,
    /// The events that the runtime knows. It disconnects a plugin that subscribes to another one.
    pub events: Events,
    /// Whether a plugin may change containers without an event. Before NRI 0.12.1 that can deadlock
    /// the runtime.
    pub unsolicited_updates: bool,
    /// Whether the runtime offers validation of adjustments and required plugins (NRI 0.10).
    pub validation: bool,
    /// Warnings about this runtime for the operator.
    pub warnings: Vec<String>,
}

/// The events that NRI 0.10 added; some runtimes had the first two earlier.
const POD_UPDATES: Events =
    Events::of(&[Event::UPDATE_POD_SANDBOX, Event::POST_UPDATE_POD_SANDBOX]);
const VALIDATION: Events = Events::of(&[Event::VALIDATE_CONTAINER_ADJUSTMENT]);

impl Capabilities {
    pub fn of(runtime: &Runtime) -> Capabilities {
        let version = Version::parse(&runtime.version).map(|(version, _)| version);
        let table = version.and_then(|version| built_with(&runtime.name, version));
        let nri = match runtime.nri_version.as_str() {
            "" => table,
            // A runtime that sends this field has 0.12.0 at least, whatever it sends.
            text => reported_nri(text).or(table).max(Some(v(0, 12, 0))),
        };
        // Whether the runtime holds back lifecycle calls while a plugin registers. If it does not,
        // a container created at that moment is neither in the list of existing containers nor in
        // an event.
        let blocks_during_sync = matches!(&*runtime.name, "containerd" | "v2")
            && version.is_some_and(|version| {
                version >= v(2, 0, 3) || (v(1, 7, 26)..v(2, 0, 0)).contains(&version)
            });
        let at_least = |required| nri.is_some_and(|nri| nri >= required);
        let validation = at_least(v(0, 10, 0));
        let mut events = Events::ALL;
        if !validation {
            events = events.without(VALIDATION);
        }
        if !at_least(v(0, 9, 1)) {
            events = events.without(POD_UPDATES);
        }
        Capabilities {
            nri,
            events,
            unsolicited_updates: at_least(v(0, 12, 1)),
            validation,
            warnings: warnings(runtime, nri, blocks_during_sync),
        }
    }
}

/// The NRI version that the runtime reports.
///
/// A suffix may mean a commit before that version (`v0.12.1-0.20260701...`) or after it. This returns
/// the earlier version: to rely on a fix that is missing is worse than not to use one.
fn reported_nri(text: &str) -> Option<Version> {
    match Version::parse(text)? {
        (version, build) if build.is_empty() || build.starts_with('+') => Some(version),
        (Version { major, minor, patch: patch @ 1.. }, _) => Some(v(major, minor, patch - 1)),
        _ => None,
    }
}

fn built_with(name: &str, version: Version) -> Option<Version> {
    let table: &[(Version, Version)] = match name {
        "containerd" | "v2" => &[
            (v(1, 7, 0), v(0, 3, 0)),
            (v(1, 7, 7), v(0, 4, 0)),
            (v(1, 7, 14), v(0, 6, 0)),
            (v(1, 7, 16), v(0, 6, 1)),
            (v(1, 7, 26), v(0, 8, 0)),
            (v(2, 2, 0), v(0, 10, 0)),
            (v(2, 2, 1), v(0, 11, 0)),
            (v(2, 3, 0), v(0, 12, 0)),
            (v(2, 4, 0), v(0, 12, 1)),
        ],
        "cri-o" => &[
            (v(1, 26, 0), v(0, 3, 0)),
            (v(1, 29, 0), v(0, 5, 0)),
            (v(1, 29, 2), v(0, 6, 0)),
            (v(1, 31, 0), v(0, 6, 1)),
            (v(1, 32, 0), v(0, 9, 0)),
            // A commit between 0.9.0 and 0.10.0 with pod update events and without validation.
            (v(1, 33, 0), v(0, 9, 1)),
            (v(1, 34, 0), v(0, 10, 0)),
            (v(1, 35, 0), v(0, 11, 0)),
            (v(1, 37, 0), v(0, 12, 0)),
        ],
        _ => return None,
    };
    table.iter().rev().find(|(since, _)| *since <= version).map(|&(_, nri)| nri)
}

fn warnings(runtime: &Runtime, nri: Option<Version>, blocks_during_sync: bool) -> Vec<String> {
    let Some(nri) = nri else {
        return vec![format!(
            "unknown runtime {runtime}: using only what every NRI version offers"
        )];
    };
    let mut warnings = Vec::new();
    if nri <= v(0, 6, 0) {
        warnings.push(format!(
            "{runtime} can deadlock while a plugin registers (NRI {nri}, fixed in 0.6.1): use containerd 1.7.16, CRI-O \
             1.31 or later"
        ));
    }
    if !blocks_during_sync {
        warnings.push(format!(
            "{runtime} may not report containers that it creates while a plugin registers; their next event shows them"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(name: &str, version: &str, nri_version: &str) -> Capabilities {
        Capabilities::of(&Runtime {
            name: name.into(),
            version: version.into(),
            nri_version: nri_version.into(),
        })
    }

    /// For each runtime: name, version, the NRI version that it sends, the one that it is built with,
    /// event mask, unsolicited updates, whether it holds back calls while a plugin registers.
    #[test]
    fn a_runtime_has_the_capabilities_of_the_nri_version_that_it_is_built_with() {
        for (name, version, nri_version, nri, events, unsolicited, holds_back) in [
            ("containerd", "v1.7.0", "", Some(v(0, 3, 0)), 0x7ff, false, false),
            ("containerd", "v1.7.13", "", Some(v(0, 4, 0)), 0x7ff, false, false),
            ("containerd", "1.7.15", "", Some(v(0, 6, 0)), 0x7ff, false, false),
            ("containerd", "1.7.24-0ubuntu1~22.04", "", Some(v(0, 6, 1)), 0x7ff, false, false),
            ("containerd", "1.7.24~ds1", "", Some(v(0, 6, 1)), 0x7ff, false, false),
            ("containerd", "v1.7.28", "", Some(v(0, 8, 0)), 0x7ff, false, true),
            ("v2", "v2.0.0", "", Some(v(0, 8, 0)), 0x7ff, false, false),
            ("v2", "v2.0.3", "", Some(v(0, 8, 0)), 0x7ff, false, true),
            ("containerd", "2.1.9+unknown", "", Some(v(0, 8, 0)), 0x7ff, false, true),
            ("containerd", "v2.2.0", "", Some(v(0, 10, 0)), 0x3fff, false, true),
            ("containerd", "v2.2.7", "", Some(v(0, 11, 0)), 0x3fff, false, true),
            ("containerd", "v2.3.4", "v0.12.0", Some(v(0, 12, 0)), 0x3fff, false, true),
            ("containerd", "v2.3.9", "v0.12.2", Some(v(0, 12, 2)), 0x3fff, true, true),
            ("containerd", "v2.4.0-beta.0", "", Some(v(0, 12, 1)), 0x3fff, true, true),
            ("containerd", "v2.4.1", "unknown", Some(v(0, 12, 1)), 0x3fff, true, true),
            ("containerd", "v3.0.0", "", Some(v(0, 12, 1)), 0x3fff, true, true),
            ("cri-o", "1.26.1", "", Some(v(0, 3, 0)), 0x7ff, false, false),
            ("cri-o", "1.29.1", "", Some(v(0, 5, 0)), 0x7ff, false, false),
            ("cri-o", "1.30.14", "", Some(v(0, 6, 0)), 0x7ff, false, false),
            ("cri-o", "1.31.0", "", Some(v(0, 6, 1)), 0x7ff, false, false),
            ("cri-o", "1.32.0", "", Some(v(0, 9, 0)), 0x7ff, false, false),
            ("cri-o", "1.33.0", "", Some(v(0, 9, 1)), 0x1fff, false, false),
            ("cri-o", "1.34.2", "", Some(v(0, 10, 0)), 0x3fff, false, false),
            ("cri-o", "1.36.3", "", Some(v(0, 11, 0)), 0x3fff, false, false),
            ("cri-o", "1.37.0", "v0.12.3", Some(v(0, 12, 3)), 0x3fff, true, false),
            ("cri-o", "1.25.0", "", None, 0x7ff, false, false),
            ("containerd", "unknown", "", None, 0x7ff, false, false),
            ("dockerd", "29.0.0", "", None, 0x7ff, false, false),
            ("", "", "", None, 0x7ff, false, false),
        ] {
            let capabilities = capabilities(name, version, nri_version);
            let context = format!("{name} {version} {nri_version}");
            assert_eq!(capabilities.nri, nri, "{context}");
            assert_eq!(capabilities.events.mask(), events, "{context}: {:?}", capabilities.events);
            assert_eq!(capabilities.unsolicited_updates, unsolicited, "{context}");
            let mut warnings = capabilities.warnings.iter();
            let unreported = warnings.any(|warning| warning.contains("not report"));
            assert_eq!(unreported, nri.is_some() && !holds_back, "{context}");
        }
    }

    /// A text that is not a version still proves 0.12.0.
    #[test]
    fn the_nri_version_that_a_runtime_sends_takes_precedence_over_the_table() {
        for (text, nri) in [
            ("v0.12.1", v(0, 12, 1)),
            ("0.12.1", v(0, 12, 1)),
            ("v0.12.1+incompatible", v(0, 12, 1)),
            ("v0.12.1-0.20260701101010-0123456789ab", v(0, 12, 0)),
            ("v0.12.2-0.20260801101010-0123456789ab", v(0, 12, 1)),
            ("v0.12.1-5-g0123456", v(0, 12, 0)),
            ("v0.13.0-rc.1", v(0, 12, 0)),
            ("v1.0.0", v(1, 0, 0)),
            ("unknown", v(0, 12, 0)),
            ("(devel)", v(0, 12, 0)),
            ("v99999999999.1.1", v(0, 12, 0)),
        ] {
            assert_eq!(capabilities("containerd", "v1.7.0", text).nri, Some(nri), "{text}");
        }
    }

    #[test]
    fn no_version_of_a_runtime_gets_a_subscription_to_an_event_that_it_does_not_know() {
        let names = ["containerd", "v2", "cri-o", "other"];
        for (name, major, minor, patch) in names.iter().flat_map(|name| {
            (0..4).flat_map(move |major| {
                (0..40).flat_map(move |minor| (0..30).map(move |patch| (name, major, minor, patch)))
            })
        }) {
            let found = capabilities(name, &format!("{major}.{minor}.{patch}"), "");
            let known = match found.nri {
                Some(nri) if nri >= v(0, 10, 0) => 0x3fff,
                Some(nri) if nri > v(0, 9, 0) => 0x1fff,
                _ => 0x7ff,
            };
            assert_eq!(found.events.mask(), known, "{name} {major}.{minor}.{patch}");
        }
    }

    #[test]
    fn a_warning_names_the_runtime_and_its_defect() {
        for (name, version, required) in [
            ("containerd", "v1.7.15", vec!["deadlock", "not report"]),
            ("containerd", "v1.7.16", vec!["not report"]),
            ("containerd", "v2.1.9", vec![]),
            ("cri-o", "1.30.0", vec!["deadlock", "not report"]),
            ("cri-o", "1.36.0", vec!["not report"]),
            ("dockerd", "29", vec!["unknown runtime"]),
        ] {
            let warnings = capabilities(name, version, "").warnings;
            assert_eq!(warnings.len(), required.len(), "{name} {version}: {warnings:?}");
            for (warning, words) in warnings.iter().zip(required) {
                assert!(warning.contains(words) && warning.contains(name), "{warning}");
            }
        }
    }
}
