//! Machines on which nothing is left to assign: the default install starts on them, and says so.

use crate::support::events::{create, local, pod_and_container};
use crate::support::observed::ObservedDaemon;
use config::Config;
use cpuctl::doctor::DEFAULT_INSTALL;
use cpuset::CgroupPath;
use ledger::{Admission, Event, Qos};
use machines::synthetic::Machine;
use nri_cpu_manager::status::text;
use status::picture::text::Style;
use status::snapshot::Snapshot;
use std::fs;
use std::time::Duration;

/// Wide enough for every line.
const WIDE: Style = Style { width: 400, colour: false };

fn machine(cores: usize, threads: usize) -> Machine {
    Machine { cores, threads, ..Machine::default() }
}

fn nothing(status: &Snapshot) -> &str {
    let source = &status.node.as_ref().unwrap().parts.config_source;
    source.nothing_to_assign.as_deref().unwrap_or_default()
}

fn in_force(status: &Snapshot) -> (&str, String) {
    let node = status.node.as_ref().unwrap();
    (&node.config.cpu_manager_policy, node.figures.cpus.reserved.to_string())
}

/// Cores and threads, and the policy in force with the reserved CPUs: with SMT, one core.
const MACHINES: [(usize, usize, &str, &str); 6] = [
    (1, 1, "none", ""),
    (1, 2, "none", ""),
    (2, 1, "none", ""),
    (2, 2, "static", "0-1"),
    (4, 1, "static", "0-1"),
    (4, 2, "static", "0-1"),
];

#[tokio::test]
async fn the_default_install_starts_on_machines_of_every_size() {
    for (cores, threads, policy, reserved) in MACHINES {
        local(async move {
            let config = format!("{DEFAULT_INSTALL}kubeletStateDir: \"\"\n");
            let machine = machine(cores, threads);
            let daemon = ObservedDaemon::connected_on(&machine, &config).await;
            let status = daemon.status().await;
            let shape = format!("{cores} cores with {threads} threads");
            assert!(status.health.is_ready(), "{shape}: {:?}", status.health);
            assert_eq!(in_force(&status), (policy, reserved.to_owned()), "{shape}");
            let says = nothing(&status);
            assert_eq!(says.is_empty(), policy == "static", "{shape}: {says}");
            let text = text(&status, WIDE, false);
            assert!(text.contains(says), "{shape}: {text}");
            let created = daemon.event(create("a", Qos::Guaranteed, 1000)).await.unwrap();
            assert_eq!(created.setting.is_some(), policy == "static", "{shape}");
        })
        .await;
    }
}

#[tokio::test]
async fn strict_refuses_what_cannot_be_exclusive() {
    local(async {
        let config = format!("{DEFAULT_INSTALL}kubeletStateDir: \"\"\nstrict: true\n");
        let daemon = ObservedDaemon::connected_on(&machine(1, 1), &config).await;
        let status = daemon.status().await;
        assert!(status.health.is_ready(), "{:?}", status.health);
        assert!(nothing(&status).contains("strict refuses containers"), "{}", nothing(&status));
        let refused = daemon.create("a", Qos::Guaranteed, 1000).await.unwrap_err();
        assert!(refused.contains("requested=1, available=0"), "{refused}");
        daemon.create("b", Qos::Burstable, 500).await.unwrap();
        daemon.create("c", Qos::Guaranteed, 500).await.unwrap();
    })
    .await;
}

/// The scheduler counts reserved CPUs unless the kubelet reserves as many.
#[tokio::test]
async fn pods_that_are_refused_again_for_lack_of_cpus_are_counted() {
    local(async {
        let config = format!("{DEFAULT_INSTALL}kubeletStateDir: \"\"\n");
        let daemon = ObservedDaemon::connected_on(&machine(4, 1), &config).await;
        let lacking = async || daemon.status().await.node.unwrap().figures.pods_lacking_cpus;
        daemon.create("a", Qos::Guaranteed, 1000).await.unwrap();
        let (mut pod, container) = pod_and_container("b", Qos::Guaranteed, 2000);
        pod.cgroup = CgroupPath::new("/kubepods/b");
        fs::create_dir_all(daemon.paths.cgroup_root.join("cpuset/kubepods/b")).unwrap();
        let creation = Admission::Create { pod, container };
        for expected in [0, 1, 1] {
            daemon.event(creation.clone()).await.unwrap_err();
            assert_eq!(lacking().await, expected);
        }
        let shown = text(&daemon.status().await, WIDE, false);
        let cause = "warning: lacking: 1 pod: pods wait for CPUs after several refusals: the scheduler counts CPUs \
                     that are reserved here, unless the kubelet reserves 2 too (systemReserved: {cpu: \"2\"})";
        assert!(shown.contains(cause), "{shown}");
        let (pod, _) = pod_and_container("a", Qos::Guaranteed, 1000);
        daemon.event(Event::StopPod(pod.sandbox)).await.unwrap();
        daemon.event(creation).await.unwrap();
        assert_eq!(lacking().await, 0);
    })
    .await;
}

