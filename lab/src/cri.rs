//! The CRI as used by the kubelet: gRPC over the runtime's unix socket. Calls block.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use wire::image_service_client::ImageServiceClient;
use wire::runtime_service_client::RuntimeServiceClient;

/// The messages, generated from `proto/cri.proto`.
#[allow(unreachable_pub, clippy::pedantic, reason = "generated code")]
pub mod wire {
    tonic::include_proto!("runtime.v1");
}

/// Generous: on emulated CPUs, a call that first updates hundreds of containers takes minutes.
const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Cri {
    runtime: Runtime,
    client: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

/// Makes a blocking method out of an RPC: request in, response out, the RPC's name in the error.
macro_rules! rpc {
    ($client:ident.$name:ident, $request:ident -> $response:ident) => {
        pub fn $name(&self, request: wire::$request) -> Result<wire::$response> {
            // Clones share the connection.
            let mut client = self.$client.clone();
            let answer = self.runtime.block_on(async move { client.$name(request).await });
            answer
                .map(tonic::Response::into_inner)
                .map_err(|status| failed(stringify!($name), &status))
        }
    };
}

fn failed(call: &str, status: &Status) -> Error {
    anyhow!("{call}: {} ({:?})", status.message(), status.code())
}

impl Cri {
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the asynchronous runtime of the CRI client")?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .with_context(|| format!("{} is not a valid socket path", socket.display()))?
            .timeout(TIMEOUT);
        let channel = runtime
            .block_on(endpoint.connect())
            .with_context(|| format!("no container runtime answers at {}", socket.display()))?;
        // Verbose container status carries the whole OCI specification.
        let images = ImageServiceClient::new(channel.clone());
        let client = RuntimeServiceClient::new(channel).max_decoding_message_size(16 << 20);
        Ok(Self { runtime, client, images })
    }

    rpc!(client.status, StatusRequest -> StatusResponse);
    rpc!(client.run_pod_sandbox, RunPodSandboxRequest -> RunPodSandboxResponse);
    rpc!(client.stop_pod_sandbox, StopPodSandboxRequest -> StopPodSandboxResponse);
    rpc!(client.remove_pod_sandbox, RemovePodSandboxRequest -> RemovePodSandboxResponse);
    rpc!(client.list_pod_sandbox, ListPodSandboxRequest -> ListPodSandboxResponse);
    rpc!(client.create_container, CreateContainerRequest -> CreateContainerResponse);
    rpc!(client.start_container, StartContainerRequest -> StartContainerResponse);
    rpc!(client.stop_container, StopContainerRequest -> StopContainerResponse);
    rpc!(client.remove_container, RemoveContainerRequest -> RemoveContainerResponse);
    rpc!(client.list_containers, ListContainersRequest -> ListContainersResponse);
    rpc!(client.container_status, ContainerStatusRequest -> ContainerStatusResponse);
    // In-place resize.
    rpc!(client.update_container_resources, UpdateContainerResourcesRequest -> UpdateContainerResourcesResponse);
    rpc!(images.list_images, ListImagesRequest -> ListImagesResponse);

    /// Sends the pod's resources. Older runtimes do not know this call.
    pub fn update_pod_sandbox_resources(
        &self,
        request: wire::UpdatePodSandboxResourcesRequest,
    ) -> Result<()> {
        let mut client = self.client.clone();
        let answer = self
            .runtime
            .block_on(async move { client.update_pod_sandbox_resources(request).await });
        match answer {
            Err(status) if status.code() != Code::Unimplemented => {
                Err(failed("update_pod_sandbox_resources", &status))
            }
            _ => Ok(()),
        }
    }

    pub fn pid(&self, container: &str) -> Result<u32> {
        let request =
            wire::ContainerStatusRequest { container_id: container.to_owned(), verbose: true };
        let response = self.container_status(request)?;
        let info = response.info.get("info").map_or("{}", String::as_str);
        let info: serde_json::Value = serde_json::from_str(info).with_context(|| {
            format!("the runtime's info about container {container} is not JSON")
        })?;
        let pid =
            info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        pid.with_context(|| {
            format!("the runtime has no pid of container {container}: it does not run")
        })
    }
}
