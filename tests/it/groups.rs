//! Cgroups that differ from the decisions, and what the daemon writes into them.

use crate::support::daemon::{
    Daemon, fragmented, group, in_group, set_in_group, start, updates, write_group,
};
use crate::support::events::{create, local, pod_and_container};
use crate::support::logged::warnings;
use cpuset::{CgroupPath, CpuSet};
use edge::Message;
use ledger::model::ContainerId;
use ledger::{Admission, CpuRequest, Event, MilliCpu, Qos, RequestedUpdate};
use nri::Session;
use std::fs;
use std::time::Duration;

/// Observed: after a restart, CRI-O lists the CPUs with which a container was created.
#[tokio::test]
async fn cpus_set_in_the_cgroup_outrank_the_runtimes_list() {
    local(async {
        let daemon = Daemon::start();
        let mut pods = Vec::new();
        let mut containers = Vec::new();
        for (name, listed, set) in [
            ("stale", "2-5", Some("8-11")),
            // Without a readable set in the cgroup the runtime's list counts.
            ("unreadable", "2-3", None),
            ("unset", "4-5", Some("")),
            ("garbage", "6-7", Some("x")),
        ] {
            let milli = 1000 * listed.parse::<CpuSet>().unwrap().len() as u64;
            let (pod, mut container) = pod_and_container(name, Qos::Guaranteed, milli);
            container.cpus = Some(listed.parse().unwrap());
            container.cpu.limit = None;
            container.cgroup = CgroupPath::new(&format!("/kubepods/{name}"));
            if let Some(set) = set {
                let group = daemon.paths.cgroup_root.join("kubepods").join(name);
                fs::create_dir_all(&group).unwrap();
                fs::write(group.join("cpuset.cpus"), format!("{set}\n")).unwrap();
            }
            pods.push(pod);
            containers.push(container);
        }
        let decision = daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        assert_eq!(decision.updates, []);
        assert_eq!(
            daemon.claims_on_disk(),
            ["garbage 6-7", "stale 8-11", "unreadable 2-3", "unset 4-5"]
        );
    })
    .await;
}

/// Observed: after a restart, CRI-O lists the resources from before an in-place resize.
#[tokio::test]
async fn a_list_from_before_a_resize_does_not_undo_it() {
    local(async {
        let daemon = Daemon::start();
        let (pod, mut container) = pod_and_container("a", Qos::Guaranteed, 2000);
        container.cgroup = CgroupPath::new("/kubepods/a");
        let created = Admission::Create { pod: pod.clone(), container: container.clone() };
        daemon.event(created).await.unwrap();
        let four = Some(MilliCpu(4000));
        let cpu = CpuRequest { request: four, limit: four };
        let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
        let resize =
            Admission::Update { pod: pod.clone(), container: container.clone(), requested };
        daemon.event(resize).await.unwrap();
        assert_eq!(daemon.on_disk()[0].cpus.to_string(), "2-5");
        let group = daemon.paths.cgroup_root.join("kubepods/a");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuset.cpus"), "2-5\n").unwrap();
        container.cpus = Some("2-3".parse().unwrap());
        container.cpu.limit = None;
        let pods = vec![pod];
        let containers = vec![container];
        daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        let claim = daemon.on_disk().remove(0);
        assert_eq!((claim.cpus.to_string().as_str(), claim.cpu), ("2-5", cpu));
    })
    .await;
}

