//! The cgroups of a kubelet: `kubepods`, the QoS classes below it, and one per pod.
//!
//! With cgroup v2 the lab creates them like a kubelet, including limits. With v1 the OCI runtime
//! creates them, and the lab only removes them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cpuset::CpuSet;
use nix::sched::{CloneFlags, setns};

use crate::command::poll;
use crate::files::{make_directory, read_value, write_value};
use crate::kernel::{self, CGROUPS};
use crate::pod::{CPU_PERIOD, Pod};

mod slice;

pub use crate::pod::Driver;

const CLASSES: [&str; 3] = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];

pub fn is_v2() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").exists()
}

pub fn prepare(driver: Driver) -> Result<()> {
    if !is_v2() {
        return Ok(());
    }
    if driver == Driver::Systemd {
        return slice::prepare();
    }
    let root = Path::new(CGROUPS);
    slice::delegate(root)?;
    for class in CLASSES {
        make(&root.join(class))?;
    }
    // As the kubelet does: `kubepods` may use every CPU.
    write_value(&root.join("kubepods/cpuset.cpus"), &kernel::cpus("online")?.to_string())
}

/// Creates an empty cgroup with a CPU limit, permanently.
///
/// Linux patches a jump in the running scheduler when the first cgroup gets a CPU limit and when
/// the last one loses it (`cfs_bandwidth_used`). Emulated processors can crash on that, so it
/// happens only once, early.
pub fn keep_a_limit() -> Result<()> {
    let root = Path::new(CGROUPS);
    write_value(&root.join("cgroup.subtree_control"), "+cpu")?;
    let group = add("limited")?;
    write_value(&group.join("cpu.max"), &format!("{CPU_PERIOD} {CPU_PERIOD}"))
}

pub fn add_pod(pod: &Pod) -> Result<()> {
    if !is_v2() {
        return Ok(());
    }
    match pod.driver {
        Driver::Cgroupfs => {
            make(&of_pod(pod))?;
            set_share(pod)?;
            set_limit(pod)
        }
        Driver::Systemd => {
            let limit = limit(pod).map(cpu_quota).unwrap_or_default();
            slice::add(&pod.cgroup_parent(), &format!("{}\n{limit}", cpu_weight(pod)))
        }
    }
}

/// Writes a pod's share of CPU time to its cgroup.
pub fn set_share(pod: &Pod) -> Result<()> {
    let weight = weight(pod.resources().cpu_shares);
    set(pod, "cpu.weight", &weight.to_string(), &cpu_weight(pod))
}

/// No limit is written unless all containers have one.
pub fn set_limit(pod: &Pod) -> Result<()> {
    let Some(quota) = limit(pod) else { return Ok(()) };
    set(pod, "cpu.max", &format!("{quota} {CPU_PERIOD}"), &cpu_quota(quota))
}

/// Writes a file of a pod's cgroup, or sets the property of its slice that stands for it.
fn set(pod: &Pod, file: &str, value: &str, property: &str) -> Result<()> {
    if !is_v2() {
        return Ok(());
    }
    match pod.driver {
        Driver::Cgroupfs => write_value(&of_pod(pod).join(file), value),
        Driver::Systemd => slice::set(&pod.cgroup_parent(), property),
    }
}

/// Microseconds per period; None if a container has no limit.
fn limit(pod: &Pod) -> Option<i64> {
    let limited = pod.containers.iter().all(|container| container.cpu_limit > 0);
    if limited { Some(pod.resources().cpu_quota) } else { None }
}

/// A property of the pod's slice.
fn cpu_weight(pod: &Pod) -> String {
    format!("CPUWeight={}", weight(pod.resources().cpu_shares))
}

fn cpu_quota(quota: i64) -> String {
    format!("CPUQuota={}%", quota * 100 / CPU_PERIOD)
}

/// Rewrites the cgroups of QoS classes as systemd does at any time, which clears the CPUs of a
/// class without processes.
pub fn realise_classes(driver: Driver) -> Result<()> {
    match driver {
        Driver::Cgroupfs => {
            clear_classes();
            Ok(())
        }
        Driver::Systemd => slice::realise(),
    }
}

/// The CFS quota of the process's cgroup in milli-CPUs; None if it has none.
pub fn quota(pid: u32) -> Result<Option<i64>> {
    let directory = of_process(pid, "cpu")?;
    let read = |file| read_value(&directory.join(file));
    let text = if is_v2() {
        read("cpu.max")?
    } else {
        format!("{} {}", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)
    };
    let (quota, period) = text.split_once(' ').unwrap_or((&text, ""));
    if quota == "max" || quota == "-1" {
        return Ok(None);
    }
    match (quota.parse::<i64>(), period.parse::<i64>()) {
        (Ok(quota), Ok(period @ 1..)) => Ok(Some(quota * 1000 / period)),
        _ => bail!("unexpected CFS quota in {}: {text:?}", directory.display()),
    }
}

/// `cpuset.cpus` of the process's cgroup; empty if nothing was written.
pub fn set_cpus(pid: u32) -> Result<String> {
    let path = of_process(pid, "cpuset")?.join("cpuset.cpus");
    // Without the controller there is no such file.
    if path.exists() { read_value(&path) } else { Ok(String::new()) }
}

/// The threads of all processes in a process's own cgroup.
pub fn threads(pid: u32) -> Result<Vec<u32>> {
    let file = if is_v2() { "cgroup.threads" } else { "tasks" };
    let path = of_process(pid, "cpuset")?.join(file);
    let threads: Result<Vec<u32>, _> = read_value(&path)?.lines().map(str::parse).collect();
    threads.with_context(|| format!("unexpected thread id in {}", path.display()))
}

