//! [`Trial`]: what a change would do, found on a copy of the ledger.

use super::enforcement::mechanism_under;
use super::kubelet::KubeletWatch;
use super::owner::Owner;
use super::reload::ConfigReload;
use config::{Mistake, Reading};
use ledger::{Event, Ledger, Mechanism, View};
use status::config_state::Fault;
use status::outlook::Outlook;
use std::sync::Arc;
use topology::Topology;

/// Copies of everything that decides about a change of the configuration. They see no change that comes later.
#[derive(Debug)]
pub struct Trial {
    ledger: Ledger,
    config: ConfigReload,
    kubelet: KubeletWatch,
    machine: Topology,
    /// The best mechanism of the node.
    best: Mechanism,
}

impl Owner {
    pub fn trial(&self) -> Trial {
        Trial {
            ledger: self.ledger.clone(),
            config: self.config.clone(),
            kubelet: self.kubelet.clone(),
            machine: self.hotplug.machine().clone(),
            best: self.enforcement.mechanism(),
        }
    }
}

impl Trial {
    /// What the owner would change if it read this in its configuration file.
    ///
    /// # Errors
    /// Why it would not follow the file.
    pub fn reconfigure(&self, reading: Reading) -> Result<Outlook, Mistake> {
        let usable = self.config.usable(reading, &self.machine, self.ledger.settings());
        let usable = usable.map_err(|Fault { line, why }| Mistake { line, why })?;
        let config = &usable.config;
        let now = self.ledger.mechanism();
        let mechanism = mechanism_under(usable.settings.policy, now, self.best);
        let mechanism = (mechanism != now).then_some(Event::Mechanism(mechanism));
        let events = usable.event.into_iter().chain(mechanism).chain(self.kubelet.event_of(config));
        Ok(Outlook {
            overrides: config.applied_lines(),
            waiting: self.config.waiting(config),
            ..Outlook::of(&self.ledger.preview(events))
        })
    }

    /// What `uninstall` would change, with or without `--containers`.
    pub fn uninstall(&self, containers: bool) -> Outlook {
        Outlook::of_uninstall(&self.actual_view(), self.ledger.is_bound_by_cgroups(), containers)
    }

    pub fn view(&self) -> Arc<View> {
        self.ledger.view()
    }

    /// What is, also on a node that observes.
    pub fn actual_view(&self) -> Arc<View> {
        self.ledger.actual_view()
    }
}
