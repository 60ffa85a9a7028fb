//! [`Plugin`]: what a plugin implements.

use crate::capabilities::{Capabilities, Runtime};
use crate::events::Events;
use crate::exchange::{Answer, Call};
use crate::projection::Reads;
use crate::updater::Updater;
use crate::wire::{Container, ContainerAdjustment, ContainerUpdate, LinuxResources, PodSandbox};
use std::future::{Future, ready};
use std::time::Duration;

/// Why a call fails.
///
/// The runtime fails the creation or update of a container with this text, and the kubelet shows it
/// in the pod's events. In a validation it is a rejection. On any other call a runtime that is told
/// of an error leaks sandboxes, keeps pods from ending, or loses the error: these calls are answered
/// without changes, and the error is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The plugin does not allow it.
    #[error("{0}")]
    Refused(String),
    /// Not now; the same call may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The call is not valid, and did not reach the plugin.
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    TooLong(String),
    #[error("unknown {0}")]
    Unknown(String),
    #[error("{0}")]
    Internal(String),
}

/// How a runtime introduces itself.
#[derive(Debug)]
pub struct Configuration {
    pub runtime: Runtime,
    pub capabilities: Capabilities,
    /// The text of the plugin's configuration file if the runtime launched the plugin; otherwise
    /// empty.
    pub config: String,
    /// How long the runtime waits for an answer. The library answers before that in any case.
    pub answer_within: Duration,
    /// Changes containers without an event; `None` where that can deadlock the runtime.
    pub updater: Option<Updater>,
}

/// A plugin, for one connection to a runtime.
///
/// Every method has a default that changes nothing, so a plugin implements only what it cares
/// about. It implements the methods of single events, or [`Plugin::call`], which gets all of them.
///
/// The library calls a method when the runtime's call arrives, and runs it up to its first `await`
/// before it reads the next call. So what a method does before its first `await` happens in the
/// order of the runtime's calls; what comes later runs beside other calls, and answers may overtake
/// each other.
///
/// A method that takes too long is dropped where it waits, as by [`tokio::time::timeout`]. The
/// runtime then gets [`Plugin::LATE`], or an answer without changes. Do not leave state half changed
/// across an `await`. All methods of a connection run in the task that runs the connection: one that
/// blocks its thread delays all others.
pub trait Plugin: Sync {
    /// What of pods and containers is read.
    const READS: Reads<'static> = Reads::ALL;
    /// The text of the error for a call that took too long.
    const LATE: &'static str = "the plugin did not answer in time; trying again is safe";

    /// The runtime introduces itself: the first call of a connection.
    ///
    /// Returns the events that the plugin wants; those that the runtime does not know are left out.
    /// Each one costs every pod or container a call, and `StartContainer` delays a container's
    /// start. An error ends the connection.
    fn configure(
        &self,
        _configuration: Configuration,
    ) -> impl Future<Output = Result<Events, CallError>> + Send {
        ready(Ok(Events::ALL))
    }

    /// Everything that exists, after [`Plugin::configure`]. What a plugin believes from an earlier
    /// connection is outdated. Returns changes for these containers.
    fn synchronize(
        &self,
        _pods: Vec<PodSandbox>,
        _containers: Vec<Container>,
    ) -> impl Future<Output = Result<Vec<ContainerUpdate>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    fn run_pod_sandbox(&self, _pod: PodSandbox) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The kubelet changes the resources of a pod; `pod` is as before.
    fn update_pod_sandbox(
        &self,
        _pod: PodSandbox,
        _overhead: LinuxResources,
        _resources: LinuxResources,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn post_update_pod_sandbox(&self, _pod: PodSandbox) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn stop_pod_sandbox(&self, _pod: PodSandbox) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn remove_pod_sandbox(&self, _pod: PodSandbox) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Returns changes of the new container, and updates of others, which the runtime makes before
    /// it creates this one. An error refuses the container.
    fn create_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = Result<Answer, CallError>> + Send {
        ready(Ok(Answer::default()))
    }

    fn post_create_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The container's process starts after the answer.
    fn start_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn post_start_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Somebody changes a container, which is as before; zero and an empty text in `resources` mean
    /// "no change". An update of the container itself in the answer replaces the request. An error
    /// refuses the change.
    fn update_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
        _resources: LinuxResources,
    ) -> impl Future<Output = Result<Vec<ContainerUpdate>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    fn post_update_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The pod may be empty but for its id, or entirely. Returns changes of other containers.
    fn stop_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = Result<Vec<ContainerUpdate>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    /// The pod may be empty but for its id, or entirely.
    fn remove_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// What all plugins together made of a creation. An error rejects it, also a late answer.
    fn validate_container_adjustment(
        &self,
        _pod: PodSandbox,
        _container: Container,
        _adjust: ContainerAdjustment,
        _updates: Vec<ContainerUpdate>,
    ) -> impl Future<Output = Result<(), CallError>> + Send {
        ready(Ok(()))
    }

    /// The runtime is ending; the connection ends with it.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The connection has ended. No call comes after this.
    fn disconnected(&self) {}

    /// Any call but those about the connection itself. The default passes it to its own method.
    fn call(&self, call: Call) -> impl Future<Output = Result<Answer, CallError>> + Send {
        async move {
            Ok(match call {
                Call::Synchronize { pods, containers } => {
                    self.synchronize(pods, containers).await?.into()
                }
                Call::RunPodSandbox(pod) => unchanged(self.run_pod_sandbox(pod)).await,
                Call::UpdatePodSandbox { pod, overhead, resources } => {
                    unchanged(self.update_pod_sandbox(pod, overhead, resources)).await
                }
                Call::PostUpdatePodSandbox(pod) => {
                    unchanged(self.post_update_pod_sandbox(pod)).await
                }
                Call::StopPodSandbox(pod) => unchanged(self.stop_pod_sandbox(pod)).await,
                Call::RemovePodSandbox(pod) => unchanged(self.remove_pod_sandbox(pod)).await,
                Call::CreateContainer(pod, container) => {
                    self.create_container(pod, container).await?
                }
                Call::PostCreateContainer(pod, container) => {
                    unchanged(self.post_create_container(pod, container)).await
                }
                Call::StartContainer(pod, container) => {
                    unchanged(self.start_container(pod, container)).await
                }
                Call::PostStartContainer(pod, container) => {
                    unchanged(self.post_start_container(pod, container)).await
                }
                Call::UpdateContainer { pod, container, resources } => {
                    self.update_container(pod, container, resources).await?.into()
                }
                Call::PostUpdateContainer(pod, container) => {
                    unchanged(self.post_update_container(pod, container)).await
                }
                Call::StopContainer(pod, container) => {
                    self.stop_container(pod, container).await?.into()
                }
                Call::RemoveContainer(pod, container) => {
                    unchanged(self.remove_container(pod, container)).await
                }
                Call::ValidateContainerAdjustment { pod, container, adjust, updates } => {
                    let approved =
                        self.validate_container_adjustment(pod, container, adjust, updates);
                    approved.await?.into()
                }
                Call::Unknown => Answer::default(),
            })
        }
    }
}

/// The answer to a call that can change nothing, once it is handled.
async fn unchanged(handled: impl Future<Output = ()>) -> Answer {
    handled.await;
    Answer::default()
}
