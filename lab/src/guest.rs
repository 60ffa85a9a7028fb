//! The lab's program inside a virtual machine: does an init system's setup, plays the steps,
//! reports.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use crate::command::{command, run};
use crate::containerd::ContainerdSetup;
use crate::images::Shipped;
use crate::job::{self, Oci, Software};
use crate::job::{Job, Report};
use crate::node::Node;
use crate::shell;
use crate::testbed::Testbed;
use crate::{cgroup, files, kernel};

mod watch;

/// Mount point of the run's image.
const RUN: &str = "/lab";
/// Serial ports: reports to the host, and the shell.
const REPORTS: &str = if cfg!(target_arch = "aarch64") { "/dev/ttyAMA1" } else { "/dev/ttyS1" };
const SHELL: &str = if cfg!(target_arch = "aarch64") { "/dev/ttyS0" } else { "/dev/ttyS2" };
const MEMORY: &str = "/run/lab";
/// systemd's mount options for cgroup v2. `nsdelegate` keeps a process in a cgroup namespace from
/// writing the files of the namespace's root.
const CGROUP_OPTIONS: &str = "nsdelegate,memory_recursiveprot";
/// A step that takes longer is reported with what it waits for.
const LONG: Duration = Duration::from_secs(90);

/// Plays the job. Only in a guest: it mounts file systems over `/run`, `/tmp` and others. Failures
/// of the job are reported to the host; an error means that the host cannot be reached.
pub fn main() -> Result<()> {
    let port = Mutex::new(open_line(REPORTS)?);
    let host = Arc::new(HostLine { port, sent: AtomicU64::new(0) });
    // The thread ends with the process.
    let watched = Arc::clone(&host);
    std::thread::spawn(move || watched.report_slow_steps());
    match play(&host) {
        Ok(()) => Ok(()),
        Err(error) => host.send(&Report::Broken(format!("{error:#}"))),
    }
}

fn play(host: &HostLine) -> Result<()> {
    set_up()?;
    let job = fs::read_to_string(Path::new(RUN).join("job.json"))
        .context("the run's image has no job.json")?;
    let job: Job = serde_json::from_str(&job).context("invalid job.json")?;
    set_online(&job.offline)?;
    host.send(&Report::Progress("starting containerd".to_owned()))?;
    let mut node = start_node(job.software)?;
    host.send(&Report::Booted { uptime: uptime()? })?;
    let shipped = Shipped::within(Path::new(RUN));
    // A failed report of progress is no reason to stop.
    let mut report = |text: &str| drop(host.send(&Report::Progress(text.to_owned())));
    let mut testbed = Testbed::new(&mut node, &shipped, &mut report);
    for (number, task) in job.tasks.iter().enumerate() {
        if number > 0 {
            testbed.clear()?;
            set_online(&job.offline)?;
        }
        host.send(&match testbed.run(|testbed| task.run(testbed)) {
            Ok(result) => Report::Done(result),
            Err(error) => Report::Failed(format!("{error:#}")),
        })?;
    }
    if let Some(config) = job.shell {
        testbed.start_plugin(&config)?;
        let line = open_line(SHELL)?;
        host.send(&Report::Prompt)?;
        shell::serve(&mut testbed, BufReader::new(&line), &line)?;
    }
    // No cleanup: the VM is switched off.
    host.send(&Report::Progress("done".to_owned()))?;
    std::process::exit(0)
}

fn uptime() -> Result<f64> {
    let text = files::read_value(Path::new("/proc/uptime"))?;
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds.with_context(|| format!("unexpected /proc/uptime: {text:?}"))
}

/// Takes these CPUs offline and all others online.
fn set_online(offline: &[usize]) -> Result<()> {
    for cpu in kernel::cpus("present")?.iter().filter(|cpu| *cpu > 0) {
        kernel::set_online(cpu, !offline.contains(&cpu))?;
    }
    Ok(())
}

fn start_node(software: Software) -> Result<Node> {
    let Software { version, oci, driver } = software;
    let setup = ContainerdSetup {
        version,
        programs: PathBuf::from(job::programs(version)),
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
    let mounted: Vec<&str> = mounted.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    for (kind, place, options) in [
        ("sysfs", "/sys", None),
        ("cgroup2", "/sys/fs/cgroup", Some(CGROUP_OPTIONS)),
        ("tmpfs", "/run", None),
        ("tmpfs", "/tmp", None),
        ("devpts", "/dev/pts", None),
        ("tmpfs", "/dev/shm", None),
    ] {
        if mounted.contains(&place) {
            continue;
        }
        files::make_directory(Path::new(place))?;
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
        files::write(Path::new(file), content)?;
    }
    run(&mut command("ip", ["link", "set", "lo", "up"]))?;
    Ok(())
}

/// systemd as the init process has mounted it, and the kernel ignores options that it does not
/// know.
fn check_cgroup_options() -> Result<()> {
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read the list of mounts")?;
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let options = lines.find_map(|fields| match fields[..] {
        [_, "/sys/fs/cgroup", "cgroup2", options, ..] => Some(options),
        _ => None,
    });
    let options = options.context("/sys/fs/cgroup is not cgroup v2")?;
    let present: Vec<&str> = options.split(',').collect();
    ensure!(
        CGROUP_OPTIONS.split(',').all(|option| present.contains(&option)),
        "cgroup v2 is mounted with {options}, expected {CGROUP_OPTIONS}"
    );
    Ok(())
}

fn open_line(path: &str) -> Result<File> {
    let line = OpenOptions::new().read(true).write(true).open(path);
    let line = line.with_context(|| format!("no serial port {path}"))?;
    raw(&line)?;
    Ok(line)
}

/// No echo and no added carriage returns.
fn raw(line: &File) -> Result<()> {
    let line = line.try_clone().context("cannot use the serial port")?;
    run(command("stty", ["raw", "-echo"]).stdin(line))?;
    Ok(())
}

/// The serial port for reports; several threads write to it.
struct HostLine {
    port: Mutex<File>,
    sent: AtomicU64,
}

impl HostLine {
    fn send(&self, report: &Report) -> Result<()> {
        let mut text = serde_json::to_string(report).context("cannot encode a report")?;
        text.push('\n');
        let mut line = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        self.sent.fetch_add(1, Ordering::Relaxed);
        line.write_all(text.as_bytes()).context("cannot send a report to the host")?;
        // The VM may be switched off right after the last report.
        nix::sys::termios::tcdrain(&*line).context("cannot flush the serial port")
    }

    /// Reports what the guest does if a step takes too long.
    fn report_slow_steps(&self) {
        let mut last = 0;
        loop {
            std::thread::sleep(LONG);
            let sent = self.sent.load(Ordering::Relaxed);
            if sent == last {
                let activity = watch::activity(Path::new(MEMORY));
                let _ = self.send(&Report::Progress(activity));
                last = sent + 1;
            } else {
                last = sent;
            }
        }
    }
}