/// No event reports the end of a pod or container. Its cgroup shows it, but counts only after some
/// time, and only if the plugin observed it before.
#[tokio::test(start_paused = true)]
async fn unreported_ends_are_detected_by_cgroups() {
    local(async {
        let daemon = Daemon::start();
        daemon.create("shared", Qos::Burstable, 100).await.unwrap();
        for name in ["pod", "container", "unobserved"] {
            let (pod, mut container) = pod_and_container(name, Qos::Guaranteed, 4000);
            container.cgroup = CgroupPath::new(&format!("/kubepods/{name}/c"));
            daemon.event(Admission::Create { pod, container }).await.unwrap();
            if name != "unobserved" {
                fs::create_dir_all(group(&daemon, name)).unwrap();
                fs::write(group(&daemon, name).join("cgroup.events"), "populated 1\nfrozen 0\n")
                    .unwrap();
            }
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        fs::remove_dir_all(group(&daemon, "pod").parent().unwrap()).unwrap();
        fs::write(group(&daemon, "container").join("cgroup.events"), "populated 0\nfrozen 0\n")
            .unwrap();
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert_eq!(daemon.on_disk().len(), 3);
        tokio::time::sleep(Duration::from_secs(40)).await;
        let left: Vec<String> = daemon.on_disk().into_iter().map(|claim| claim.pod).collect();
        assert_eq!(left, ["container", "unobserved"]);
        // The container's CPUs are lent, as after any stop.
        let answer = daemon.event(Event::Stop(ContainerId("unknown".into()))).await.unwrap();
        assert_eq!(updates(&answer), ["id-shared 0-9,14-15"]);
    })
    .await;
}

/// Observed: a pod was force-deleted during a restart of the plugin. The runtime still listed its
/// sandbox, and its CPUs stayed claimed until the kubelet removed the sandbox.
#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_while_the_plugin_was_away_holds_no_cpus() {
    local(async {
        let daemon = Daemon::start();
        let kubepods = daemon.paths.cgroup_root.join("kubepods");
        let (mut pod, container) = pod_and_container("gone", Qos::Guaranteed, 12_000);
        pod.cgroup = CgroupPath::new("/kubepods/gone");
        daemon.event(Admission::Create { pod: pod.clone(), container }).await.unwrap();
        let list = || Event::Synchronize { pods: vec![pod.clone()], containers: Vec::new() };
        // The pod may be between two instances, or its cgroup at another path.
        daemon.event(list()).await.unwrap();
        assert!(daemon.create("new", Qos::Guaranteed, 4000).await.is_err());
        fs::create_dir_all(kubepods.join("gone")).unwrap();
        daemon.event(list()).await.unwrap();
        assert!(daemon.create("new", Qos::Guaranteed, 4000).await.is_err());
        fs::remove_dir(kubepods.join("gone")).unwrap();
        assert_eq!(daemon.create("new", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        assert_eq!(daemon.on_disk().len(), 1);
    })
    .await;
}

/// The pod's cgroup is gone before the plugin is back.
#[tokio::test(start_paused = true)]
async fn cpus_of_a_listed_pod_without_a_cgroup_are_free_at_the_start() {
    local(async {
        let daemon = Daemon::start();
        let (mut pod, container) = pod_and_container("gone", Qos::Guaranteed, 12_000);
        pod.cgroup = CgroupPath::new("/kubepods/gone");
        daemon.event(Admission::Create { pod: pod.clone(), container }).await.unwrap();
        fs::create_dir(daemon.paths.cgroup_root.join("kubepods")).unwrap();
        let list = Event::Synchronize { pods: vec![pod], containers: Vec::new() };
        daemon.event(list).await.unwrap();
        assert_eq!(daemon.on_disk(), []);
    })
    .await;
}

/// Another program writes cgroups. If the runtime takes no unsolicited updates, the plugin repairs
/// them itself, and repeats the updates in its next answer.
#[tokio::test(start_paused = true)]
async fn every_drift_that_a_check_finds_is_repaired() {
    local(async {
        let daemon = Daemon::start();
        for (name, set) in [("a", "5"), ("b", "5"), ("right", "0-15")] {
            start(&daemon, in_group(&daemon, name, (Qos::Burstable, 500), set)).await;
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(["a", "b", "right"].map(|name| set_in_group(&daemon, name)), ["0-15"; 3]);
        let answer = daemon.event(Event::Stop(ContainerId("unknown".into()))).await.unwrap();
        assert_eq!(updates(&answer), ["id-a 0-15", "id-b 0-15"]);
    })
    .await;
}

/// Observed: the second of two drifts before the runtime's next answer was repaired without a log
/// line.
#[tokio::test(start_paused = true)]
async fn a_second_drift_before_the_next_answer_is_logged_too() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(warnings("ns/twice/c"), [""; 0]);
        start(&daemon, in_group(&daemon, "twice", (Qos::Burstable, 500), "0-15")).await;
        for times in 1..=3 {
            write_group(&daemon, "twice", &(4 + times).to_string());
            tokio::time::sleep(Duration::from_secs(15)).await;
            assert_eq!(set_in_group(&daemon, "twice"), "0-15");
            assert_eq!(warnings("ns/twice/c").len(), times);
        }
    })
    .await;
}

