//! Debian packages: installed on the host where needed, unpacked into the cache otherwise.
//!
//! Uses a private apt directory. The host's package sources are read for the mirror, and never
//! changed. Signatures are checked with the keyring of the Debian host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::command::{command, progress, run};
use crate::platform::Platform;
use crate::{cache, files};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Needed on the host to build images: program and package.
const HOST: &[(&str, &str)] =
    &[("mke2fs", "e2fsprogs"), ("xz", "xz-utils"), ("cpio", "cpio"), ("mmdebstrap", "mmdebstrap")];

/// Suites whose packages can be fetched; security updates of bookworm are added.
const FETCHED: [&str; 5] =
    ["bookworm", "bookworm-updates", "bookworm-backports", "trixie", "forky"];

/// Lists what the host's apt would fetch.
const SOURCES: [&str; 4] = ["update", "--print-uris", "-o", "Dir::State::Lists=/dev/null"];

/// Not updates and security fixes, which may be on another mirror.
const RELEASES: [&str; 8] =
    ["bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing", "unstable"];

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
    /// The default one has the plain name.
    pub fn cache_name(&self) -> String {
        let Self { suite, series } = self;
        match series {
            _ if *self == Self::default() => "kernel".to_owned(),
            Some(series) => format!("kernel-{suite}-{series}"),
            None => format!("kernel-{suite}"),
        }
    }
}

/// Debian packages, fetched through a private apt directory.
#[derive(Debug)]
pub struct Debian {
    /// Of the packages that are unpacked; tools of the host are always this machine's.
    platform: Platform,
    apt: PathBuf,
    mirror: String,
    security: Option<String>,
    codename: String,
}

impl Debian {
    /// Packages of this machine's architecture. Fails unless run by root on Debian 12 or newer with
    /// a mirror in its apt sources.
    pub fn new() -> Result<Self> {
        Self::of(Platform::HERE)
    }

