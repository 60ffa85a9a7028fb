//! The owner of the ledger, with a real state directory and a described machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/fake_sysfs.rs"]
mod fake_sysfs;

use nri_cpu_manager::checkpoint;
use nri_cpu_manager::config::{Config, NodeIdentity};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::daemon::{self, Owner, Paths};
use nri_cpu_manager::ledger::model::{ContainerId, PodUid, SandboxId};
use nri_cpu_manager::ledger::{
    CgroupPath, Claim, Container, ContainerKind, CpuRequest, Decision, Event, MilliCpu, Pod, Qos,
    Update, Wanted,
};
use nri_cpu_manager::nri::{Message, Refusal, Session};
use nri_cpu_manager::topology::synthetic::Machine;
use std::fs;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const CONFIG: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";

struct Daemon {
    messages: mpsc::UnboundedSender<Message>,
    paths: Paths,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// A daemon for a machine of 16 CPUs; to be called in a `LocalSet`.
    fn start() -> Daemon {
        Daemon::beside_kubelet("", None)
    }

    /// Beside a kubelet with this state file, `more` being added to the configuration.
    fn beside_kubelet(more: &str, state: Option<&str>) -> Daemon {
        let dir = fake_sysfs::scratch();
        let kubelet = dir.path().join("kubelet");
        fs::create_dir(dir.path().join("cgroup")).unwrap();
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "cpuset cpu\n").unwrap();
        if let Some(state) = state {
            fs::create_dir(&kubelet).unwrap();
            fs::write(kubelet.join("cpu_manager_state"), state).unwrap();
        }
        let config = format!("{CONFIG}kubeletStateDir: {}\n{more}", kubelet.display());
        let sysfs_root = dir.path().join("sys");
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        fake_sysfs::write(&sysfs_root, &fake_sysfs::files(&machine.facts().unwrap()));
        let paths = Paths {
            node: NodeIdentity::default(),
            config: None,
            state_dir: dir.path().join("state"),
            sysfs_root,
            cgroup_root: dir.path().join("cgroup"),
            proc_root: dir.path().join("no-proc"),
        };
        let owner = Owner::start(&paths, &Config::parse("test", &config).unwrap()).unwrap();
        let (messages, inbox) = mpsc::unbounded_channel();
        let questions = nri_cpu_manager::observe::questions();
        let for_task = paths.clone();
        tokio::task::spawn_local(async move {
            daemon::serve(inbox, questions, &for_task, Some(owner)).await
        });
        Daemon { messages, paths, _dir: dir }
    }

    async fn event(&self, event: Event) -> Result<Decision, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Event { session: Session(0), event, reply }).unwrap();
        answer.await.unwrap()
    }

    async fn create(&self, name: &str, qos: Qos, milli: u64) -> Result<String, String> {
        let decision = self.event(create(name, qos, milli)).await.map_err(|refusal| refusal.0)?;
        Ok(decision.pin.unwrap().cpus().to_string())
    }

    /// Creates a container for which the kubelet names these CPUs; the CPUs the answer puts in their place.
    async fn named(&self, name: &str, milli: u64, cpus: &str) -> Result<Option<String>, String> {
        let mut event = create(name, Qos::Guaranteed, milli);
        if let Event::Create { container, .. } = &mut event {
            container.cpus = Some(cpus.parse().unwrap());
        }
        let decision = self.event(event).await.map_err(|refusal| refusal.0)?;
        assert_eq!(decision.updates, []);
        Ok(decision.pin.map(|pin| pin.cpus().to_string()))
    }

    /// Replaces the kubelet's state file as the kubelet does.
    fn kubelet_writes(&self, state: &str) {
        let kubelet = self.paths.state_dir.parent().unwrap().join("kubelet");
        fs::create_dir_all(&kubelet).unwrap();
        fs::write(kubelet.join("new"), state).unwrap();
        fs::rename(kubelet.join("new"), kubelet.join("cpu_manager_state")).unwrap();
    }

    fn on_disk(&self) -> Vec<Claim> {
        let bytes = fs::read(self.paths.state_dir.join("checkpoint.json")).unwrap();
        checkpoint::decode(&bytes).unwrap()
    }
}

