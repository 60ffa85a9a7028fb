//! Devices of a machine with `devices: true` (`vm/devices.rs`), as its guest uses them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cpuset::CpuSet;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::{command, poll, run};
use crate::{files, process};

/// The namespace of `eth1`: packets between addresses of one namespace would not leave the kernel.
const PEER: &str = "peer";
/// Nobody listens at the port.
const HERE: &str = "10.9.0.1";
const THERE: &str = "10.9.0.2";
const PORT: u16 = 9;

/// What is plugged in.
const PLUGGED: &str = "plugged";
/// For a device to go.
const GONE: Duration = Duration::from_secs(30);

/// The drivers' directories of devices.
const VIRTIO: &str = "/sys/bus/virtio/drivers";
const NETWORK: &str = "virtio_net";
const SERIAL: &str = "virtio_console";

/// Gives `eth0` and `eth1` addresses, once.
pub fn connect() -> Result<()> {
    if Path::new("/run/netns").join(PEER).exists() {
        return Ok(());
    }
    let [here, there] = [HERE, THERE].map(|address| format!("{address}/24"));
    for words in [
        &["netns", "add", PEER][..],
        &["link", "set", "eth1", "netns", PEER],
        &["address", "add", &here, "dev", "eth0"],
        &["link", "set", "eth0", "up"],
        &["-netns", PEER, "address", "add", &there, "dev", "eth1"],
        &["-netns", PEER, "link", "set", "eth1", "up"],
    ] {
        run(&mut command("ip", words))?;
    }
    Ok(())
}

/// Shell commands that keep the devices busy until they are killed: direct reads from the disk, and
/// small packets from each network interface to the other.
pub fn loads() -> Result<[String; 3]> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let probe = program.with_file_name("probe");
    let probe = probe.display();
    Ok([
        "exec dd if=/dev/vdc of=/dev/null bs=4k iflag=direct".to_owned(),
        format!("exec {probe} flood {THERE}:{PORT}"),
        format!("exec ip netns exec {PEER} {probe} flood {HERE}:{PORT}"),
    ])
}

/// Programs that run until this is dropped.
#[derive(Debug)]
pub struct Running(Vec<(String, Child)>);

impl Running {
    fn start(name: &str, command: &mut Command) -> Result<(String, Child)> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok((name.to_owned(), child.with_context(|| format!("cannot start {name}"))?))
    }

    /// [`loads`] on these CPUs.
    pub fn loads(cpus: CpuSet) -> Result<Self> {
        let mut running = Self(Vec::new());
        for load in loads()? {
            let mut command = command("taskset", ["--cpu-list", &cpus.to_string(), "sh", "-c"]);
            running.0.push(Self::start(&load, command.arg(&load))?);
        }
        Ok(running)
    }

    /// Moves interrupts every two seconds.
    pub fn irqbalance() -> Result<Self> {
        // Of its socket, which its unit would make.
        files::make_directory(Path::new("/run/irqbalance"))?;
        let mut command = command("irqbalance", ["--foreground", "--interval=2"]);
        Ok(Self(vec![Self::start("irqbalance", &mut command)?]))
    }

    pub fn still_run(&mut self) -> Result<()> {
        for (name, child) in &mut self.0 {
            let status = child.try_wait().context("cannot observe a child process")?;
            ensure!(status.is_none(), "{name} has ended: {status:?}");
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // irqbalance removes its socket.
            let _ = process::end(child, Signal::SIGTERM, Duration::from_secs(5));
        }
    }
}

/// Plugs in a network interface, of which the driver spreads interrupts over all CPUs.
pub fn plug_in() -> Result<()> {
    let device = json!({
        "driver": "virtio-net-pci",
        "id": PLUGGED,
        "netdev": "net2",
        "bus": "spare",
        "romfile": "",
    });
    ask_monitor(&json!({"execute": "device_add", "arguments": device}))
}

/// Undoes [`plug_in`].
pub fn unplug() -> Result<()> {
    let before = bound(NETWORK)?.len();
    ask_monitor(&json!({"execute": "device_del", "arguments": {"id": PLUGGED}}))?;
    let is_gone = || Ok(if bound(NETWORK)?.len() < before { Some(()) } else { None });
    poll(GONE, is_gone)?.context("the device that was plugged in does not go")
}

/// Sends a command to QEMU's monitor. Source: QEMU's `docs/interop/qmp-spec.rst`.
fn ask_monitor(command: &Value) -> Result<()> {
    let path = monitor()?;
    let port = File::options().read(true).write(true).open(&path);
    let mut port = port.with_context(|| format!("cannot open {}", path.display()))?;
    let mut answers = BufReader::new(port.try_clone()?);
    // Refused after the first time, and needed then.
    writeln!(port, "{}", json!({"execute": "qmp_capabilities"}))?;
    answer(&mut answers)?;
    writeln!(port, "{command}")?;
    let answer = answer(&mut answers)?;
    ensure!(answer.contains("\"return\""), "QEMU refuses {command}: {answer}");
    Ok(())
}

/// The next answer. The greeting and events come between.
fn answer(lines: &mut impl BufRead) -> Result<String> {
    loop {
        let mut line = String::new();
        ensure!(lines.read_line(&mut line)? > 0, "QEMU's monitor is closed");
        if line.contains("\"return\"") || line.contains("\"error\"") {
            return Ok(line);
        }
    }
}

fn monitor() -> Result<PathBuf> {
    let ports = Path::new("/sys/class/virtio-ports");
    for entry in fs::read_dir(ports).context("no virtio ports")?.flatten() {
        let name = files::read_value(&entry.path().join("name")).unwrap_or_default();
        if name == "monitor" {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    bail!("no port to QEMU's monitor")
}

/// The devices of a virtio driver.
fn bound(driver: &str) -> Result<Vec<String>> {
    let directory = Path::new(VIRTIO).join(driver);
    let entries =
        fs::read_dir(&directory).with_context(|| format!("no {}", directory.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with("virtio")).collect())
}

/// Serial devices without their driver, and so without their interrupts, until this is dropped.
#[derive(Debug)]
pub struct Unbound(Vec<String>);

impl Unbound {
    pub fn serial_devices() -> Result<Self> {
        let mut unbound = Self(Vec::new());
        for name in bound(SERIAL)? {
            files::write_value(&Path::new(VIRTIO).join(SERIAL).join("unbind"), &name)?;
            unbound.0.push(name);
        }
        Ok(unbound)
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        for name in &self.0 {
            // Another scenario would miss it, and say so.
            let _ = files::write_value(&Path::new(VIRTIO).join(SERIAL).join("bind"), name);
        }
    }
}
