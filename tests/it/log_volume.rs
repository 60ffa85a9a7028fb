//! Conditions that last and are found again at each pass, retry or list, each for an hour of virtual time: the log
//! has few lines about them.

use crate::support::daemon::{Daemon, in_group, start, write_group};
use crate::support::events::{create, local, pod_and_container};
use crate::support::logged::{bytes_with, logged};
use edge::Message;
use ledger::{Admission, ContainerId, CpuRequest, Event, MilliCpu, Qos, RequestedUpdate};
use log::Level;
use nri::{Capabilities, Runtime, Session};
use std::fs;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// The bytes of lines about one condition in an hour.
const MOST: usize = 48 << 10;

fn bound(text: &str) {
    let bytes = bytes_with(text);
    assert!(bytes <= MOST, "{bytes} bytes of lines with {text:?} in an hour");
    assert!(bytes > 0, "nothing was logged with {text:?}");
}

/// The state directory fails: the state file is tried again every second, the records at each pass.
#[tokio::test(start_paused = true)]
async fn a_disk_that_fails() {
    local(async {
        logged(Level::Info, "");
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |root| {
            fs::write(root.join("cpuset.cpus.effective"), "0-15").unwrap();
            fs::create_dir(root.join("kubepods")).unwrap();
            fs::write(root.join("kubepods/cpuset.cpus"), "").unwrap();
        });
        fs::remove_dir_all(&daemon.paths.state_dir).unwrap();
        fs::write(&daemon.paths.state_dir, "").unwrap();
        let (pod, container) = in_group(&daemon, "disk", (Qos::Guaranteed, 2000), "");
        for attempt in 0..360 {
            let container = ledger::Container {
                id: ContainerId(format!("disk-{attempt}").into()),
                ..container.clone()
            };
            let create = Admission::Create { pod: pod.clone(), container };
            assert!(daemon.event(create).await.is_err());
            sleep(Duration::from_secs(10)).await;
        }
        bound(&daemon.paths.state_dir.display().to_string());
    })
    .await;
}

/// The kubelet tries each of 30 pods again every ten seconds, and repeats a refused resize every second.
#[tokio::test(start_paused = true)]
async fn pods_that_do_not_fit() {
    local(async {
        logged(Level::Info, "");
        let daemon = Daemon::start();
        let (pod, container) = pod_and_container("has-little", Qos::Guaranteed, 2000);
        start(&daemon, (pod.clone(), container.clone())).await;
        for second in 0..3600 {
            if second % 10 == 0 {
                for n in 0..30 {
                    let create = create(&format!("does-not-fit-{n}"), Qos::Guaranteed, 90_000);
                    assert!(daemon.event(create).await.is_err());
                }
            }
            let amount = Some(MilliCpu(91_000 + 1000 * (second % 2)));
            let cpu = CpuRequest { request: amount, limit: amount };
            let requested = RequestedUpdate { cpu, ..RequestedUpdate::default() };
            let (pod, container) = (pod.clone(), container.clone());
            let update = Admission::Update { pod, container, requested };
            assert!(daemon.event(update).await.is_err());
            sleep(Duration::from_secs(1)).await;
        }
        bound("does-not-fit-");
        bound("has-little");
    })
    .await;
}

/// A sandbox that is dead, but that the runtime lists at each connection, every 20 seconds.
#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_that_is_listed() {
    local(async {
        logged(Level::Info, "");
        let daemon = Daemon::start_in("exclusivity: groups\n", None, |root| {
            fs::create_dir(root.join("kubepods")).unwrap();
        });
        let id = "0123456789abcdef".repeat(4);
        let (mut pod, mut container) = pod_and_container("dead", Qos::Guaranteed, 2000);
        pod.sandbox.0 = id.clone().into();
        pod.cgroup = cpuset::CgroupPath::new("/kubepods/dead");
        container.sandbox.0 = id.clone().into();
        container.cpus = Some("2-3".parse().unwrap());
        container.cgroup = cpuset::CgroupPath::new("/kubepods/dead/c");
        for _ in 0..180 {
            let containers = vec![container.clone()];
            daemon.event(Event::Synchronize { pods: vec![pod.clone()], containers }).await.unwrap();
            sleep(Duration::from_secs(10)).await;
            daemon
                .event(Event::Synchronize { pods: vec![pod.clone()], containers: vec![] })
                .await
                .unwrap();
            sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(bytes_with(&id[..13]), 0, "ids are short");
        bound("ns/dead");
        bound("synchronised with 1 pod:");
    })
    .await;
}

/// A runtime configures the plugin every second.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_connects_again_and_again() {
    local(async {
        logged(Level::Info, "");
        let daemon = Daemon::start();
        let runtime = Runtime {
            name: "containerd".to_owned(),
            version: "v1.7.99-again".to_owned(),
            nri_version: String::new(),
        };
        for _ in 0..3600 {
            let (reply, subscriptions) = oneshot::channel();
            let connected = Message::Configure {
                session: Session(0),
                runtime: runtime.clone(),
                capabilities: Capabilities::of(&runtime),
                config: String::new(),
                answer_within: Duration::from_secs(2),
                updater: None,
                reply,
            };
            daemon.messages.send(connected).unwrap();
            subscriptions.await.unwrap().unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        bound("runtime: containerd v1.7.99-again");
    })
    .await;
}

/// A program sets the CPUs of 40 containers every five seconds, to others each time.
#[tokio::test(start_paused = true)]
async fn a_program_that_sets_cpus() {
    local(async {
        logged(Level::Info, "");
        let daemon = Daemon::start();
        for n in 0..40 {
            let name = format!("fought-{n}");
            let one = in_group(&daemon, &name, (Qos::Burstable, 100), "2-15");
            start(&daemon, one).await;
        }
        for pass in 0..720 {
            for n in 0..40 {
                write_group(&daemon, &format!("fought-{n}"), ["3", "4-5", "6"][pass % 3]);
            }
            sleep(Duration::from_secs(5)).await;
        }
        bound("fought-");
    })
    .await;
}
