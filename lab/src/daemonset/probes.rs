//! What a kubelet asks a container itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::manifests::types::{Container, Probe};
use crate::plugin;

/// The pod's address: it uses the host's network. Not the usual address of loopback, as a kubelet
/// does not reach who listens there alone.
const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(super) fn probe(container: &Container) -> Result<()> {
    for (name, probe) in container.probes() {
        succeeds(container, probe)
            .with_context(|| format!("the {name} of {} failed", container.name))?;
    }
    Ok(())
}

fn succeeds(container: &Container, probe: &Probe) -> Result<()> {
    let address = SocketAddr::from((POD, container.port(&probe.http_get.port)?));
    let timeout = Duration::from_secs(probe.timeout_seconds);
    let answer = plugin::fetch_from(address, &probe.http_get.path, timeout)?;
    let status = answer.split_whitespace().nth(1).and_then(|code| code.parse::<u16>().ok());
    ensure!(status.is_some_and(|code| (200..400).contains(&code)), "the answer was\n{answer}");
    Ok(())
}