/// The kubelet repeats a refused resize every second.
#[tokio::test(start_paused = true)]
async fn a_repeatedly_refused_resize_is_logged_occasionally() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(warnings("ns/grows/c"), [""; 0]);
        let (pod, container) = pod_and_container("grows", Qos::Guaranteed, 4000);
        let created = Admission::Create { pod: pod.clone(), container: container.clone() };
        daemon.event(created).await.unwrap();
        let much = Some(MilliCpu(16_000));
        let cpu = CpuRequest { request: much, limit: much };
        for _ in 0..130 {
            let pod = pod.clone();
            let container = container.clone();
            let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
            daemon.event(Admission::Update { pod, container, requested }).await.unwrap_err();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let logged = warnings("ns/grows/c");
        assert_eq!(logged.len(), 3, "{logged:?}");
        assert!(logged[0].contains("refused"), "{logged:?}");
        assert!(logged[2].ends_with(" (121 times)"), "{logged:?}");
    })
    .await;
}

/// containerd loses updates of a container that it is still creating, as when the kubelet starts
/// several pods at once, and the next answer can be hours away.
#[tokio::test(start_paused = true)]
async fn an_update_that_the_runtime_lost_is_written_to_the_cgroup() {
    local(async {
        let daemon = Daemon::start();
        let web = in_group(&daemon, "web", (Qos::Burstable, 500), "0-15");
        let db = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "2-5");
        let (pod, container) = web.clone();
        daemon.event(Admission::Create { pod, container }).await.unwrap();
        let (pod, container) = db.clone();
        let answer = daemon.event(Admission::Create { pod, container }).await.unwrap();
        assert_eq!(updates(&answer), ["id-web 0-1,6-15"], "lost by the runtime");
        assert_eq!(set_in_group(&daemon, "web"), "0-15");
        for (pod, container) in [web, db] {
            daemon.event(Event::Started { pod, container }).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(["web", "db"].map(|name| set_in_group(&daemon, name)), ["0-1,6-15", "2-5"]);
    })
    .await;
}

/// A CPU goes offline and comes back. If the runtime takes no unsolicited updates, the plugin
/// writes cgroups long before a check would find a drift, and its next answer repeats the updates.
#[tokio::test(start_paused = true)]
async fn hotplug_updates_of_shared_containers_are_written_at_once() {
    local(async {
        let daemon = Daemon::start();
        let web = in_group(&daemon, "web", (Qos::Burstable, 500), "0-1,6-15");
        let db = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "2-5");
        for container in [web, db] {
            start(&daemon, container).await;
        }
        for (online, shared) in [("0-14", "0-1,6-14"), ("0-15", "0-1,6-15")] {
            fs::write(daemon.paths.sysfs_root.join("devices/system/cpu/online"), online).unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(["web", "db"].map(|name| set_in_group(&daemon, name)), [shared, "2-5"]);
            let answer = daemon.event(Event::Stop(ContainerId("unknown".into()))).await.unwrap();
            assert_eq!(updates(&answer), [format!("id-web {shared}")]);
        }
    })
    .await;
}

/// The CPUs of a stopped container are held for its restart until its pod ends, which is an event
/// whose answer can carry no updates.
#[tokio::test(start_paused = true)]
async fn cpus_of_an_ended_pod_are_shared_at_once() {
    local(async {
        let daemon = Daemon::start();
        let web = in_group(&daemon, "web", (Qos::Burstable, 500), "0-1,6-15");
        let db = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "2-5");
        let mut side = db.clone();
        side.1.id = ContainerId("id-side".into());
        side.1.name = "side".to_owned();
        side.1.cpu = CpuRequest { request: Some(MilliCpu(500)), limit: Some(MilliCpu(500)) };
        let sandbox = db.1.sandbox.clone();
        for container in [web, db, side] {
            start(&daemon, container).await;
        }
        daemon.event(Event::Stop(ContainerId("id-db".into()))).await.unwrap();
        assert_eq!(set_in_group(&daemon, "web"), "0-1,6-15");
        daemon.event(Event::StopPod(sandbox)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(set_in_group(&daemon, "web"), "0-15");
    })
    .await;
}

