//! [`Service`]: one call of a client, from its message to the answer's.

use super::answer;
use super::grpc::{Code, Status};
use super::kubelet::{Failure, Kubelet};
use super::wire::Malformed;
use crate::serve::ViewSource;
use crate::view::{NodeFigures, NodeView};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;

const LIST: &str = "/v1.PodResourcesLister/List";
const GET: &str = "/v1.PodResourcesLister/Get";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

#[derive(Debug)]
pub(super) struct Service {
    view: ViewSource,
    kubelet: Kubelet,
}

impl Service {
    pub(super) fn new(view: ViewSource, kubelet: PathBuf) -> Service {
        Service { view, kubelet: Kubelet::new(kubelet) }
    }

    pub(super) async fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
        match path {
            LIST => self.list(request).await,
            GET => self.get(request).await,
            ALLOCATABLE => self.allocatable(request).await,
            other => Err(Status::new(
                Code::UNIMPLEMENTED,
                format!("unknown method {other}; v1 is served"),
            )),
        }
    }

    async fn list(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let kubelet = self.kubelets(LIST, request).await;
        let view = self.view().await?;
        let view = &figures(&view)?.view;
        let merged = kubelet.map(|kubelet| answer::list(view, &kubelet));
        self.or_alone(merged, || answer::list(view, &[]))
    }

    async fn get(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let (namespace, name) = answer::asked(request).map_err(invalid)?;
        let kubelet = self.kubelet.call(GET, request).await;
        let view = self.view().await?;
        let view = &figures(&view)?.view;
        let (kubelet, refusal) = match kubelet {
            Ok(kubelet) => (Some(kubelet), None),
            Err(Failure::Refused(status)) => (None, Some(status)),
            Err(failure) => {
                self.kubelet.warn(failure);
                (None, None)
            }
        };
        let merged = kubelet.map(|kubelet| answer::get(view, request, &kubelet));
        let answer = self.or_alone(merged, || answer::get(view, request, &[]))?;
        answer.ok_or_else(|| {
            let unknown = format!("pod {name} in namespace {namespace} not found");
            refusal.unwrap_or_else(|| Status::new(Code::NOT_FOUND, unknown))
        })
    }

    async fn allocatable(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let kubelet = self.kubelets(ALLOCATABLE, request).await;
        let view = self.view().await?;
        let view = &figures(&view)?.view;
        let merged = kubelet.map(|kubelet| answer::allocatable(view, Some(&kubelet)));
        self.or_alone(merged, || answer::allocatable(view, None))
    }

    /// The kubelet's answer; `None`, with a line in the log, if there is none.
    async fn kubelets(&self, path: &'static str, request: &[u8]) -> Option<Bytes> {
        self.kubelet.call(path, request).await.map_err(|failure| self.kubelet.warn(failure)).ok()
    }

    /// The answer together with the kubelet's. Without one, or if it cannot be read, the plugin's
    /// alone.
    fn or_alone<T>(
        &self,
        merged: Option<Result<T, Malformed>>,
        alone: impl FnOnce() -> Result<T, Malformed>,
    ) -> Result<T, Status> {
        match merged {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(why)) => self.kubelet.warn(format_args!("its answer is {why}")),
            None => {}
        }
        alone().map_err(invalid)
    }

    async fn view(&self) -> Result<Arc<NodeView>, Status> {
        self.view.view().await.map_err(|why| Status::new(Code::UNAVAILABLE, why.to_string()))
    }
}

/// The node, if its containers are known. After a start the plugin knows none until the runtime
/// lists them, and a consumer would publish their CPUs as free. Some runtimes never list them to a
/// plugin that they launched: there the first container that they report has to suffice.
fn figures(view: &NodeView) -> Result<&NodeFigures, Status> {
    let unavailable = |why: &str| Status::new(Code::UNAVAILABLE, why);
    let node = view.node.as_ref().map_err(|why| unavailable(why))?;
    if !view.link.has_listed() && node.view.containers.is_empty() {
        return Err(unavailable("the runtime has not listed its containers yet"));
    }
    Ok(node)
}

/// Only a request can be at fault where the kubelet's answer is left out.
fn invalid(why: Malformed) -> Status {
    Status::new(Code::INVALID_ARGUMENT, format!("the request is {why}"))
}
