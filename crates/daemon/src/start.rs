//! The start of the daemon: all errors are found before any container changes.

use super::checks::Checks;
use super::decision_log::DecisionLog;
use super::delivery::Delivery;
use super::devices::Devices;
use super::drift::DriftWatcher;
use super::enforcement::{Enforcement, configured, mechanism_under};
use super::exposed_files::ExposedFiles;
use super::hotplug::Hotplug;
use super::kubelet::KubeletWatch;
use super::moves::Moves;
use super::orphans::Orphans;
use super::owner::Owner;
use super::paths::{Paths, StartError};
use super::persist::Checkpoint;
use super::quieting::Quieting;
use super::quotas::Quotas;
use super::reload::ConfigReload;
use crate::exposed::Directories;
use cgroups::Hierarchy;
use config::Config;
use cpuset::PartitionType;
use exclusivity::verify::Verifier;
use exclusivity::{IsolationFiles, open_records, open_steering};
use kernel::Kernel;
use kubelet::StateFileReading;
use ledger::{Event, Ledger, Mechanism, Settings};
use state::checkpoint::SavedClaims;
use state::disk::Storage;
use status::config_status::ConfigStatus;
use status::node::machine_line;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use topology::Topology;
use topology::sysfs::{self, Gpu};

/// What the core reads and writes at once.
#[derive(Debug, Clone)]
pub struct NodeAccess {
    pub kernel: Arc<dyn Kernel>,
    /// The state directory, apart from the checkpoint.
    pub storage: Arc<dyn Storage>,
}
#[derive(Debug)]
pub struct Machine {
    topology: Topology,
    settings: Settings,
    gpus: Vec<Gpu>,
}

impl Machine {
    /// `config` has the overrides of this node.
    ///
    /// # Errors
    /// If there is no machine, or the configuration does not fit it.
    pub fn read(
        kernel: &dyn Kernel,
        sysfs_root: &Path,
        config: &Config,
    ) -> Result<Machine, StartError> {
        let sysfs::Reading { facts, warnings, sizes } = sysfs::read(kernel, sysfs_root)?;
        let topology = Topology::build(facts)
            .map_err(|error| StartError::Facts(sysfs_root.to_owned(), error))?
            .with_memory(&sizes);
        for warning in warnings {
            log::warn!("{warning}");
        }
        let settings = config.resolve(&topology)?;
        Ok(Machine { topology, settings, gpus: Vec::new() })
    }

    /// With these GPUs of NVIDIA's.
    pub fn with_gpus(self, gpus: Vec<Gpu>) -> Machine {
        Machine { gpus, ..self }
    }
}

impl Owner {
    /// The core on a node. `claims` are those of the checkpoint, `None` where no plugin has left any; `kubelet` has
    /// the kubelet's state files.
    ///
    /// # Errors
    /// If the configuration demands partitions and the kernel makes none. No container has changed
    /// then.
    pub fn start(
        paths: &Paths,
        config: &Config,
        Machine { topology, settings, gpus }: Machine,
        NodeAccess { kernel, storage }: NodeAccess,
        claims: Option<SavedClaims>,
        kubelet: Option<StateFileReading>,
        now: Instant,
    ) -> Result<Owner, StartError> {
        let records =
            open_records(&paths.state_dir, Arc::clone(&storage), &*kernel, &paths.proc_root);
        let steering = open_steering(
            &paths.state_dir,
            Arc::clone(&storage),
            &*kernel,
            &paths.proc_root,
            paths.quiet_roots(),
            paths.host_root.as_deref(),
        );
        let quieting = Quieting::new(Arc::clone(&kernel), paths.quiet_roots(), steering);
        let directories = Directories::below(&paths.state_dir, storage);
        let enforcement = Enforcement::start(
            configured(config, settings.policy),
            config.partition(),
            &kernel,
            &paths.cgroup_root,
            records,
        )
        .map_err(|why| config.kernel_cannot(why))?;
        let best = enforcement.mechanism();
        let mechanism = mechanism_under(settings.policy, Mechanism::Runtime, best);
        let isolated = topology.isolated();
        log::info!(
            "machine: {}{}",
            machine_line(&topology),
            if isolated.is_empty() {
                String::new()
            } else {
                format!(", isolated {}", wording::cpus(isolated))
            },
        );
        log::info!(
            "config: in force: {}",
            ConfigStatus::log_line(&settings, mechanism, config.into())
        );
        for warning in config.warnings().iter().chain(&config.not_used()) {
            log::warn!("{}, {warning}", config.name());
        }
        for line in config.applied_lines() {
            log::info!("config: override for this node on line {line} applied");
        }
        let partition = (best == Mechanism::Partitions).then(|| config.partition());
        let hierarchy = Hierarchy::open_on(Arc::clone(&kernel), &paths.cgroup_root);
        let hotplug =
            Hotplug::new(&kernel, &paths.sysfs_root, topology.clone(), hierarchy.clone(), now);
        let verifier =
            hierarchy.map(|hierarchy| Verifier::new(hierarchy, &paths.proc_root, partition));
        let isolation = if partition == Some(PartitionType::Isolated) {
            Some(IsolationFiles {
                cgroups: paths.cgroup_root.clone(),
                sys: paths.sysfs_root.clone(),
                proc: paths.proc_root.clone(),
            })
        } else {
            None
        };
        let config = ConfigReload::new(&kernel, paths, config, &topology);
        let claims = claims.unwrap_or(SavedClaims { installing: true, ..SavedClaims::default() });
        let ledger = Ledger::new(topology, settings, claims.cpus)
            .with_memory(claims.memory)
            .with_left_alone(claims.left_alone);
        let ledger = if claims.installing { ledger.installing() } else { ledger };
        let mut owner = Owner {
            ledger,
            checkpoint: Checkpoint::new(),
            record: DecisionLog::default(),
            delivery: Delivery::default(),
            enforcement,
            kubelet: KubeletWatch::new(config.config()),
            config,
            hotplug,
            devices: Devices::new(gpus),
            checks: Checks::new(verifier, isolation, now),
            drift: DriftWatcher::new(),
            orphans: Orphans::new(now),
            quotas: Quotas::new(now),
            exposure: ExposedFiles::new(directories),
            quieting,
            moves: Moves::default(),
            started: now,
            now,
            cgroups: None,
            updates: None,
            calls: VecDeque::new(),
            effects: Vec::new(),
            rewatches: false,
        };
        owner.apply(Event::Mechanism(mechanism));
        let first = owner.kubelet.first();
        owner.apply_all(first);
        let machine = owner.hotplug.changed(&owner.ledger, now);
        owner.apply_all(machine);
        let active = kubelet
            .and_then(|reading| owner.kubelet.check(reading, owner.ledger.settings().policy, now));
        owner.apply_all(active);
        // Only the runtime's list says which containers exist: before it nothing is written.
        owner.cgroups = None;
        owner.updates = None;
        Ok(owner)
    }
}
