//! A node: a runtime that remembers what it has set, and the plugin as it ships behind the edge,
//! with its ledger and its state directory. Either can go away and come back.

use crate::fake_sysfs;
use crate::owner::identity;
use crate::runtime::{self, Generation, Runtime};
use cpuset::CpuSet;
use ledger::{Call, Claim};
use nri::Session;
use nri::wire;
use nri_cpu_manager::checkpoint;
use nri_cpu_manager::checkpoint::StateError;
use nri_cpu_manager::config::{Config, NodeIdentity};
use nri_cpu_manager::daemon::{self, Executor, Paths, Start, StartError};
use nri_cpu_manager::edge::nri::run_session;
use nri_cpu_manager::edge::{self, Message};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use topology::synthetic::Machine;
use wire::Event as Kind;

const CONFIG: &str =
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"\"\n";

/// A container as the runtime knows it.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) pod: wire::PodSandbox,
    /// With the CPUs that are set.
    pub(crate) wire: wire::Container,
    /// Whether they were set for it alone.
    pub(crate) exclusive: bool,
    /// Whether its process may run.
    pub(crate) alive: bool,
}

impl Container {
    pub(crate) fn cpus(&self) -> CpuSet {
        self.wire.linux.resources.cpu.cpus.parse().unwrap()
    }

    pub(crate) fn set(&mut self, resources: &wire::LinuxResources) {
        assert!(!resources.cpu.cpus.is_empty());
        let linux = self.wire.linux.mut_or_insert_default();
        let own = linux.resources.mut_or_insert_default().cpu.mut_or_insert_default();
        own.cpus.clone_from(&resources.cpu.cpus);
        self.exclusive = resources.cpu.quota.value == -1;
        if self.exclusive {
            own.quota = resources.cpu.quota.clone();
        }
    }
}

/// The plugin's part that outlives connections.
struct Plugin {
    messages: edge::DaemonSender,
    heard: Arc<Mutex<Vec<Call>>>,
    served: JoinHandle<()>,
    session: JoinHandle<()>,
}

pub(crate) struct Node {
    pub(crate) runtime: Runtime<DuplexStream>,
    pub(crate) containers: BTreeMap<String, Container>,
    pub(crate) pods: BTreeMap<String, wire::PodSandbox>,
    pub(crate) paths: Paths,
    config: String,
    plugin: Plugin,
    sessions: u64,
    _dir: tempfile::TempDir,
}

impl Node {
    /// 16 CPUs of two uncore caches, 0-1 reserved; nothing runs.
    pub(crate) async fn start(generation: Generation) -> Node {
        Node::start_with(generation, CONFIG).await
    }

    pub(crate) async fn start_with(generation: Generation, config: &str) -> Node {
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        Node::start_on(generation, config, &machine).await
    }

    pub(crate) async fn start_on(generation: Generation, config: &str, machine: &Machine) -> Node {
        let mut node = Node::connected(generation, config, machine);
        node.synchronize().await;
        node
    }

    /// The same before a word is said on the connection.
    pub(crate) fn connected(generation: Generation, config: &str, machine: &Machine) -> Node {
        let dir = fake_sysfs::scratch();
        let sysfs_root = dir.path().join("sys");
        fake_sysfs::write(&sysfs_root, &fake_sysfs::files(&machine.facts().unwrap()));
        let paths = Paths {
            node: NodeIdentity::default(),
            config: None,
            state_dir: dir.path().join("state"),
            pod_resources: None,
            sysfs_root,
            cgroup_root: dir.path().join("no-cgroups"),
            proc_root: dir.path().join("no-proc"),
        };
        let (runtime, plugin) = launch(generation, &paths, config);
        Node {
            runtime,
            containers: BTreeMap::new(),
            pods: BTreeMap::new(),
            paths,
            config: config.to_owned(),
            plugin,
            sessions: 1,
            _dir: dir,
        }
    }

    /// The handshake on a new connection, with all that exists.
    pub(crate) async fn synchronize(&mut self) {
        self.runtime.registration().await;
        self.runtime.configure().await;
        let pods: Vec<_> = self.pods.values().cloned().collect();
        let alive = self.containers.values().filter(|container| container.alive);
        let containers: Vec<_> = alive.map(|container| container.wire.clone()).collect();
        let updates = self.runtime.synchronize(&pods, &containers, 3).await;
        self.apply(updates);
    }

    /// The connection ends and is made anew; the plugin lives on.
    pub(crate) async fn reconnect(&mut self) {
        self.drop_connection();
        self.synchronize().await;
    }

    /// Ends the connection and makes the next one, without a word on it yet.
    pub(crate) fn drop_connection(&mut self) {
        self.sessions += 1;
        let (runtime, session) =
            connect(self.runtime.generation, self.sessions, self.plugin.messages.clone());
        self.runtime = runtime;
        self.plugin.session = session;
    }