    /// Packages of any architecture, which apt takes for the only one.
    pub fn of(platform: Platform) -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let field = |name: &str| {
            release.lines().find_map(|line| {
                Some(line.strip_prefix(name)?.strip_prefix('=')?.trim_matches('"').to_owned())
            })
        };
        let codename = field("VERSION_CODENAME").unwrap_or_default();
        let old = field("VERSION_ID").and_then(|id| id.parse().ok()).is_some_and(|id: u32| id < 12);
        if field("ID").as_deref() != Some("debian") || codename.is_empty() || old {
            bail!(
                "the lab needs Debian 12 (bookworm) or newer, for packages of containerd, QEMU and a kernel. This machine \
                 is {}. Run the lab on a Debian 12 machine or virtual machine.",
                field("PRETTY_NAME").unwrap_or_else(|| "another system".to_owned())
            );
        }
        if !nix::unistd::geteuid().is_root() {
            bail!(
                "the lab needs root to install packages, run containers and write cgroups. Run the same command as \
                 root (for example with sudo)."
            );
        }
        let listed = run(&mut command("apt-get", SOURCES)).unwrap_or_default();
        let mirror = uri_of(&listed, |suite| RELEASES.contains(&suite))
            .context("no Debian mirror in apt's sources: add one (see sources.list(5))")?;
        let security = uri_of(&listed, |suite| suite.strip_suffix("-security") == Some(&*codename));
        let apt = cache::directory(&of_platform("apt", platform))?;
        Ok(Self { platform, apt, mirror, security, codename })
    }

    /// Installs the tools to build images; an error if that would change installed packages.
    pub fn install_host_tools(&self) -> Result<()> {
        let missing = HOST.iter().filter(|(program, _)| !is_installed(program));
        let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
        if packages.is_empty() {
            return Ok(());
        }
        progress(format!("installing {}", packages.join(" ")));
        let install = |mode: &str| {
            let mut command = self.apt("apt-get", Purpose::Install);
            command.args(["install", mode, "--no-install-recommends", "--no-remove"]);
            command.args(&packages).env("DEBIAN_FRONTEND", "noninteractive");
            run(&mut command)
        };
        self.with_indexes(|| {
            only_adds(&install("--simulate")?)?;
            install("--yes").map(|_| ())
        })
    }

    /// Downloads and unpacks a package of `suite` into the cache; nothing is installed.
    pub fn unpacked(&self, package: &str, suite: &str) -> Result<PathBuf> {
        let path = self.unpacked_directory()?.join(format!("{suite}-{package}"));
        cache::once(&path, |partial| unpack(&self.download(package, suite)?, partial))?;
        Ok(path)
    }

    /// As [`unpacked`](Self::unpacked), with all dependencies down to the C library and its loader:
    /// programs in it need no files of the host.
    pub fn unpacked_with_dependencies(&self, package: &str, suite: &str) -> Result<PathBuf> {
        let path = self.unpacked_directory()?.join(format!("{suite}-{package}-complete"));
        cache::once(&path, |partial| {
            progress(format!("fetching {package} from {suite} and what it depends on"));
            let archives = partial.with_extension("debs");
            self.with_indexes(|| {
                // A first try may have left versions that newer indexes do not have.
                cache::remove(&archives)?;
                files::make_directory(&archives.join("partial"))?;
                let mut command = self.apt("apt-get", Purpose::Fetch);
                command.args(["install", "--download-only", "--yes", "--no-install-recommends"]);
                command.args(["-o", &format!("Dir::Cache::archives={}", archives.display())]);
                run(command.args(["-t", suite, package])).map(|_| ())
            })?;
            for archive in debs_in(&archives) {
                unpack(&archive, partial)?;
            }
            cache::remove(&archives)
        })?;
        Ok(path)
    }

    fn unpacked_directory(&self) -> Result<PathBuf> {
        cache::directory(&of_platform("unpacked", self.platform))
    }

    /// The kernel behind a metapackage, unpacked. Newer releases split a kernel into packages, of
    /// which `linux-image-VERSION` is empty.
    pub fn kernel(&self, package: &KernelPackage) -> Result<PathBuf> {
        let KernelPackage { suite, series } = package;
        let path = self.unpacked_directory()?.join(package.cache_name());
        cache::once(&path, |partial| {
            let series = series.as_ref().map(|series| format!("{series}-")).unwrap_or_default();
            let meta = format!("linux-image-{series}cloud-{}", self.platform.architecture());
            let images = depends_on(&self.download(&meta, suite)?, &["linux-image-"])?;
            let image = images.first().with_context(|| format!("{meta} depends on no kernel"))?;
            let image = self.download(image, suite)?;
            unpack(&image, partial)?;
            for part in depends_on(&image, &["linux-binary-", "linux-modules-"])? {
                unpack(&self.download(&part, suite)?, partial)?;
            }
            Ok(())
        })?;
        Ok(path)
    }

    /// An apt source line for a suite.
    pub fn source(&self, suite: &str) -> String {
        // The Release file of a testing suite may be expired; its signature is still checked.
        let valid = if suite == "forky" { " check-valid-until=no" } else { "" };
        format!("deb [signed-by={KEYRING}{valid}] {} {suite} main", self.mirror)
    }

    fn download(&self, package: &str, suite: &str) -> Result<PathBuf> {
        let directory = self.apt.join("debs").join(suite).join(package);
        if let Some(archive) = debs_in(&directory).next() {
            return Ok(archive);
        }
        progress(format!("fetching {package} from {suite}"));
        files::make_directory(&directory)?;
        self.with_indexes(|| {
            let mut command = self.apt("apt-get", Purpose::Fetch);
            command.args(["download", &format!("{package}/{suite}")]).current_dir(&directory);
            run(&mut command).map(|_| ())
        })?;
        debs_in(&directory)
            .next()
            .with_context(|| format!("apt-get downloaded no .deb of {package}/{suite}"))
    }

    /// Retries once with new package indexes.
    fn with_indexes(&self, act: impl Fn() -> Result<()>) -> Result<()> {
        self.update()?;
        retried(act, || {
            // apt would take a damaged index for the newest.
            cache::remove(&self.apt.join("lists"))?;
            cache::remove(&self.stamp())?;
            self.update()
        })
    }

    fn stamp(&self) -> PathBuf {
        // With other suites, the indexes are fetched again.
        self.apt.join(format!("updated-{}", cache::fingerprint(FETCHED.concat().as_bytes())))
    }

    /// Fetches the package indexes once.
    fn update(&self) -> Result<()> {
        cache::once(&self.stamp(), |partial| {
            progress("fetching Debian's package indexes");
            for directory in ["lists/partial", "cache/archives/partial", "etc"] {
                files::make_directory(&self.apt.join(directory))?;
            }
            let lines =
                |suites: &[&str]| suites.iter().map(|s| self.source(s) + "\n").collect::<String>();
            let security = |codename: &str| {
                let uri = self.security.as_ref()?;
                Some(format!("deb [signed-by={KEYRING}] {uri} {codename}-security main\n"))
            };
            let mut fetch = lines(&FETCHED);
            fetch += &security("bookworm").unwrap_or_default();
            // apt must not see newer suites when it installs on the host.
            let updates = format!("{}-updates", self.codename);
            let mut install = match self.codename.as_str() {
                "forky" | "sid" => lines(&[&self.codename]),
                codename => lines(&[codename, &updates]),
            };
            // Installed packages may come from there, and their parts must match.
            install += &security(&self.codename).unwrap_or_default();
            files::write(&self.apt.join(Purpose::Fetch.list()), fetch)?;
            files::write(&self.apt.join(Purpose::Install.list()), install)?;
            files::write(&self.apt.join("status"), "")?;
            for purpose in [Purpose::Fetch, Purpose::Install] {
                run(self.apt("apt-get", purpose).arg("update"))?;
            }
            files::write(partial, "")
        })
    }

    /// apt-get with all its files redirected. Options come after the host's configuration, so that
    /// a proxy set there is used.
    fn apt(&self, program: &str, purpose: Purpose) -> Command {
        let mut command = Command::new(program);
        let at = |name: &str| self.apt.join(name).display().to_string();
        let mut options = vec![
            format!("Dir::Etc::sourcelist={}", at(purpose.list())),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferences=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            "APT::Sandbox::User=root".to_owned(),
            "APT::Get::List-Cleanup=0".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Dpkg::Use-Pty=0".to_owned(),
        ];
        if matches!(purpose, Purpose::Fetch) {
            options.push(format!("Dir::State::status={}", at("status")));
            let architecture = self.platform.architecture();
            options.push(format!("APT::Architecture={architecture}"));
            options.push(format!("APT::Architectures={architecture}"));
        }
        for option in options {
            command.args(["-o", &option]);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// Determines which suites apt sees, and which packages it takes as installed.
#[derive(Clone, Copy)]
enum Purpose {
    /// To fetch archives, from any suite, as if nothing were installed.
    Fetch,
    /// To install on the host, from the host's own release only.
    Install,
}

impl Purpose {
    fn list(self) -> &'static str {
        match self {
            Self::Fetch => "fetch.list",
            Self::Install => "install.list",
        }
    }
}

/// This machine's packages have the plain name.
fn of_platform(directory: &str, platform: Platform) -> String {
    if platform == Platform::HERE {
        directory.to_owned()
    } else {
        format!("{directory}-{}", platform.architecture())
    }
}

/// The first URI of a wanted suite in lines of apt: `'URI/dists/SUITE/InRelease' FILE ..`.
fn uri_of(listed: &str, wanted: impl Fn(&str) -> bool) -> Option<String> {
    listed.lines().find_map(|line| {
        let (uri, rest) = line.strip_prefix('\'')?.split_once("/dists/")?;
        let (suite, _) = rest.split_once("/InRelease'")?;
        if wanted(suite) { Some(uri.to_owned()) } else { None }
    })
}

fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|d| Path::new(d).join(program).exists())
}

