//! The owner of the ledger, with a real state directory and a described machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/fake_sysfs.rs"]
mod fake_sysfs;

use nri_cpu_manager::checkpoint;
use nri_cpu_manager::config::Config;
use nri_cpu_manager::daemon::{self, Owner, Paths};
use nri_cpu_manager::ledger::model::{ContainerId, PodUid, SandboxId};
use nri_cpu_manager::ledger::{
    Claim, Container, ContainerKind, CpuRequest, Decision, Event, MilliCpu, Pod, Qos,
};
use nri_cpu_manager::nri::{Message, Refusal, Session};
use nri_cpu_manager::topology::synthetic::Machine;
use std::fs;
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
        let dir = tempfile::tempdir().unwrap();
        let sysfs_root = dir.path().join("sys");
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        fake_sysfs::write(&sysfs_root, &fake_sysfs::files(&machine.facts().unwrap()));
        let paths = Paths { config: None, state_dir: dir.path().join("state"), sysfs_root };
        let owner = Owner::start(&paths, &Config::parse("test", CONFIG).unwrap()).unwrap();
        let (messages, inbox) = mpsc::unbounded_channel();
        let for_task = paths.clone();
        tokio::task::spawn_local(async move { daemon::serve(inbox, &for_task, Some(owner)).await });
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
        },
        container: Container {
            id: ContainerId(format!("id-{name}")),
            sandbox,
            name: "c".to_owned(),
            kind: ContainerKind::Unknown,
            cpu: CpuRequest { request: amount, limit: amount },
            cpus: None,
            created_at: None,
        },
    }
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
        let told: Vec<String> = stop
            .updates
            .iter()
            .map(|update| format!("{} {}", update.container, update.pin.cpus()))
            .collect();
        assert_eq!(told, ["id-s 0-1,6-15"]);
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
