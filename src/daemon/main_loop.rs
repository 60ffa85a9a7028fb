//! The daemon's main loop: waits for what comes next, and passes it to the owner of the ledger.

use super::checks::Findings;
use super::delivery::{Answer, Returned};
use super::owner::Owner;
use super::suspects::Finding;
use super::{Paths, StartError};
use crate::config::{Config, Reading};
use crate::edge::{Capabilities, Message, Refusal, Runtime, Session};
use crate::kubelet::Look;
use crate::ledger::{Call, ContainerId, Event};
use crate::podresources::{self, PolicyFile};
use crate::serve::{Question, ViewSource, endpoint};
use crate::view::{Link, NodeView};
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Everything that wakes the daemon.
#[derive(Debug)]
enum Wake {
    Message(Message),
    /// The NRI layer has ended.
    End,
    Question(Question),
    /// A container's cgroup may have to be written.
    Settle(ContainerId),
    /// Ended containers have left something in the cgroups above them.
    Tidy,
    /// Updates are due that no answer could carry.
    Flush,
    /// CPUs have become free, or a container has stayed for long enough.
    Rebalance,
    /// A container has drifted.
    Repair(Finding),
    /// The checkpoint could not be written, and is to be tried again.
    Save,
    Kubelet(Look),
    Config(Reading),
    /// The next check of the online CPUs is due.
    Machine,
    /// Another program may have written into a cgroup, or has made these directories, or a container
    /// has left CPUs.
    Groups(Vec<PathBuf>),
    /// Another program may have set the CFS quota of a pod.
    Quotas,
    QuietPeriodEnded,
    /// A container may have left old CPUs, or a notice has run out.
    Exposed,
    Returned(Returned),
    Checked(Findings),
}

/// Serves messages until the NRI layer ends, and answers questions while there are no messages.
///
/// `owner` exists from the start, or the first `Configure` makes it (if the runtime launched the
/// plugin and hands it the configuration).
pub async fn serve(
    mut inbox: mpsc::UnboundedReceiver<Message>,
    (observer, mut questions): (ViewSource, mpsc::Receiver<Question>),
    paths: &Paths,
    owner: Option<Owner>,
) {
    let waiting = "the runtime has not sent the configuration yet".to_owned();
    let (session, link) = (Session(0), Link::default());
    let mut main_loop = MainLoop {
        paths,
        observer,
        listening: false,
        pod_resources: None,
        owner,
        waiting,
        session,
        link,
    };
    if main_loop.owner.is_some() {
        main_loop.listen_locally();
        main_loop.serve_pod_resources();
    }
    // The last answer to a question, while nothing has changed since.
    let mut seen = None;
    loop {
        let wake = wait(&mut inbox, &mut questions, main_loop.owner.as_mut()).await;
        if !matches!(wake, Wake::Question(_)) {
            seen = None;
        }
        let reconfigures = matches!(wake, Wake::Config(_));
        match (wake, &mut main_loop.owner) {
            (Wake::End, _) => return,
            (Wake::Message(message), _) => main_loop.receive(message).await,
            (Wake::Question(Question(reply)), _) => {
                let view = seen.get_or_insert_with(|| Arc::new(main_loop.view()));
                // The observer may have closed its connection.
                let _ = reply.send(Arc::clone(view));
            }
            (Wake::Settle(id), Some(owner)) => drop(owner.settle(&id).await),
            (Wake::Tidy, Some(owner)) => owner.enforcement.tidy().await,
            (Wake::Flush, Some(owner)) => owner.flush().await,
            (Wake::Rebalance, Some(owner)) => owner.rebalance().await,
            (Wake::Repair(finding), Some(owner)) => owner.repair(finding).await,
            (Wake::Save, Some(owner)) => owner.save_again().await,
            (Wake::Kubelet(look), Some(owner)) => owner.check_kubelet(look).await,
            (Wake::Config(reading), Some(owner)) => owner.reconfigure(reading).await,
            (Wake::Machine, Some(owner)) => owner.check_machine().await,
            (Wake::Groups(created), Some(owner)) => owner.follow_groups(&created).await,
            (Wake::Quotas, Some(owner)) => owner.follow_quotas().await,
            (Wake::QuietPeriodEnded, Some(owner)) => owner.quiet_period_ended().await,
            (Wake::Exposed, Some(owner)) => owner.follow_exposed().await,
            (Wake::Returned(call), Some(owner)) => owner.returned(call).await,
            (Wake::Checked(found), Some(owner)) => owner.checked(found).await,
            // Without an owner there is no work.
            (_, None) => {}
        }
        if reconfigures {
            main_loop.follow_policy();
        }
    }
}

/// Waits for what comes next: messages first, then questions, and work only if there are neither.
/// Cancel safe.
async fn wait(
    inbox: &mut mpsc::UnboundedReceiver<Message>,
    questions: &mut mpsc::Receiver<Question>,
    owner: Option<&mut Owner>,
) -> Wake {
    tokio::select! {
        biased;
        message = inbox.recv() => message.map_or(Wake::End, Wake::Message),
        Some(question) = questions.recv() => Wake::Question(question),
        wake = work(owner) => wake,
    }
}

