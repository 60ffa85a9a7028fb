//! containerd on this machine, from Debian's packages.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::{self, Lock};
use crate::cgroup::Driver;
use crate::containerd::{ContainerdSetup, Version};
use crate::node::Node;
use crate::{debian, images};
use image::Platform;

/// Sockets and state. A short path, because socket names are limited.
const RUN: &str = "/run/nri-cpu-manager-lab";

/// containerd's programs, runc and busybox.
fn packages(version: Version) -> Result<[PathBuf; 3]> {
    let unpacked = |package: &str, suite| debian::unpacked(&[package], suite, Platform::HERE);
    Ok([
        unpacked(&debian::containerd(version), version.suite())?.join("usr/bin"),
        // Newer versions need newer libraries than Debian 12 has.
        unpacked("runc", "bookworm")?.join("usr/sbin/runc"),
        unpacked("busybox-static", "bookworm")?.join("bin/busybox"),
    ])
}

/// Fetches the packages of both containerd versions.
pub fn prepare() -> Result<()> {
    let _turn = cache::lock_file(&lock())?;
    packages(Version::V1_7)?;
    packages(Version::V2_1)?;
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
        let [programs, runc, busybox] = packages(version)?;
        let image = cache::directory("images")?.join("host.tar");
        images::write_lab(&image, &busybox, probe)?;
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