/// A runtime takes long for twenty updates and loses the last one, while another program writes
/// another container's cgroup. Late updates are left to the runtime; the drift is repaired.
#[tokio::test(start_paused = true)]
async fn late_updates_are_left_to_the_runtime_and_hide_no_drift() {
    local(async {
        let daemon = Daemon::start();
        start(&daemon, in_group(&daemon, "by-hand", (Qos::Guaranteed, 4000), "2-5")).await;
        let names: Vec<String> = (0..20).map(|i| format!("w{i:02}")).collect();
        for name in &names {
            start(&daemon, in_group(&daemon, name, (Qos::Burstable, 100), "0-1,6-15")).await;
        }
        let (pod, container) = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "6-9");
        let answer = daemon.event(Admission::Create { pod, container }).await.unwrap();
        assert_eq!(answer.updates.len(), 20);
        write_group(&daemon, "by-hand", "0-15");
        for (i, name) in names[..19].iter().enumerate() {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let before = if i == 0 { "0-1,6-15" } else { "0-1,10-15" };
            assert_eq!(set_in_group(&daemon, &names[i.saturating_sub(1)]), before);
            assert_eq!(set_in_group(&daemon, name), "0-1,6-15", "{name} is left to the runtime");
            write_group(&daemon, name, "0-1,10-15");
            if i == 16 {
                assert_eq!(set_in_group(&daemon, "by-hand"), "2-5", "after 15 seconds");
            }
        }
        daemon.messages.send(Message::WentOn { session: Session(0) }).unwrap();
        assert_eq!(set_in_group(&daemon, "w19"), "0-1,6-15");
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(set_in_group(&daemon, "w19"), "0-1,10-15");
    })
    .await;
}

/// Observed with CRI-O and crun: an update of a container that is older than the plugin sets the
/// CPUs, but the quota stays.
#[tokio::test(start_paused = true)]
async fn the_quota_of_an_adopted_container_is_lifted_soon() {
    local(async {
        let daemon = Daemon::start();
        let (pod, mut container) = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "2-5");
        container.cpus = Some("2-5".parse().unwrap());
        let quota = daemon.paths.cgroup_root.join("kubepods/db/c/cpu.max");
        fs::write(&quota, "400000 100000\n").unwrap();
        let list = Event::Synchronize { pods: vec![pod], containers: vec![container] };
        assert_eq!(
            updates(&daemon.event(list).await.unwrap()),
            ["id-db 2-5"],
            "without effect on the quota"
        );
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(fs::read_to_string(quota).unwrap(), "max\n");
    })
    .await;
}

const MOVES: &str = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n\
     rebalance: {movesPer100Starts: 10, minStay: 0s}\n";

/// Where the runtime enforces exclusivity, it makes the move before it creates the container.
#[tokio::test]
async fn an_answer_carries_the_moves_that_it_needs() {
    local(async {
        let daemon = Daemon::with_kubelet(MOVES, None);
        fragmented(&daemon).await;
        let answer = daemon.event(create("eight", Qos::Guaranteed, 8000)).await.unwrap();
        assert_eq!(answer.setting.as_ref().unwrap().cpus().to_string(), "8-15");
        assert_eq!(updates(&answer), ["id-two 2-3"]);
        assert_eq!(daemon.claims_on_disk(), ["eight 8-15", "two 2-3"]);
    })
    .await;
}

/// `minStay` counts from the container's start, to the millisecond.
#[tokio::test(start_paused = true)]
async fn a_container_moves_only_when_min_stay_is_over() {
    for (wait, expected) in [(900, "2-7,10-11"), (1000, "8-15")] {
        local(async {
            let daemon = Daemon::with_kubelet(&MOVES.replace("0s", "1s"), None);
            fragmented(&daemon).await;
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let answer = daemon.event(create("eight", Qos::Guaranteed, 8000)).await.unwrap();
            let cpus = answer.setting.as_ref().unwrap().cpus().to_string();
            assert_eq!(cpus, expected, "{wait} ms");
        })
        .await;
    }
}
