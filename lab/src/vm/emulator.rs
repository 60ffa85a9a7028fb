//! What differs between the emulated architectures: QEMU, its devices, the kernel's parameters.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::machine::Machine;
use crate::command::{command, run};
use crate::debian::Debian;
use crate::files;
use crate::platform::Platform;

/// The suite of version 10. Older versions have no caches per die or module, and their emulation
/// makes guest kernels panic.
const SUITE: &str = "trixie";

/// Serial ports, in the order of `-serial`: console, reports, and a third one for the shell.
pub(super) fn console(platform: Platform) -> &'static str {
    match platform {
        Platform::Amd64 => "ttyS0",
        Platform::Arm64 => "ttyAMA0",
    }
}

/// The third serial port, connected with standard input and output.
pub(super) fn shell_port(platform: Platform) -> &'static [&'static str] {
    match platform {
        Platform::Amd64 => &["-serial", "stdio"],
        Platform::Arm64 => &["-chardev", "stdio,id=shell", "-device", "pci-serial,chardev=shell"],
    }
}

/// QEMU with all its dependencies, unpacked.
#[derive(Debug, Clone)]
pub(super) struct Emulator {
    platform: Platform,
    qemu: PathBuf,
    /// The compiler of device trees; unused on machines with ACPI.
    dtc: PathBuf,
}

impl Emulator {
    pub(super) fn unpacked(platform: Platform) -> Result<Self> {
        let host = Debian::new()?;
        let package = match platform {
            Platform::Amd64 => "qemu-system-x86",
            Platform::Arm64 => "qemu-system-arm",
        };
        let qemu = host.unpacked_with_dependencies(package, SUITE)?;
        let dtc = match platform {
            Platform::Amd64 => PathBuf::new(),
            Platform::Arm64 => host.unpacked_with_dependencies("device-tree-compiler", SUITE)?,
        };
        Ok(Self { platform, qemu, dtc })
    }

    /// QEMU with the CPU model that the lab uses.
    pub(super) fn command(&self) -> Command {
        let at = |path: &str| self.qemu.join("usr").join(path);
        let mut qemu = unpacked(&self.qemu, &format!("qemu-system-{}", self.platform.machine()));
        qemu.arg("-L").arg(at("share/seabios")).arg("-L").arg(at("share/qemu"));
        // A QEMU of the host may have settings in /etc.
        qemu.args(["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none"]);
        qemu.args(["-accel", "tcg,thread=multi", "-cpu"]);
        qemu.arg(match self.platform {
            // Several dies with their own caches need full-cpuid-auto-level=off in this version of
            // QEMU. Its emulation of cmpxchg16b sometimes spoils the flags on a busy host, and the
            // kernel's allocator panics. Without fast strings (erms) the kernel copies memory by
            // words instead of bytes, which emulation does one by one.
            Platform::Amd64 => "Skylake-Server,full-cpuid-auto-level=off,-cx16,-erms",
            Platform::Arm64 => "neoverse-n1",
        });
        qemu
    }

    /// The arguments for the machine's device tree, if it has one.
    pub(super) fn device_tree(&self, machine: &Machine, directory: &Path) -> Result<Vec<String>> {
        if self.platform == Platform::Amd64 {
            return Ok(Vec::new());
        }
        let [own, source, tree] =
            ["qemu.dtb", "machine.dts", "machine.dtb"].map(|name| directory.join(name));
        let dump = format!("dumpdtb={}", own.display());
        // It describes only serial ports that are in use.
        let serial = ["-serial", "null", "-serial", "null"];
        run(self.command().args(machine.arguments()).args(serial).args(["-machine", &dump]))?;
        let dtc = |from, to| {
            let mut dtc = unpacked(&self.dtc, "dtc");
            dtc.args(["-q", "-I", from, "-O", to]);
            dtc
        };
        let text = run(dtc("dtb", "dts").arg(&own))?;
        files::write(&source, machine.add_caches(&text)?)?;
        run(dtc("dts", "dtb").arg("-o").arg(&tree).arg(&source))?;
        Ok(vec!["-dtb".to_owned(), tree.display().to_string()])
    }
}

/// A program with its own loader and libraries: the C library of the host may be too old or too
/// new.
fn unpacked(root: &Path, program: &str) -> Command {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut command = command(libraries.join("ld-linux-x86-64.so.2"), ["--library-path"]);
    command.arg(&libraries).arg(root.join("usr/bin").join(program));
    command
}

/// Runs a program of another architecture's root file system.
pub(super) fn version_of(platform: Platform, root: &Path, program: &str) -> Result<Command> {
    if platform == Platform::HERE {
        let mut chroot = command("chroot", [root]);
        chroot.args([program, "--version"]);
        return Ok(chroot);
    }
    let user = Debian::new()?.unpacked("qemu-user-static", "bookworm")?;
    let mut emulated =
        command(user.join(format!("usr/bin/qemu-{}-static", platform.machine())), ["-L"]);
    emulated.arg(root).arg(root.join(program.trim_start_matches('/'))).arg("--version");
    Ok(emulated)
}
