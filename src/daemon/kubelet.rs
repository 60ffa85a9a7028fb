//! [`KubeletWatch`]: tells the ledger whether the kubelet's own CPU manager assigns CPUs.

use super::enforcement::Enforcement;
use super::keeper::Keeper;
use super::poller::Poller;
use crate::config::Config;
use crate::kubelet::{ActivityDetector, Change, INTERVAL, Look, Sign, StateFileWatcher};
use crate::ledger::{Event, Ledger, Policy, Stance};
use log::Level;
use std::time::Duration;
use tokio::time::Instant;

/// The log repeats after this time that the kubelet's own CPU manager is active.
const REMINDER: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct KubeletWatch {
    detector: ActivityDetector,
    file: Poller<StateFileWatcher, Look>,
    /// When the log last said that its CPU manager is active. Without a state file every request
    /// can change that.
    reminded: Option<Instant>,
    /// Whether the log has said so of the present period.
    said: bool,
}

fn poller(config: &Config) -> Poller<StateFileWatcher, Look> {
    Poller::new(
        config.kubelet_state_dir().map(StateFileWatcher::new),
        INTERVAL,
        StateFileWatcher::look,
    )
}

impl KubeletWatch {
    pub(super) fn new(config: &Config) -> KubeletWatch {
        KubeletWatch {
            detector: ActivityDetector::new(config.on_active_kubelet()),
            file: poller(config),
            reminded: None,
            said: false,
        }
    }

    pub(super) async fn next(&mut self) -> Look {
        self.file.next().await
    }

    /// Reads the state file at the start, before any container is known.
    pub(super) fn first_look(&mut self, keeper: &mut Keeper, enforcement: &mut Enforcement) {
        if let Some(look) = self.file.look_first() {
            self.look(look, keeper, enforcement);
        }
    }

    pub(super) fn reconfigure(
        &mut self,
        before: &Config,
        now: &Config,
        keeper: &mut Keeper,
        enforcement: &mut Enforcement,
    ) {
        let change = self.detector.change_stance(now.on_active_kubelet());
        self.follow(change, keeper, enforcement);
        if before.kubelet_state_dir() != now.kubelet_state_dir() {
            self.file = poller(now);
            let look = self.file.look_first().unwrap_or(Look::Missing);
            self.look(look, keeper, enforcement);
        }
    }

    pub(super) fn look(&mut self, look: Look, keeper: &mut Keeper, enforcement: &mut Enforcement) {
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
        let change = self.detector.look(look);
        self.follow(change, keeper, enforcement);
    }

    /// Records what an event shows of the kubelet, before the ledger handles it.
    pub(super) fn note_event(
        &mut self,
        event: &Event,
        keeper: &mut Keeper,
        enforcement: &mut Enforcement,
    ) {
        let change = self.detector.note_event(event);
        self.follow(change, keeper, enforcement);
        if self.detector.is_active() {
            self.remind(&keeper.ledger);
        }
    }

    /// Passes a change on to the ledger. Updates may be due then; the answer to an event carries
    /// them by itself.
    fn follow(
        &mut self,
        change: Option<Change>,
        keeper: &mut Keeper,
        enforcement: &mut Enforcement,
    ) {
        let Some(change) = change else { return };
        // Never refused. The ledger's notes are logged below, after this change.
        let _ = keeper.ledger.handle(self.detector.event());
        match change {
            Change::Assigned => {}
            Change::Came(sign) => {
                if sign == Sign::File {
                    self.reminded = None;
                }
                if self.is_time() {
                    let (level, _) = follows(&keeper.ledger);
                    log::log!(level, "the kubelet's own CPU manager is active: {sign}");
                }
                self.remind(&keeper.ledger);
            }
            Change::Went => {
                if std::mem::take(&mut self.said) {
                    log::warn!(
                        "the kubelet's own CPU manager is no longer active: what it assigned is taken over, without moving containers"
                    );
                }
            }
        }
        keeper.log_notes();
        if change == Change::Went {
            enforcement.settle_all(&keeper.ledger);
        }
    }

    /// Logs what follows from the kubelet's CPU manager being active, and what to do, if a reminder
    /// is due.
    fn remind(&mut self, ledger: &Ledger) {
        if !self.is_time() {
            return;
        }
        let (level, follows) = follows(ledger);
        log::log!(
            level,
            "as long as the kubelet assigns CPUs, {follows}. To move the node to this plugin set cpuManagerPolicy: none in the kubelet's configuration, delete its cpu_manager_state and restart it; running containers keep their CPUs"
        );
        (self.reminded, self.said) = (Some(Instant::now()), true);
    }

    fn is_time(&self) -> bool {
        self.reminded.is_none_or(|then| then.elapsed() >= REMINDER)
    }
}

/// What follows from the kubelet's CPU manager being active. It is an error unless the
/// configuration asks for it.
fn follows(ledger: &Ledger) -> (Level, &'static str) {
    match (ledger.settings().policy, ledger.stance()) {
        (Policy::None, _) => (Level::Info, "this changes nothing here: cpuManagerPolicy is none"),
        (Policy::Static, Stance::Observe) => {
            (Level::Info, "nothing is pinned here, what would be is logged")
        }
        (Policy::Static, _) => (
            Level::Error,
            "no container is changed here, and new ones that ask for exclusive CPUs are refused",
        ),
    }
}
