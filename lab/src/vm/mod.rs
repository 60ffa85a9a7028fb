//! Virtual machines: boots them, has them run tasks, collects the results.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::binaries::Binaries;
use crate::cache;
use crate::cgroup::Driver;
use crate::command::{last_lines, progress};
use crate::debian::KernelPackage;
use crate::job::Software;
use crate::job::{Job, Report};
use crate::process;
use crate::task::Task;
use image::Platform;

mod devices;
mod emulator;
pub(crate) mod images;
pub mod machine;

pub use machine::Machine;

/// Until containerd is ready: usually 15 s with 32 CPUs, many times that on a busy machine.
const BOOT: Duration = Duration::from_secs(240);

/// A guest that calibrated its clock while the host was busy can run faster than this: all time
/// limits in it are too short then.
const MAX_CLOCK_RATE: f64 = 1.5;

/// Held while a VM runs, across all copies of the repository.
const TURN: &str = "/run/nri-cpu-manager-lab-vm.lock";

/// When a VM may run. Emulated CPUs need real ones, but scenarios mostly wait: two at a time on two
/// CPUs take less time than one after the other.
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

/// No false hang reports on a busy host, a panic after an oops with all warnings on the console,
/// and without what is slow to emulate and protects nothing here: page table isolation, for
/// example, flushes the emulated TLB at every system call. With `cgroup_debug`, the root shows which
/// CPUs it has given to partitions.
const KERNEL: &str = "quiet loglevel=5 panic=-1 oops=panic nowatchdog tsc=reliable highres=off \
    rcupdate.rcu_cpu_stall_suppress=1 mitigations=off init_on_alloc=0 audit=0 lsm=capability nokaslr \
    cgroup_debug";

/// A virtual machine and how to run it.
#[derive(Debug, Clone)]
pub struct Vm<'a> {
    pub machine: &'a Machine,
    pub kernel: KernelPackage,
    pub software: Software,
    pub binaries: &'a Binaries,
    pub turn: Turn,
    /// Per part.
    pub patience: Duration,
}

/// Boots the machine alone and returns the result of a task.
///
/// A machine that does not boot, or whose kernel dies, gets a second try; a failing task does not.
/// Its error names the step that failed and ends with the guest's console.
pub fn run<T: DeserializeOwned>(
    machine: &Machine,
    software: impl Into<Software>,
    task: Task,
    binaries: &Binaries,
    patience: Duration,
) -> Result<T> {
    let vm = Vm {
        machine,
        kernel: KernelPackage::default(),
        software: software.into(),
        binaries,
        turn: Turn::Alone,
        patience,
    };
    vm.run(task)
}

impl Vm<'_> {
    pub fn run<T: DeserializeOwned>(&self, task: Task) -> Result<T> {
        let mut result = None;
        self.run_all(&[task], &mut |_, done, _| result = Some(done))?;
        let result = result.context("the guest did nothing")?.map_err(anyhow::Error::msg)?;
        serde_json::from_value(result).context("the guest sent another result")
    }

    /// Runs several tasks in one boot, each on an empty node. `on_result` receives the number of
    /// each task, its result or why it failed, and how long it took. A failed task does not hide
    /// others: if the guest does not survive it, the next one gets a new boot.
    ///
    /// A machine that does not boot, or whose kernel dies, gets a second try, which is reported:
    /// emulated processors make mistakes on a busy host. Failing twice in a row is an error.
    pub fn run_all(
        &self,
        tasks: &[Task],
        on_result: &mut dyn FnMut(usize, Result<Value, String>, Duration),
    ) -> Result<()> {
        let base = images::base(self.machine.platform, &self.kernel)?;
        let _turn = self.turn.wait()?;
        let name = &self.machine.name;
        let mut done = 0;
        let mut failures = 0;
        while done < tasks.len() {
            let rest = &tasks[done..];
            let mut server = self.boot(&base, rest, None)?;
            let mut on_done = |result, time| {
                on_result(done, result, time);
                done += 1;
            };
            if server.run(name, rest.len(), self.patience, &mut on_done)? {
                failures = 0;
                continue;
            }
            failures += 1;
            if failures > 1 {
                bail!(
                    "the virtual machine {name} did not boot, or its kernel died, twice in a row: this machine may be \
                     overloaded. End of the guest's console:\n{}",
                    server.last_words()
                );
            }
            let end = last_lines(&server.console(), 3).replace('\n', " | ");
            progress(format!("{name}: did NOT boot, or its kernel died ({end}); trying once more"));
        }
        Ok(())
    }

    fn boot(&self, base: &images::Base, tasks: &[Task], shell: Option<&str>) -> Result<Server> {
        let Self { machine, software, binaries, .. } = *self;
        let directory = run_directory(&machine.name)?;
        let job = Job {
            software,
            offline: machine.offline.iter().collect(),
            tasks: tasks.to_vec(),
            shell: shell.map(str::to_owned),
        };
        let job = serde_json::to_string(&job).context("cannot encode the job")?;
        let image = images::make_run(base, binaries, &job, directory.path())?;
        progress(format!(
            "{}: booting a VM with {} CPUs: about a quarter of a minute",
            machine.name,
            machine.cpus()
        ));
        let stdio = || if shell.is_some() { Stdio::piped() } else { Stdio::null() };
        let log =
            File::create(directory.path().join("qemu.log")).context("cannot create QEMU's log")?;
        let serial = |name: &str| format!("file:{}", directory.path().join(name).display());
        let parameters = init_parameters(software.driver);
        let child = qemu(base, machine, parameters, &image, directory.path())?
            .args(["-serial", &serial("console"), "-serial", &serial("results")])
            .args(if shell.is_some() { emulator::shell_port(machine.platform) } else { &[] })
            .stdin(stdio())
            .stdout(stdio())
            .stderr(log)
            .spawn()
            .context("cannot start QEMU")?;
        Ok(Server { child, directory })
    }
}

