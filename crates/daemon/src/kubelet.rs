//! [`KubeletWatch`]: reports whether the kubelet's own CPU manager assigns CPUs.

use config::Config;
use kubelet::{ActivityDetector, Change, Sign, StateFileReading};
use ledger::{Call, Event, Policy, Settings, Stance};
use log::Level;
use std::time::{Duration, Instant};

/// The log repeats after this time that the kubelet's own CPU manager is active.
const REMINDER: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub(super) struct KubeletWatch {
    detector: ActivityDetector,
    /// When the log last said that the kubelet's CPU manager is active. Without a state file every
    /// request can change that.
    reminded: Option<Instant>,
    /// Whether the log has said so since it last became active: only then its end is logged.
    said: bool,
}

impl KubeletWatch {
    pub(super) fn new(config: &Config) -> KubeletWatch {
        KubeletWatch { detector: ActivityDetector::new(config.mode()), reminded: None, said: false }
    }

    /// The event for the ledger before any other, if the configuration says to observe.
    pub(super) fn first(&self) -> Option<Event> {
        (self.detector.stance() != Stance::Assign).then(|| self.detector.event())
    }

    /// Follows a changed configuration.
    pub(super) fn reconfigure(
        &mut self,
        config: &Config,
        policy: Policy,
        now: Instant,
    ) -> Option<Event> {
        let change = self.detector.change_mode(config.mode());
        self.follow(change, policy, now)
    }

    /// The event of [`KubeletWatch::reconfigure`] for this configuration.
    pub(super) fn event_of(&self, config: &Config) -> Option<Event> {
        let mut detector = self.detector.clone();
        detector.change_mode(config.mode()).map(|_| detector.event())
    }

    /// Records what the state file says.
    pub(super) fn check(
        &mut self,
        reading: StateFileReading,
        policy: Policy,
        now: Instant,
    ) -> Option<Event> {
        match &reading {
            StateFileReading::Missing => log::debug!("kubelet state file: not visible"),
            StateFileReading::StateFile(state) => log::info!(
                "kubelet state file: read (cpuManagerPolicy={} assignments={})",
                state.policy,
                state.claims.len()
            ),
            StateFileReading::Bad { why, .. } => {
                log::error!("kubelet state file: cannot use cpu_manager_state: {why}")
            }
        }
        let change = self.detector.note_file(reading);
        self.follow(change, policy, now)
    }

    /// Records what a call shows of the kubelet, before the ledger handles it, and which of its
    /// containers is left alone.
    pub(super) fn note_call(
        &mut self,
        call: &mut Call,
        settings: &Settings,
        now: Instant,
    ) -> Option<Event> {
        let change = self.detector.note_call(call, settings);
        let event = self.follow(change, settings.policy, now);
        if self.detector.is_active() {
            self.remind(settings.policy, now);
        }
        event
    }

    fn follow(&mut self, change: Option<Change>, policy: Policy, now: Instant) -> Option<Event> {
        match change? {
            Change::Assigned => {}
            Change::Began(sign) => {
                if sign == Sign::File {
                    self.reminded = None;
                }
                if self.is_time(now) {
                    let (level, _) = self.consequence(policy);
                    log::log!(level, "the kubelet's own CPU manager is active: {sign}");
                }
                self.remind(policy, now);
            }
            Change::Ended => {
                if std::mem::take(&mut self.said) {
                    log::warn!(
                        "the kubelet's own CPU manager is no longer active: taking over its assignments without moving containers"
                    );
                }
            }
        }
        Some(self.detector.event())
    }

    /// Logs what follows from the kubelet's CPU manager being active, and what to do, if a reminder
    /// is due.
    fn remind(&mut self, policy: Policy, now: Instant) {
        if !self.is_time(now) {
            return;
        }
        let (level, consequence) = self.consequence(policy);
        log::log!(
            level,
            "while the kubelet assigns CPUs, {consequence}. To move the node to this plugin set cpuManagerPolicy: none in the kubelet's configuration, delete its cpu_manager_state and restart it; running containers keep their CPUs"
        );
        self.reminded = Some(now);
        self.said = true;
    }

    /// What follows from the kubelet's CPU manager being active. It is an error unless the
    /// configuration asks for it.
    fn consequence(&self, policy: Policy) -> (Level, &'static str) {
        match (policy, self.detector.stance()) {
            (Policy::None, _) => (Level::Info, "nothing changes here: cpuManagerPolicy is none"),
            (Policy::Static, Stance::Observe) => {
                (Level::Info, "this plugin pins nothing and logs what it would do")
            }
            (Policy::Static, _) => (
                Level::Error,
                "this plugin changes no container and refuses new ones that ask for exclusive CPUs",
            ),
        }
    }

    fn is_time(&self, now: Instant) -> bool {
        self.reminded.is_none_or(|then| now.saturating_duration_since(then) >= REMINDER)
    }
}