/// Retries once with new indexes: archives drop packages that an older index has.
fn retried(act: impl Fn() -> Result<()>, renew: impl FnOnce() -> Result<()>) -> Result<()> {
    let Err(error) = act() else { return Ok(()) };
    progress(format!("{error:#}\ntrying again with new package indexes"));
    renew()?;
    act().context("failed with new package indexes too")
}

/// Checks the output of `apt-get --simulate install`: no package of the machine may be removed,
/// downgraded or replaced.
fn only_adds(simulation: &str) -> Result<()> {
    let changed: Vec<&str> = simulation.lines().filter_map(changed_package).collect();
    if !changed.is_empty() {
        bail!(
            "installing the lab's tools would change {} installed package(s): {}. The lab never does that. Update the \
             machine (apt-get update && apt-get upgrade) and try again, or use a fresh Debian 12 machine.",
            changed.len(),
            changed.join(" ")
        );
    }
    Ok(())
}

/// `Remv NAME [OLD]` removes; `Inst NAME [OLD] (NEW ..)` replaces; `Inst NAME (NEW ..)` adds.
fn changed_package(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (verb, name) = (words.next()?, words.next()?);
    let replaces = words.next().is_some_and(|word| word.starts_with('['));
    match verb {
        "Remv" | "Purg" => Some(name),
        "Inst" if replaces => Some(name),
        _ => None,
    }
}

