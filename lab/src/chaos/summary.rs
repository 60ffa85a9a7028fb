//! What a storm is made of, and what came of it.

use serde::{Deserialize, Serialize};

/// What changes the exclusive CPUs of running containers on purpose.
// The comments are the command's help.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, clap::Args)]
pub struct Changes {
    /// Have the plugin move running containers to better CPUs, on a machine with several uncore
    /// caches
    #[arg(long)]
    pub rebalance: bool,
    /// Resize running containers in place, to more and to fewer CPUs
    #[arg(long)]
    pub resizes: bool,
    /// Take CPUs offline and online again, on a virtual machine
    #[arg(long)]
    pub hotplug: bool,
}

impl Changes {
    pub(super) fn any(self) -> bool {
        self.rebalance || self.resizes || self.hotplug
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StormSettings {
    pub kills: u64,
    /// On average.
    pub creations_per_kill: u64,
    pub workers: usize,
    /// Threads and runtime interleave differently each time.
    pub seed: u64,
    /// CPUs that are never exclusive.
    pub reserved: String,
    pub changes: Changes,
    /// Whether only the runtime is killed, so that shared containers are never on exclusive CPUs of
    /// other pods either.
    pub only_runtime: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rounds of SIGKILL to the plugin, the runtime or both.
    pub kills: u64,
    /// Rounds that killed the runtime.
    pub runtime_kills: u64,
    /// Rewrites of the class cgroups.
    pub realised: u64,
    /// Containers that the runtime created.
    pub creations: u64,
    /// Containers that were not created: too large for what was free.
    pub refused: u64,
    pub failed: u64,
    /// Containers that were seen to have CPUs for themselves: without any there is nothing to
    /// break.
    pub exclusive: u64,
    /// Pairs of running containers that met on a CPU exclusive to one of them.
    pub overlaps: u64,
    /// Containers whose exclusive CPUs changed although nothing changes them on purpose, or that
    /// have none any more at rest.
    pub moved: u64,
    /// Changes of running containers' exclusive CPUs; None unless something changes them on purpose.
    pub changed: Option<u64>,
    /// CPUs that no container could get any more when all pods were gone.
    pub lost: u64,
    /// Cgroups that the plugin did not rely on, although nothing but the runtime was killed: lines of
    /// its log.
    pub distrusted: Vec<String>,
    /// Whether the kernel was tainted during the storm.
    pub kernel_warned: bool,
    /// Check passes over all processes.
    pub checks: u64,
    pub millis: u64,
    /// Milliseconds of the longest repair that needed an event.
    pub longest_repair: u64,
    pub findings: Vec<String>,
    /// The end of what the plugin logged, over all its lives, and of what the runtime complained
    /// of.
    pub log: String,
    /// What the runtime sent to the plugin, if that was recorded.
    pub recording: String,
}

impl Summary {
    /// Whether all invariants held.
    pub fn is_good(&self) -> bool {
        (self.overlaps, self.moved, self.lost) == (0, 0, 0)
            && !self.kernel_warned
            && self.distrusted.is_empty()
    }

    /// Why the storm proves nothing, if so.
    pub fn is_void(&self) -> Option<&'static str> {
        if self.exclusive == 0 {
            Some("no container ever had exclusive CPUs")
        } else if self.changed == Some(0) {
            Some("no container's exclusive CPUs were changed")
        } else {
            None
        }
    }

    pub fn line(&self) -> String {
        let Self { kills, creations, overlaps, moved, lost, .. } = self;
        let changed = self.changed.map_or_else(String::new, |count| format!(" changed={count}"));
        format!(
            "kills={kills} creations={creations} overlaps={overlaps} moved={moved} lost={lost}{changed}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn a_storm_without_the_changes_that_it_is_for_proves_nothing() {
        let storm = |exclusive, changed| Summary { exclusive, changed, ..Summary::default() };
        assert_eq!(storm(5, None).is_void(), None);
        assert_eq!(storm(5, Some(2)).is_void(), None);
        let why = storm(5, Some(0)).is_void();
        assert_eq!(why, Some("no container's exclusive CPUs were changed"));
        assert_eq!(storm(0, Some(2)).is_void(), Some("no container ever had exclusive CPUs"));
    }
}
