//! `cpuctl bench-gain`: the smallest run on this machine, and what is left of it. Needs root
//! and writable cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// None, and the reason is printed, on a machine that cannot run it.
fn gain(arguments: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: needs two CPUs");
        return None;
    }
    let roots = roots();
    if roots.is_empty() || roots.iter().any(|root| !is_writable(root)) {
        eprintln!("skipped: no writable cgroups with CPUs");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpuctl"));
    command.arg("bench-gain").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// Every cgroup hierarchy of this machine with CPUs or their sets.
fn roots() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let roots = mounts.lines().filter(|line| line.contains(" cgroup"));
    let roots = roots.filter_map(|line| line.split(' ').nth(1).map(PathBuf::from));
    let files = ["cpu.shares", "cpuset.cpus", "cpuset.cpus.effective"];
    roots.filter(|root| files.iter().any(|file| root.join(file).exists())).collect()
}

fn is_writable(root: &Path) -> bool {
    let probe = root.join(format!("nri-cpu-manager-gain-test-{}", std::process::id()));
    fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
}

fn left() -> Vec<PathBuf> {
    let trees = roots().into_iter().map(|root| root.join("nri-cpu-manager-gain"));
    trees.filter(|tree| tree.exists()).collect()
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), format!("{out}{err}"))
}

/// One test, because two at once would use the same cgroups.
#[test]
fn a_run_measures_and_leaves_no_cgroup() {
    let directory = tempfile::tempdir().unwrap();
    let [svg, json] = ["gain.svg", "gain.json"].map(|name| directory.path().join(name));
    let files = ["--svg", svg.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let Some(mut whole) = gain(&[&["--seconds", "0.2", "--runs", "1"], &files[..]].concat()) else {
        return;
    };
    let (code, text) = finish(whole.spawn().unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(left(), Vec::<PathBuf>::new());
    assert!(text.contains("no pinning   next to neighbours"), "{text}");
    assert!(fs::read_to_string(&svg).unwrap().ends_with("</svg>\n"));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert!(runs.len() >= 2 && runs.len().is_multiple_of(2), "{text}");
    for run in runs {
        assert!(!run["measured"]["wake_up"]["buckets"].as_array().unwrap().is_empty(), "{run}");
    }

    // Long enough to be interrupted.
    let child = gain(&["--seconds", "60", "--modes", "none"]).unwrap().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while left().is_empty() {
        assert!(Instant::now() < deadline, "it creates no cgroups");
        thread::sleep(Duration::from_millis(20));
    }
    let (code, text) = finish(gain(&["--modes", "none"]).unwrap().spawn().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("another bench-gain is running"), "{text}");
    let process = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
    let (code, text) = finish(child);
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(left(), Vec::<PathBuf>::new(), "{text}");
}
