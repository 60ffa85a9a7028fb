//! A node: a runtime that keeps its containers, and the plugin behind the edge as it ships, with
//! its ledger and its state directory. Either can restart.

use crate::fake_sysfs;
use crate::owner::identity;
use crate::runtime::{self, Generation, Runtime};
use config::{Config, NodeIdentity};
use cpuset::CpuSet;
use daemon::{self, Executor, Paths, Start, StartError, Threads};
use edge::nri::run_session;
use edge::{self, Message};
use ledger::{Call, Claim};
use machines::synthetic::Machine;
use nri::Session;
use nri::wire;
use state::checkpoint;
use state::checkpoint::StateError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::Event as Kind;

const CONFIG: &str =
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"\"\n";

/// A container as the runtime knows it.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeContainer {
    pub(crate) pod: wire::PodSandbox,
    /// With the CPUs that are set.
    pub(crate) wire: wire::Container,
    /// Whether these CPUs are exclusive.
    pub(crate) exclusive: bool,
    /// Whether its process may run.
    pub(crate) alive: bool,
}

impl RuntimeContainer {
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
    events: Arc<Mutex<Vec<Call>>>,
    daemon: JoinHandle<()>,
    session: JoinHandle<()>,
}

pub(crate) struct Node {
    pub(crate) runtime: Runtime<DuplexStream>,
    pub(crate) containers: BTreeMap<String, RuntimeContainer>,
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

    /// Starts, and leaves the handshake to the test.
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
            host_root: None,
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

    /// Makes the handshake on a new connection, and lists everything that exists.
    pub(crate) async fn synchronize(&mut self) {
        self.runtime.registration().await;
        self.runtime.configure().await;
        let pods: Vec<_> = self.pods.values().cloned().collect();
        let alive = self.containers.values().filter(|container| container.alive);
        let containers: Vec<_> = alive.map(|container| container.wire.clone()).collect();
        let updates = self.runtime.synchronize(&pods, &containers, 3).await;
        self.apply(updates);
    }

    /// Replaces the connection; the plugin lives on.
    pub(crate) async fn reconnect(&mut self) {
        self.drop_connection();
        self.synchronize().await;
    }

    /// Replaces the connection, and leaves the handshake to the test.
    pub(crate) fn drop_connection(&mut self) {
        self.sessions += 1;
        let (runtime, session) =
            connect(self.runtime.generation, self.sessions, self.plugin.messages.clone());
        self.runtime = runtime;
        self.plugin.session = session;
    }

    /// Kills the plugin: only its state directory is left. The runtime goes on.
    pub(crate) async fn kill(&mut self) {
        for task in [&mut self.plugin.session, &mut self.plugin.daemon] {
            task.abort();
            if !task.is_finished() {
                let _ = task.await;
            }
        }
    }