    /// The plugin is killed: nothing of it is left but its state directory. The runtime goes on.
    pub(crate) async fn kill(&mut self) {
        for task in [&mut self.plugin.session, &mut self.plugin.served] {
            task.abort();
            if !task.is_finished() {
                let _ = task.await;
            }
        }
    }

    /// A new plugin process starts, and all that exists is listed for it.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        let (runtime, plugin) = launch(self.runtime.generation, &self.paths, &self.config);
        (self.runtime, self.plugin) = (runtime, plugin);
        self.sessions = 1;
        self.synchronize().await;
    }

    /// A Guaranteed pod's sandbox starts.
    pub(crate) async fn run_pod(&mut self, uid: &str, milli: i64) -> wire::PodSandbox {
        let pod = runtime::pod(uid, milli);
        self.pods.insert(pod.id.clone(), pod.clone());
        self.runtime.tell(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
        pod
    }

    /// A container as the kubelet asks for it.
    pub(crate) fn container(
        &self,
        pod: &wire::PodSandbox,
        name: &str,
        id: &str,
        milli: i64,
    ) -> Container {
        let mut wire = runtime::container(id, &pod.uid, milli);
        wire.pod_sandbox_id.clone_from(&pod.id);
        wire.name = name.into();
        wire.created_at = i64::try_from(self.containers.len()).unwrap() + 1;
        Container { pod: pod.clone(), wire, exclusive: false, alive: true }
    }

    /// Creates a container and starts it; where it was put, or why it was refused.
    pub(crate) async fn create(
        &mut self,
        pod: &wire::PodSandbox,
        name: &str,
        id: &str,
        milli: i64,
    ) -> Result<String, String> {
        self.ask(pod, name, id, milli).await?;
        self.started(id).await;
        Ok(self.cpus(id))
    }

    /// Asks for a container; if it may be, it exists afterwards, and does not run.
    pub(crate) async fn ask(
        &mut self,
        pod: &wire::PodSandbox,
        name: &str,
        id: &str,
        milli: i64,
    ) -> Result<(), String> {
        let mut container = self.container(pod, name, id, milli);
        let answer = self.runtime.create(pod, &container.wire).await;
        let answer = answer.map_err(|status| status.message)?;
        self.apply(answer.update);
        if let Some(adjust) = answer.adjust.as_ref() {
            container.set(&adjust.linux.resources);
        }
        self.containers.insert(id.to_owned(), container);
        Ok(())
    }

    pub(crate) async fn started(&mut self, id: &str) {
        let Container { pod, wire, .. } = self.containers[id].clone();
        self.runtime.tell(Kind::POST_START_CONTAINER, &pod, Some(&wire)).await.unwrap();
    }

    /// The process has ended, and the plugin gets the event.
    pub(crate) async fn stop(&mut self, id: &str) {
        self.containers.get_mut(id).unwrap().alive = false;
        let Container { pod, wire, .. } = self.containers[id].clone();
        self.tell_stop(&pod, &wire).await;
    }

    pub(crate) async fn tell_stop(&mut self, pod: &wire::PodSandbox, container: &wire::Container) {
        let answer = self.runtime.stop(pod, container).await.unwrap();
        self.apply(answer.update);
    }

    pub(crate) async fn remove(&mut self, id: &str) {
        let Container { pod, wire, .. } = self.containers.remove(id).unwrap();
        self.runtime.tell(Kind::REMOVE_CONTAINER, &pod, Some(&wire)).await.unwrap();
    }

    /// All containers of the pod are gone, and it is over.
    pub(crate) async fn stop_pod(&mut self, pod: &wire::PodSandbox) {
        self.pods.remove(&pod.id);
        self.containers.retain(|_, container| container.pod.id != pod.id);
        self.runtime.tell(Kind::STOP_POD_SANDBOX, pod, None).await.unwrap();
    }

    /// A resize as the kubelet asks for it, or any other update.
    pub(crate) async fn update(
        &mut self,
        id: &str,
        wanted: wire::LinuxResources,
    ) -> Result<(), String> {
        let Container { pod, wire, .. } = self.containers[id].clone();
        let request = wire::UpdateContainerRequest {
            pod: Some(pod).into(),
            container: Some(wire).into(),
            linux_resources: Some(wanted.clone()).into(),
            ..Default::default()
        };
        let answer: wire::UpdateContainerResponse = self
            .runtime
            .call("UpdateContainer", &request)
            .await
            .map_err(|status: ttrpc::proto::Status| status.message)?;
        // What the plugin says of the container itself is written over what was asked for.
        if !wanted.cpu.cpus.is_empty() {
            self.containers.get_mut(id).unwrap().set(&wanted);
        }
        self.apply(answer.update);
        Ok(())
    }

    /// Sets what the plugin says; of what is unknown or has ended it does not matter.
    pub(crate) fn apply(&mut self, updates: Vec<wire::ContainerUpdate>) {
        let mut told = std::collections::HashSet::new();
        for update in updates {
            assert!(update.ignore_failure, "a change that may fail something");
            assert!(told.insert(update.container_id.clone()), "told twice in one answer");
            if let Some(container) = self.containers.get_mut(&update.container_id) {
                container.set(&update.linux.resources);
            }
        }
    }

    /// Does what the plugin asks for by itself, once nothing else happens; what that is.
    pub(crate) async fn obey_unasked(&mut self) -> Vec<String> {
        self.runtime.idle().await;
        let mut asked = Vec::new();
        for request in std::mem::take(&mut self.runtime.unsolicited) {
            for update in &request.update {
                let cpus = &update.linux.resources.cpu.cpus;
                asked.push(format!("{} {cpus}", update.container_id));
            }
            self.apply(request.update);
        }
        asked
    }

    pub(crate) fn cpus(&self, id: &str) -> String {
        self.containers[id].cpus().to_string()
    }

    /// The events that the ledger has heard since this was asked last.
    pub(crate) fn heard(&self) -> Vec<Call> {
        std::mem::take(&mut self.plugin.heard.lock().unwrap())
    }

    /// What the state file holds.
    pub(crate) fn on_disk(&self) -> Vec<Claim> {
        let bytes = std::fs::read(self.paths.state_dir.join("checkpoint.json")).unwrap();
        checkpoint::decode(&bytes).unwrap()
    }

    /// The number of exclusive CPUs in the plugin's own books.
    pub(crate) fn held(&self) -> usize {
        self.on_disk().iter().map(|claim| claim.cpus.len()).sum()
    }

    /// The same after an event that has no answer to wait for: a small exclusive container comes
    /// and goes.
    pub(crate) async fn held_after_next_write(&mut self) -> usize {
        let pod = self.run_pod("write", 1000).await;
        self.create(&pod, "c", "write", 1000).await.unwrap();
        let held = self.held() - 1;
        self.stop_pod(&pod).await;
        held
    }

    /// What must always hold, on what is set for processes that run.
    #[track_caller]
    pub(crate) fn check(&self) {
        let alive = || self.containers.values().filter(|container| container.alive);
        let mut taken = CpuSet::EMPTY;
        for container in alive().filter(|container| container.exclusive) {
            let cpus = container.cpus();
            assert!(cpus.is_disjoint(&taken), "exclusive twice: {}", cpus & taken);
            assert!(cpus.is_disjoint(&"0-1".parse().unwrap()), "reserved: {cpus}");
            taken |= cpus;
        }
        for container in alive().filter(|container| !container.exclusive) {
            let overlap = container.cpus() & taken;
            assert!(overlap.is_empty(), "{} runs on exclusive {overlap}", container.wire.id);
        }
    }
}