/// The dependencies with one of these prefixes, without versions.
fn depends_on(archive: &Path, prefixes: &[&str]) -> Result<Vec<String>> {
    let arguments = ["-f".as_ref(), archive.as_os_str(), "Depends".as_ref()];
    let depends = run(&mut command("dpkg-deb", arguments))?;
    let names = depends.split([',', ' ', '\n']);
    let wanted = names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    Ok(wanted.map(str::to_owned).collect())
}

fn unpack(archive: &Path, into: &Path) -> Result<()> {
    run(&mut command("dpkg", [Path::new("-x"), archive, into])).map(|_| ())
}

fn debs_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "deb"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Number of index fetches and the result of an action that needs `needed` of them.
    fn fetched(needed: u32) -> (u32, Result<()>) {
        let fetched = Cell::new(0);
        let act = || match fetched.get() {
            count if count < needed => bail!("404 Not Found"),
            _ => Ok(()),
        };
        let result = retried(act, || {
            fetched.set(fetched.get() + 1);
            Ok(())
        });
        (fetched.get(), result)
    }

    #[test]
    fn indexes_are_fetched_again_once() {
        assert!(matches!(fetched(0), (0, Ok(()))));
        assert!(matches!(fetched(1), (1, Ok(()))));
        let (count, result) = fetched(2);
        let error = format!("{:#}", result.unwrap_err());
        assert_eq!(
            (count, error.as_str()),
            (1, "failed with new package indexes too: 404 Not Found")
        );
    }

    #[test]
    fn the_mirror_is_that_of_a_release() {
        let listed = "'http://s.example/security/dists/bookworm-security/InRelease' s_InRelease 0 \n\
                      'http://m.example/debian/dists/bookworm/InRelease' m_InRelease 0 \n";
        let mirror = uri_of(listed, |suite| RELEASES.contains(&suite));
        assert_eq!(mirror.as_deref(), Some("http://m.example/debian"));
        assert_eq!(uri_of("Reading..", |_| true), None);
    }

    #[test]
    fn additions_are_fine_changes_are_not() {
        let adds =
            "Inst mmdebstrap (1.3.5 Debian:x [all])\nConf mmdebstrap (1.3.5 Debian:x [all])\n";
        assert!(only_adds(adds).is_ok());
        let changes = "Inst libc6 [2.36-9] (2.43-7 Debian:testing [amd64])\nRemv gdb [13.1-3]\nInst cpio (2.13 Debian:x)\n";
        let error = only_adds(changes).unwrap_err().to_string();
        assert!(
            error.contains("change 2 installed package(s)") && error.contains("libc6 gdb"),
            "{error}"
        );
    }
}