    /// Starts a new plugin process, and lists everything that exists.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        let (runtime, plugin) = launch(self.runtime.generation, &self.paths, &self.config);
        self.runtime = runtime;
        self.plugin = plugin;
        self.sessions = 1;
        self.synchronize().await;
    }

    /// Starts a Guaranteed pod's sandbox.
    pub(crate) async fn run_pod(&mut self, uid: &str, milli: i64) -> wire::PodSandbox {
        let pod = runtime::pod(uid, milli);
        self.pods.insert(pod.id.clone(), pod.clone());
        self.runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
        pod
    }

    /// A container as the kubelet requests it.
    pub(crate) fn container(
        &self,
        pod: &wire::PodSandbox,
        name: &str,
        id: &str,
        milli: i64,
    ) -> RuntimeContainer {
        let mut wire = runtime::container(id, &pod.uid, milli);
        wire.pod_sandbox_id.clone_from(&pod.id);
        wire.name = name.into();
        wire.created_at = i64::try_from(self.containers.len()).unwrap() + 1;
        RuntimeContainer { pod: pod.clone(), wire, exclusive: false, alive: true }
    }

    /// Creates a container and starts it; returns its CPUs, or the reason of its refusal.
    pub(crate) async fn create(
        &mut self,
        pod: &wire::PodSandbox,
        name: &str,
        id: &str,
        milli: i64,
    ) -> Result<String, String> {
        self.create_unstarted(pod, name, id, milli).await?;
        self.started(id).await;
        Ok(self.cpus(id))
    }

    /// Creates a container, unless it is refused, and does not start it.
    pub(crate) async fn create_unstarted(
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
        let RuntimeContainer { pod, wire, .. } = self.containers[id].clone();
        self.runtime.report(Kind::POST_START_CONTAINER, &pod, Some(&wire)).await.unwrap();
    }

    /// Ends the container's process, and reports that.
    pub(crate) async fn stop(&mut self, id: &str) {
        self.containers.get_mut(id).unwrap().alive = false;
        let RuntimeContainer { pod, wire, .. } = self.containers[id].clone();
        self.report_stop(&pod, &wire).await;
    }

    pub(crate) async fn report_stop(
        &mut self,
        pod: &wire::PodSandbox,
        container: &wire::Container,
    ) {
        let answer = self.runtime.stop(pod, container).await.unwrap();
        self.apply(answer.update);
    }

    pub(crate) async fn remove(&mut self, id: &str) {
        let RuntimeContainer { pod, wire, .. } = self.containers.remove(id).unwrap();
        self.runtime.report(Kind::REMOVE_CONTAINER, &pod, Some(&wire)).await.unwrap();
    }

    /// Removes the pod's containers, and ends the pod.
    pub(crate) async fn stop_pod(&mut self, pod: &wire::PodSandbox) {
        self.pods.remove(&pod.id);
        self.containers.retain(|_, container| container.pod.id != pod.id);
        self.runtime.report(Kind::STOP_POD_SANDBOX, pod, None).await.unwrap();
    }

    /// Makes an update of the kubelet, such as a resize.
    pub(crate) async fn update(
        &mut self,
        id: &str,
        requested: wire::LinuxResources,
    ) -> Result<(), String> {
        let RuntimeContainer { pod, wire, .. } = self.containers[id].clone();
        let request = wire::UpdateContainerRequest {
            pod: Some(pod).into(),
            container: Some(wire).into(),
            linux_resources: Some(requested.clone()).into(),
            ..Default::default()
        };
        let answer: wire::UpdateContainerResponse = self
            .runtime
            .call("UpdateContainer", &request)
            .await
            .map_err(|status: ttrpc::proto::Status| status.message)?;
        // The plugin's update of this container overrides what the kubelet requested.
        if !requested.cpu.cpus.is_empty() {
            self.containers.get_mut(id).unwrap().set(&requested);
        }
        self.apply(answer.update);
        Ok(())
    }

    /// Carries out the plugin's updates; those of unknown containers have no effect.
    pub(crate) fn apply(&mut self, updates: Vec<wire::ContainerUpdate>) {
        let mut updated = std::collections::HashSet::new();
        for update in updates {
            assert!(update.ignore_failure, "an update that may fail the call");
            assert!(updated.insert(update.container_id.clone()), "updated twice in one answer");
            if let Some(container) = self.containers.get_mut(&update.container_id) {
                container.set(&update.linux.resources);
            }
        }
    }

    /// Carries out the unsolicited updates, once nothing else happens; returns each as "CONTAINER
    /// CPUS".
    pub(crate) async fn apply_unsolicited(&mut self) -> Vec<String> {
        self.runtime.idle().await;
        let mut applied = Vec::new();
        for request in std::mem::take(&mut self.runtime.unsolicited) {
            for update in &request.update {
                let cpus = &update.linux.resources.cpu.cpus;
                applied.push(format!("{} {cpus}", update.container_id));
            }
            self.apply(request.update);
        }
        applied
    }

    pub(crate) fn cpus(&self, id: &str) -> String {
        self.containers[id].cpus().to_string()
    }

    /// The events that the ledger has received since the last call.
    pub(crate) fn take_events(&self) -> Vec<Call> {
        std::mem::take(&mut self.plugin.events.lock().unwrap())
    }

    /// The claims in the state file.
    pub(crate) fn on_disk(&self) -> Vec<Claim> {
        let bytes = std::fs::read(self.paths.state_dir.join("checkpoint.json")).unwrap();
        checkpoint::decode(&bytes).unwrap().cpus
    }

    /// The number of exclusive CPUs in the state file.
    pub(crate) fn held(&self) -> usize {
        self.on_disk().iter().map(|claim| claim.cpus.len()).sum()
    }

    /// Like [`Node::held`], after an event whose answer does not wait for the disk: a small
    /// exclusive container starts and ends, and its creation waits.
    pub(crate) async fn held_after_next_write(&mut self) -> usize {
        let pod = self.run_pod("write", 1000).await;
        self.create(&pod, "c", "write", 1000).await.unwrap();
        let held = self.held() - 1;
        self.stop_pod(&pod).await;
        held
    }

    /// Checks what must always hold for the CPUs of running processes.
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
    let threads = Threads::start().unwrap();
    let executor = loop {
        match Executor::start(paths, &config, &threads) {
            // A write that the killed plugin had begun ends first, as that of a dead process would.
            Err(StartError::State(StateError::Locked { .. })) => std::thread::yield_now(),
            started => break started.unwrap(),
        }
    };
    let (to_owner, inbox) = mpsc::unbounded_channel();
    let (messages, events) = record_events(to_owner);
    let questions = serve::questions();
    let for_task = paths.clone();
    let daemon = tokio::spawn(async move {
        let start = Start::Now(Box::new(executor));
        daemon::serve(inbox, questions, &for_task, &threads, start).await.unwrap();
    });
    let (runtime, session) = connect(generation, 1, messages.clone());
    (runtime, Plugin { messages, events, daemon, session })
}

/// Forwards messages to the ledger's owner, and records the events among them.
fn record_events(owner: edge::DaemonSender) -> (edge::DaemonSender, Arc<Mutex<Vec<Call>>>) {
    let (messages, mut inbox) = mpsc::unbounded_channel();
    let events = Arc::default();
    let record: Arc<Mutex<Vec<Call>>> = Arc::clone(&events);
    tokio::spawn(async move {
        while let Some(message) = inbox.recv().await {
            if let Message::Call { call, .. } = &message {
                record.lock().unwrap().push(call.clone());
            }
            // If the owner is gone, the message is dropped with its reply channel.
            let _ = owner.send(message);
        }
    });
    (messages, events)
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
