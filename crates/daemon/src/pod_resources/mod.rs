//! Serves the kubelet's [`podresources`] API with what a view of the node shows, and a file with the
//! policy in force in the socket's directory.
//!
//! No event waits for a client: the data come from the view that the owner of the ledger makes when
//! no event waits.

mod kubelet_configuration;

use crate::Clients;
use config::PodResources;
use cpuset::{CpuSet, NodeSet};
use ledger::{ContainerView, Phase, Policy, Settings, Stance, View};
use placement::memory_manager::{Amounts, Capacity};
use podresources::{Container, ContainerMemory, Known, Pod, Sockets, Source};
use serve::ViewSource;
use state::files::{self, Inode};
use status::{NodeFigures, NodeView};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// Passes the policy in force to the task that writes it into the socket's directory.
#[derive(Debug)]
pub(crate) struct PolicyFile(watch::Sender<String>);

impl PolicyFile {
    /// Has the file written again if these settings change it. Does not wait for that.
    pub(crate) fn follow(&self, settings: &Settings) {
        let text = kubelet_configuration::text(settings);
        self.0.send_if_modified(|current| {
            let changed = *current != text;
            *current = text;
            changed
        });
    }
}

/// Serves until the runtime ends, and removes the socket and the file then.
pub(crate) fn start(
    place: &PodResources,
    clients: &Clients,
    view: ViewSource,
    settings: &Settings,
) -> PolicyFile {
    let (policy, changes) = watch::channel(kubelet_configuration::text(settings));
    let sockets = Sockets { listen: place.socket(), kubelet: place.kubelet.clone() };
    tokio::spawn(podresources::serve(sockets, OwnerSource(view), clients.handle()));
    tokio::spawn(write_policy(Written { path: place.config_file(), file: None }, changes));
    PolicyFile(policy)
}

async fn write_policy(mut written: Written, mut changes: watch::Receiver<String>) {
    loop {
        let text = changes.borrow_and_update().clone();
        let to = written.path.clone();
        match tokio::task::spawn_blocking(move || replace(&to, &text)).await {
            Ok(Ok(file)) => written.file = Some(file),
            Ok(Err(error)) => {
                log::warn!("podresources: cannot write {}: {error}", written.path.display());
            }
            // The runtime ends.
            Err(_) => return,
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// A file that this process has written. A drop removes it, unless another process has replaced it.
#[derive(Debug)]
struct Written {
    path: PathBuf,
    /// `None` before the first write.
    file: Option<Inode>,
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path).ok() == self.file {
            // There is no place to report a failure.
            let _ = files::remove(&self.path);
        }
    }
}

/// Replaces a file at once: a reader sees the old text or the new one.
fn replace(path: &Path, text: &str) -> io::Result<Inode> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    files::replace(path, &path.with_extension("yaml.new"), 0o644, text.as_bytes())?;
    identity(path)
}

fn identity(path: &Path) -> io::Result<Inode> {
    Ok(Inode::of(&fs::symlink_metadata(path)?))
}

/// Asks the owner of the ledger.
struct OwnerSource(ViewSource);

impl Source for OwnerSource {
    async fn known(&self) -> Result<Known, String> {
        let view = self.0.view().await.map_err(|why| why.to_string())?;
        Ok(known(&figures(&view)?.view))
    }
}

/// The node, if its containers are known. After a start the plugin knows none until the runtime
/// lists them, and a client would publish their CPUs as free. Some runtimes never list them to a
/// plugin that they launched: there the first container that they report has to suffice.
fn figures(view: &NodeView) -> Result<&NodeFigures, String> {
    let node = view.node.as_ref().map_err(Clone::clone)?;
    if !view.link.has_listed() && node.view.containers.is_empty() {
        return Err("the runtime has not listed its containers yet".to_owned());
    }
    Ok(node)
}

fn known(view: &View) -> Known {
    let allocatable = match view.settings.policy {
        Policy::Static => allocatable(view),
        Policy::None => CpuSet::EMPTY,
    };
    let pods = view.containers.chunk_by(|one, next| one.pod.uid == next.pod.uid);
    Known {
        assigns: view.figures.stance == Stance::Assign,
        allocatable,
        allocatable_memory: view.settings.memory.as_ref().map(allocatable_memory),
        pods: pods.filter_map(|containers| pod(view, containers)).collect(),
    }
}

/// CPUs that containers can get without a pod option, and those that they have got by one.
fn allocatable(view: &View) -> CpuSet {
    let placement = &view.settings.placement;
    let assignable = view.topology.online() - placement.reserved;
    placement.isolated.allowed(&view.topology, &assignable)
        | (view.figures.cpus.exclusive & assignable)
}

/// As the kubelet lists it: a block for each type of each NUMA node.
fn allocatable_memory(capacity: &Capacity) -> Vec<ContainerMemory> {
    capacity.nodes().flat_map(|(node, amounts)| blocks(NodeSet::of(node), amounts)).collect()
}

fn blocks(nodes: NodeSet, amounts: &Amounts) -> impl Iterator<Item = ContainerMemory> {
    let amounts = amounts.iter().filter(|(_, bytes)| **bytes > 0);
    amounts.map(move |(kind, bytes)| ContainerMemory {
        kind: kind.to_string(),
        bytes: *bytes,
        nodes,
    })
}

/// A pod from all its containers; `None` if there are none.
fn pod(view: &View, containers: &[ContainerView]) -> Option<Pod> {
    let pod = &containers.first()?.pod;
    Some(Pod {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        runs: containers.iter().any(|container| container.phase != Phase::Ended),
        created_at: containers.iter().filter_map(|container| container.created_at).max(),
        containers: containers.iter().map(|one| container(view, one)).collect(),
    })
}

fn container(view: &View, container: &ContainerView) -> Container {
    let memory = view.memory_of(container).into_iter();
    Container {
        name: container.name.clone(),
        exclusive: container.exclusive,
        memory: memory.flat_map(|claim| blocks(claim.nodes, &claim.amounts)).collect(),
    }
}

#[cfg(test)]
mod tests;
