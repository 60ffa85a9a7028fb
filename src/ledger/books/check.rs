//! The books' invariants, for tests and debug builds.

use super::sums::{CountedPod, Sums};
use super::{Books, ContainerRef};

impl Books {
    /// Whether the sums and the index are those of the pods.
    ///
    /// # Errors
    /// What they are and what they should be.
    pub(in crate::ledger) fn check(&self) -> Result<(), String> {
        let mut anew = Sums::default();
        for (_, pod) in self.pods() {
            anew.recount(&mut CountedPod::new(pod.clone()));
        }
        if anew != self.sums {
            return Err(format!("the sums are {:?}, of the pods {anew:?}", self.sums));
        }
        for ContainerRef { uid, name, entry, .. } in self.containers() {
            if self
                .ids
                .get(&entry.id)
                .is_none_or(|(of, called)| (of, called.as_str()) != (uid, name))
            {
                return Err(format!("{uid}/{name} cannot be found by its id {}", entry.id));
            }
        }
        let known = self.containers().count();
        if self.ids.len() != known {
            return Err(format!("{} ids of {known} containers", self.ids.len()));
        }
        Ok(())
    }
}
