//! The start of the daemon: everything that can be wrong is found before any container changes.

use super::balance::Balance;
use super::checks::Checks;
use super::decision_log::DecisionLog;
use super::delivery::Delivery;
use super::drift::DriftWatcher;
use super::enforcement::{Enforcement, wanted};
use super::exposed_files::ExposedFiles;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::orphans::Orphans;
use super::owner::Owner;
use super::persist::Checkpoint;
use super::quotas::Quotas;
use super::reload::ConfigReload;
use super::{Paths, StartError};
use crate::config::Config;
use crate::disk::Storage;
use crate::exclusivity::{Hierarchy, Memory};
use crate::exposed::Directories;
use crate::kernel::Linux;
use crate::ledger::{Event, Ledger, Mechanism};
use crate::topology::{Topology, sysfs};
use crate::verify::Verifier;
use crate::view::status::{ConfigStatus, OwnSettings};
use crate::wording::{self, count};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Owner {
    /// Checks the configuration against the machine, locks the state directory and reads the
    /// checkpoint. Logs what is in force.
    ///
    /// # Errors
    /// If any of that fails. No container has changed then.
    pub fn start(paths: &Paths, config: &Config) -> Result<Owner, StartError> {
        let sysfs::Reading { facts, warnings, sizes: _ } = sysfs::read(&Linux, &paths.sysfs_root)?;
        let topology = Topology::build(facts)
            .map_err(|error| StartError::Facts(paths.sysfs_root.clone(), error))?;
        for warning in warnings {
            log::warn!("{warning}");
        }
        let config = &config.for_node(&paths.node)?;
        let settings = config.resolve(&topology)?;
        let checkpoint = Checkpoint::open(&paths.state_dir)?;
        let storage: Arc<dyn Storage> = Arc::new(checkpoint.disk().clone());
        let memory = Memory::open(&paths.state_dir, Arc::clone(&storage), &Linux, &paths.proc_root);
        let directories = Directories::below(&paths.state_dir, storage);
        let enforcement =
            Enforcement::start(wanted(config), config.partition(), &paths.cgroup_root, memory)
                .map_err(|why| config.kernel_cannot(why))?;
        let mechanism = enforcement.mechanism();
        let claims = checkpoint.remembered()?;
        log::info!(
            "machine: {}, {}, {}, {}, {}",
            count(topology.sockets().len(), "socket"),
            count(topology.nodes().len(), "NUMA node"),
            count(topology.uncores().len(), "uncore cache"),
            count(topology.cores().len(), "core"),
            wording::cpus(topology.online()),
        );
        let own = OwnSettings::of(&settings, config.partition(), config.on_active_kubelet());
        log::info!(
            "config: in force: {}",
            ConfigStatus::log_line(&settings, mechanism, config.strict(), own)
        );
        for warning in config.warnings() {
            log::warn!("{}, {warning}", config.name());
        }
        for line in config.applied_lines() {
            log::info!("config: override for this node on line {line} applied");
        }
        let partition = (mechanism == Mechanism::Partitions).then(|| config.partition());
        let hierarchy = Hierarchy::open(&paths.cgroup_root);
        let hotplug = Hotplug::new(&paths.sysfs_root, topology.clone(), hierarchy.clone());
        let verifier =
            hierarchy.map(|hierarchy| Verifier::new(hierarchy, &paths.proc_root, partition));
        let mut owner = Owner {
            ledger: Ledger::new(topology, settings, claims),
            checkpoint,
            record: DecisionLog::default(),
            delivery: Delivery::default(),
            enforcement,
            kubelet: KubeletWatch::new(config),
            config: ConfigReload::new(paths, config),
            hotplug,
            checks: Checks::new(verifier),
            drift: DriftWatcher::new(),
            orphans: Orphans::new(),
            quotas: Quotas::new(),
            exposure: ExposedFiles::new(directories),
            strict: config.strict(),
            started: Instant::now(),
            balance: Balance::default(),
            answer_within: Duration::ZERO,
        };
        owner.apply(Event::Mechanism(mechanism));
        if let Some(event) = owner.hotplug.changed(&owner.ledger) {
            owner.apply(event);
        }
        let active = owner.kubelet.check_first(config.policy());
        if let Some(event) = active {
            owner.apply(event);
        }
        Ok(owner)
    }
}
