//! The parts of a virtual machine: QEMU, kernel, initramfs and root image, built once, and the
//! image of one run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::command::{command, run};
use crate::containerd::Version;
use crate::debian::{self, KernelPackage};
use crate::images::{self, Shipped};
use crate::job::CONTAINERD_1_7;
use crate::vm::emulator::Emulator;
use crate::vm::machine::{Machine, TABLES};
use crate::{cache, files};
use image::Platform;

/// Files that all runs share.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) root: PathBuf,
    busybox: PathBuf,
    pub(super) emulator: Emulator,
}

/// Packages of the root image in addition to containerd. Python is for asking the podresources
/// socket by hand.
const PACKAGES: [&str; 8] =
    ["?essential", "mount", "runc", "crun", "iproute2", "irqbalance", "systemd", "python3-grpcio"];

/// Loaded before the root file system is mounted: disk, overlayfs and network.
const MODULES: [(&str, &str); 5] = [
    ("kernel/drivers/block", "virtio_blk.ko"),
    ("kernel/fs/overlayfs", "overlay.ko"),
    ("kernel/net/core", "failover.ko"),
    ("kernel/drivers/net", "net_failover.ko"),
    ("kernel/drivers/net", "virtio_net.ko"),
];

/// The init process of the initramfs. It executes a shell, which reaps orphans and powers off even
/// if the lab crashes; or systemd with the lab as a service, if the kernel command line says so.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b ln -s /proc/self/fd /dev/fd
$b ln -s fd/0 /dev/stdin
$b ln -s fd/1 /dev/stdout
$b ln -s fd/2 /dev/stderr
$b mount -t proc proc /proc
# Compressed or not, depending on the kernel. Each comes after those that it needs.
for module in virtio_blk overlay failover net_failover virtio_net; do
  $b xzcat /$module.ko > /$module || $b mv /$module.ko /$module
  $b insmod /$module
done
$b mount -t ext4 /dev/vda /newroot
$b mount -t ext4 -o ro /dev/vdb /newroot/lab
if $b grep -q systemd.unit=lab.service /proc/cmdline; then
  $b cat > /newroot/etc/systemd/system/lab.service <<UNIT
[Unit]
DefaultDependencies=no
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
ExecStart=/lab/lab guest
StandardOutput=null
StandardError=null
UNIT
  $b mount --move /dev /newroot/dev
  $b mount --move /proc /newroot/proc
  exec $b switch_root /newroot /usr/lib/systemd/systemd
fi
$b mount --move /dev /newroot/dev
$b mount --move /proc /newroot/proc
exec $b switch_root /newroot /bin/sh -c '/lab/lab guest; echo o > /proc/sysrq-trigger; sleep 60'
"#;

pub(super) fn base(platform: Platform, kernel: &KernelPackage) -> Result<Base> {
    // Only one process builds the images.
    let _lock = cache::lock("images")?;
    let emulator = Emulator::unpacked(platform)?;
    let busybox = debian::unpacked(&["busybox-static"], "bookworm", platform)?.join("bin/busybox");
    let package = kernel.unpacked(platform)?;
    // Newer suites have both in /usr.
    let modules = find(&package.join("lib/modules"), "")
        .or_else(|_| find(&package.join("usr/lib/modules"), ""))?;
    let kernel = find(&package.join("boot"), "vmlinuz-").or_else(|_| find(&modules, "vmlinuz"))?;
    let initramfs = package.join(format!("initramfs-{}", cache::fingerprint(INIT)));
    cache::once(&initramfs, |partial| make_initramfs(partial, &modules, &busybox))?;
    let content = cache::fingerprint(&PACKAGES.concat());
    let root = format!("root-{}-{content}", platform.architecture());
    let root = cache::directory("images")?.join(root);
    cache::once(&root, |partial| make_root(partial, platform))?;
    Ok(Base { kernel, initramfs, root, busybox, emulator })
}

/// The image with what changes: the shipped files, the lab's programs, the containers' image, the
/// job.
pub(super) fn make_run(
    base: &Base,
    binaries: &Binaries,
    job: &str,
    directory: &Path,
) -> Result<PathBuf> {
    let tree = directory.join("run");
    files::make_directory(&tree)?;
    files::copy(&binaries.lab, &tree.join("lab"))?;
    files::copy(&binaries.probe, &tree.join("probe"))?;
    Shipped::copy(&binaries.programs, &tree)?;
    images::write_lab(&tree.join("image.tar"), &base.busybox, &binaries.probe)?;
    files::write(&tree.join("job.json"), job)?;
    let path = directory.join("run.ext4");
    make_file_system(&tree, &path, "96M")?;
    Ok(path)
}

/// The shared initramfs, preceded by the ACPI table that this machine needs, if any.
pub(super) fn initramfs(base: &Base, machine: &Machine, directory: &Path) -> Result<PathBuf> {
    let Some(madt) = machine.madt()? else { return Ok(base.initramfs.clone()) };
    let tree = directory.join("tree");
    let tables = tree.join(TABLES);
    files::make_directory(&tables)?;
    files::write(&tables.join("madt.aml"), madt)?;
    let path = directory.join("initramfs");
    // Linux reads tables before it can decompress.
    run(command("sh", ["-c", "(find kernel | cpio --quiet -o -H newc; cat \"$1\") > \"$0\""])
        .arg(&path)
        .arg(&base.initramfs)
        .current_dir(&tree))?;
    Ok(path)
}

/// A minimal Debian with both containerd versions. No package is configured, so that all
/// architectures are built alike.
fn make_root(path: &Path, platform: Platform) -> Result<()> {
    let tree = path.with_extension("tree");
    cache::remove(&tree)?;
    let new = debian::containerd(Version::V2_1);
    let packages = [&PACKAGES[..], &[&new]].concat();
    debian::unpack(&packages, Version::V2_1.suite(), platform, &tree)?;
    files::write(&tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    files::write(&tree.join("etc/group"), "root:x:0:\n")?;
    let old = debian::containerd(Version::V1_7);
    let old = debian::unpacked(&[&old], Version::V1_7.suite(), platform)?;
    let place = tree.join(CONTAINERD_1_7.trim_start_matches('/'));
    files::make_directory(&place)?;
    for program in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        files::copy(&old.join("usr/bin").join(program), &place.join(program))?;
    }
    files::make_directory(&tree.join("lab"))?;
    make_file_system(&tree, path, "1500M")?;
    cache::remove(&tree)
}

/// An ext4 image with the content of a directory; needs no loop device.
fn make_file_system(tree: &Path, path: &Path, size: &str) -> Result<()> {
    run(command("mke2fs", ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1", "-d"])
        .arg(tree)
        .arg(path)
        .arg(size))?;
    Ok(())
}

fn make_initramfs(path: &Path, modules: &Path, busybox: &Path) -> Result<()> {
    let tree = path.with_extension("tree");
    cache::remove(&tree)?;
    for directory in ["bin", "dev", "proc", "newroot"] {
        files::make_directory(&tree.join(directory))?;
    }
    files::copy(busybox, &tree.join("bin/busybox"))?;
    for (directory, name) in MODULES {
        files::copy(&find(&modules.join(directory), name)?, &tree.join(name))?;
    }
    files::write(&tree.join("init"), INIT)?;
    let script = "chmod +x init && find . | cpio --quiet -o -H newc | gzip -1 > \"$0\"";
    run(command("sh", ["-c", script]).arg(path).current_dir(&tree))?;
    cache::remove(&tree)
}

fn find(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .with_context(|| format!("the kernel package has no {prefix}* in {}", directory.display()))
}
