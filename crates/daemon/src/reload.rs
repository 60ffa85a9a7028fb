//! [`ConfigReload`]: follows changes of the configuration file. A faulty file changes nothing.

use super::enforcement::configured;
use super::paths::Paths;
use cgroups::probe;
use config::{Config, LogLevel, Mistake, Mode, PodResources, Reading};
use cpuset::PartitionType;
use exclusivity::Exclusivity;
use kernel::Kernel;
use ledger::{Event, Mechanism, Policy, Settings};
use state::clock::now;
use status::DaemonSettings;
use status::config_state::{ConfigState, Fault, Reload, cannot_be_used, needs_restart};
use status::config_status::ConfigStatus;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topology::Topology;

#[derive(Debug, Clone)]
pub(super) struct ConfigReload {
    kernel: Arc<dyn Kernel>,
    /// The last usable configuration.
    config: Config,
    /// The configuration at the start.
    started: Config,
    cgroup_root: PathBuf,
    /// For observers.
    pub(super) state: ConfigState,
}

/// A configuration that the plugin can use on this machine.
pub(super) struct Usable {
    pub(super) config: Config,
    pub(super) settings: Settings,
    /// How the ledger follows; `None` if these settings are in force.
    pub(super) event: Option<Event>,
}

impl ConfigReload {
    pub(super) fn new(
        kernel: &Arc<dyn Kernel>,
        paths: &Paths,
        config: &Config,
        topology: &Topology,
    ) -> ConfigReload {
        let mut reload = ConfigReload {
            kernel: Arc::clone(kernel),
            config: config.clone(),
            started: config.clone(),
            cgroup_root: paths.cgroup_root.clone(),
            state: ConfigState::new(config.name(), config.applied_lines(), now()),
        };
        reload.check_reservation(topology);
        reload
    }

    /// Records whether all CPUs of the machine are reserved, and logs a change.
    fn check_reservation(&mut self, topology: &Topology) {
        let warning = self.config.nothing_to_assign(topology).map(|warning| warning.to_string());
        if let Some(warning) = &warning
            && self.state.nothing_to_assign.as_ref() != Some(warning)
        {
            log::warn!("{}, {warning}", self.config.name());
        }
        self.state.nothing_to_assign = warning;
    }

    /// The settings on a changed machine, if all CPUs of the previous one were reserved: more CPUs may
    /// leave some to assign. The reserved CPUs of a node that assigns CPUs stay.
    pub(super) fn follow_machine(&mut self, topology: &Topology) -> Option<Event> {
        self.state.nothing_to_assign.as_ref()?;
        let resolved = self.config.resolve(topology).ok()?;
        self.check_reservation(topology);
        Some(Event::Settings(Settings { reads_crio: self.reads_crio(), ..resolved }))
    }

    /// The type of partitions; a change waits for a restart.
    pub(super) fn partition(&self) -> PartitionType {
        self.started.partition()
    }

    /// A change waits for a restart.
    pub(super) fn strict(&self) -> bool {
        self.started.strict()
    }

    /// A change waits for a restart: the runtime's list has been read without the annotations, or with them.
    pub(super) fn reads_crio(&self) -> bool {
        self.started.reads_crio()
    }

    /// A change waits for a restart.
    pub(super) fn pod_resources(&self) -> Option<&PodResources> {
        self.started.pod_resources()
    }

    /// Those in force that the ledger does not have.
    pub(super) fn daemon_settings(&self) -> DaemonSettings {
        let (strict, partition) = (self.strict(), self.partition());
        DaemonSettings { strict, partition, ..(&self.config).into() }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Follows a new reading of the file. Returns the previous configuration, and an event for the
    /// ledger if the settings differ from those `in_force`; `None`, with a line in the log, if the
    /// file cannot be used.
    pub(super) fn follow(
        &mut self,
        reading: Reading,
        topology: &Topology,
        in_force: &Settings,
        mechanism: impl Fn(Policy) -> Mechanism,
    ) -> Option<(Config, Option<Event>)> {
        let Usable { config, settings, event } = match self.usable(reading, topology, in_force) {
            Ok(usable) => usable,
            Err(fault) => {
                log::error!("{}", cannot_be_used(&fault));
                self.state.rejected(fault);
                return None;
            }
        };
        let waiting = self.waiting(&config);
        let before = std::mem::replace(&mut self.config, config);
        let same_others = of_daemon(&before) == of_daemon(&self.config);
        let reload =
            if event.is_none() && same_others { Reload::Unchanged } else { Reload::AppliedSetting };
        let mechanism = mechanism(settings.policy);
        let line = ConfigStatus::log_line(&settings, mechanism, self.daemon_settings());
        log::info!("config: reloaded; in force: {line}");
        for warning in self.config.warnings().iter().chain(&self.config.not_used()) {
            log::warn!("{}, {warning}", self.config.name());
        }
        self.check_reservation(topology);
        if !waiting.is_empty() {
            log::warn!("{}", needs_restart(&waiting));
        }
        self.state.overrides = self.config.applied_lines();
        self.state.reloaded(reload, waiting, now());
        Some((before, event))
    }

    /// The new configuration, if the plugin would start with it on this machine.
    pub(super) fn usable(
        &self,
        reading: Reading,
        topology: &Topology,
        in_force: &Settings,
    ) -> Result<Usable, Fault> {
        let judge = || -> Result<Usable, Mistake> {
            let config = reading?;
            let reads_crio = self.reads_crio();
            let settings = Settings { reads_crio, ..config.resolve(topology)? };
            if configured(&config, settings.policy) == Exclusivity::Kernel {
                probe(&self.kernel, &self.cgroup_root).map_err(|why| config.kernel_cannot(why))?;
            }
            let event = (*in_force != settings).then(|| Event::Settings(settings.clone()));
            Ok(Usable { config, settings, event })
        };
        judge().map_err(|Mistake { line, why }| Fault { line, why })
    }

    /// The fields whose new values wait for a restart: the plugin's subscription with the runtime, what
    /// it has read of running pods, the cgroups of running containers and the podresources socket depend on them.
    pub(super) fn waiting(&self, config: &Config) -> Vec<String> {
        let pinning = config.policy() == Policy::Static;
        let differ = [
            ("exclusivity", pinning && self.started.exclusivity() != config.exclusivity()),
            ("cpusetPartition", pinning && self.started.partition() != config.partition()),
            ("strict", self.started.strict() != config.strict()),
            ("compatibility", self.started.reads_crio() != config.reads_crio()),
            ("podResources", !self.started.has_same_pod_resources(config)),
        ];
        differ
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(field, _)| field.to_owned())
            .collect()
    }
}

/// The part of the configuration that the ledger does not need.
fn of_daemon(config: &Config) -> (Option<&Path>, Mode, LogLevel) {
    (config.kubelet_state_dir(), config.mode(), config.log_level())
}
