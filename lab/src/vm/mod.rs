//! Virtual servers: booted, given a script of steps, and their outcomes collected.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::cache;
use crate::cgroup::Driver;
use crate::command::{command, last_lines, progress};
use crate::containerd::Version;
use crate::guest::{Job, Report};
use crate::process;
use crate::step::{Outcome, Step};

pub(crate) mod images;
pub mod machine;

pub use machine::Machine;

/// How long a guest may take to reach the lab's own program: fifteen seconds are usual for 32 CPUs.
const BOOT: Duration = Duration::from_secs(90);

/// Settings that keep an emulated machine on a busy host from believing it hangs.
const KERNEL: &str = "console=ttyS0 panic=-1 quiet nowatchdog tsc=reliable highres=off rcupdate.rcu_cpu_stall_suppress=1";

/// What runs on a virtual server.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Software {
    /// Which containerd.
    pub version: Version,
    /// What runs its containers.
    pub oci: Oci,
    /// How cgroups are made. With systemd's it is the first process, as on most nodes.
    pub driver: Driver,
}

/// An OCI runtime.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
pub enum Oci {
    /// containerd's usual one.
    Runc,
    /// A smaller and faster one.
    Crun,
}

impl From<Version> for Software {
    fn from(version: Version) -> Self {
        Self { version, oci: Oci::Runc, driver: Driver::Cgroupfs }
    }
}

/// Boots the machine, carries out the steps in it and returns what came of each.
///
/// A machine that does not boot is tried once more, and that is reported; a failing step is not.
///
/// # Errors
/// When it boots neither time, or a step fails: the error names the step and ends with the guest's last words.
pub fn run(
    machine: &Machine,
    software: impl Into<Software>,
    steps: &[Step],
    binaries: &Binaries,
    patience: Duration,
) -> Result<Vec<Outcome>> {
    let base = images::base()?;
    // Emulated CPUs need real ones: two servers at a time would each take more than twice as long.
    let _turn = cache::lock_file(Path::new("/run/nri-cpu-manager-lab-vm.lock"))?;
    let directory = run_directory(&machine.name)?;
    let software = software.into();
    let job = Job { software, offline: machine.offline.clone(), steps: steps.to_vec() };
    let job = serde_json::to_string(&job).context("cannot write down the steps")?;
    let image = images::make_run(&base, binaries, &job, directory.path())?;
    for attempt in 1..=2 {
        progress(format!("{}: booting a server with {} CPUs", machine.name, machine.cpus()));
        let mut server = Server::boot(machine, software.driver, &base, &image, directory.path())?;
        match server.outcomes(steps.len(), patience)? {
            Some(outcomes) => return Ok(outcomes),
            None if attempt == 1 => progress(format!(
                "{}: did NOT boot ({}); trying once more",
                machine.name,
                last_lines(&server.console(), 3).replace('\n', " | ")
            )),
            None => bail!(
                "the virtual server {} did not boot twice in a row: the machine this runs on may be overloaded. \
                 The guest's last words:\n{}",
                machine.name,
                last_lines(&server.console(), 15)
            ),
        }
    }
    bail!("unreachable: both attempts returned")
}

/// A new directory for a run. While it is our turn nobody else uses those of earlier runs: they were interrupted.
fn run_directory(machine: &str) -> Result<tempfile::TempDir> {
    let runs = cache::directory("runs")?;
    let prefix = format!("{machine}-");
    for entry in fs::read_dir(&runs).context("cannot read the directory of the runs")?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            cache::remove(&entry.path())?;
        }
    }
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(runs)
        .context("cannot make a directory for the run")
}

/// A QEMU process.
struct Server {
    child: Child,
    directory: std::path::PathBuf,
}

