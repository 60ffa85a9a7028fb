//! What a virtual server is made of: QEMU, kernel, initramfs, root image (made once) and the image
//! of one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::cache;
use crate::command::{command, progress, run};
use crate::containerd::Version;
use crate::debian::Debian;
use crate::image::{self, shipped::Shipped};
use crate::job::{CONTAINERD_1_7, programs};
use crate::vm::machine::{Machine, TABLES};

/// Files that all runs share.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) root: PathBuf,
    busybox: PathBuf,
    /// QEMU with all its dependencies, unpacked.
    qemu: PathBuf,
}

impl Base {
    /// The same QEMU on every host: started by the unpacked loader, with the unpacked libraries and
    /// firmware. The host's C library and loader may be too old for it, or too new.
    pub(super) fn qemu(&self) -> Command {
        let at = |path: &str| self.qemu.join("usr").join(path);
        let libraries = at("lib/x86_64-linux-gnu");
        let mut qemu = command(libraries.join("ld-linux-x86-64.so.2"), ["--library-path"]);
        qemu.arg(&libraries).arg(at("bin/qemu-system-x86_64"));
        qemu.arg("-L").arg(at("share/seabios")).arg("-L").arg(at("share/qemu"));
        // A host with its own QEMU may have settings for it in /etc.
        qemu.arg("-no-user-config");
        qemu
    }
}

/// Package and suite: version 10. Older ones know no caches of dies and modules, and their
/// emulation makes guests' kernels panic.
const QEMU: (&str, &str) = ("qemu-system-x86", "trixie");

/// Packages of the root image beyond the minimum.
const PACKAGES: &str = "containerd,runc,crun,iproute2,systemd";

/// Loaded before the root file system is mounted: disk and overlayfs.
const MODULES: [&str; 2] = ["kernel/drivers/block/virtio_blk.ko", "kernel/fs/overlayfs/overlay.ko"];

/// The initramfs' first process. It hands over to a shell, which collects orphans, and powers off
/// whatever becomes of the lab; or to systemd, where the kernel's command line names it, with the
/// lab as a service.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b ln -s /proc/self/fd /dev/fd
$b ln -s fd/0 /dev/stdin
$b ln -s fd/1 /dev/stdout
$b ln -s fd/2 /dev/stderr
$b mount -t proc proc /proc
$b insmod /virtio_blk.ko
$b insmod /overlay.ko
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

pub(super) fn base() -> Result<Base> {
    // Two processes would build the same images.
    let _lock = cache::lock("images")?;
    let debian = Debian::new()?;
    debian.install_host_tools()?;
    let busybox = debian.unpacked("busybox-static", "bookworm")?.join("bin/busybox");
    let qemu = debian.unpacked_with_dependencies(QEMU.0, QEMU.1)?;
    let package = debian.kernel()?;
    let kernel = find(&package.join("boot"), "vmlinuz-")?;
    let modules = find(&package.join("lib/modules"), "")?;
    let images = cache::directory("images")?;
    let initramfs = current(&images, "initramfs-", INIT)?;
    let root = current(&images, "root-", PACKAGES)?;
    cache::once(&initramfs, |partial| make_initramfs(partial, &modules, &busybox))?;
    cache::once(&root, |partial| make_root(partial, &debian))?;
    Ok(Base { kernel, initramfs, root, busybox, qemu })
}

/// The path of an image with this content; images with other content are removed.
fn current(images: &Path, prefix: &str, content: &str) -> Result<PathBuf> {
    let name = format!("{prefix}{}", cache::fingerprint(content.as_bytes()));
    for entry in fs::read_dir(images).context("cannot read the cache of images")?.flatten() {
        let other = entry.file_name();
        if other.to_string_lossy().starts_with(prefix) && other.to_string_lossy() != name {
            cache::remove(&entry.path())?;
        }
    }
    Ok(images.join(name))
}