fn launch(generation: Generation, paths: &Paths, config: &str) -> (Runtime<DuplexStream>, Plugin) {
    let config = Config::parse("test", config).unwrap();
    let executor = loop {
        match Executor::start(paths, &config) {
            // A write that the killed process had begun ends first, as a dead process's would.
            Err(StartError::State(StateError::Locked { .. })) => std::thread::yield_now(),
            started => break started.unwrap(),
        }
    };
    let (to_owner, inbox) = mpsc::unbounded_channel();
    let (messages, heard) = overheard(to_owner);
    let questions = nri_cpu_manager::serve::questions();
    let for_task = paths.clone();
    let served = tokio::spawn(async move {
        let start = Start::Now(Box::new(executor));
        daemon::serve(inbox, questions, &for_task, start).await.unwrap();
    });
    let (runtime, session) = connect(generation, 1, messages.clone());
    (runtime, Plugin { messages, heard, served, session })
}

/// Passes messages on to the ledger's owner, and notes the events among them.
fn overheard(owner: edge::DaemonSender) -> (edge::DaemonSender, Arc<Mutex<Vec<Call>>>) {
    let (messages, mut inbox) = mpsc::unbounded_channel();
    let heard = Arc::default();
    let notes: Arc<Mutex<Vec<Call>>> = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Some(message) = inbox.recv().await {
            if let Message::Call { call, .. } = &message {
                notes.lock().unwrap().push(call.clone());
            }
            // An owner that is gone drops the message, and with it the way to answer.
            let _ = owner.send(message);
        }
    });
    (messages, heard)
}

fn connect(
    generation: Generation,
    number: u64,
    messages: edge::DaemonSender,
) -> (Runtime<DuplexStream>, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(200 << 10);
    let session = tokio::spawn(async move {
        let never = std::future::pending::<()>();
        let _ = run_session(ours, Session(number), &identity(), &messages, never).await;
    });
    (Runtime::new(theirs, generation), session)
}
