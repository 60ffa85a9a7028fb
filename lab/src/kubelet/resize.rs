//! In-place resize like the kubelet's: the pod's cgroup grows before a container grows, and shrinks
//! after it has shrunk, so that a container never has more than its pod. The runtime receives each
//! change of the pod.

use anyhow::{Context, Result};

use super::{Kubelet, RunningPod};
use crate::cgroup;
use crate::cri::wire;
use crate::pod::Pod;

impl Kubelet {
    /// Changes the request of a container to `milli` milli-CPUs, and its limit if it has one.
    /// Returns the changed pod.
    ///
    /// A refusal changes nothing: a kubelet would try again until the request is taken back, which
    /// happens here at once.
    pub fn resize(&self, running: &RunningPod, container: &str, milli: i64) -> Result<Pod> {
        let RunningPod { pod: before, sandbox, containers } = running;
        let id = containers.iter().find(|c| c.name == container).map(|c| c.id.clone());
        let id = id.with_context(|| format!("container {container} does not run"))?;
        let mut after = before.clone();
        let changed = after.containers.iter_mut().find(|c| c.name == container);
        let changed = changed.with_context(|| format!("no container {container}"))?;
        changed.cpu_request = milli;
        if changed.cpu_limit > 0 {
            changed.cpu_limit = milli;
        }
        let linux = changed.resources(before.qos());

        let (old, new) = (before.resources(), after.resources());
        // Limits first when growing, last when shrinking: requests stay below them.
        let more_limit = new.cpu_quota > old.cpu_quota;
        let more_share = new.cpu_shares > old.cpu_shares;
        let less_share = new.cpu_shares < old.cpu_shares;
        let less_limit = new.cpu_quota < old.cpu_quota;
        self.set(more_limit, cgroup::set_limit, sandbox, &after)?;
        self.set(more_share, cgroup::set_share, sandbox, &after)?;
        let request =
            wire::UpdateContainerResourcesRequest { container_id: id, linux: Some(linux) };
        if let Err(refusal) = self.cri.update_container_resources(request) {
            self.set(more_share, cgroup::set_share, sandbox, before)?;
            self.set(more_limit, cgroup::set_limit, sandbox, before)?;
            return Err(refusal);
        }
        self.set(less_share, cgroup::set_share, sandbox, &after)?;
        self.set(less_limit, cgroup::set_limit, sandbox, &after)?;
        Ok(after)
    }

    fn set(
        &self,
        needed: bool,
        write: fn(&Pod) -> Result<()>,
        sandbox: &str,
        pod: &Pod,
    ) -> Result<()> {
        if !needed {
            return Ok(());
        }
        write(pod)?;
        // containerd passes it on to NRI since 2.3, and older versions do not know the call:
        // neither may matter.
        self.cri.update_pod_sandbox_resources(wire::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: sandbox.to_owned(),
            overhead: None,
            resources: Some(pod.resources()),
        })
    }
}