/// Fetches QEMU and a kernel, and builds the root image.
pub fn prepare() -> Result<()> {
    images::base(Platform::HERE, &KernelPackage::default()).map(|_| ())
}

/// Boots the machine, starts the plugin, and connects the VM's shell with standard input and
/// output.
pub fn shell(
    machine: &Machine,
    software: Software,
    config: &str,
    binaries: &Binaries,
) -> Result<()> {
    let kernel = KernelPackage::default();
    let base = images::base(machine.platform, &kernel)?;
    let turn = Turn::Alone;
    let _turn = turn.wait()?;
    let vm = Vm { machine, kernel, software, binaries, turn, patience: BOOT };
    let mut server = vm.boot(&base, &[], Some(config))?;
    server.wait_for_prompt()?;
    let mut lines = server.child.stdin.take().context("QEMU has no standard input")?;
    let mut answers = server.child.stdout.take().context("QEMU has no standard output")?;
    // The thread ends with the process: reading standard input cannot be interrupted.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut lines);
        let _ = lines.write_all(b"exit\n");
        // QEMU would exit if the pipe were closed.
        std::thread::sleep(Duration::MAX);
    });
    let mut buffer = [0; 4096];
    loop {
        let count = answers.read(&mut buffer).context("cannot read the answers")?;
        let Some(answer) = buffer.get(..count).filter(|answer| !answer.is_empty()) else {
            return Ok(());
        };
        // A prompt is not a whole line.
        let mut terminal = std::io::stdout();
        terminal
            .write_all(answer)
            .and_then(|()| terminal.flush())
            .context("cannot write to the terminal")?;
    }
}

/// A new directory for a run. Removes those of processes that have ended: interrupted runs.
fn run_directory(machine: &str) -> Result<tempfile::TempDir> {
    let runs = cache::directory("runs")?;
    for entry in fs::read_dir(&runs).context("cannot read target/lab/runs")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
        if !owner.is_some_and(process::is_alive) {
            cache::remove(&entry.path())?;
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{}-{machine}-", std::process::id()))
        .tempdir_in(runs)
        .context("cannot create a directory for the run")
}

struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

fn init_parameters(driver: Driver) -> &'static str {
    match driver {
        Driver::Cgroupfs => "",
        Driver::Systemd => "systemd.unit=lab.service",
    }
}

fn qemu(
    base: &images::Base,
    machine: &Machine,
    parameters: &str,
    image: &Path,
    directory: &Path,
) -> Result<Command> {
    let drive = |path: &Path| format!("file={},if=virtio,format=raw,snapshot=on", path.display());
    let console = emulator::console(machine.platform);
    let mut qemu = base.emulator.command();
    qemu.args(machine.arguments())
        .args(base.emulator.device_tree(machine, directory)?)
        .arg("-kernel")
        .arg(&base.kernel)
        .arg("-initrd")
        .arg(images::initramfs(base, machine, directory)?)
        .args([
            "-append",
            &format!("console={console} {KERNEL} {} {parameters}", machine.parameters()),
        ])
        .args(["-drive", &drive(&base.root), "-drive", &drive(image)])
        .args(if machine.devices { devices::arguments(directory)? } else { Vec::new() })
        // For the snapshots.
        .env("TMPDIR", directory);
    Ok(qemu)
}

