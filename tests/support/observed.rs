//! A daemon that answers observers, on a synthetic machine of 16 CPUs in two uncore caches and two
//! NUMA nodes.

use super::events::create;
use config::{Config, NodeIdentity, PodResources};
use daemon::{self, Executor, Paths, Start, Threads};
use edge::{Message, Refusal, Response};
use ledger::{Call, Event, Qos};
use machines::synthetic::Machine;
use nri::{Capabilities, Runtime, Session};
use serve::{ViewSource, questions};
use state::worker::Worker;
use status::snapshot::Snapshot;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Reserves two CPUs of the first cache.
pub(crate) const CONFIG: &str =
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"\"\n";

pub(crate) struct ObservedDaemon {
    pub(crate) messages: mpsc::UnboundedSender<Message>,
    pub(crate) observer: ViewSource,
    pub(crate) pages: Worker,
    pub(crate) paths: Paths,
    _dir: tempfile::TempDir,
}

impl ObservedDaemon {
    /// No runtime is connected yet. Must be called in a `LocalSet`.
    pub(crate) fn start(config: &str) -> ObservedDaemon {
        let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
        ObservedDaemon::start_on(&machine, config)
    }

    pub(crate) fn start_on(machine: &Machine, config: &str) -> ObservedDaemon {
        ObservedDaemon::make(machine, config, false, None, |_| ())
    }

    /// Starts with a connected runtime, on a machine whose files `prepare` completes.
    pub(crate) async fn prepared(
        machine: &Machine,
        config: &str,
        prepare: impl FnOnce(&Paths),
    ) -> ObservedDaemon {
        ObservedDaemon::make(machine, config, false, None, prepare).connect_and_list().await
    }

    /// Starts with podresources on the command line, which the configuration does not name.
    pub(crate) fn with_pod_resources(config: &str, served: PodResources) -> ObservedDaemon {
        let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
        ObservedDaemon::make(&machine, config, false, Some(served), |_| ())
    }

    /// Starts with a connected runtime, and follows the configuration in a ConfigMap's volume.
    pub(crate) async fn following(config: &str) -> ObservedDaemon {
        let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
        ObservedDaemon::make(&machine, config, true, None, |_| ()).connect_and_list().await
    }

    /// As [`ObservedDaemon::following`], on a machine whose files `prepare` completes.
    pub(crate) async fn following_on(
        machine: &Machine,
        config: &str,
        prepare: impl FnOnce(&Paths),
    ) -> ObservedDaemon {
        ObservedDaemon::make(machine, config, true, None, prepare).connect_and_list().await
    }

    fn make(
        machine: &Machine,
        config: &str,
        follow: bool,
        pod_resources: Option<PodResources>,
        prepare: impl FnOnce(&Paths),
    ) -> ObservedDaemon {
        let dir = super::fake_sysfs::scratch();
        let volume = dir.path().join("config");
        swap(&volume, config);
        let file = volume.join("config.yaml");
        let sysfs_root = dir.path().join("sys");
        let cgroup_root = dir.path().join("cgroup");
        super::fake_sysfs::write(&sysfs_root, &super::fake_sysfs::files(&machine.facts().unwrap()));
        let paths = Paths {
            node: NodeIdentity { name: Some("node".to_owned()), labels: None },
            config: follow.then(|| file.clone()),
            state_dir: dir.path().join("state"),
            pod_resources,
            sysfs_root,
            cgroup_root: cgroup_root.clone(),
            proc_root: dir.path().join("no-proc"),
            host_root: None,
        };
        // cgroup v1, so that there are no partitions on any test machine.
        fs::create_dir_all(cgroup_root.join("cpuset")).unwrap();
        fs::write(cgroup_root.join("cpuset/cpuset.cpus"), "0-15\n").unwrap();
        fs::write(cgroup_root.join("cpuset/cgroup.procs"), "").unwrap();
        prepare(&paths);
        let threads = Threads::start().unwrap();
        let owner = Executor::start(&paths, &Config::read(&file).unwrap(), &threads).unwrap();
        let (messages, inbox) = mpsc::unbounded_channel();
        let questions = questions();
        let observer = questions.0.clone();
        let pages = threads.pages.clone();
        let for_task = paths.clone();
        tokio::task::spawn_local(async move {
            let start = Start::Now(Box::new(owner));
            daemon::serve(inbox, questions, &for_task, &threads, start).await.unwrap();
        });
        ObservedDaemon { messages, observer, pages, paths, _dir: dir }
    }

    /// Starts with a connected runtime that has listed no containers.
    pub(crate) async fn connected(config: &str) -> ObservedDaemon {
        ObservedDaemon::start(config).connect_and_list().await
    }

    pub(crate) async fn connected_on(machine: &Machine, config: &str) -> ObservedDaemon {
        ObservedDaemon::start_on(machine, config).connect_and_list().await
    }

    async fn connect_and_list(self) -> ObservedDaemon {
        self.connect_runtime(1).await;
        self.synchronize().await;
        self
    }

    /// Replaces the configuration, as the kubelet does.
    pub(crate) fn swap_config(&self, text: &str) {
        swap(self.paths.config.as_deref().unwrap().parent().unwrap(), text);
    }

    pub(crate) async fn connect_runtime(&self, session: u64) {
        let runtime = Runtime {
            name: "containerd".to_owned(),
            version: "v2.1.9".to_owned(),
            nri_version: String::new(),
        };
        let (reply, answer) = oneshot::channel();
        let capabilities = Capabilities::of(&runtime);
        let configure = Message::Configure {
            session: Session(session),
            runtime,
            capabilities,
            config: String::new(),
            answer_within: Duration::from_secs(2),
            updater: None,
            reply,
        };
        self.messages.send(configure).unwrap();
        answer.await.unwrap().unwrap();
    }

    pub(crate) async fn synchronize(&self) {
        let event = Event::Synchronize { pods: Vec::new(), containers: Vec::new() };
        self.event(event).await.unwrap();
    }

    pub(crate) async fn event(&self, call: impl Into<Call>) -> Result<Response, Refusal> {
        let (reply, answer) = oneshot::channel();
        let call = call.into();
        self.messages.send(Message::Call { session: Session(1), call, reply }).unwrap();
        answer.await.unwrap()
    }

    pub(crate) async fn status(&self) -> Snapshot {
        self.observer.status().await.unwrap()
    }

    pub(crate) async fn create(&self, name: &str, qos: Qos, milli: u64) -> Result<String, String> {
        let decision = self.event(create(name, qos, milli)).await.map_err(|refusal| refusal.0)?;
        Ok(decision.setting.unwrap().cpus().to_string())
    }
}

/// Writes a file into a ConfigMap's volume as the kubelet does: into a new directory, to which it
/// then moves a symbolic link.
fn swap(volume: &Path, text: &str) {
    let link = volume.join("..data");
    let serial = fs::read_link(&link).map_or(0, |now| now.to_str().unwrap().len());
    let directory = format!("..{}", "v".repeat(serial));
    fs::create_dir_all(volume.join(&directory)).unwrap();
    fs::write(volume.join(&directory).join("config.yaml"), text).unwrap();
    symlink(&directory, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), &link).unwrap();
    if serial == 0 {
        symlink("..data/config.yaml", volume.join("config.yaml")).unwrap();
    }
}