fn create(name: &str, qos: Qos, milli: u64) -> Event {
    let sandbox = SandboxId(format!("sandbox-{name}"));
    let amount = Some(MilliCpu(milli));
    Event::Create {
        pod: Pod {
            sandbox: sandbox.clone(),
            uid: PodUid(format!("uid-{name}")),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            qos,
            budget: amount,
            annotations: Vec::new(),
        },
        container: Container {
            id: ContainerId(format!("id-{name}")),
            sandbox,
            name: "c".to_owned(),
            kind: ContainerKind::Unknown,
            cpu: CpuRequest { request: amount, limit: amount },
            cpus: None,
            cgroup: None,
            mems: None,
            devices: Vec::new(),
            kept: false,
            outdated: false,
            created_at: None,
        },
    }
}

/// What an answer changes for others.
fn told(answer: &Decision) -> Vec<String> {
    let update = |update: &Update| format!("{} {}", update.container, update.pin.cpus());
    answer.updates.iter().map(update).collect()
}

async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_decision_is_on_disk_before_it_is_answered() {
    local(async {
        let daemon = Daemon::start();
        for (name, milli) in [("a", 4000), ("b", 2000)] {
            let cpus = daemon.create(name, Qos::Guaranteed, milli).await.unwrap();
            let found = daemon.on_disk().into_iter().find(|claim| claim.pod == name).unwrap();
            assert_eq!(found.cpus.to_string(), cpus);
        }
    })
    .await;
}

#[tokio::test]
async fn a_shared_container_does_not_touch_the_disk() {
    local(async {
        let daemon = Daemon::start();
        daemon.create("a", Qos::Guaranteed, 4000).await.unwrap();
        fs::remove_file(daemon.paths.state_dir.join("checkpoint.json")).unwrap();
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        assert!(!daemon.paths.state_dir.join("checkpoint.json").exists());
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_given() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(daemon.create("s", Qos::Burstable, 500).await.unwrap(), "0-15");
        // Whatever the user's rights: no file can be written where a directory is.
        let obstacle = daemon.paths.state_dir.join("checkpoint.json.new");
        fs::create_dir(&obstacle).unwrap();
        let refused = daemon.create("a", Qos::Guaranteed, 4000).await.unwrap_err();
        assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
        assert!(refused.contains("checkpoint.json.new"), "{refused}");
        assert_eq!(daemon.create("t", Qos::Burstable, 500).await.unwrap(), "0-15");
        fs::remove_dir(&obstacle).unwrap();
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        assert_eq!(daemon.on_disk().len(), 1);
    })
    .await;
}

/// The edge gives up on an answer that comes too late: the runtime has not heard of the changes in it.
#[tokio::test]
async fn changes_that_were_not_heard_are_told_again() {
    local(async {
        let daemon = Daemon::start();
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        let (reply, answer) = oneshot::channel();
        drop(answer);
        let event = create("a", Qos::Guaranteed, 4000);
        daemon.messages.send(Message::Event { session: Session(0), event, reply }).unwrap();
        let stop = daemon.event(Event::Stop(ContainerId("unknown".to_owned()))).await.unwrap();
        assert_eq!(told(&stop), ["id-s 0-1,6-15"]);
    })
    .await;
}

#[tokio::test]
async fn work_of_an_old_connection_is_not_done() {
    local(async {
        let daemon = Daemon::start();
        let (reply, answer) = oneshot::channel();
        let event = create("a", Qos::Guaranteed, 4000);
        daemon.messages.send(Message::Event { session: Session(7), event, reply }).unwrap();
        assert!(answer.await.is_err());
        assert_eq!(daemon.create("s", Qos::Burstable, 500).await.unwrap(), "0-15");
    })
    .await;
}

/// State files of a kubelet that has given a container CPUs 8-11, and of one with policy none.
const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0-7,12-15","entries":{"uid-k":{"c":"8-11"}},"checksum":0}"#;
const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;

