//! The plugin's own settings, for which the kubelet has no names.

use crate::ledger::{Settings, Stance};
use crate::partition::PartitionType;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Settings of the plugin's own, in the configuration's words. The default is the configuration's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnSettings {
    /// `root` or `isolated`: the type of the cpuset partitions under `exclusivity: kernel`.
    pub cpuset_partition: String,
    /// `refuse` or `observe`: the plugin's behaviour while a kubelet assigns CPUs itself.
    pub on_active_kubelet: String,
    /// Whether containers get their exclusive CPUs in environment variables.
    pub expose_cpus: bool,
    /// `follow-cpus` or `all`: which NUMA nodes the memory of exclusive containers is on.
    pub exclusive_mems: String,
}

impl OwnSettings {
    /// The ledger's settings together with the daemon's.
    pub fn of(
        settings: &Settings,
        partition: PartitionType,
        on_active_kubelet: Stance,
    ) -> OwnSettings {
        OwnSettings {
            cpuset_partition: partition.to_string(),
            on_active_kubelet: match on_active_kubelet {
                Stance::Observe => "observe",
                Stance::Refuse | Stance::Assign => "refuse",
            }
            .to_owned(),
            expose_cpus: settings.expose_cpus,
            exclusive_mems: if settings.mems_follow_cpus { "follow-cpus" } else { "all" }
                .to_owned(),
        }
    }
}

impl Default for OwnSettings {
    fn default() -> OwnSettings {
        OwnSettings::of(&Settings::default(), PartitionType::default(), Stance::Refuse)
    }
}

impl Display for OwnSettings {
    /// All settings that differ from the defaults, for the end of a line: `, cpusetPartition
    /// isolated`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let OwnSettings { cpuset_partition, on_active_kubelet, expose_cpus, exclusive_mems } = self;
        let usual = OwnSettings::default();
        if *cpuset_partition != usual.cpuset_partition {
            write!(f, ", cpusetPartition {cpuset_partition}")?;
        }
        if *on_active_kubelet != usual.on_active_kubelet {
            write!(f, ", onActiveKubelet {on_active_kubelet}")?;
        }
        if *expose_cpus != usual.expose_cpus {
            write!(f, ", exposeCpus {expose_cpus}")?;
        }
        if *exclusive_mems != usual.exclusive_mems {
            write!(f, ", exclusiveMems {exclusive_mems}")?;
        }
        Ok(())
    }
}
