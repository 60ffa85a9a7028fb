//! `nri-cpu-manager noise`: which CPUs are observed, and the exit status, with a `/proc` of files.

use crate::support::events::{create, local, pod_and_container};
use crate::support::json_names::{names, undocumented};
use crate::support::observed::{CONFIG, ObservedDaemon};
use clap::Parser;
use cpuset::CgroupPath;
use ledger::{Admission, Container, Event, Pod, Qos};
use nri_cpu_manager::Cli;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The tables of 16 CPUs, on each of which interrupt 24 has fired this often.
fn write_proc(proc: &Path, count: usize) {
    let row = |cell: &dyn Fn(usize) -> String| (0..16).map(cell).collect::<Vec<_>>().join(" ");
    let head = row(&|cpu| format!("CPU{cpu}"));
    let counts = row(&|_| count.to_string());
    let zeros = row(&|_| "0".to_owned());
    let interrupts = format!("{head}\n24: {counts} PCI-MSIX-0000:00:05.0 1-edge eth0-rx\n");
    let softirqs = format!("{head}\nNET_RX: {zeros}\n");
    // Replaced at once: a reader sees the earlier or the later table.
    for (name, table) in [("interrupts", interrupts), ("softirqs", softirqs)] {
        fs::write(proc.join("next"), table).unwrap();
        fs::rename(proc.join("next"), proc.join(name)).unwrap();
    }
}

struct Observed {
    out: String,
    warnings: String,
    error: Option<String>,
}

async fn noise(daemon: &ObservedDaemon, proc: &Path, more: &[&str]) -> Observed {
    let proc = proc.to_str().unwrap();
    let state = daemon.paths.state_dir.to_str().unwrap();
    let fixed = ["nri-cpu-manager", "noise", "--seconds", "1", "--state-dir", state];
    let roots = ["--proc-root", proc, "--host-proc", "/nonexistent"];
    let line = [&fixed[..], &roots, more].concat();
    let command = Cli::try_parse_from(line).unwrap().command;
    // The daemon runs in this thread, so the command must not block it.
    let run = tokio::task::spawn_blocking(move || {
        let (mut out, mut warnings) = (Vec::new(), Vec::new());
        let result = command.run(&mut out, &mut warnings);
        Observed {
            out: String::from_utf8(out).unwrap(),
            warnings: String::from_utf8(warnings).unwrap(),
            error: result.err().map(|error| error.to_string()),
        }
    });
    run.await.unwrap()
}

/// A daemon whose container `db` has CPUs and a cgroup, and `old` CPUs without one.
async fn daemon() -> ObservedDaemon {
    let daemon = ObservedDaemon::connected(CONFIG).await;
    let (pod, mut container) = pod_and_container("db", Qos::Guaranteed, 2000);
    container.cgroup = CgroupPath::new("kubepods/pod-db/c");
    run(&daemon, pod, container).await;
    let (pod, container) = pod_and_container("old", Qos::Guaranteed, 1000);
    run(&daemon, pod, container).await;
    daemon.event(create("web", Qos::Burstable, 500)).await.unwrap();
    daemon
}

async fn run(daemon: &ObservedDaemon, pod: Pod, container: Container) {
    let create = Admission::Create { pod: pod.clone(), container: container.clone() };
    daemon.event(create).await.unwrap();
    daemon.event(Event::Started { pod, container }).await.unwrap();
}

/// Until a container runs, nothing keeps processes of the host off its CPUs.
#[tokio::test]
async fn a_created_container_is_not_observed_until_it_runs() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let (pod, mut container) = pod_and_container("db", Qos::Guaranteed, 2000);
        container.cgroup = CgroupPath::new("kubepods/pod-db/c");
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        daemon.event(create).await.unwrap();
        let proc = tempfile::tempdir().unwrap();
        write_proc(proc.path(), 5);
        let observed = noise(&daemon, proc.path(), &[]).await;
        assert_eq!(observed.out, "no container to observe\n");
        daemon.event(Event::Started { pod, container }).await.unwrap();
        let observed = noise(&daemon, proc.path(), &["--color", "always"]).await;
        assert!(observed.out.contains("ns/db/c, CPUs 2-3\n"), "{}", observed.out);
    })
    .await;
}

#[tokio::test]
async fn interrupts_on_exclusive_cpus_are_found_and_give_an_exit_status() {
    local(async {
        let daemon = daemon().await;
        let proc = tempfile::tempdir().unwrap();
        write_proc(proc.path(), 5);
        let quiet = noise(&daemon, proc.path(), &[]).await;
        assert_eq!(quiet.error, None, "{}", quiet.out);
        assert!(quiet.out.contains("ns/db/c, CPUs 2-3\n"), "{}", quiet.out);
        assert!(quiet.out.contains("quiet as far as visible"), "{}", quiet.out);
        assert!(quiet.out.contains("not visible without the host's pid namespace"));
        let unknown = "warning: ns/old/c is not observed: the runtime has not reported its cgroup";
        assert!(quiet.warnings.contains(unknown), "{}", quiet.warnings);

        let stop = Arc::new(AtomicBool::new(false));
        let (writer, path) = (Arc::clone(&stop), proc.path().to_owned());
        let firing = thread::spawn(move || {
            let mut count = 5;
            while !writer.load(Ordering::Relaxed) {
                count += 1;
                write_proc(&path, count);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let noisy = noise(&daemon, proc.path(), &["db", "-o", "json"]).await;
        stop.store(true, Ordering::Relaxed);
        firing.join().unwrap();
        assert_eq!(noisy.error.as_deref(), Some("noise on CPUs 2-3"));
        let report: Value = serde_json::from_str(&noisy.out).unwrap();
        let finding = &report["containers"][0]["by_cpu"][0]["findings"][0];
        assert_eq!(finding["name"], "eth0-rx", "{report:#}");
        assert_eq!(finding["advice"], "interrupts_away", "{report:#}");
        let missing = undocumented(&names(&report), include_str!("../../docs/quiet.md"));
        assert!(missing.is_empty(), "not in docs/quiet.md: {missing:?}");
    })
    .await;
}

#[tokio::test]
async fn only_named_containers_are_observed() {
    local(async {
        let daemon = daemon().await;
        let proc = tempfile::tempdir().unwrap();
        write_proc(proc.path(), 5);
        for of in ["web", "ns/db/other", "nothing"] {
            let error = noise(&daemon, proc.path(), &[of]).await.error;
            let expect = format!(
                "no running container of {of} has exclusive CPUs on this node now. Why, or where it runs: nri-cpu-manager explain {of}"
            );
            assert_eq!(error, Some(expect));
        }
        let other = noise(&daemon, proc.path(), &["-n", "other"]).await;
        assert_eq!((other.error, other.out.as_str()), (None, "no container to observe\n"));
        // What the kubelet mounts over the file in containers.
        fs::write(proc.path().join("interrupts"), "").unwrap();
        let masked = noise(&daemon, proc.path(), &["db"]).await;
        assert_eq!(masked.error, None, "{}", masked.out);
        let masks = "(the kubelet masks this file in containers: overlay quiet)";
        assert!(masked.out.contains(masks), "{}", masked.out);
    })
    .await;
}