#[tokio::test]
async fn beside_an_active_kubelet_new_exclusive_containers_are_refused() {
    local(async {
        let daemon = Daemon::beside_kubelet("", Some(STATIC));
        let refused = daemon.named("a", 4000, "2-5").await.unwrap_err();
        for word in ["cpuManagerPolicy: none", "cpu_manager_state", "restart"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert_eq!(daemon.named("f", 500, "0-7,12-15").await, Ok(None));
    })
    .await;
}

/// The kubelet is configured anew while the plugin runs: it takes over by itself, within seconds.
#[tokio::test]
async fn when_the_kubelet_is_no_longer_active_the_plugin_takes_over() {
    local(async {
        let daemon = Daemon::beside_kubelet("onActiveKubelet: observe\n", Some(STATIC));
        assert_eq!(daemon.named("k", 4000, "8-11").await, Ok(None));
        daemon.kubelet_writes(NONE);
        let start = std::time::Instant::now();
        let (mut turn, mut pinned) = (0, None);
        while pinned.is_none() {
            assert!(start.elapsed().as_secs() < 10, "it has not taken over");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            turn += 1;
            let event = create(&format!("n{turn}"), Qos::Burstable, 100);
            pinned = daemon.event(event).await.unwrap().pin;
        }
        assert_eq!(pinned.unwrap().cpus().to_string(), "0-7,12-15");
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        let mut kept: Vec<String> =
            daemon.on_disk().iter().map(|claim| format!("{} {}", claim.pod, claim.cpus)).collect();
        kept.sort();
        assert_eq!(kept, ["a 2-5", "k 8-11"]);
    })
    .await;
}

/// Where the kubelet's directory cannot be seen, what it asks for tells.
#[tokio::test]
async fn without_its_file_the_kubelets_requests_tell() {
    local(async {
        let daemon = Daemon::start();
        assert_eq!(daemon.create("a", Qos::Guaranteed, 2000).await.unwrap(), "2-3");
        assert!(daemon.named("b", 4000, "8-11").await.is_err());
        assert_eq!(daemon.named("s", 500, "0-7").await, Ok(None));
        // The kubelet's policy is none now: this one comes without CPUs.
        assert_eq!(daemon.create("c", Qos::Guaranteed, 4000).await.unwrap(), "4-7");
    })
    .await;
}

#[tokio::test]
async fn a_state_file_that_cannot_be_believed_does_no_harm() {
    local(async {
        let daemon = Daemon::beside_kubelet("", Some("{\"policyName\":\"sta"));
        assert_eq!(daemon.create("a", Qos::Guaranteed, 4000).await.unwrap(), "2-5");
        // Damaged, but static all the same.
        let daemon = Daemon::beside_kubelet("", Some(&STATIC.replace(":0}", ":7}")));
        assert!(daemon.create("a", Qos::Guaranteed, 4000).await.is_err());
    })
    .await;
}

/// Seen with CRI-O: after its restart it lists what it set when it created a container.
#[tokio::test]
async fn what_the_kernel_says_is_set_counts_before_what_the_runtime_believes() {
    local(async {
        let daemon = Daemon::start();
        let (mut pods, mut containers) = (Vec::new(), Vec::new());
        for (name, believed, set) in [
            ("stale", "2-5", Some("8-11")),
            // What cannot be seen, or has nothing set, is as the runtime says.
            ("unseen", "2-3", None),
            ("unset", "4-5", Some("")),
            ("garbage", "6-7", Some("x")),
        ] {
            let milli = 1000 * believed.parse::<CpuSet>().unwrap().len() as u64;
            let Event::Create { pod, mut container } = create(name, Qos::Guaranteed, milli) else {
                unreachable!()
            };
            container.cpus = Some(believed.parse().unwrap());
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
        let mut kept: Vec<String> =
            daemon.on_disk().iter().map(|claim| format!("{} {}", claim.pod, claim.cpus)).collect();
        kept.sort();
        assert_eq!(kept, ["garbage 6-7", "stale 8-11", "unseen 2-3", "unset 4-5"]);
    })
    .await;
}

/// Seen with CRI-O: so does what it lists of an in-place resize, and of the nodes that memory is on.
#[tokio::test]
async fn a_list_from_before_a_resize_does_not_undo_it() {
    local(async {
        let daemon = Daemon::start();
        let Event::Create { pod, mut container } = create("a", Qos::Guaranteed, 2000) else {
            unreachable!()
        };
        container.cgroup = CgroupPath::new("/kubepods/a");
        let created = Event::Create { pod: pod.clone(), container: container.clone() };
        daemon.event(created).await.unwrap();
        let four = Some(MilliCpu(4000));
        let cpu = CpuRequest { request: four, limit: four };
        let wanted = Wanted { cpu, sets_quota: true, cpus: None };
        let (of, which) = (pod.clone(), container.clone());
        daemon.event(Event::Update { pod: of, container: which, wanted }).await.unwrap();
        assert_eq!(daemon.on_disk()[0].cpus.to_string(), "2-5");
        let group = daemon.paths.cgroup_root.join("kubepods/a");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuset.cpus"), "2-5\n").unwrap();
        container.cpus = Some("2-3".parse().unwrap());
        container.cpu.limit = None;
        let (pods, containers) = (vec![pod], vec![container]);
        daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        let claim = daemon.on_disk().remove(0);
        assert_eq!((claim.cpus.to_string().as_str(), claim.cpu), ("2-5", cpu));
    })
    .await;
}

/// Nobody tells that a pod or a container has ended; its groups do, but only after a while, and only those that were
/// seen.
#[tokio::test(start_paused = true)]
async fn ends_that_nobody_told_of() {
    local(async {
        let daemon = Daemon::start();
        let group = |name: &str| daemon.paths.cgroup_root.join("kubepods").join(name).join("c");
        daemon.create("shared", Qos::Burstable, 100).await.unwrap();
        for name in ["pod", "container", "unseen"] {
            let Event::Create { pod, mut container } = create(name, Qos::Guaranteed, 4000) else {
                unreachable!()
            };
            container.cgroup = CgroupPath::new(&format!("/kubepods/{name}/c"));
            daemon.event(Event::Create { pod, container }).await.unwrap();
            if name != "unseen" {
                fs::create_dir_all(group(name)).unwrap();
                fs::write(group(name).join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
            }
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        fs::remove_dir_all(group("pod").parent().unwrap()).unwrap();
        fs::write(group("container").join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert_eq!(daemon.on_disk().len(), 3);
        tokio::time::sleep(Duration::from_secs(40)).await;
        let left: Vec<String> = daemon.on_disk().into_iter().map(|claim| claim.pod).collect();
        assert_eq!(left, ["container", "unseen"]);
        // The container's CPUs are lent out, as after any end.
        let answer = daemon.event(Event::Stop(ContainerId("nobody".to_owned()))).await.unwrap();
        let told: Vec<String> =
            answer.updates.iter().map(|update| update.pin.cpus().to_string()).collect();
        assert_eq!(told, ["0-9,14-15"]);
    })
    .await;
}

/// A container with a control group in which these CPUs are set.
fn in_group(daemon: &Daemon, name: &str, (qos, milli): (Qos, u64), set: &str) -> (Pod, Container) {
    let Event::Create { pod, mut container } = create(name, qos, milli) else { unreachable!() };
    container.cgroup = CgroupPath::new(&format!("/kubepods/{name}/c"));
    let group = daemon.paths.cgroup_root.join("kubepods").join(name).join("c");
    fs::create_dir_all(&group).unwrap();
    for (file, text) in [("cpuset.cpus", set), ("cpuset.cpus.effective", set), ("cgroup.procs", "")]
    {
        fs::write(group.join(file), text).unwrap();
    }
    (pod, container)
}

fn set_in_group(daemon: &Daemon, name: &str) -> String {
    let file = daemon.paths.cgroup_root.join("kubepods").join(name).join("c/cpuset.cpus");
    fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Somebody writes into groups: all that was found is set again, where the runtime cannot be told at once; it is told by its
/// next answer.
#[tokio::test(start_paused = true)]
async fn every_drift_of_a_look_is_repaired() {
    local(async {
        let daemon = Daemon::start();
        for (name, set) in [("a", "5"), ("b", "5"), ("right", "0-15")] {
            let (pod, container) = in_group(&daemon, name, (Qos::Burstable, 500), set);
            let created = Event::Create { pod: pod.clone(), container: container.clone() };
            daemon.event(created).await.unwrap();
            daemon.event(Event::Started { pod, container }).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(["a", "b", "right"].map(|name| set_in_group(&daemon, name)), ["0-15"; 3]);
        let answer = daemon.event(Event::Stop(ContainerId("nobody".to_owned()))).await.unwrap();
        assert_eq!(told(&answer), ["id-a 0-15", "id-b 0-15"]);
    })
    .await;
}

/// Pods that a kubelet starts at the same time: containerd loses what it is told of a container that it is still creating,
/// and its next answer can be hours away.
#[tokio::test(start_paused = true)]
async fn a_change_that_the_runtime_lost_is_made_up_for() {
    local(async {
        let daemon = Daemon::start();
        let web = in_group(&daemon, "web", (Qos::Burstable, 500), "0-15");
        let db = in_group(&daemon, "db", (Qos::Guaranteed, 4000), "2-5");
        let created = |(pod, container)| Event::Create { pod, container };
        daemon.event(created(web.clone())).await.unwrap();
        let answer = daemon.event(created(db.clone())).await.unwrap();
        assert_eq!(told(&answer), ["id-web 0-1,6-15"], "and lost");
        for (pod, container) in [web, db] {
            daemon.event(Event::Started { pod, container }).await.unwrap();
        }
        assert_eq!(set_in_group(&daemon, "web"), "0-15");
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(["web", "db"].map(|name| set_in_group(&daemon, name)), ["0-1,6-15", "2-5"]);
    })
    .await;
}
