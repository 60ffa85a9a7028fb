//! cpuset partitions of other programs begin, change and end while containers run.

use crate::support::daemon::{Daemon, updates};
use crate::support::events::local;
use clap::Parser;
use ledger::model::ContainerId;
use ledger::{Event, Qos};
use nri_cpu_manager::Cli;
use status::snapshot::Snapshot;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Longer than the time between two checks of the machine.
const NOTICED: Duration = Duration::from_secs(3);

const FILES: [&str; 4] = [
    "cpuset.cpus",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.exclusive.effective",
    "cpuset.cpus.partition",
];

/// Makes a cgroup with these CPUs and this state, as the kernel shows it.
fn group(root: &Path, path: &str, cpus: &str, state: &str) {
    fs::create_dir_all(root.join(path)).unwrap();
    for (file, text) in FILES.into_iter().zip([cpus, cpus, cpus, state]) {
        fs::write(root.join(path).join(file), format!("{text}\n")).unwrap();
    }
}

/// Sets the CPUs that are in no partition.
fn leave_to_root(root: &Path, cpus: &str) {
    fs::write(root.join("cpuset.cpus.effective"), format!("{cpus}\n")).unwrap();
}

fn contents(root: &Path, path: &str) -> Vec<String> {
    FILES.iter().map(|file| fs::read_to_string(root.join(path).join(file)).unwrap()).collect()
}

async fn status(daemon: &Daemon, format: &str) -> String {
    let dir = daemon.paths.state_dir.display().to_string();
    let line = ["nri-cpu-manager", "status", "--output", format, "--state-dir", &dir];
    let command = Cli::try_parse_from(line).unwrap().command;
    // The daemon may not have started to listen yet; it runs in this thread.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let run = move || {
        let mut out = Vec::new();
        command.run(&mut out, &mut Vec::new()).unwrap();
        String::from_utf8(out).unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Each foreign partition as "CGROUP CPUS"; then the online CPUs, and the pool.
async fn partitions(daemon: &Daemon) -> Vec<String> {
    let snapshot: Snapshot = serde_json::from_str(&status(daemon, "json").await).unwrap();
    let node = snapshot.node.unwrap();
    let foreign = &node.parts.exclusivity.foreign_partitions;
    let named = foreign.iter();
    let mut lines: Vec<String> = named.map(|(group, cpus)| format!("{group} {cpus}")).collect();
    lines.extend([node.figures.cpus.online.to_string(), node.figures.cpus.shared.to_string()]);
    lines
}

#[tokio::test(start_paused = true)]
async fn cpus_of_foreign_partitions_are_neither_exclusive_nor_shared() {
    local(async {
        let daemon = Daemon::start_in("", None, |root| {
            group(root, "admin", "14-15", "isolated");
            leave_to_root(root, "0-13");
        });
        let root = daemon.paths.cgroup_root.clone();
        assert_eq!(partitions(&daemon).await, ["admin 14-15", "0-13", "0-13"]);
        assert_eq!(daemon.create("web", Qos::Burstable, 500).await.unwrap(), "0-13");
        assert_eq!(daemon.create("db", Qos::Guaranteed, 4000).await.unwrap(), "2-5");

        group(&root, "system.slice", "4-5", "member");
        group(&root, "system.slice/rt.service", "4-5", "root");
        leave_to_root(&root, "0-3,6-13");
        tokio::time::sleep(NOTICED).await;
        assert_eq!(daemon.claims_on_disk(), ["db 2-3,6-7"]);
        let unknown = || Event::Stop(ContainerId("unknown".into()));
        let answer = daemon.event(unknown()).await.unwrap();
        assert_eq!(updates(&answer), ["id-web 0-1,8-13", "id-db 2-3,6-7"]);
        assert_eq!(
            partitions(&daemon).await,
            ["admin 14-15", "system.slice/rt.service 4-5", "0-3,6-13", "0-1,8-13"]
        );
        let text = status(&daemon, "text").await;
        let line = "foreign 4-5: cpuset partition system.slice/rt.service of another program\n";
        assert!(text.contains(line), "{text}");

        // The partition changes right before a creation.
        group(&root, "system.slice", "8-11", "member");
        group(&root, "system.slice/rt.service", "8-11", "root");
        leave_to_root(&root, "0-7,12-13");
        assert_eq!(daemon.create("late", Qos::Guaranteed, 4000).await.unwrap(), "4-5,12-13");
        daemon.create("one-too-many", Qos::Guaranteed, 1000).await.unwrap_err();

        // A partition that the kernel has made invalid holds no CPU.
        let why = "root invalid (Parent is not a partition root)";
        group(&root, "system.slice/rt.service", "8-11", why);
        leave_to_root(&root, "0-13");
        tokio::time::sleep(NOTICED).await;
        assert_eq!(partitions(&daemon).await, ["admin 14-15", "0-13", "0-1,8-11"]);
        assert_eq!(daemon.create("next", Qos::Guaranteed, 4000).await.unwrap(), "8-11");
        let theirs = ["14-15\n", "14-15\n", "14-15\n", "isolated\n"];
        assert_eq!(contents(&root, "admin"), theirs);
        let theirs = ["8-11\n", "8-11\n", "8-11\n", &format!("{why}\n")];
        assert_eq!(contents(&root, "system.slice/rt.service"), theirs);
    })
    .await;
}

/// The configuration is checked against all CPUs of the machine, foreign partitions included.
#[tokio::test(start_paused = true)]
async fn a_foreign_partition_of_reserved_cpus_does_not_stop_the_plugin() {
    local(async {
        let daemon = Daemon::start_in("", None, |root| {
            group(root, "admin", "0-1", "root");
            leave_to_root(root, "2-15");
        });
        assert_eq!(partitions(&daemon).await, ["admin 0-1", "2-15", "2-15"]);
        // No reserved CPU is left: another one stays shared, as when all reserved CPUs are offline.
        daemon.create("all", Qos::Guaranteed, 14_000).await.unwrap_err();
        assert_eq!(daemon.create("db", Qos::Guaranteed, 13_000).await.unwrap(), "3-15");
        leave_to_root(&daemon.paths.cgroup_root, "0-15");
        tokio::time::sleep(NOTICED).await;
        assert_eq!(partitions(&daemon).await, ["0-15", "0-2"]);
    })
    .await;
}

/// A container's partition is not foreign, even if the ledger does not know the container.
#[tokio::test(start_paused = true)]
async fn partitions_of_pods_are_not_foreign() {
    local(async {
        let daemon = Daemon::start_in("", None, |root| {
            group(root, "kubepods", "4-5", "member");
            group(root, "kubepods/pod1/c", "4-5", "root");
            leave_to_root(root, "0-3,6-15");
        });
        tokio::time::sleep(NOTICED).await;
        assert_eq!(partitions(&daemon).await, ["0-15", "0-15"]);
    })
    .await;
}
