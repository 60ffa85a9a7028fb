//! The kubelet requests other resources for an existing container.

use super::standby;
use crate::adopt::adopt_late;
use crate::books::Books;
use crate::event::RequestedUpdate;
use crate::identity::{Instance, identify_container, instance};
use crate::memory::resized_memory;
use crate::model::{Container, Pod};
use crate::node::Node;
use crate::note::What;
use crate::resize::resize;
use placement::Rejection;

pub(crate) fn update(
    node: &Node,
    books: &mut Books,
    pod: Pod,
    mut container: Container,
    requested: RequestedUpdate,
) -> Result<(), Rejection> {
    let uid = identify_container(node, books, pod, &mut container);
    match instance(books, &uid, &container) {
        Instance::Present => {}
        Instance::Replaced => return Ok(()),
        Instance::Unknown => adopt_late(node, books, &uid, &container),
    }
    let entry = books.container(&uid, &container.name).map(|container| container.entry);
    let was_left_alone = entry.is_some_and(|entry| entry.left_alone.is_some());
    let memory = resized_memory(node, books, &uid, &container.name, requested.limits.clone());
    if !node.assigns() || was_left_alone || container.left_alone.is_some() {
        standby::update(node, books, &uid, &container, requested);
        if let Ok(Some(memory)) = memory {
            memory.record(books, &uid, &container.name);
        }
        return Ok(());
    }
    if let (Some(cpus), Some(pod)) = (requested.cpus, books.pod(&uid)) {
        let subject = pod.subject(&container);
        books.journal.note(true, subject, What::Contested(cpus));
    }
    let resized = memory.and_then(|memory| {
        resize(node, books, &uid, &container, requested.cpu)?;
        Ok(memory)
    });
    let memory = match resized {
        Ok(memory) => memory,
        Err(rejection) => {
            books.note_refused(&uid, &container, &rejection, None);
            return Err(rejection);
        }
    };
    if let Some(memory) = memory {
        memory.record(books, &uid, &container.name);
    }
    books.change_container(&uid, &container.name, |entry| {
        entry.mark_created();
        // The runtime applies the request as it is: its quota would throttle exclusive CPUs, and
        // its CPUs are not those of the ledger. So the answer has to have an update.
        if requested.sets_quota {
            entry.applied.record_quota();
        }
        if requested.cpus.is_some() {
            entry.applied.invalidate();
        }
    });
    Ok(())
}
