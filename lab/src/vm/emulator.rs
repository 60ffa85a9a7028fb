//! What differs between the emulated architectures: QEMU, its devices, the kernel's parameters.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::machine::Machine;
use crate::command::{command, run};
use crate::{debian, files};
use image::Platform;

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

/// QEMU and the compiler of device trees with all their dependencies, unpacked.
#[derive(Debug, Clone)]
pub(super) struct Emulator {
    platform: Platform,
    root: PathBuf,
}

impl Emulator {
    pub(super) fn unpacked(platform: Platform) -> Result<Self> {
        let packages = match platform {
            Platform::Amd64 => &["qemu-system-x86"][..],
            Platform::Arm64 => &["qemu-system-arm", "device-tree-compiler"],
        };
        Ok(Self { platform, root: debian::unpacked(packages, SUITE, Platform::HERE)? })
    }

    /// QEMU with the CPU model that the lab uses.
    pub(super) fn command(&self) -> Command {
        let mut qemu = self.program(&format!("qemu-system-{}", self.platform.machine()));
        for data in ["usr/share/seabios", "usr/share/qemu"] {
            qemu.arg("-L").arg(self.root.join(data));
        }
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
            let mut dtc = self.program("dtc");
            dtc.args(["-q", "-I", from, "-O", to]);
            dtc
        };
        let text = run(dtc("dtb", "dts").arg(&own))?;
        files::write(&source, machine.add_caches(&text)?)?;
        run(dtc("dts", "dtb").arg("-o").arg(&tree).arg(&source))?;
        Ok(vec!["-dtb".to_owned(), tree.display().to_string()])
    }
    /// A program with its own loader and libraries: the C library of the host may be too old or
    /// too new.
    fn program(&self, name: &str) -> Command {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        let mut command = command(libraries.join("ld-linux-x86-64.so.2"), ["--library-path"]);
        command.arg(&libraries).arg(self.root.join("usr/bin").join(name));
        command
    }
}
