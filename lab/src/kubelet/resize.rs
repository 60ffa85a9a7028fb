//! In-place resize as the kubelet does it: the pod's cgroup makes room before a container grows,
//! and follows after it has shrunk, so that a container is never allowed more than its pod. Each
//! change of the pod is told to the runtime.

use anyhow::{Context, Result};

use super::{Kubelet, RunningPod, node_memory};
use crate::cgroup;
use crate::cri::wire;
use crate::pod::Pod;

impl Kubelet {
    /// Gives a container of a pod `milli` thousandths of a CPU from now on, as request, and as
    /// limit where it has one. What the pod is from now on is returned.
    ///
    /// # Errors
    /// The runtime's words when it refuses. Nothing has changed then: a kubelet would try again
    /// until the wish is taken back, which is what happens here at once.
    pub fn resize(&self, running: &RunningPod, container: &str, milli: i64) -> Result<Pod> {
        let RunningPod { pod: before, sandbox, containers } = running;
        let id = containers.iter().find(|c| c.name == container).map(|c| c.id.clone());
        let id = id.with_context(|| format!("container {container} does not run"))?;
        let mut after = before.clone();
        let changed = after.containers.iter_mut().find(|c| c.name == container);
        let changed = changed.with_context(|| format!("there is no container {container}"))?;
        changed.cpu_request = milli;
        if changed.cpu_limit > 0 {
            changed.cpu_limit = milli;
        }
        let linux = changed.resources(before.qos(), node_memory());

        let (old, new) = (before.resources(), after.resources());
        // Limits first when growing, last when shrinking: requests stay below them.
        let (more_limit, more_share) =
            (new.cpu_quota > old.cpu_quota, new.cpu_shares > old.cpu_shares);
        let (less_share, less_limit) =
            (new.cpu_shares < old.cpu_shares, new.cpu_quota < old.cpu_quota);
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
        // Whether the runtime passes it on to NRI (containerd 2.3 and newer), or knows it at all,
        // must not matter.
        self.cri.update_pod_sandbox_resources(wire::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: sandbox.to_owned(),
            overhead: None,
            resources: Some(pod.resources()),
        })?;
        Ok(())
    }
}
