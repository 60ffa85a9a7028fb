//! The lab's program inside a virtual server: sets up what an init system would, plays the steps, reports.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};

use crate::command::{command, run};
use crate::containerd::{Setup, Version};
use crate::node::Node;
use crate::step::{Outcome, Player, Step};
use crate::vm::images::CONTAINERD_1_7;
use crate::vm::{Oci, Software};

/// What a guest is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// With what.
    pub software: Software,
    /// CPUs to take offline first.
    pub offline: Vec<usize>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// What a guest says, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The kernel has come up and the lab's program runs.
    Booted,
    /// What is being done.
    Progress(String),
    /// What came of the next step.
    Outcome(Outcome),
    /// A step failed; nothing follows.
    Failed(String),
}

/// Where the image of the run is mounted.
const RUN: &str = "/lab";
const MEMORY: &str = "/run/lab";

/// Plays the job. To be called in a guest only: it mounts file systems over `/run`, `/tmp` and others.
///
/// # Errors
/// When the host cannot be reached; failures of the job itself are reported to it.
pub fn main() -> Result<()> {
    let mut reports = OpenOptions::new()
        .write(true)
        .open("/dev/ttyS1")
        .context("there is no line to the host")?;
    raw(&reports)?;
    report(&mut reports, &Report::Booted)?;
    match play(&mut reports) {
        Ok(()) => Ok(()),
        Err(error) => report(&mut reports, &Report::Failed(format!("{error:#}"))),
    }
}

fn play(reports: &mut File) -> Result<()> {
    set_up()?;
    let job = fs::read_to_string(Path::new(RUN).join("job.json"))
        .context("the run's image has no job")?;
    let job: Job = serde_json::from_str(&job).context("the job cannot be understood")?;
    for cpu in &job.offline {
        fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "0")
            .with_context(|| format!("cannot take CPU {cpu} offline"))?;
    }
    report(reports, &Report::Progress("starting containerd".to_owned()))?;
    let mut node = start_node(job.software)?;
    let program = Path::new(RUN).join("nri-cpu-manager");
    let mut line = reports.try_clone().context("cannot use the line to the host twice")?;
    // Progress that cannot be told is no reason to stop.
    let mut tell = |text: &str| drop(report(&mut line, &Report::Progress(text.to_owned())));
    let mut player = Player::new(&mut node, &program, &mut tell);
    for step in &job.steps {
        report(reports, &Report::Progress(step.describe()))?;
        let outcome = player.play(step)?;
        report(reports, &Report::Outcome(outcome))?;
    }
    // Clearing away is not worth the time: the machine is switched off.
    report(reports, &Report::Progress("done".to_owned()))?;
    std::process::exit(0)
}

fn start_node(software: Software) -> Result<Node> {
    let Software { version, oci, driver } = software;
    let programs = match version {
        Version::V1_7 => CONTAINERD_1_7,
        Version::V2_1 => "/usr/bin",
    };
    let setup = Setup {
        version,
        programs: PathBuf::from(programs),
        runc: PathBuf::from(match oci {
            Oci::Runc => "/usr/sbin/runc",
            Oci::Crun => "/usr/bin/crun",
        }),
        data: Path::new(MEMORY).join("data"),
        run: Path::new(MEMORY).join("run"),
        snapshotter: "overlayfs",
        driver,
        restrict_oom_score: false,
    };
    Node::start(setup, &Path::new(RUN).join("image.tar"), &Path::new(MEMORY).join("node"))
}

/// `/proc` and `/dev` are there already, and under systemd most of the others.
fn set_up() -> Result<()> {
    let mounted = fs::read_to_string("/proc/mounts").context("cannot read the list of mounts")?;
    let is_mounted =
        |place: &str| mounted.lines().any(|line| line.split(' ').nth(1) == Some(place));
    for (kind, place) in [
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
    ] {
        if is_mounted(place) {
            continue;
        }
        fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("cannot mount {kind} on {place}"))?;
    }
    // The runtime copies these into every pod.
    for (file, content) in [
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/resolv.conf", ""),
        ("/etc/hostname", "lab\n"),
    ] {
        fs::write(file, content).with_context(|| format!("cannot write {file}"))?;
    }
    run(&mut command("ip", ["link", "set", "lo", "up"]))?;
    Ok(())
}

/// The line carries bytes: no echo, no added carriage returns.
fn raw(line: &File) -> Result<()> {
    let line = line.try_clone().context("cannot use the line to the host")?;
    run(command("stty", ["raw", "-echo"]).stdin(line))?;
    Ok(())
}

fn report(reports: &mut File, report: &Report) -> Result<()> {
    let mut line = serde_json::to_string(report).context("cannot write a report")?;
    line.push('\n');
    reports.write_all(line.as_bytes()).context("cannot report to the host")
}
