//! Virtual servers: booted, given a script of steps, and their outcomes collected.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::cache;
use crate::cgroup::Driver;
use crate::command::{last_lines, progress};
use crate::job::{Job, Report};
use crate::process;
use crate::software::Software;
use crate::step::{Outcome, Step};

pub(crate) mod images;
pub mod machine;

pub use machine::Machine;

/// How long a guest may take until containerd is ready: fifteen seconds are usual for 32 CPUs, many
/// times that on a busy machine.
const BOOT: Duration = Duration::from_secs(240);

/// A guest that measured its clock's speed while the host was busy can be so many times too fast,
/// and more: every time limit in it is too short then.
const MOST_HASTE: f64 = 1.5;

/// Held while a VM runs, across all copies of the repository.
const TURN: &str = "/run/nri-cpu-manager-lab-vm.lock";

/// When a server may run. Emulated CPUs need real ones; but many scenarios mostly wait, and two at
/// a time on two CPUs take less time than one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// No other VM runs: for interactive use, storms and measurements.
    Alone,
    /// Next to other VMs of this kind; the caller limits their number.
    WithOthers,
}

impl Turn {
    fn wait(self) -> Result<cache::Lock> {
        match self {
            Self::Alone => cache::lock_file(Path::new(TURN)),
            Self::WithOthers => cache::lock_file_with_others(Path::new(TURN)),
        }
    }
}

/// Settings that keep an emulated machine on a busy host from believing it hangs; that end a kernel
/// which has gone wrong, with its warnings on the console; and that do without what costs emulation
/// much and protects nothing here: page table isolation, for one, empties the emulated TLB at every
/// system call.
const KERNEL: &str = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic nowatchdog tsc=reliable highres=off \
    rcupdate.rcu_cpu_stall_suppress=1 mitigations=off init_on_alloc=0 audit=0 lsm=capability nokaslr";

/// The outcomes of a part, one per step, or why it failed.
pub type Played = Result<Vec<Outcome>, String>;

/// Boots the machine, carries out the steps in it and returns what came of each.
///
/// A machine that does not boot, or whose kernel dies, is tried once more, and that is reported; a
/// failing step is not.
pub fn run(
    machine: &Machine,
    software: impl Into<Software>,
    steps: &[Step],
    binaries: &Binaries,
    patience: Duration,
) -> Result<Vec<Outcome>> {
    let mut played = None;
    let mut tell = |_, part, _| played = Some(part);
    play(Turn::Alone, machine, software, &[steps.to_vec()], binaries, patience, &mut tell)?;
    played.context("the guest played nothing")?.map_err(anyhow::Error::msg)
}

/// Boots the machine and plays several parts in it, each on an empty node. `tell` hears what came
/// of each, by its number, and how long it took. One that fails hides no other: where the guest
/// cannot go on after it, it is booted anew.
///
/// `patience` is for one part. A machine that does not boot, or whose kernel dies, is tried once
/// more, and that is reported: emulated processors make mistakes on a busy host.
pub fn play(
    turn: Turn,
    machine: &Machine,
    software: impl Into<Software>,
    parts: &[Vec<Step>],
    binaries: &Binaries,
    patience: Duration,
    tell: &mut dyn FnMut(usize, Played, Duration),
) -> Result<()> {
    let base = images::base()?;
    let _turn = turn.wait()?;
    let software = software.into();
    let (mut done, mut failures) = (0, 0);
    while done < parts.len() {
        let directory = run_directory(&machine.name)?;
        let offline = machine.offline.iter().collect();
        let job = Job { software, offline, parts: parts[done..].to_vec(), shell: None };
        let job = serde_json::to_string(&job).context("cannot write down the steps")?;
        let image = images::make_run(&base, binaries, &job, directory.path())?;
        progress(format!("{}: booting a server with {} CPUs", machine.name, machine.cpus()));
        let mut server =
            Server::boot(machine, software.driver, &base, &image, directory.path(), false)?;
        let lengths: Vec<usize> = parts[done..].iter().map(Vec::len).collect();
        let mut part = |played, time| {
            tell(done, played, time);
            done += 1;
        };
        if server.play(&machine.name, &lengths, patience, &mut part)? {
            failures = 0;
            continue;
        }
        failures += 1;
        if failures > 1 {
            bail!(
                "the virtual server {} did not boot, or its kernel died, twice in a row: the machine this runs on may \
                 be overloaded. The guest's last words:\n{}",
                machine.name,
                server.last_words()
            );
        }
        progress(format!(
            "{}: did NOT boot, or its kernel died ({}); trying once more",
            machine.name,
            last_lines(&server.console(), 3).replace('\n', " | ")
        ));
    }
    Ok(())
}

