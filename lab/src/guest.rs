//! The lab's program inside a virtual server: sets up what an init system would, plays the steps,
//! reports.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use crate::cgroup;
use crate::command::{command, run};
use crate::containerd::Setup;
use crate::image::shipped::Shipped;
use crate::job::{Job, Report};
use crate::node::Node;
use crate::player::Player;
use crate::shell;
use crate::software::{self, Oci, Software};
use crate::step::Step;

mod watch;

/// Mount point of the run's image.
const RUN: &str = "/lab";
/// Serial ports: reports to the host, and the shell.
const REPORTS: &str = "/dev/ttyS1";
const SHELL: &str = "/dev/ttyS2";
const MEMORY: &str = "/run/lab";
/// As systemd mounts cgroup v2 on every host that it runs. `nsdelegate` keeps a process in a cgroup
/// namespace from writing the files of its namespace's root.
const CGROUP_OPTIONS: &str = "nsdelegate,memory_recursiveprot";
/// Of a step that takes longer it is said what it waits for: few do, and these are none the worse
/// for some lines more.
const LONG: Duration = Duration::from_secs(90);

/// Plays the job. To be called in a guest only: it mounts file systems over `/run`, `/tmp` and
/// others.
pub fn main() -> Result<()> {
    let host = Host(Mutex::new(open_line(REPORTS)?));
    match play(&host) {
        Ok(()) => Ok(()),
        Err(error) => host.hears(&Report::Broken(format!("{error:#}"))),
    }
}

fn play(host: &Host) -> Result<()> {
    set_up()?;
    let job = fs::read_to_string(Path::new(RUN).join("job.json"))
        .context("the run's image has no job")?;
    let job: Job = serde_json::from_str(&job).context("the job cannot be understood")?;
    set_online(&job.offline)?;
    host.hears(&Report::Progress("starting containerd".to_owned()))?;
    let mut node = start_node(job.software)?;
    host.hears(&Report::Booted { uptime: uptime()? })?;
    let shipped = Shipped::within(Path::new(RUN));
    // A failed report of progress is no reason to stop.
    let mut tell = |text: &str| drop(host.hears(&Report::Progress(text.to_owned())));
    let mut player = Player::new(&mut node, &shipped, &mut tell);
    for (number, part) in job.parts.iter().enumerate() {
        if number > 0 {
            player.play(&Step::Clear)?;
            set_online(&job.offline)?;
        }
        if let Err(error) = play_part(&mut player, part, host) {
            host.hears(&Report::Failed(format!("{error:#}")))?;
        }
    }
    if let Some(config) = job.shell {
        player.play(&Step::StartPlugin(config))?;
        let line = open_line(SHELL)?;
        host.hears(&Report::Prompt)?;
        shell::serve(&mut player, BufReader::new(&line), &line)?;
    }
    // Clearing away is not worth the time: the machine is switched off.
    host.hears(&Report::Progress("done".to_owned()))?;
    std::process::exit(0)
}

fn uptime() -> Result<f64> {
    let text = fs::read_to_string("/proc/uptime").context("cannot read the uptime")?;
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds.with_context(|| format!("the uptime is strange: {text}"))
}

/// Takes these CPUs offline and all others online.
fn set_online(offline: &[usize]) -> Result<()> {
    for cpu in 1.. {
        let path = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        if !path.exists() {
            break;
        }
        fs::write(&path, if offline.contains(&cpu) { "0" } else { "1" })
            .with_context(|| format!("cannot write to {}", path.display()))?;
    }
    Ok(())
}

fn play_part(player: &mut Player<'_>, part: &[Step], host: &Host) -> Result<()> {
    for step in part {
        host.hears(&Report::Progress(step.describe()))?;
        let tell = |text| drop(host.hears(&Report::Progress(text)));
        let outcome = watch::watched(LONG, &player.logs(), tell, || player.play(step))?;
        host.hears(&Report::Outcome(outcome))?;
    }
    Ok(())
}

fn start_node(software: Software) -> Result<Node> {
    let Software { version, oci, driver } = software;
    let setup = Setup {
        version,
        programs: PathBuf::from(software::programs(version)),
        runc: PathBuf::from(match oci {
            Oci::Runc => "/usr/sbin/runc",
            Oci::Crun => "/usr/bin/crun",
        }),
        data: Path::new(MEMORY).join("data"),
        run: Path::new(MEMORY).join("run"),
        root: PathBuf::from("/"),
        snapshotter: "overlayfs",
        driver,
        restrict_oom_score: false,
    };
    Node::start(setup, &Path::new(RUN).join("image.tar"), &Path::new(MEMORY).join("node"))
}

/// `/proc` and `/dev` are mounted already; under systemd most others too.
fn set_up() -> Result<()> {
    let mounted = fs::read_to_string("/proc/mounts").context("cannot read the list of mounts")?;
    let is_mounted =
        |place: &str| mounted.lines().any(|line| line.split(' ').nth(1) == Some(place));
    for (kind, place, options) in [
        ("sysfs", "/sys", None),
        ("cgroup2", "/sys/fs/cgroup", Some(CGROUP_OPTIONS)),
        ("tmpfs", "/run", None),
        ("tmpfs", "/tmp", None),
        ("devpts", "/dev/pts", None),
        ("tmpfs", "/dev/shm", None),
    ] {
        if is_mounted(place) {
            continue;
        }
        fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
        mount(Some(kind), place, Some(kind), MsFlags::empty(), options)
            .with_context(|| format!("cannot mount {kind} on {place}"))?;
    }
    check_cgroup_options()?;
    cgroup::keep_a_limit()?;
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

/// systemd has mounted it where it is the first process, and the kernel leaves options out that it
/// does not know.
fn check_cgroup_options() -> Result<()> {
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read the list of mounts")?;
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = lines.find_map(|fields| match fields[..] {
        [_, "/sys/fs/cgroup", "cgroup2", options, ..] => Some(options),
        _ => None,
    });
    let found = found.context("/sys/fs/cgroup is not cgroup v2")?;
    let has = |option: &str| found.split(',').any(|one| one == option);
    ensure!(
        CGROUP_OPTIONS.split(',').all(has),
        "cgroup v2 is mounted with {found}, not {CGROUP_OPTIONS} as on other hosts"
    );
    Ok(())
}

fn open_line(path: &str) -> Result<File> {
    let line = OpenOptions::new().read(true).write(true).open(path);
    let line = line.with_context(|| format!("there is no line {path} to the host"))?;
    raw(&line)?;
    Ok(line)
}

/// No echo and no added carriage returns.
fn raw(line: &File) -> Result<()> {
    let line = line.try_clone().context("cannot use the line to the host")?;
    run(command("stty", ["raw", "-echo"]).stdin(line))?;
    Ok(())
}

/// The serial port for reports; several threads write to it.
struct Host(Mutex<File>);

impl Host {
    fn hears(&self, report: &Report) -> Result<()> {
        let mut text = serde_json::to_string(report).context("cannot write a report")?;
        text.push('\n');
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        line.write_all(text.as_bytes()).context("cannot report to the host")?;
        // The server may be switched off right after the last one.
        nix::sys::termios::tcdrain(&*line).context("cannot wait until the host has the report")
    }
}
