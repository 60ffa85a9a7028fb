//! A daemon with a real state directory, on a synthetic machine of 16 CPUs. A directory stands in
//! for the cgroup file system.

use super::events::{create, pod_and_container};
use config::{Config, NodeIdentity};
use cpuset::CgroupPath;
use daemon::{self, Executor, Paths, Start, Threads};
use edge::{Message, Refusal, Response};
use ledger::{Admission, Call, Claim, Container, Event, Pod, Qos};
use machines::synthetic::Machine;
use nri::Session;
use state::checkpoint;
use std::fs;
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};

pub(crate) const CONFIG: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";

pub(crate) struct Daemon {
    pub(crate) messages: mpsc::UnboundedSender<Message>,
    pub(crate) paths: Paths,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// Must be called in a `LocalSet`.
    pub(crate) fn start() -> Daemon {
        Daemon::with_kubelet("", None)
    }

    /// Starts with `more` added to the configuration, on a node whose kubelet has this state file.
    pub(crate) fn with_kubelet(more: &str, state: Option<&str>) -> Daemon {
        Daemon::start_in(more, state, |_| ())
    }

    /// Like [`Daemon::with_kubelet`], after `prepare` has changed the cgroup file system.
    pub(crate) fn start_in(more: &str, state: Option<&str>, prepare: impl FnOnce(&Path)) -> Daemon {
        let dir = super::fake_sysfs::scratch();
        let kubelet = dir.path().join("kubelet");
        fs::create_dir(dir.path().join("cgroup")).unwrap();
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "cpuset cpu\n").unwrap();
        fs::write(dir.path().join("cgroup/cgroup.procs"), "").unwrap();
        prepare(&dir.path().join("cgroup"));
        if let Some(state) = state {
            fs::create_dir(&kubelet).unwrap();
            fs::write(kubelet.join("cpu_manager_state"), state).unwrap();
        }
        let by = if more.contains("exclusivity") { "" } else { "exclusivity: runtime\n" };
        let config = format!("{CONFIG}kubeletStateDir: {}\n{by}{more}", kubelet.display());
        let sysfs_root = dir.path().join("sys");
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        super::fake_sysfs::write(&sysfs_root, &super::fake_sysfs::files(&machine.facts().unwrap()));
        let paths = Paths {
            node: NodeIdentity::default(),
            config: None,
            state_dir: dir.path().join("state"),
            pod_resources: None,
            sysfs_root,
            cgroup_root: dir.path().join("cgroup"),
            proc_root: dir.path().join("no-proc"),
            host_root: None,
        };
        let threads = Threads::start().unwrap();
        let owner =
            Executor::start(&paths, &Config::parse("test", &config).unwrap(), &threads).unwrap();
        let (messages, inbox) = mpsc::unbounded_channel();
        let questions = serve::questions();
        let for_task = paths.clone();
        tokio::task::spawn_local(async move {
            let start = Start::Now(Box::new(owner));
            daemon::serve(inbox, questions, &for_task, &threads, start).await.unwrap();
        });
        Daemon { messages, paths, _dir: dir }
    }

    pub(crate) async fn event(&self, call: impl Into<Call>) -> Result<Response, Refusal> {
        let (reply, answer) = oneshot::channel();
        let call = call.into();
        self.messages.send(Message::Call { session: Session(0), call, reply }).unwrap();
        answer.await.unwrap()
    }

    pub(crate) async fn create(&self, name: &str, qos: Qos, milli: u64) -> Result<String, String> {
        let decision = self.event(create(name, qos, milli)).await.map_err(|refusal| refusal.0)?;
        Ok(decision.setting.unwrap().cpus().to_string())
    }

    /// Creates a container with CPUs that the kubelet has set; returns those that the answer sets
    /// instead, if any.
    pub(crate) async fn create_with_cpus(
        &self,
        name: &str,
        milli: u64,
        cpus: &str,
    ) -> Result<Option<String>, String> {
        let (pod, mut container) = pod_and_container(name, Qos::Guaranteed, milli);
        container.cpus = Some(cpus.parse().unwrap());
        let create = Admission::Create { pod, container };
        let decision = self.event(create).await.map_err(|refusal| refusal.0)?;
        assert_eq!(decision.updates, []);
        Ok(decision.setting.map(|setting| setting.cpus().to_string()))
    }

    /// Replaces the kubelet's state file, as the kubelet itself does: by a rename.
    pub(crate) fn kubelet_writes(&self, state: &str) {
        let kubelet = self.paths.state_dir.parent().unwrap().join("kubelet");
        fs::create_dir_all(&kubelet).unwrap();
        fs::write(kubelet.join("new"), state).unwrap();
        fs::rename(kubelet.join("new"), kubelet.join("cpu_manager_state")).unwrap();
    }

    /// The claims in the checkpoint.
    pub(crate) fn on_disk(&self) -> Vec<Claim> {
        let bytes = fs::read(self.paths.state_dir.join("checkpoint.json")).unwrap();
        checkpoint::decode(&bytes).unwrap().cpus
    }

    /// The claims in the checkpoint, each as "POD CPUS", sorted.
    pub(crate) fn claims_on_disk(&self) -> Vec<String> {
        let claims = self.on_disk();
        let mut lines: Vec<String> =
            claims.iter().map(|claim| format!("{} {}", claim.pod, claim.cpus)).collect();
        lines.sort();
        lines
    }
}

