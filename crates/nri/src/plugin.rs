//! [`Plugin`]: what a plugin implements.

use crate::capabilities::{Capabilities, Runtime};
use crate::events::Events;
use crate::exchange::{Answer, Call, Update};
use crate::projection::Reads;
use crate::updater::Updater;
use crate::wire::{Container, ContainerAdjustment, ContainerUpdate, LinuxResources, PodSandbox};
use std::future::{Future, ready};
use std::time::Duration;

/// Why a call fails.
///
/// If it is the creation or update of a container, the runtime fails that with this text, and the
/// kubelet shows it in the pod's events. A validation is rejected. After an error of any other call a
/// runtime would leak sandboxes, keep pods from ending, or lose the error: such a call is answered
/// without changes, and the error is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The plugin does not allow what the call asks for.
    #[error("{0}")]
    Refused(String),
    /// The same call may succeed later.
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
    /// The text of the plugin's configuration file if the runtime launched the plugin, otherwise empty.
    pub config: String,
    /// How long the runtime waits for an answer. The library always answers before that.
    pub answer_within: Duration,
    /// Changes containers without an event; `None` where that can deadlock the runtime.
    pub updater: Option<Updater>,
}

/// A plugin, for one connection to a runtime.
///
/// Every method has a default that changes nothing. A plugin implements methods of single events, or
/// [`Plugin::call`], which gets all of them.
///
/// The library calls a method when the runtime's call arrives, and runs it up to its first `await`
/// before it reads the next call. So what a method does before its first `await` happens in the order of
/// the runtime's calls. The rest runs concurrently with other calls, and answers may overtake each other.
///
/// A method that takes too long is dropped at an `await`, as by [`tokio::time::timeout`]. The runtime
/// then gets [`Plugin::LATE`], or an answer without changes. So state must be consistent at every
/// `await`. All methods of a connection run in the task that runs the connection: one that blocks its
/// thread delays all others.
pub trait Plugin: Sync {
    /// Why a call that took too long has no answer.
    const LATE: &'static str = "the plugin did not answer in time";

    /// The fields of pods and containers that are read, of each call that arrives from now on.
    fn reads(&self) -> Reads<'static> {
        Reads::All
    }

    /// The first call of a connection: the runtime introduces itself.
    ///
    /// Returns the events to which the plugin subscribes; events that the runtime does not know are left
    /// out. Each event costs every pod or container a call, and `StartContainer` delays a container's
    /// start. An error ends the connection.
    fn configure(
        &self,
        _configuration: Configuration,
    ) -> impl Future<Output = Result<Events, CallError>> + Send {
        ready(Ok(Events::ALL))
    }

    /// Gets everything that exists, after [`Plugin::configure`]. State from an earlier connection is
    /// outdated. Returns changes of these containers.
    fn synchronize(
        &self,
        _pods: Vec<PodSandbox>,
        _containers: Vec<Container>,
    ) -> impl Future<Output = Result<Vec<Update>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    fn run_pod_sandbox(&self, _pod: PodSandbox) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The kubelet changes the resources of a pod; `pod` has the previous ones.
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

    /// The runtime starts the container's process after the answer.
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

    /// The kubelet or another client of the runtime changes a container; `container` has the previous
    /// resources. Zero and an empty text in `resources` mean "no change". An update of the container
    /// itself in the answer replaces the request. An error refuses the change.
    fn update_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
        _resources: LinuxResources,
    ) -> impl Future<Output = Result<Vec<Update>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    fn post_update_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The pod may be empty, or have only its id. Returns changes of other containers.
    fn stop_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = Result<Vec<Update>, CallError>> + Send {
        ready(Ok(Vec::new()))
    }

    /// The pod may be empty, or have only its id.
    fn remove_container(
        &self,
        _pod: PodSandbox,
        _container: Container,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Checks the changes that all plugins together make to a new container. An error rejects them, and
    /// so does a late answer.
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

    /// The connection has ended. This is the last call.
    fn disconnected(&self) {}

    /// Gets every call about pods and containers. The default calls the method of the event.
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

/// The answer, once `handled` is done, to a call that can change nothing.
async fn unchanged(handled: impl Future<Output = ()>) -> Answer {
    handled.await;
    Answer::default()
}
