//! Which differences from its decisions the daemon logs, and which it repairs silently.

use crate::support::daemon::{Daemon, group, in_group, set_in_group, start, updates, write_group};
use crate::support::events::local;
use crate::support::logged::{logged, warnings};
use cpuset::CgroupPath;
use ledger::{Event, Qos};
use log::Level;
use std::fs;
use std::time::Duration;

/// An exclusive container of four CPUs that runs, in a pod with a CFS quota.
async fn with_quota(daemon: &Daemon, name: &str) {
    let (mut pod, container) = in_group(daemon, name, (Qos::Guaranteed, 4000), "2-5");
    pod.cgroup = CgroupPath::new(&format!("/kubepods/{name}"));
    set_quota(daemon, name);
    start(daemon, (pod, container)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(quota(daemon, name), "max");
}

const QUOTA: &str = "400000 100000";

fn set_quota(daemon: &Daemon, pod: &str) {
    fs::write(group(daemon, pod).with_file_name("cpu.max"), QUOTA).unwrap();
}

fn quota(daemon: &Daemon, pod: &str) -> String {
    fs::read_to_string(group(daemon, pod).with_file_name("cpu.max")).unwrap().trim().to_owned()
}

/// Pods were created while the plugin was away, on all CPUs and with a CFS quota, and the runtime loses
/// the updates in the answer to its list, as containerd does while it starts.
#[tokio::test(start_paused = true)]
async fn containers_that_were_created_without_the_plugin_are_pinned_with_the_list() {
    const NAMES: [&str; 5] = ["away1", "away2", "away3", "away4", "away5"];
    local(async {
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |root| {
            fs::write(root.join("cpuset.cpus.effective"), "0-15").unwrap();
            fs::create_dir(root.join("kubepods")).unwrap();
            fs::write(root.join("kubepods/cpuset.cpus"), "").unwrap();
        });
        assert_eq!(warnings("ns/away"), [""; 0]);
        let mut pods = Vec::new();
        let mut containers = Vec::new();
        for name in NAMES {
            let (mut pod, container) = in_group(&daemon, name, (Qos::Guaranteed, 2000), "");
            pod.cgroup = CgroupPath::new(&format!("/kubepods/{name}"));
            fs::write(group(&daemon, name).join("cpu.max"), "200000 100000").unwrap();
            fs::write(group(&daemon, name).with_file_name("cpuset.cpus"), "").unwrap();
            set_quota(&daemon, name);
            pods.push(pod);
            containers.push(container);
        }
        let answer = daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        let mut told = Vec::new();
        for name in NAMES {
            let own = set_in_group(&daemon, name);
            assert_ne!(own, "");
            // As the kernel does.
            write_group(&daemon, name, &own);
            let own_quota = fs::read_to_string(group(&daemon, name).join("cpu.max")).unwrap();
            assert_eq!(own_quota.trim(), "max", "{name}");
            told.push(format!("id-{name} {own}"));
        }
        assert_eq!(updates(&answer), told);
        tokio::time::sleep(Duration::from_secs(60)).await;
        for name in NAMES {
            assert_eq!(warnings(&format!("ns/{name}/c: should have ")), [""; 0]);
        }
        let lines = logged(Level::Info, "list: ");
        assert_eq!(lines, ["list: exclusive CPUs set for 5 containers, which ran on others"]);
    })
    .await;
}

