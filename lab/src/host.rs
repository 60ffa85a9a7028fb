//! containerd on this machine, from Debian's packages.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::{self, Lock};
use crate::cgroup::Driver;
use crate::command::command;
use crate::containerd::{ContainerdSetup, Version};
use crate::debian::Debian;
use crate::image;
use crate::node::Node;

/// Sockets and state. A short path, because socket names are limited.
const RUN: &str = "/run/nri-cpu-manager-lab";

/// Unpacked from Debian's packages.
struct Packages {
    programs: PathBuf,
    runc: PathBuf,
    busybox: PathBuf,
}

impl Packages {
    fn of(version: Version) -> Result<Self> {
        let debian = Debian::new()?;
        Ok(Self {
            programs: debian.unpacked("containerd", version.suite())?.join("usr/bin"),
            // Newer versions need newer libraries than Debian 12 has.
            runc: debian.unpacked("runc", "bookworm")?.join("usr/sbin/runc"),
            busybox: debian.unpacked("busybox-static", "bookworm")?.join("bin/busybox"),
        })
    }
}

/// Fetches the packages of both containerd versions.
pub fn prepare() -> Result<()> {
    let _turn = cache::lock_file(&lock())?;
    for version in [Version::V1_7, Version::V2_1] {
        Packages::of(version)?;
    }
    Ok(())
}

fn lock() -> PathBuf {
    Path::new(RUN).with_extension("lock")
}

/// One at a time: two would both use all CPUs.
#[derive(Debug)]
pub struct Host {
    pub node: Node,
    _lock: Lock,
}

impl Host {
    /// Waits until no other node runs on this machine. Containers can run `probe`.
    pub fn start(version: Version, probe: &Path) -> Result<Self> {
        let lock = cache::lock_file(&lock())?;
        let Packages { programs, runc, busybox } = Packages::of(version)?;
        version.check(&mut command(programs.join("containerd"), ["--version"]))?;
        let image = cache::directory("images")?.join("host.tar");
        image::write_lab(&image, &busybox, probe)?;
        let directory = cache::directory("host")?;
        let setup = ContainerdSetup {
            version,
            programs,
            runc,
            data: directory.join("data"),
            run: PathBuf::from(RUN),
            root: Path::new(RUN).join("root"),
            snapshotter: "native",
            driver: Driver::Cgroupfs,
            restrict_oom_score: true,
        };
        let node = Node::start(setup, &image, &directory.join("node"))?;
        Ok(Self { node, _lock: lock })
    }
}