/// Fetches QEMU and a kernel, and builds the root image.
pub fn prepare() -> Result<()> {
    images::base().map(|_| ())
}

/// Boots the machine, starts the plugin on it, and connects its prompt with standard input and
/// output until the person has had enough.
pub fn shell(
    machine: &Machine,
    software: Software,
    config: &str,
    binaries: &Binaries,
) -> Result<()> {
    let base = images::base()?;
    let _turn = Turn::Alone.wait()?;
    let directory = run_directory(&machine.name)?;
    let offline = machine.offline.iter().collect();
    let job = Job { software, offline, parts: Vec::new(), shell: Some(config.to_owned()) };
    let job = serde_json::to_string(&job).context("cannot write down what to do")?;
    let image = images::make_run(&base, binaries, &job, directory.path())?;
    progress(format!("{}: booting a server with {} CPUs", machine.name, machine.cpus()));
    let mut server = Server::boot(machine, software.driver, &base, &image, directory.path(), true)?;
    server.wait_for_prompt()?;
    let (lines, answers) = (server.child.stdin.take(), server.child.stdout.take());
    let (mut lines, mut answers) = (lines.context("no line")?, answers.context("no line")?);
    // It ends with the process: standard input cannot be waited for any other way.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut lines);
        let _ = lines.write_all(b"exit\n");
        // Kept open: QEMU would take its end for a wish to end.
        std::thread::sleep(Duration::MAX);
    });
    let mut buffer = [0; 4096];
    loop {
        let count = answers.read(&mut buffer).context("cannot read the answers")?;
        let Some(answer) = buffer.get(..count).filter(|answer| !answer.is_empty()) else {
            return Ok(());
        };
        // A prompt is no whole line.
        let mut terminal = std::io::stdout();
        terminal
            .write_all(answer)
            .and_then(|()| terminal.flush())
            .context("the terminal does not take it")?;
    }
}