/// The kubelet writes a pod's quota at each attempt to resize it, systemd at a daemon-reload:
/// neither is a fault.
#[tokio::test(start_paused = true)]
async fn a_quota_that_the_kubelet_sets_again_is_lifted_without_a_warning() {
    local(async {
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |_| ());
        assert_eq!(warnings("ns/resized/c"), [""; 0]);
        with_quota(&daemon, "resized").await;
        for _ in 0..10 {
            set_quota(&daemon, "resized");
            tokio::time::sleep(Duration::from_secs(11)).await;
            assert_eq!(quota(&daemon, "resized"), "max");
        }
        assert_eq!(warnings("ns/resized/c"), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_another_program_defends_is_logged_as_a_drift() {
    local(async {
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |_| ());
        assert_eq!(warnings("ns/defended/c"), [""; 0]);
        with_quota(&daemon, "defended").await;
        for _ in 0..60 {
            set_quota(&daemon, "defended");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let logged = warnings("ns/defended/c");
        let drift = format!("its pod has the CFS quota {QUOTA:?}: set again");
        assert!(logged.len() == 1 && logged[0].ends_with(&drift), "{logged:?}");
    })
    .await;
}

/// The exclusive container has ended, and its pod still runs a container that shares CPUs.
#[tokio::test(start_paused = true)]
async fn a_quota_that_could_not_be_restored_is_restored_later() {
    local(async {
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |_| ());
        assert_eq!(warnings("ns/refused/"), [""; 0]);
        with_quota(&daemon, "refused").await;
        let (mut pod, exclusive) = in_group(&daemon, "refused", (Qos::Guaranteed, 4000), "2-5");
        pod.cgroup = CgroupPath::new("/kubepods/refused");
        let (_, mut shared) = in_group(&daemon, "other", (Qos::Guaranteed, 500), "0-15");
        shared.sandbox = exclusive.sandbox.clone();
        shared.name = "shared".to_owned();
        shared.cgroup = CgroupPath::new("/kubepods/refused/shared");
        let directory = group(&daemon, "refused").with_file_name("shared");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("cgroup.procs"), "").unwrap();
        fs::write(directory.join("cpuset.cpus"), "0-15").unwrap();
        // Permissions do not stop root; a link to itself does, since it cannot be opened.
        let file = group(&daemon, "refused").with_file_name("cpu.max");
        let link = file.with_extension("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        fs::rename(&link, &file).unwrap();
        start(&daemon, (pod, shared)).await;
        daemon.event(Event::Stop(exclusive.id)).await.unwrap();
        while warnings("ns/refused/").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let lifted = file.with_extension("lifted");
        fs::write(&lifted, "max 100000").unwrap();
        fs::rename(&lifted, &file).unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(quota(&daemon, "refused"), QUOTA);
    })
    .await;
}

/// No kubelet, runtime or systemd causes these routinely.
#[tokio::test(start_paused = true)]
async fn each_kind_of_drift_is_logged_once() {
    /// A file of the container's cgroup and its new content; processes (pid, parent, allowed CPUs);
    /// the drift in the log.
    type Fault = (&'static str, &'static str, &'static [(u32, u32, &'static str)], &'static str);
    let faults: [(&str, Fault); 5] = [
        ("set", ("cpuset.cpus", "5", &[], "its cgroup has CPU 5 set")),
        ("left", ("cpuset.cpus.effective", "2-4", &[], "lets its cgroup run on CPUs 2-4")),
        ("ran", ("cgroup.procs", "12", &[(12, 1, "0-15")], "its process 12 may run on CPUs 0-15")),
        ("slowed", ("cpu.max", QUOTA, &[], "it has the CFS quota \"400000 100000\"")),
        (
            "inherited",
            ("cgroup.procs", "12", &[(11, 1, "0-3"), (12, 11, "2-3")], "may run on CPUs 2-3 only"),
        ),
    ];
    for (name, (file, text, processes, drift)) in faults {
        local(async move {
            let daemon = Daemon::start_in("exclusivity: groups\n", None, |_| ());
            assert_eq!(warnings(&format!("ns/{name}/c")), [""; 0]);
            with_quota(&daemon, name).await;
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert_eq!(warnings(&format!("ns/{name}/c")), [""; 0]);
            for (pid, parent, allowed) in processes {
                let process = daemon.paths.proc_root.join(pid.to_string());
                fs::create_dir_all(&process).unwrap();
                let status = format!("PPid:\t{parent}\nCpus_allowed_list:\t{allowed}\n");
                fs::write(process.join("status"), status).unwrap();
            }
            fs::write(group(&daemon, name).join(file), text).unwrap();
            tokio::time::sleep(Duration::from_secs(13)).await;
            let logged = warnings(&format!("ns/{name}/c: should have "));
            assert!(logged.len() == 1 && logged[0].contains(drift), "{name}: {logged:?}");
        })
        .await;
    }
}