impl Server {
    fn boot(
        machine: &Machine,
        driver: Driver,
        base: &images::Base,
        image: &Path,
        directory: &Path,
    ) -> Result<Self> {
        let results = directory.join("results");
        cache::remove(&results)?;
        let console = directory.join("console");
        let log = File::create(directory.join("qemu.log")).context("cannot make QEMU's log")?;
        let init = match driver {
            Driver::Cgroupfs => "",
            Driver::Systemd => " systemd.unit=lab.service",
        };
        let drive =
            |path: &Path| format!("file={},if=virtio,format=raw,snapshot=on", path.display());
        let child =
            command("qemu-system-x86_64", ["-nodefaults", "-no-reboot", "-display", "none"])
                .args(["-machine", "q35", "-accel", "tcg,thread=multi"])
                // Several dies, each with a cache of its own, need the flag in this version of QEMU.
                .args(["-cpu", "Skylake-Server,full-cpuid-auto-level=off"])
                .args(machine.arguments())
                .arg("-kernel")
                .arg(&base.kernel)
                .arg("-initrd")
                .arg(&base.initramfs)
                .args(["-append", &format!("{KERNEL}{init}")])
                .args(["-drive", &drive(&base.root), "-drive", &drive(image)])
                .args(["-serial", &format!("file:{}", console.display())])
                .args(["-serial", &format!("file:{}", results.display())])
                // Temporary files for snapshots belong to the run as well.
                .env("TMPDIR", directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("cannot start qemu-system-x86_64")?;
        Ok(Self { child, directory: directory.to_path_buf() })
    }

    /// One outcome for each step; `None` when the guest never got as far as the lab's program.
    fn outcomes(&mut self, steps: usize, patience: Duration) -> Result<Option<Vec<Outcome>>> {
        let start = Instant::now();
        let (mut outcomes, mut booted, mut seen) = (Vec::new(), false, 0);
        loop {
            let ended = self.child.try_wait().context("cannot look after QEMU")?.is_some();
            for report in self.reports(seen)? {
                seen += 1;
                match report {
                    Report::Booted => booted = true,
                    Report::Progress(text) => progress(format!("  guest: {text}")),
                    Report::Outcome(outcome) => outcomes.push(outcome),
                    Report::Failed(error) => {
                        bail!("{error}\nthe guest's console ends with:\n{}", self.last_words())
                    }
                }
                if outcomes.len() == steps {
                    return Ok(Some(outcomes));
                }
            }
            let late = start.elapsed() > if booted { patience } else { BOOT };
            match (ended || late, booted) {
                (true, false) => return Ok(None),
                (true, true) => bail!(
                    "the guest {} after {} of {steps} steps and {:.0} s; its console ends with:\n{}",
                    if ended { "ended" } else { "was still busy" },
                    outcomes.len(),
                    start.elapsed().as_secs_f64(),
                    self.last_words()
                ),
                (false, _) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The guest's complete reports from the one numbered `from` on.
    fn reports(&self, from: usize) -> Result<Vec<Report>> {
        let Ok(file) = File::open(self.directory.join("results")) else { return Ok(Vec::new()) };
        let mut reports = Vec::new();
        let mut line = String::new();
        let mut reader = BufReader::new(file);
        while reader.read_line(&mut line).context("cannot read the guest's reports")? > 0
            && line.ends_with('\n')
        {
            reports.push(std::mem::take(&mut line));
        }
        let parse = |line: &String| {
            serde_json::from_str(line.trim())
                .with_context(|| format!("the guest sent a strange report: {line:?}"))
        };
        reports.iter().skip(from).map(parse).collect()
    }

    fn console(&self) -> String {
        let text = fs::read(self.directory.join("console")).unwrap_or_default();
        let errors = fs::read_to_string(self.directory.join("qemu.log")).unwrap_or_default();
        // Features of the CPU model that emulation lacks: true, many, and of no interest.
        let errors: Vec<&str> =
            errors.lines().filter(|line| !line.contains("TCG doesn't support")).collect();
        format!("{}{}", String::from_utf8_lossy(&text), errors.join("\n"))
    }

    fn last_words(&self) -> String {
        last_lines(&self.console(), 20)
    }
}

/// Nothing in the guest is worth an orderly end: its disks are snapshots.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, Signal::SIGKILL, Duration::from_secs(5));
    }
}