/// Waits for work: the backlog first.
async fn work(owner: Option<&mut Owner>) -> Wake {
    let Some(owner) = owner else { return pending().await };
    let Owner {
        ledger,
        checkpoint,
        delivery,
        enforcement,
        kubelet,
        config,
        hotplug,
        checks,
        drift,
        orphans,
        quotas,
        exposure,
        balance,
        started,
        ..
    } = owner;
    if let Some(id) = enforcement.next_unsettled() {
        return Wake::Settle(id);
    }
    if enforcement.is_untidy() {
        return Wake::Tidy;
    }
    if std::mem::take(&mut delivery.owing) {
        return Wake::Flush;
    }
    if std::mem::take(&mut balance.unbalanced) {
        return Wake::Rebalance;
    }
    if let Some(finding) = drift.next() {
        return Wake::Repair(finding);
    }
    let movable_at = ledger.next_movable().and_then(|at| started.checked_add(at));
    tokio::select! {
        () = checkpoint.retry() => Wake::Save,
        look = kubelet.next() => Wake::Kubelet(look),
        reading = config.next() => Wake::Config(reading),
        () = hotplug.next() => Wake::Machine,
        created = enforcement.next() => Wake::Groups(created),
        () = quotas.next() => Wake::Quotas,
        () = orphans.quiet_period() => Wake::QuietPeriodEnded,
        () = exposure.next() => Wake::Exposed,
        () = sleep_until(movable_at.unwrap_or(*started)), if movable_at.is_some() => Wake::Rebalance,
        call = delivery.next() => Wake::Returned(call),
        found = checks.next(ledger) => Wake::Checked(found),
    }
}

struct MainLoop<'a> {
    paths: &'a Paths,
    /// For the socket in the state directory.
    observer: ViewSource,
    listening: bool,
    /// The file with the policy in force, if podresources are served.
    pod_resources: Option<PolicyFile>,
    owner: Option<Owner>,
    /// Why there is no owner.
    waiting: String,
    /// The present connection. The loop drops messages of an earlier one.
    session: Session,
    link: Link,
}

impl MainLoop<'_> {
    async fn receive(&mut self, message: Message) {
        match message {
            Message::Configure {
                session,
                runtime,
                capabilities,
                config,
                answer_within,
                updater,
                reply,
            } => {
                self.session = session;
                introduce(&runtime, &capabilities);
                self.link.introduced(session.0, runtime);
                let wishes = self.configured(&config);
                let wishes = wishes.map(|owner| {
                    owner.answer_within = answer_within;
                    owner.connected(updater, &capabilities)
                });
                // The runtime may have disconnected.
                let _ = reply.send(wishes);
            }
            Message::Call { session, call, reply } => {
                let Some(owner) = self.owner_of(session) else { return };
                let synchronized = matches!(call, Call::Event(Event::Synchronize { .. }));
                owner.delivery.pace.went_on(Instant::now());
                let Answer { result, sent } = owner.handle(call).await;
                // What a late answer carried has not gone out, and stays due.
                if reply.send(result).is_ok() {
                    owner.answered(sent);
                }
                if synchronized {
                    self.link.synchronized();
                }
            }
            Message::Validate { session, container, cpus, reply } => {
                let Some(owner) = self.owner_of(session) else { return };
                let _ = reply.send(owner.validate(&container, cpus));
            }
            Message::WentOn { session } => {
                let Some(owner) = self.owner_of(session) else { return };
                owner.delivery.pace.went_on(Instant::now());
            }
            Message::Disconnected { session } => {
                log::debug!("{session} has ended");
                self.link.ended(session.0);
            }
        }
    }

    /// The owner, if this is the present connection.
    fn owner_of(&mut self, session: Session) -> Option<&mut Owner> {
        self.owner.as_mut().filter(|_| session == self.session)
    }

    /// The owner; if there is none, starts it with the configuration that the runtime has handed
    /// over.
    fn configured(&mut self, text: &str) -> Result<&mut Owner, Refusal> {
        if self.owner.is_none() {
            let config = Config::parse("configuration from the runtime", text);
            let owner = config.map_err(StartError::from);
            let owner = owner.and_then(|config| Owner::start(self.paths, &config));
            self.owner = Some(owner.map_err(|error| {
                log::error!("{error}");
                self.waiting = error.to_string();
                Refusal(error.to_string())
            })?);
        }
        if !self.listening {
            self.listen_locally();
        }
        self.serve_pod_resources();
        self.owner.as_mut().ok_or_else(|| Refusal(self.waiting.clone()))
    }

    /// Serves the status on a socket in the state directory, which this process has locked by now.
    /// A failure is no reason to stop.
    fn listen_locally(&mut self) {
        match endpoint::listen_locally(&self.paths.state_dir) {
            Ok(listener) => {
                tokio::spawn(endpoint::serve_locally(listener, self.observer.clone()));
                self.listening = true;
            }
            Err(error) => {
                let path = self.paths.state_dir.join(endpoint::SOCKET);
                log::warn!(
                    "status: cannot listen on {}: {error}. `nri-cpu-manager status` does not work on this node",
                    path.display()
                );
            }
        }
    }

    /// Answers as the kubelet's podresources do, if the configuration or the command line says so.
    fn serve_pod_resources(&mut self) {
        let Some(owner) = &self.owner else { return };
        let place = owner.config.pod_resources().or(self.paths.pod_resources.as_ref());
        if let (Some(place), None) = (place, &self.pod_resources) {
            let settings = owner.ledger.settings();
            self.pod_resources = Some(podresources::start(place, self.observer.clone(), settings));
        }
    }

    fn follow_policy(&self) {
        if let (Some(policy), Some(owner)) = (&self.pod_resources, &self.owner) {
            policy.follow(owner.ledger.settings());
        }
    }

    fn view(&mut self) -> NodeView {
        let node = self.owner.as_mut().map(Owner::view).ok_or_else(|| self.waiting.clone());
        NodeView { link: self.link.clone(), node }
    }
}

fn introduce(runtime: &Runtime, capabilities: &Capabilities) {
    log::info!("runtime: {runtime}");
    for warning in &capabilities.warnings {
        log::warn!("{warning}");
    }
}
