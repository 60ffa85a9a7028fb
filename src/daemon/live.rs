//! The configuration changes while the plugin runs: what can be used is followed at once, what cannot changes nothing.

use super::{Owner, Paths, answer};
use crate::config::{Config, Follower, Mistake, Reading, WantedExclusivity};
use crate::enforce::probe;
use crate::ledger::{Event, Policy, Settings, Stance};
use crate::observe::config_state::{ConfigState, Fault, Reload, cannot_be_used, needs_restart};
use crate::partition::PartitionType;
use crate::topology::Topology;
use std::future::pending;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// The configuration in force, and the watch over its file.
#[derive(Debug)]
pub(super) struct Live {
    /// The watch, until it begins.
    follower: Option<Follower>,
    /// What the watch sees.
    readings: Option<mpsc::Receiver<Reading>>,
    /// What was read last of what can be used.
    config: Config,
    /// What the process was started with.
    started: Config,
    cgroup_root: PathBuf,
    /// What observers are told.
    pub(super) state: ConfigState,
}

impl Live {
    pub(super) fn new(paths: &Paths, config: &Config) -> Live {
        Live {
            follower: paths.config.as_deref().map(|path| Follower::new(path, config, &paths.node)),
            readings: None,
            config: config.clone(),
            started: config.clone(),
            cgroup_root: paths.cgroup_root.clone(),
            state: ConfigState::new(config.name(), config.applied_lines(), answer::now()),
        }
    }

    /// What control groups become where the kernel keeps exclusivity; a change waits for a restart.
    pub(super) fn partition(&self) -> PartitionType {
        self.started.partition()
    }

    /// What to do while the kubelet's own CPU manager is active.
    pub(super) fn on_active_kubelet(&self) -> Stance {
        self.config.on_active_kubelet()
    }

    /// The next change of the file. Nothing is lost if waiting for it is given up.
    pub(super) async fn next(&mut self) -> Reading {
        if let Some(follower) = self.follower.take() {
            let (tell, readings) = mpsc::channel(1);
            tokio::spawn(follower.run(tell));
            self.readings = Some(readings);
        }
        match &mut self.readings {
            Some(readings) => match readings.recv().await {
                Some(reading) => reading,
                None => pending().await,
            },
            None => pending().await,
        }
    }

    /// What was read, if the plugin would start with it on this machine.
    fn judge(&self, reading: Reading, topology: &Topology) -> Result<(Config, Settings), Fault> {
        let judge = || -> Result<(Config, Settings), Mistake> {
            let config = reading?;
            let settings = config.resolve(topology)?;
            if wanted(&config) == WantedExclusivity::Kernel {
                probe(&self.cgroup_root).map_err(|why| config.kernel_cannot(why))?;
            }
            Ok((config, settings))
        };
        judge().map_err(|Mistake { line, why }| Fault { line, why })
    }

    /// The fields whose new values the process follows only when it is started anew: the runtime was told at the
    /// connection what depends on them, and the groups of running containers are as they say.
    fn waiting(&self, config: &Config) -> Vec<&'static str> {
        let pinning = config.policy() == Policy::Static;
        let differ = [
            ("exclusivity", pinning && wanted(&self.started) != wanted(config)),
            ("cpusetPartition", pinning && self.started.partition() != config.partition()),
            ("strict", self.started.strict() != config.strict()),
        ];
        differ.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }
}

/// Who shall keep others off exclusive CPUs, if there are to be any.
fn wanted(config: &Config) -> WantedExclusivity {
    match config.policy() {
        Policy::None => WantedExclusivity::Runtime,
        Policy::Static => config.exclusivity(),
    }
}

/// What it says of the kubelet.
fn of_kubelet(config: &Config) -> (Option<&Path>, Stance) {
    (config.kubelet_state_dir(), config.on_active_kubelet())
}

impl Owner {
    /// Follows the configuration file to what it holds now, or says why not. What changes for containers is told at once
    /// where that is safe, with the next answers else.
    pub(super) async fn follow_config(&mut self, reading: Reading) {
        match self.live.judge(reading, self.ledger.topology()) {
            Ok((config, settings)) => self.reconfigure(config, settings).await,
            Err(fault) => {
                log::error!("{}", cannot_be_used(&fault));
                self.live.state.rejected(fault);
            }
        }
    }

    async fn reconfigure(&mut self, config: Config, mut settings: Settings) {
        // One of the fields that wait.
        settings.exclusivity = self.ledger.settings().exclusivity;
        let before = std::mem::replace(&mut self.live.config, config.clone());
        let waiting = self.live.waiting(&config);
        let same =
            *self.ledger.settings() == settings && of_kubelet(&before) == of_kubelet(&config);
        let reload = if same { Reload::Unchanged } else { Reload::Applied };
        log::info!("the configuration was changed; in force: {settings}");
        if !waiting.is_empty() {
            log::warn!("{}", needs_restart(&waiting));
        }
        self.live.state.overrides = config.applied_lines();
        self.live.state.reloaded(reload, waiting, answer::now());
        if *self.ledger.settings() != settings {
            // Never refused.
            let _ = self.ledger.handle(Event::Settings(settings));
            self.tell_notes();
            self.kernel.settle_all(&self.ledger);
        }
        self.attend(&before, &config);
        self.tell_pending().await;
    }
}