/// Throttled periods of the process's cgroup and of its parent: container and pod.
pub fn throttled(pid: u32) -> Result<(u64, u64)> {
    let container = of_process(pid, "cpu")?;
    let pod = container.parent().context("a container's cgroup has no parent")?.to_path_buf();
    Ok((throttled_periods(&container)?, throttled_periods(&pod)?))
}

fn throttled_periods(cgroup: &Path) -> Result<u64> {
    let text = read_value(&cgroup.join("cpu.stat"))?;
    let count = text.lines().find_map(|l| l.strip_prefix("nr_throttled ")?.parse().ok());
    count.with_context(|| format!("no nr_throttled in cpu.stat of {}", cgroup.display()))
}

/// Creates a cgroup below the root of cgroup v2 unless it exists.
pub fn add(name: &str) -> Result<PathBuf> {
    let path = Path::new(CGROUPS).join(name);
    make_directory(&path)?;
    Ok(path)
}

/// The directory of a process's cgroup. `controller` selects the hierarchy of cgroup v1.
pub fn of_process(pid: u32, controller: &str) -> Result<PathBuf> {
    let controller = if is_v2() { "" } else { controller };
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .with_context(|| format!("process {pid} is gone"))?;
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    });
    let path =
        path.with_context(|| format!("process {pid} has no cgroup of controller {controller:?}"))?;
    Ok(Path::new(CGROUPS).join(controller).join(path.trim_start_matches('/')))
}

/// Where a pod's cgroup is or will be, in version 2.
pub fn of_pod(pod: &Pod) -> PathBuf {
    match pod.driver {
        Driver::Cgroupfs => Path::new(CGROUPS).join(pod.cgroup_parent().trim_start_matches('/')),
        Driver::Systemd => slice::directory(&pod.cgroup_parent()),
    }
}

/// Clears what a plugin left in the cgroups of QoS classes. With the cgroupfs driver they outlive
/// their pods, and a plugin without state would take the value for an administrator's.
pub fn clear_classes() {
    for class in ["burstable", "besteffort"] {
        let cpus = Path::new(CGROUPS).join("kubepods").join(class).join("cpuset.cpus");
        // Not every machine has it.
        let _ = fs::write(cpus, "\n");
    }
}

/// Removes a pod's cgroup in every hierarchy.
pub fn remove_pod(pod: &Pod) -> Result<()> {
    if pod.driver == Driver::Systemd {
        return slice::remove(&pod.cgroup_parent());
    }
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(pod.cgroup_parent().trim_start_matches('/')))?;
    }
    Ok(())
}

/// Removes `kubepods` unless it still has pods.
pub fn tidy() {
    for hierarchy in hierarchies() {
        for class in CLASSES.iter().rev() {
            // Not empty: another kubelet's pods.
            let _ = fs::remove_dir(hierarchy.join(class));
        }
    }
}

fn hierarchies() -> Vec<PathBuf> {
    if is_v2() {
        return vec![PathBuf::from(CGROUPS)];
    }
    fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn make(path: &Path) -> Result<()> {
    make_directory(path)?;
    slice::delegate(path)
}

fn remove_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the cgroup {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// cgroup v1's shares (2 to 262144) on the scale of v2's weight (1 to 10000).
fn weight(shares: i64) -> i64 {
    1 + (shares.max(2) - 2) * 9999 / 262_142
}

/// Makes a threaded cgroup in a container's, with the first of its CPUs, and a process with a child
/// in it. Both are in the container's PID namespace, and end with it.
///
/// # Errors
/// If the kernel refuses a write, or the processes are not there.
pub fn nest(container: &Path) -> Result<()> {
    let inner = container.join("inner");
    fs::create_dir(&inner).with_context(|| format!("cannot make {}", inner.display()))?;
    // Processes may stay in the cgroup above.
    write_value(&inner.join("cgroup.type"), "threaded")?;
    write_value(&container.join("cgroup.subtree_control"), "+cpuset")?;
    let cpus: CpuSet = read_value(&container.join("cpuset.cpus.effective"))?.parse()?;
    let cpu = cpus.iter().next().context("a container without CPUs")?;
    write_value(&inner.join("cpuset.cpus"), &cpu.to_string())?;
    let script = "echo $$ >\"$0/cgroup.procs\" && echo $$ >\"$0/inner/cgroup.threads\" && \
        { sleep 100000 & wait; }";
    let first = read_value(&container.join("cgroup.procs"))?;
    let first = first.lines().next().context("a container without processes")?;
    let processes = File::open(format!("/proc/{first}/ns/pid"))?;
    // Only the children of this thread come into the namespace.
    thread::scope(|scope| {
        let enter = || {
            setns(&processes, CloneFlags::CLONE_NEWPID)?;
            // Left to the namespace's first process: it cannot end before all of them are reaped.
            let left = "sh -c \"$1\" \"$0\" &";
            Command::new("sh").args(["-c", left]).arg(container).arg(script).status()?;
            anyhow::Ok(())
        };
        scope.spawn(enter).join().map_err(|_| anyhow!("a panic"))?
    })?;
    // A child is made there.
    let are_there = || Ok(read_value(&inner.join("cgroup.threads"))?.lines().nth(1).map(|_| ()));
    poll(Duration::from_secs(30), are_there)?
        .with_context(|| format!("no processes in {}", inner.display()))
}
