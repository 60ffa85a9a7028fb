//! The kubelet beside us: stands back while its own CPU manager is active, and takes over when it no longer is.

use super::Owner;
use crate::config::Config;
use crate::kubelet::{ActivityDetector, Change, Look, Sign, StateFileWatcher};
use crate::ledger::{Event, Policy, Stance};
use log::Level;
use std::future::pending;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often it is said again that the kubelet's own CPU manager is active.
const REMINDER: Duration = Duration::from_secs(600);

/// What is known of the kubelet.
#[derive(Debug)]
pub(super) struct Neighbour {
    detector: ActivityDetector,
    /// Its state file, until the watch over it begins.
    file: Option<StateFileWatcher>,
    /// What the watch sees.
    looks: Option<mpsc::Receiver<Look>>,
    /// When it was last said that its CPU manager is active. Where requests tell, this may change with each of them.
    reminded: Option<Instant>,
    /// Whether that was said of the present time.
    said: bool,
}

impl Neighbour {
    pub(super) fn new(config: &Config) -> Neighbour {
        Neighbour {
            detector: ActivityDetector::new(config.on_active_kubelet()),
            file: config.kubelet_state_dir().map(StateFileWatcher::new),
            looks: None,
            reminded: None,
            said: false,
        }
    }

    /// Whether it has not been said for long that its CPU manager is active.
    fn is_time(&self) -> bool {
        self.reminded.is_none_or(|then| then.elapsed() >= REMINDER)
    }

    /// The next change of its state file. Nothing is lost if waiting for it is given up.
    pub(super) async fn next(&mut self) -> Look {
        if let Some(file) = self.file.take() {
            let (tell, looks) = mpsc::channel(1);
            tokio::spawn(file.run(tell));
            self.looks = Some(looks);
        }
        match &mut self.looks {
            Some(looks) => match looks.recv().await {
                Some(look) => look,
                None => pending().await,
            },
            None => pending().await,
        }
    }
}

impl Owner {
    /// What the kubelet's state file says at the start, before any container is known.
    pub(super) fn first_look(&mut self) {
        if let Some(look) = self.neighbour.file.as_mut().and_then(StateFileWatcher::look) {
            self.look(look);
        }
    }

    /// Follows a change of what the configuration says of the kubelet.
    pub(super) fn attend(&mut self, before: &Config, now: &Config) {
        let change = self.neighbour.detector.change_stance(now.on_active_kubelet());
        self.heed(change);
        if before.kubelet_state_dir() != now.kubelet_state_dir() {
            self.neighbour.file = now.kubelet_state_dir().map(StateFileWatcher::new);
            self.neighbour.looks = None;
            let look = self.neighbour.file.as_mut().and_then(StateFileWatcher::look);
            self.look(look.unwrap_or(Look::Missing));
        }
    }

    /// Takes note of what the kubelet's state file says now.
    pub(super) fn look(&mut self, look: Look) {
        match &look {
            Look::Missing => {
                log::debug!("the kubelet's state file is not there, or not to be seen from here");
            }
            Look::StateFile(state) => log::info!(
                "the kubelet's state file: cpuManagerPolicy {}, {} exclusive assignments",
                state.policy,
                state.claims.len()
            ),
            Look::Bad { why, .. } => {
                log::error!("the kubelet's cpu_manager_state cannot be used: {why}");
            }
        }
        let change = self.neighbour.detector.look(look);
        self.heed(change);
    }

    /// Takes note of what an event tells of the kubelet, before it is handled.
    pub(super) fn hear(&mut self, event: &Event) {
        let change = self.neighbour.detector.hear(event);
        self.heed(change);
        if self.neighbour.detector.is_active() {
            self.remind();
        }
    }

    /// Lets the ledger stand back, or take over. What follows for containers has to be told then; the answer to an event
    /// does that by itself.
    fn heed(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        // Never refused.
        let _ = self.ledger.handle(self.neighbour.detector.event());
        match change {
            Change::Assigned => {}
            Change::Came(sign) => {
                if sign == Sign::File {
                    self.neighbour.reminded = None;
                }
                if self.neighbour.is_time() {
                    let (level, _) = self.follows();
                    log::log!(level, "the kubelet's own CPU manager is active: {sign}");
                }
                self.remind();
            }
            Change::Went => {
                if std::mem::take(&mut self.neighbour.said) {
                    log::warn!(
                        "the kubelet's own CPU manager is no longer active: what it assigned is taken over, without moving containers"
                    );
                }
            }
        }
        self.tell_notes();
        if change == Change::Went {
            self.kernel.settle_all(&self.ledger);
        }
    }

    /// Says what follows from the kubelet's CPU manager being active, and what to do, if it is time for that.
    fn remind(&mut self) {
        if !self.neighbour.is_time() {
            return;
        }
        let (level, follows) = self.follows();
        log::log!(
            level,
            "as long as the kubelet assigns CPUs, {follows}. To move the node to this plugin set cpuManagerPolicy: none in the kubelet's configuration, delete its cpu_manager_state and restart it; running containers keep their CPUs"
        );
        (self.neighbour.reminded, self.neighbour.said) = (Some(Instant::now()), true);
    }

    /// What follows from the kubelet's CPU manager being active. It is an error unless the configuration asks for it.
    fn follows(&self) -> (Level, &'static str) {
        match (self.ledger.settings().policy, self.ledger.stance()) {
            (Policy::None, _) => {
                (Level::Info, "this changes nothing here: cpuManagerPolicy is none")
            }
            (Policy::Static, Stance::Observe) => {
                (Level::Info, "nothing is pinned here, what would be is logged")
            }
            (Policy::Static, _) => (
                Level::Error,
                "no container is changed here, and new ones that ask for exclusive CPUs are refused",
            ),
        }
    }
}
