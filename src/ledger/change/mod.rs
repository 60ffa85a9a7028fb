//! What changes for the whole node while containers run.

mod hotplug;
mod reconfigure;

pub(super) use hotplug::hotplug;
pub(super) use reconfigure::reconfigure;

use super::books::Books;
use super::policy::Mechanism;

/// Something else than before keeps others off exclusive CPUs: of all containers, also of those
/// that the kernel refused.
pub(super) fn enforce_by(books: &mut Books, mechanism: Mechanism) {
    books.unsettle();
    books.change_all(|_, pod| {
        pod.containers_mut().for_each(|(_, entry)| entry.enforced_by = mechanism);
    });
}