/// Whatever is reserved on whatever machine, the plugin starts, and assigns CPUs exactly where some
/// are left.
#[test]
fn every_amount_fits_every_machine() {
    for (cores, threads) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 2), (8, 4)] {
        let topology = machine(cores, threads).topology().unwrap();
        let online = topology.online().len() as u64;
        for milli in [1, 500, 1000, 1500, 2000, 3000, 7001, 500_000, u64::MAX / 2] {
            for strict in [false, true] {
                let text = format!(
                    "cpuManagerPolicy: static\nsystemReserved: {{cpu: {milli}m}}\nstrict: {strict}\n"
                );
                let config = Config::parse("config.yaml", &text).unwrap();
                let settings = config.resolve(&topology).unwrap();
                let needed = milli.div_ceil(1000);
                let is_left = needed < online;
                let case = format!("{milli}m of {online} CPUs, strict {strict}");
                let nothing = config.nothing_to_assign(&topology);
                assert_eq!(nothing.is_none(), is_left, "{case}");
                let assigns = settings.policy == ledger::Policy::Static;
                assert_eq!(assigns, is_left || strict, "{case}");
                if assigns {
                    let reserved = settings.placement.reserved.len() as u64;
                    assert_eq!(reserved, needed.min(online), "{case}");
                }
            }
        }
    }
}

/// A virtual machine gets CPUs while it runs.
#[tokio::test]
async fn a_machine_that_grows_gets_something_to_assign() {
    local(async {
        let config = format!("{DEFAULT_INSTALL}kubeletStateDir: \"\"\n");
        let daemon = ObservedDaemon::connected_on(
            &Machine { offline: "2-3".parse().unwrap(), ..machine(4, 1) },
            &config,
        )
        .await;
        assert_eq!(in_force(&daemon.status().await), ("none", String::new()));
        let files = crate::support::fake_sysfs::files(&machine(4, 1).facts().unwrap());
        crate::support::fake_sysfs::write(&daemon.paths.sysfs_root, &files);
        assert_eq!(daemon.create("a", Qos::Guaranteed, 2000).await.unwrap(), "2-3");
        let status = daemon.status().await;
        assert_eq!((in_force(&status), nothing(&status)), (("static", "0-1".to_owned()), ""));
    })
    .await;
}

/// Without a restart, as `exclusivity: auto` chooses at a start.
#[tokio::test]
async fn a_policy_that_begins_while_running_gets_the_best_mechanism() {
    local(async {
        let none = "kubeletStateDir: \"\"\nexclusivity: groups\n";
        let daemon = ObservedDaemon::following_on(&machine(8, 1), none, |paths| {
            let root = &paths.cgroup_root;
            fs::remove_dir_all(root).unwrap();
            fs::create_dir(root).unwrap();
            fs::write(root.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
            fs::write(root.join("cgroup.procs"), "").unwrap();
        })
        .await;
        let mechanism =
            |status: &Snapshot| status.node.as_ref().unwrap().config.exclusivity.clone();
        assert_eq!(mechanism(&daemon.status().await), "runtime");
        daemon.swap_config(&format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{none}"));
        let followed = async {
            loop {
                let status = daemon.status().await;
                if in_force(&status).0 == "static" {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let status = tokio::time::timeout(Duration::from_secs(20), followed).await.unwrap();
        assert_eq!(mechanism(&status), "groups");
        let source = &status.node.as_ref().unwrap().parts.config_source;
        assert_eq!(source.waiting, [""; 0]);
    })
    .await;
}
