//! Events of containers whose CPUs another program sets.
//!
//! While that is the kubelet's own CPU manager, the ledger pins no container, but it records the CPUs
//! that the kubelet sets, as it adopts those of a runtime's list. So it can take over later without a
//! list, and moves no container whose CPUs are legal. A container that is [left
//! alone](crate::LeftAlone) has no claim, whoever assigns the node's CPUs.

use crate::adopt::adopt_set;
use crate::books::{AppliedSetting, Books, Certainty, ContainerEntry};
use crate::event::RequestedUpdate;
use crate::grant::grant;
use crate::model::{Container, LeftAlone, PodUid};
use crate::node::Node;
use crate::note::What;
use crate::policy::Stance;
use crate::terms::Terms;
use placement::{Reason, Rejection};

const KUBELET_ACTIVE: &str = "the kubelet's own CPU manager, or another NRI plugin, assigns the CPUs of this node. Set cpuManagerPolicy: none in the kubelet's configuration, delete its cpu_manager_state file and restart it; \
     running containers keep their CPUs";

/// Records a new container with its CPUs. A restarted container is never refused.
pub(crate) fn create(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
) -> Result<(), Rejection> {
    let Some(pod) = books.pod(uid) else { return Ok(()) };
    let known = pod.container(&container.name).is_some();
    let terms = Terms::of_running(node, pod, container);
    let asks = match grant(node, books, pod, container, &terms, None) {
        Ok((grant, _)) => grant.claim().is_some(),
        // It asks for exclusive CPUs that the ledger could not give.
        Err(_) => true,
    };
    if node.stance == Stance::Refuse && container.left_alone.is_none() && asks && !known {
        if let Some(pod) = books.pod_mut(uid) {
            pod.promises_nothing = true;
        }
        let message = KUBELET_ACTIVE.to_owned();
        let rejection = Rejection::new(Reason::UnexpectedAdmission, message);
        books.note_refused(uid, container, &rejection, None);
        return Err(rejection);
    }
    let applied = AppliedSetting::reported(container, false);
    let mechanism = node.mechanism;
    let entry = ContainerEntry::new(container, mechanism, terms, applied);
    books.enter(uid, &container.name, entry, |pod, before| {
        pod.promises_nothing = false;
        let Some(entry) = pod.container_mut(&container.name) else { return };
        let Some(before) = before else { return };
        entry.set_predecessor(before);
        // A restarted container without CPUs keeps the claim of its name, for the time when the
        // ledger assigns CPUs again.
        if container.cpus.is_none() {
            entry.inherit(before);
        }
    });
    match container.left_alone {
        Some(why) => note_left_alone(books, uid, container, why),
        None => adopt_set(node, books, uid, container),
    }
    Ok(())
}

/// Records another program's change of an existing container.
pub(crate) fn update(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    requested: RequestedUpdate,
) {
    let changed = books.change_container(uid, &container.name, |entry| {
        entry.cpu = entry.cpu.changed_by(requested.cpu);
        if requested.sets_quota {
            entry.applied.record_quota();
        }
        let cpus = requested.cpus.filter(|cpus| !entry.applied.is_on(cpus, Certainty::Set))?;
        // Other CPUs end the claim; `adopt_set` makes a new one of them if they are legal.
        entry.applied.replace(cpus);
        entry.release();
        entry.left_alone = container.left_alone;
        Some(Container { cpus: Some(cpus), cpu: entry.cpu, ..container.clone() })
    });
    let Some(container) = changed.flatten() else { return };
    match container.left_alone {
        Some(why) => note_left_alone(books, uid, &container, why),
        None => adopt_set(node, books, uid, &container),
    }
}

fn note_left_alone(books: &mut Books, uid: &PodUid, container: &Container, why: LeftAlone) {
    let (Some(cpus), Some(pod)) = (container.cpus, books.pod(uid)) else { return };
    let subject = pod.subject(container);
    books.journal.note(why == LeftAlone::Unexplained, subject, What::LeftAlone { cpus, why });
}