impl Server {
    /// Calls `on_result` for each task until all are done or the guest cannot continue. False if
    /// there was none: containerd did not start, or the kernel died.
    fn run(
        &mut self,
        name: &str,
        tasks: usize,
        patience: Duration,
        on_result: &mut dyn FnMut(Result<Value, String>, Duration),
    ) -> Result<bool> {
        let mut start = Instant::now();
        // What the guest does, once it has begun a task.
        let mut doing = None;
        let mut booted = false;
        let mut read = 0;
        let mut done = 0;
        let mut broken = None;
        while done < tasks {
            let ended = self.child.try_wait().context("cannot observe QEMU")?.is_some();
            for report in self.reports(read)? {
                read += 1;
                let result = match report {
                    Report::Booted { uptime } => {
                        if uptime > MAX_CLOCK_RATE * start.elapsed().as_secs_f64() {
                            progress(format!(
                                "the guest's clock is too fast: uptime {uptime:.0} s"
                            ));
                            return Ok(false);
                        }
                        booted = true;
                        start = Instant::now();
                        doing = None;
                        continue;
                    }
                    Report::Prompt => continue,
                    Report::Progress(text) => {
                        progress(format!("  {name}: {text}"));
                        doing = Some(text);
                        continue;
                    }
                    Report::Broken(error) => {
                        broken = Some(error);
                        continue;
                    }
                    Report::Done(result) => Ok(result),
                    Report::Failed(error) => Err(self.with_last_words(error)),
                };
                on_result(result, start.elapsed());
                (start, doing) = (Instant::now(), None);
                done += 1;
            }
            let late = start.elapsed() > if booted { patience } else { BOOT };
            if !(ended || late || broken.is_some()) || done == tasks {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            if !booted {
                broken.inspect(|error| progress(error));
                return Ok(false);
            }
            let what = broken.unwrap_or_else(|| {
                let what = if ended { "ended" } else { "did not finish" };
                let seconds = start.elapsed().as_secs_f64();
                format!(
                    "the guest {what} after {seconds:.0} s: {}",
                    doing.as_deref().unwrap_or("?")
                )
            });
            let what = self.with_last_words(what);
            // A failure between two tasks says nothing about the later one, and a dead kernel
            // nothing about the plugin, which is an ordinary process: the task gets a new boot.
            if self.kernel_died() || (done > 0 && doing.is_none()) {
                progress(what);
                return Ok(done > 0);
            }
            on_result(Err(what), start.elapsed());
            return Ok(true);
        }
        Ok(true)
    }

    fn wait_for_prompt(&mut self) -> Result<()> {
        let start = Instant::now();
        let mut read = 0;
        loop {
            let ended = self.child.try_wait().context("cannot observe QEMU")?.is_some();
            for report in self.reports(read)? {
                read += 1;
                match report {
                    Report::Prompt => return Ok(()),
                    Report::Progress(text) => progress(format!("  guest: {text}")),
                    Report::Broken(error) => bail!(self.with_last_words(error)),
                    _ => {}
                }
            }
            if ended || start.elapsed() > 2 * BOOT {
                bail!(self.with_last_words("the VM did not boot".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn reports(&self, from: usize) -> Result<Vec<Report>> {
        reports(&self.directory.path().join("results"), from)
    }

    fn console(&self) -> String {
        let text = fs::read(self.directory.path().join("console")).unwrap_or_default();
        let errors = fs::read_to_string(self.directory.path().join("qemu.log")).unwrap_or_default();
        // Many features of the CPU model are not emulated; that is expected.
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
        format!("{what}\nend of the guest's console:\n{}", self.last_words())
    }
}

/// The complete reports in a file, one per line, starting with number `from`. QEMU writes single
/// bytes, so the file can end within a character.
fn reports(path: &Path, from: usize) -> Result<Vec<Report>> {
    let written = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        written => written.context("cannot read the guest's reports")?,
    };
    let lines = written.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let parse = |line: &[u8]| {
        serde_json::from_slice(line).with_context(|| {
            format!("the guest sent an invalid report: {:?}", String::from_utf8_lossy(line))
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
        assert!(error.to_string().starts_with("the guest sent an invalid report"), "{error:#}");
    }
}