/// The image that carries what changes: what ships and the lab's own programs, the containers'
/// image, and what to do.
pub(super) fn make_run(
    base: &Base,
    binaries: &Binaries,
    job: &str,
    directory: &Path,
) -> Result<PathBuf> {
    let tree = directory.join("run");
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    for (from, to) in [(&binaries.lab, "lab"), (&binaries.probe, "probe")] {
        fs::copy(from, tree.join(to)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Shipped::copy(&binaries.plugin, &tree)?;
    image::write_lab(&tree.join("image.tar"), &base.busybox, &binaries.probe)?;
    fs::write(tree.join("job.json"), job).context("cannot write the job")?;
    let path = directory.join("run.ext4");
    make_file_system(&tree, &path, "96M")?;
    Ok(path)
}

/// The initramfs with the table of ACPI in front that this machine needs; the one of all machines
/// where it needs none.
pub(super) fn initramfs(base: &Base, machine: &Machine, directory: &Path) -> Result<PathBuf> {
    let Some(madt) = machine.madt()? else { return Ok(base.initramfs.clone()) };
    let tree = directory.join("tree");
    let tables = tree.join(TABLES);
    fs::create_dir_all(&tables)
        .and_then(|()| fs::write(tables.join("madt.aml"), madt))
        .with_context(|| format!("cannot write to {}", tables.display()))?;
    let path = directory.join("initramfs");
    // Linux looks for tables before it can unpack anything.
    run(command("sh", ["-c", "(find kernel | cpio --quiet -o -H newc; cat \"$1\") > \"$0\""])
        .arg(&path)
        .arg(&base.initramfs)
        .current_dir(&tree))?;
    Ok(path)
}

/// A minimal Debian with containerd, without documentation.
fn make_root(path: &Path, debian: &Debian) -> Result<()> {
    progress("building the guest's root image (once; about a minute)");
    let new = Version::V2_1.suite();
    let tree = path.with_extension("tree");
    cache::remove(&tree)?;
    run(command("mmdebstrap", ["--variant=minbase", "--quiet"])
        .arg(format!("--include={PACKAGES}"))
        .args([
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
        ])
        .args(["--dpkgopt=path-exclude=/usr/share/man/*", new])
        .arg(&tree)
        .arg(debian.source(new))
        .env("LC_ALL", "C"))?;
    let old = debian.unpacked("containerd", Version::V1_7.suite())?;
    let place = tree.join(CONTAINERD_1_7.trim_start_matches('/'));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    for program in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        fs::copy(old.join("usr/bin").join(program), place.join(program))
            .with_context(|| format!("cannot copy {program} of containerd 1.7"))?;
    }
    for version in [Version::V1_7, Version::V2_1] {
        // It needs the libraries there.
        let containerd = format!("{}/containerd", programs(version));
        version.check(command("chroot", [&tree]).args([&containerd, "--version"]))?;
    }
    fs::create_dir_all(tree.join("lab"))
        .context("cannot make the mount point of the run's image")?;
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
        fs::create_dir_all(tree.join(directory)).context("cannot make the initramfs")?;
    }
    fs::copy(busybox, tree.join("bin/busybox")).context("cannot copy busybox")?;
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap_or(module);
        unpack_module(&modules.join(module), &tree.join(name))?;
    }
    let script = tree.join("init");
    fs::write(&script, INIT).context("cannot write the initramfs' script")?;
    run(&mut command("chmod", ["+x".as_ref(), script.as_os_str()]))?;
    run(command("sh", ["-c", "find . | cpio --quiet -o -H newc | gzip -1 > \"$0\""])
        .arg(path)
        .current_dir(&tree))?;
    cache::remove(&tree)
}

/// Compressed or not, depending on the kernel package.
fn unpack_module(module: &Path, target: &Path) -> Result<()> {
    let compressed = module.with_extension("ko.xz");
    if compressed.exists() {
        run(command("sh", ["-c", "xz -dc \"$0\" > \"$1\""]).arg(compressed).arg(target))?;
    } else {
        fs::copy(module, target)
            .with_context(|| format!("the kernel package has no {}", module.display()))?;
    }
    Ok(())
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
