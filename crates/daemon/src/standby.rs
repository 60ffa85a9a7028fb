//! [`Standby`]: an instance that waits for the end of the one that owns the node, as in a roll-out.
//!
//! It is connected and gets every call, and answers that nothing changes: the other instance decides.
//! When that instance has ended, this one starts its core from the state file and from the containers
//! that exist then, and decides from that call on. A request for a new container in between waits for
//! that, so that none is created without a decision.

use config::Config;
use edge::{Response, Subscriptions};
use exclusivity::Exclusivity;
use ledger::{Admission, Call, Container, Event, Pod};
use nri::{Capabilities, Updater};
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two attempts to take over.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// How long a request waits for the end of the other instance: longer than from the end of its
/// connection to the end of its process. An instance that lives on has answered the request itself.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// How long to wait in all. A roll-out takes seconds; after this time there are two installations.
const MOST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Standby {
    pub(super) config: Config,
    since: Instant,
    connection: Option<Connection>,
}

/// What the runtime has said on the present connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) capabilities: Capabilities,
    pub(super) answer_within: Duration,
    pub(super) updater: Option<Updater>,
    /// What exists; `None` before the runtime has listed it.
    node: Option<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    pods: Vec<Pod>,
    containers: Vec<Container>,
}

impl Standby {
    pub(super) fn new(config: Config) -> Standby {
        Standby { config, since: Instant::now(), connection: None }
    }

    /// Whether the other instance has not ended for longer than any roll-out takes.
    pub(super) fn has_waited_too_long(&self) -> bool {
        MOST <= self.since.elapsed()
    }

    pub(super) fn connected(
        &mut self,
        capabilities: Capabilities,
        answer_within: Duration,
        updater: Option<Updater>,
    ) -> Subscriptions {
        self.connection = Some(Connection { capabilities, answer_within, updater, node: None });
        // All that this instance may need later: a connection cannot subscribe again.
        Subscriptions {
            before_start: matches!(
                self.config.exclusivity(),
                Exclusivity::Auto | Exclusivity::Kernel
            ),
            validation: self.config.strict(),
            for_crio: self.config.reads_crio(),
        }
    }

    pub(super) fn disconnected(&mut self) {
        self.connection = None;
    }

    /// Records a call that the other instance answers.
    pub(super) fn note(&mut self, call: Call) -> Response {
        let Some(connection) = &mut self.connection else { return Response::default() };
        if let Call::Event(Event::Synchronize { pods, containers }) = call {
            connection.node = Some(Listed { pods, containers });
        } else if let Some(node) = &mut connection.node {
            node.follow(call);
        }
        Response::default()
    }

    pub(super) fn into_connection(self) -> Option<Connection> {
        self.connection
    }
}

impl Connection {
    /// What exists, as the runtime would list it now; `None` if it has listed nothing yet.
    pub(super) fn list(&mut self) -> Option<Event> {
        let Listed { pods, containers } = self.node.take()?;
        Some(Event::Synchronize { pods, containers })
    }
}

impl Listed {
    fn follow(&mut self, call: Call) {
        match call {
            Call::Admission(Admission::Create { pod, container }) => {
                self.enter_pod(pod);
                self.enter(Container { not_started: true, followed: true, ..container });
            }
            Call::Admission(Admission::Update { container, requested, .. }) => {
                if let Some(known) = self.container(&container.id) {
                    known.cpu = known.cpu.changed_by(requested.cpu);
                    known.limits.extend(requested.limits);
                    known.limits.retain(|_, bytes| *bytes > 0);
                    known.followed = true;
                }
            }
            Call::Event(Event::RunPod(pod) | Event::UpdatePod(pod)) => self.enter_pod(pod),
            Call::Event(Event::Starting { pod, container } | Event::Started { pod, container }) => {
                self.enter_pod(pod);
                match self.container(&container.id) {
                    Some(known) => known.not_started = false,
                    None => self.enter(container),
                }
            }
            Call::Event(Event::Stop(id) | Event::Remove(id)) => {
                self.containers.retain(|container| container.id != id);
            }
            Call::Event(Event::StopPod(sandbox) | Event::RemovePod(sandbox)) => {
                self.pods.retain(|pod| pod.sandbox != sandbox);
                self.containers.retain(|container| container.sandbox != sandbox);
            }
            Call::Event(_) => {}
        }
    }

    fn enter_pod(&mut self, pod: Pod) {
        match self.pods.iter_mut().find(|known| known.sandbox == pod.sandbox) {
            Some(known) => *known = pod,
            None => self.pods.push(pod),
        }
    }

    fn enter(&mut self, container: Container) {
        self.containers.retain(|known| known.id != container.id);
        self.containers.push(container);
    }

    fn container(&mut self, id: &ledger::ContainerId) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{
        ContainerId, CpuRequest, MilliCpu, PodUid, PoolKind, Qos, RequestedUpdate, SandboxId,
    };
    use placement::memory_manager::{Amounts, MemoryKind};

    fn pod(name: &str) -> Pod {
        Pod {
            sandbox: SandboxId(name.into()),
            uid: PodUid(name.into()),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            qos: Qos::Guaranteed,
            pool: PoolKind::General,
            budget: None,
            limits: Default::default(),
            own_resources: None,
            annotations: Default::default(),
            cgroup: None,
        }
    }

    fn container(id: &str, of: &str) -> Container {
        let cpu = CpuRequest { request: Some(MilliCpu(2000)), limit: Some(MilliCpu(2000)) };
        Container::new(ContainerId(id.into()), SandboxId(of.into()), "main", cpu)
    }

    fn create(id: &str, of: &str) -> Call {
        Admission::Create { pod: pod(of), container: container(id, of) }.into()
    }

    #[test]
    fn the_list_follows_the_calls_after_it() {
        let mut node = Listed { pods: vec![pod("a")], containers: vec![container("a1", "a")] };
        node.follow(Event::RunPod(pod("b")).into());
        node.follow(create("b1", "b"));
        node.follow(create("b2", "b"));
        let started = Event::Started { pod: pod("b"), container: container("b1", "b") };
        node.follow(started.into());
        let three = CpuRequest { request: Some(MilliCpu(3000)), limit: Some(MilliCpu(3000)) };
        let more = Amounts::from([(MemoryKind::Memory, 1 << 30)]);
        node.follow(
            Admission::Update {
                pod: pod("b"),
                container: container("b2", "b"),
                requested: RequestedUpdate {
                    cpu: three,
                    limits: more.clone(),
                    ..RequestedUpdate::default()
                },
            }
            .into(),
        );
        node.follow(Event::Stop(ContainerId("a1".into())).into());
        node.follow(Event::StopPod(SandboxId("a".into())).into());
        node.follow(create("c1", "c"));
        node.follow(Event::RemovePod(SandboxId("c".into())).into());
        assert_eq!(node.pods, [pod("b")]);
        let starts = Container { followed: true, ..container("b1", "b") };
        let waits = Container {
            not_started: true,
            followed: true,
            cpu: three,
            limits: more,
            ..container("b2", "b")
        };
        assert_eq!(node.containers, [starts, waits]);
    }
}
