//! Debian packages, unpacked into the cache by mmdebstrap. Nothing is installed.
//!
//! The host's package sources are read for the mirror, and never changed. Signatures are checked
//! with the keyring of the Debian host.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::command::{command, progress, run};
use crate::containerd::Version;
use image::Platform;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Lists what the host's apt would fetch.
const SOURCES: [&str; 4] = ["update", "--print-uris", "-o", "Dir::State::Lists=/dev/null"];

/// Not updates and security fixes, which may be on another mirror.
const RELEASES: [&str; 8] =
    ["bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing", "unstable"];

/// Documentation and translations.
const EXCLUDED: [&str; 3] = ["doc", "locale", "man"];

/// Debian's kernel for virtual machines: `linux-image-cloud-ARCHITECTURE` of a suite, or
/// `linux-image-SERIES-cloud-ARCHITECTURE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPackage {
    suite: String,
    series: Option<String>,
}

impl Default for KernelPackage {
    fn default() -> Self {
        Self { suite: "bookworm-backports".to_owned(), series: None }
    }
}

impl FromStr for KernelPackage {
    type Err = std::convert::Infallible;

    /// `SUITE` or `SUITE/SERIES`
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let (suite, series) = match name.split_once('/') {
            Some((suite, series)) => (suite, Some(series.to_owned())),
            None => (name, None),
        };
        Ok(Self { suite: suite.to_owned(), series })
    }
}

impl KernelPackage {
    pub(crate) fn unpacked(&self, platform: Platform) -> Result<PathBuf> {
        let series = self.series.as_ref().map(|series| format!("{series}-")).unwrap_or_default();
        let package = format!("linux-image-{series}cloud-{}", platform.architecture());
        unpacked(&[&package], &self.suite, platform)
    }
}

/// containerd's package with its version, because Debian's suites move to newer ones. The suite of
/// each version is in lab/src/containerd/version.rs.
pub(crate) fn containerd(version: Version) -> String {
    format!("containerd={}.*", version.name())
}

/// A tree of packages and all that they depend on, down to the C library.
pub fn unpacked(packages: &[&str], suite: &str, platform: Platform) -> Result<PathBuf> {
    check_host()?;
    let name = format!("{suite}-{}-{}", platform.architecture(), packages.join("-"));
    let path = cache::directory("unpacked")?.join(name.replace(".*", ""));
    cache::once(&path, |partial| unpack(packages, suite, platform, partial))?;
    Ok(path)
}

/// Unpacks packages and all that they depend on. They are not configured, so they can be of any
/// architecture. Packages can also be patterns and have versions, as for apt.
pub(crate) fn unpack(
    packages: &[&str],
    suite: &str,
    platform: Platform,
    into: &Path,
) -> Result<()> {
    progress(format!("fetching {} from {suite}", packages.join(" ")));
    let release = suite.split('-').next().unwrap_or(suite);
    let mut suites = vec![release, suite];
    suites.dedup();
    run(command("mmdebstrap", ["--mode=root", "--variant=extract"])
        .arg(format!("--architectures={}", platform.architecture()))
        // apt would prefer a release to its backports.
        .arg(format!("--aptopt=APT::Default-Release \"{suite}\""))
        // One each, because mmdebstrap does not split patterns.
        .args(packages.iter().map(|package| format!("--include={package}")))
        .args(EXCLUDED.map(|directory| format!("--dpkgopt=path-exclude=/usr/share/{directory}/*")))
        .arg(release)
        .arg(into)
        .args(sources(&suites)?)
        .env("LC_ALL", "C"))?;
    Ok(())
}

/// Fails unless this is Debian 12 or newer, and the user root.
fn check_host() -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"'))
    };
    // Testing and unstable have no number.
    let old = field("VERSION_ID").is_some_and(|id| id.parse().is_ok_and(|id: u32| id < 12));
    if field("ID") != Some("debian") || old {
        bail!(
            "the lab needs Debian 12 (bookworm) or newer, for packages of containerd, QEMU and a kernel. This machine \
             is {}. Run the lab on a Debian 12 machine or virtual machine.",
            field("PRETTY_NAME").unwrap_or("another system")
        );
    }
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the lab needs root to unpack packages, run containers and write cgroups. Run the same command as \
             root (for example with sudo)."
        );
    }
    Ok(())
}

/// Lines for apt, with the mirrors of the host.
fn sources(suites: &[&str]) -> Result<Vec<String>> {
    let listed = run(&mut command("apt-get", SOURCES))?;
    let line = |suite: &&str| {
        let uri = mirror_of(&listed, suite).with_context(|| {
            format!("no Debian mirror for {suite} in apt's sources: add one (see sources.list(5))")
        })?;
        // The Release file of a testing suite may be expired; its signature is still checked.
        let valid = if *suite == "forky" { " check-valid-until=no" } else { "" };
        Ok(format!("deb [signed-by={KEYRING}{valid}] {uri} {suite} main"))
    };
    suites.iter().map(line).collect()
}

/// The first URI of a suite of the same kind in lines of apt: `'URI/dists/SUITE/InRelease' FILE ..`.
fn mirror_of<'a>(listed: &'a str, suite: &str) -> Option<&'a str> {
    listed.lines().find_map(|line| {
        let (uri, rest) = line.strip_prefix('\'')?.split_once("/dists/")?;
        let (listed, _) = rest.split_once("/InRelease'")?;
        let same_kind = if suite.ends_with("-security") {
            listed.ends_with("-security")
        } else {
            RELEASES.contains(&listed)
        };
        if same_kind { Some(uri) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_updates_have_their_own_mirror() {
        let listed = "'http://s.example/security/dists/bookworm-security/InRelease' s_InRelease 0 \n\
                      'http://m.example/debian/dists/bookworm/InRelease' m_InRelease 0 \n";
        for suite in ["bookworm", "bookworm-backports", "forky"] {
            assert_eq!(mirror_of(listed, suite), Some("http://m.example/debian"));
        }
        let security = mirror_of(listed, "bookworm-security");
        assert_eq!(security, Some("http://s.example/security"));
        assert_eq!(mirror_of("Reading..", "forky"), None);
    }
}