/// A new directory for a run. Those of processes that are gone are removed: their runs were
/// interrupted.
fn run_directory(machine: &str) -> Result<tempfile::TempDir> {
    let runs = cache::directory("runs")?;
    for entry in fs::read_dir(&runs).context("cannot read the directory of the runs")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
        if !owner.is_some_and(process::is_alive) {
            cache::remove(&entry.path())?;
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{}-{machine}-", std::process::id()))
        .tempdir_in(runs)
        .context("cannot make a directory for the run")
}

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
        prompt: bool,
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
        let child = base
            .qemu()
            .args(["-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-accel", "tcg,thread=multi"])
            // Several dies, each with a cache of its own, need the flag in this version of
            // QEMU. Its emulation of cmpxchg16b sometimes spoils the flags on a busy host: the
            // kernel's allocator panics then. Without the promise of fast strings (erms) memory
            // is copied in words instead of bytes, which emulation takes one by one.
            .args(["-cpu", "Skylake-Server,full-cpuid-auto-level=off,-cx16,-erms"])
            .args(machine.arguments())
            .arg("-kernel")
            .arg(&base.kernel)
            .arg("-initrd")
            .arg(images::initramfs(base, machine, directory)?)
            .args(["-append", &format!("{KERNEL}{init}")])
            .args(["-drive", &drive(&base.root), "-drive", &drive(image)])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", results.display())])
            // Temporary files for snapshots belong to the run as well.
            .env("TMPDIR", directory)
            .args(if prompt { &["-serial", "stdio"][..] } else { &[] })
            .stdin(if prompt { Stdio::piped() } else { Stdio::null() })
            .stdout(if prompt { Stdio::piped() } else { Stdio::null() })
            .stderr(log)
            .spawn()
            .context("cannot start QEMU")?;
        Ok(Self { child, directory: directory.to_path_buf() })
    }

    /// Tells what came of each part, until all are done or the guest cannot go on. Whether at least
    /// one was told: if none was, the guest never got as far as a running containerd, or its kernel
    /// died.
    fn play(
        &mut self,
        name: &str,
        lengths: &[usize],
        patience: Duration,
        tell: &mut dyn FnMut(Played, Duration),
    ) -> Result<bool> {
        let mut start = Instant::now();
        let (mut outcomes, mut booted, mut seen, mut done) = (Vec::new(), false, 0, 0);
        let mut broken = None;
        while done < lengths.len() {
            let ended = self.child.try_wait().context("cannot look after QEMU")?.is_some();
            for report in self.reports(seen)? {
                seen += 1;
                let played = match report {
                    Report::Booted { uptime } => {
                        if uptime > MOST_HASTE * start.elapsed().as_secs_f64() {
                            progress(format!("the guest's clock is wrong: up for {uptime:.0} s"));
                            return Ok(false);
                        }
                        booted = true;
                        start = Instant::now();
                        continue;
                    }
                    Report::Prompt => continue,
                    Report::Progress(text) => {
                        progress(format!("  {name}: {text}"));
                        continue;
                    }
                    Report::Broken(error) => {
                        broken = Some(error);
                        continue;
                    }
                    Report::Outcome(outcome) => {
                        outcomes.push(outcome);
                        if lengths.get(done).is_some_and(|length| outcomes.len() < *length) {
                            continue;
                        }
                        Ok(std::mem::take(&mut outcomes))
                    }
                    Report::Failed(error) => {
                        outcomes.clear();
                        Err(self.with_last_words(error))
                    }
                };
                tell(played, start.elapsed());
                start = Instant::now();
                done += 1;
            }
            let late = start.elapsed() > if booted { patience } else { BOOT };
            if !(ended || late || broken.is_some()) || done == lengths.len() {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            if !booted {
                broken.inspect(|error| progress(error));
                return Ok(false);
            }
            let what = broken.unwrap_or_else(|| {
                let what = if ended { "ended" } else { "was still busy" };
                let seconds = start.elapsed().as_secs_f64();
                format!("the guest {what} after {} steps and {seconds:.0} s", outcomes.len())
            });
            let what = self.with_last_words(what);
            // What happened between two parts says nothing of the later one, and a kernel's death
            // nothing of the plugin, which is an ordinary process: the part gets a boot of its own.
            if self.kernel_died() || (done > 0 && outcomes.is_empty()) {
                progress(what);
                return Ok(done > 0);
            }
            tell(Err(what), start.elapsed());
            return Ok(true);
        }
        Ok(true)
    }

    fn wait_for_prompt(&mut self) -> Result<()> {
        let (start, mut seen) = (Instant::now(), 0);
        loop {
            let ended = self.child.try_wait().context("cannot look after QEMU")?.is_some();
            for report in self.reports(seen)? {
                seen += 1;
                match report {
                    Report::Prompt => return Ok(()),
                    Report::Progress(text) => progress(format!("  guest: {text}")),
                    Report::Broken(error) => bail!(self.with_last_words(error)),
                    _ => {}
                }
            }
            if ended || start.elapsed() > 2 * BOOT {
                bail!(self.with_last_words("the server did not come up".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn reports(&self, from: usize) -> Result<Vec<Report>> {
        reports(&self.directory.join("results"), from)
    }

    fn console(&self) -> String {
        let text = fs::read(self.directory.join("console")).unwrap_or_default();
        let errors = fs::read_to_string(self.directory.join("qemu.log")).unwrap_or_default();
        // Features of the CPU model that emulation lacks: true, many, and of no interest.
        let errors: Vec<&str> =
            errors.lines().filter(|line| !line.contains("TCG doesn't support")).collect();
        format!("{}{}", String::from_utf8_lossy(&text), errors.join("\n"))
    }

    fn kernel_died(&self) -> bool {
        self.console().contains("Kernel panic")
    }

    /// A panic prints the cause first, and then many stack traces.
    fn last_words(&self) -> String {
        last_lines(&self.console(), if self.kernel_died() { 80 } else { 20 })
    }

    fn with_last_words(&self, what: String) -> String {
        format!("{what}\nthe guest's console ends with:\n{}", self.last_words())
    }
}

/// The complete reports in a file, one a line, from the one numbered `from` on. QEMU writes it byte
/// by byte: its end can be in the middle of a character.
fn reports(path: &Path, from: usize) -> Result<Vec<Report>> {
    let written = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        written => written.context("cannot read the guest's reports")?,
    };
    let lines = written.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let parse = |line: &[u8]| {
        serde_json::from_slice(line).with_context(|| {
            format!("the guest sent a strange report: {:?}", String::from_utf8_lossy(line))
        })
    };
    lines.skip(from).map(parse).collect()
}

/// The disks are snapshots, so nothing needs a clean shutdown.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, Signal::SIGKILL, Duration::from_secs(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_count_once_they_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        assert!(reports(&path, 0).unwrap().is_empty());
        let all = "{\"Progress\":\"first\"}\n{\"Progress\":\"┌ second\"}\n".as_bytes();
        for end in 0..=all.len() {
            fs::write(&path, &all[..end]).unwrap();
            let complete = all[..end].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(reports(&path, 0).unwrap().len(), complete, "{end} bytes");
        }
        let [Report::Progress(text)] = &reports(&path, 1).unwrap()[..] else { panic!("not one") };
        assert_eq!(text, "┌ second");
        fs::write(&path, b"\xff\n").unwrap();
        let error = reports(&path, 0).unwrap_err();
        assert!(error.to_string().starts_with("the guest sent a strange report"), "{error:#}");
    }
}
