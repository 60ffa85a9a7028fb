//! Processes by their id: their state, and the end of those that the lab started.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cpuset::CpuSet;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process that has ended is not an error. Pid 0 would mean the own process group and is ignored.
pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid @ 1..) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Sends `first` to a child and waits for its end; SIGKILL follows after `patience`.
pub fn end(child: &mut Child, first: Signal, patience: Duration) -> Result<ExitStatus> {
    signal(child.id(), first);
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a child process")? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            signal(child.id(), Signal::SIGKILL);
            return child.wait().context("cannot wait for a killed child process");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// False for zombies.
pub fn is_alive(pid: u32) -> bool {
    status_field(pid, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Start time in the kernel's ticks since boot. With the pid it identifies a process.
pub fn born(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may hold anything; the 22nd field is the 20th after it.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The CPU on which a thread runs, or ran last.
pub fn last_cpu(thread: u32) -> Option<CpuSet> {
    let text = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // The 39th field, see `born`.
    CpuSet::of(text.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()?).ok()
}

pub fn parent(pid: u32) -> Option<u32> {
    status_field(pid, "PPid")?.parse().ok()
}

/// `Cpus_allowed_list` of its status.
pub fn allowed(pid: u32) -> Result<CpuSet> {
    let list =
        status_field(pid, "Cpus_allowed_list").with_context(|| format!("process {pid} is gone"))?;
    list.parse().with_context(|| format!("unexpected Cpus_allowed_list of process {pid}"))
}

/// Where all these threads may run; ended threads do not count. Reads again while they differ,
/// because the plugin may be changing them. The error names a thread of each kind.
pub fn allowed_together(threads: impl Fn() -> Result<Vec<u32>>) -> Result<CpuSet> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let mut threads_by_list: BTreeMap<String, u32> = BTreeMap::new();
        for thread in threads()? {
            threads_by_list
                .extend(status_field(thread, "Cpus_allowed_list").map(|list| (list, thread)));
        }
        if threads_by_list.len() > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        if threads_by_list.len() > 1 {
            bail!(
                "its threads may run on different CPUs (one thread of each): {threads_by_list:?}"
            );
        }
        let (list, _) = threads_by_list.pop_first().context("its processes are gone")?;
        return list.parse().with_context(|| format!("unexpected Cpus_allowed_list: {list}"));
    }
}

/// Variables of the initial environment that start with `prefix`, sorted.
pub fn environment(pid: u32, prefix: &str) -> Result<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/environ"))
        .with_context(|| format!("cannot read the environment of process {pid}"))?;
    let all = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut variables: Vec<String> =
        all.filter(|text| text.starts_with(prefix)).map(|text| text.into_owned()).collect();
    variables.sort();
    Ok(variables)
}

pub(crate) fn status_field(pid: u32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet as Affinity, sched_getaffinity, sched_setaffinity};
    use nix::unistd::gettid;
    use std::sync::mpsc;

    #[test]
    fn a_thread_with_another_affinity_is_found() {
        let own = u32::try_from(gettid().as_raw()).unwrap();
        let own_list = allowed(own).unwrap();
        assert_eq!(allowed_together(|| Ok(vec![own, own])).unwrap(), own_list);
        // Not a valid thread id.
        assert!(allowed_together(|| Ok(vec![u32::MAX])).is_err());

        let (sender, receiver) = mpsc::channel();
        let (_end, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let mut all = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let last = (0..Affinity::count()).rfind(|cpu| all.is_set(*cpu).unwrap()).unwrap();
            all.unset(last).unwrap();
            sched_setaffinity(Pid::from_raw(0), &all).unwrap();
            sender.send(u32::try_from(gettid().as_raw()).unwrap()).unwrap();
            let _ = ended.recv();
        });
        let other: u32 = receiver.recv().unwrap();
        let error = allowed_together(|| Ok(vec![own, other])).unwrap_err().to_string();
        assert!(error.contains(&format!("\": {other}")), "{error}");
        assert!(error.contains(&format!("\"{own_list}\": {own}")), "{error}");
    }
}
