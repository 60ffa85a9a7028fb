//! [`Service`]: answers the calls of clients.

use crate::answer;
use crate::grpc::{Code, Status};
use crate::known::{Known, Source};
use crate::kubelet::{Kubelet, KubeletError, LIST};
use crate::wire::Malformed;
use bytes::Bytes;
use std::path::PathBuf;

const GET: &str = "/v1.PodResourcesLister/Get";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

#[derive(Debug)]
pub(crate) struct Service<S> {
    source: S,
    kubelet: Kubelet,
}

impl<S: Source> Service<S> {
    pub(crate) fn new(source: S, kubelet: PathBuf) -> Service<S> {
        Service { source, kubelet: Kubelet::new(kubelet) }
    }

    pub(crate) async fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
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
        let known = &self.known().await?;
        let merged = kubelet.map(|kubelet| answer::list(known, &kubelet));
        self.or_alone(merged, || answer::list(known, &[]))
    }

    async fn get(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let (namespace, name) = answer::requested_pod(request).map_err(invalid)?;
        let kubelet = self.kubelet.call(GET, request).await;
        let known = &self.known().await?;
        let (kubelet, refusal) = match kubelet {
            Ok(kubelet) => (Some(kubelet), None),
            Err(KubeletError::Refused(status)) => (None, Some(status)),
            Err(failure) => {
                self.kubelet.warn(failure);
                (None, None)
            }
        };
        let merged = kubelet.map(|kubelet| answer::get(known, request, &kubelet));
        let answer = self.or_alone(merged, || answer::get(known, request, &[]))?;
        answer.ok_or_else(|| {
            let unknown = format!("pod {name} in namespace {namespace} not found");
            refusal.unwrap_or_else(|| Status::new(Code::NOT_FOUND, unknown))
        })
    }

    async fn allocatable(&self, request: &[u8]) -> Result<Vec<u8>, Status> {
        let kubelet = self.kubelets(ALLOCATABLE, request).await;
        let known = &self.known().await?;
        let merged = kubelet.map(|kubelet| answer::allocatable(known, Some(&kubelet)));
        self.or_alone(merged, || answer::allocatable(known, None))
    }

    /// The kubelet's answer; `None`, with a warning, if there is none.
    async fn kubelets(&self, path: &'static str, request: &[u8]) -> Option<Bytes> {
        self.kubelet.call(path, request).await.map_err(|failure| self.kubelet.warn(failure)).ok()
    }

    /// The answer that includes the kubelet's, or `alone` if the kubelet did not answer, or not with a
    /// valid message.
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

    async fn known(&self) -> Result<Known, Status> {
        self.source.known().await.map_err(|why| Status::new(Code::UNAVAILABLE, why))
    }
}

/// The error where no answer of the kubelet is involved: then the request is malformed.
fn invalid(why: Malformed) -> Status {
    Status::new(Code::INVALID_ARGUMENT, format!("the request is {why}"))
}