/// The updates of an answer, each as "CONTAINER CPUS".
pub(crate) fn updates(answer: &Response) -> Vec<String> {
    let updates = answer.updates.iter();
    updates.map(|update| format!("{} {}", update.container, update.setting.cpus())).collect()
}

/// A container with a cgroup in which these CPUs are set.
pub(crate) fn in_group(
    daemon: &Daemon,
    name: &str,
    (qos, milli): (Qos, u64),
    set: &str,
) -> (Pod, Container) {
    let (pod, mut container) = pod_and_container(name, qos, milli);
    container.cgroup = CgroupPath::new(&format!("/kubepods/{name}/c"));
    let group = group(daemon, name);
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cgroup.procs"), "").unwrap();
    write_group(daemon, name, set);
    (pod, container)
}

/// The cgroup of container `c` of this pod.
pub(crate) fn group(daemon: &Daemon, pod: &str) -> PathBuf {
    daemon.paths.cgroup_root.join("kubepods").join(pod).join("c")
}

/// Writes CPUs into a cgroup, as the runtime or another program does.
pub(crate) fn write_group(daemon: &Daemon, pod: &str, set: &str) {
    for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
        fs::write(group(daemon, pod).join(file), set).unwrap();
    }
}

pub(crate) fn set_in_group(daemon: &Daemon, name: &str) -> String {
    fs::read_to_string(group(daemon, name).join("cpuset.cpus")).unwrap().trim().to_owned()
}

/// Creates and starts a container.
pub(crate) async fn start(daemon: &Daemon, (pod, container): (Pod, Container)) {
    let create = Admission::Create { pod: pod.clone(), container: container.clone() };
    daemon.event(create).await.unwrap();
    daemon.event(Event::Started { pod, container }).await.unwrap();
}

/// A container of two CPUs runs in the uncore cache that a container of eight CPUs needs.
pub(crate) async fn fragmented(daemon: &Daemon) {
    let (six, _) = pod_and_container("six", Qos::Guaranteed, 6000);
    assert_eq!(daemon.create("six", Qos::Guaranteed, 6000).await.unwrap(), "2-7");
    start(daemon, pod_and_container("two", Qos::Guaranteed, 2000)).await;
    daemon.event(Event::StopPod(six.sandbox)).await.unwrap();
    let (pod, _) = pod_and_container("eight", Qos::Guaranteed, 8000);
    daemon.event(Event::RunPod(pod)).await.unwrap();
}
