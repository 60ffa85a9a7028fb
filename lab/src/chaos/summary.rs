//! What a storm is made of, and what came of it.

use serde::{Deserialize, Serialize};

/// Only the workers' pods are in this namespace.
pub(super) const NAMESPACE: &str = "storm";

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
    pub realised: u64,
    /// Containers that the runtime created.
    pub creations: u64,
    /// Containers that were not created: too large for the node, or for what was free, or another
    /// plugin's refusal.
    pub refused: u64,
    /// Creations that the second plugin refused after ours had decided.
    pub spoiled: u64,
    /// Pods that got another sandbox while the runtime still listed the dead one.
    pub reborn: u64,
    /// Containers that failed several times in a row before they came back.
    pub relapsed: u64,
    /// Pods whose init container ended before their own containers were created.
    pub initialised: u64,
    pub failed: u64,
    /// Containers that were seen to have CPUs for themselves: without any there is nothing to
    /// break.
    pub exclusive: u64,
    /// Pairs of running containers that met on a CPU exclusive to one of them.
    pub overlaps: u64,
    /// Containers whose exclusive CPUs changed without a request.
    pub moved: u64,
    /// Moves of running containers to better CPUs; None unless they are configured.
    pub rebalanced: Option<u64>,
    /// Resizes of running containers that changed their CPUs; None unless containers are resized.
    pub resized: Option<u64>,
    /// CPUs that went offline or came back; None unless they do.
    pub hotplug: Option<u64>,
    /// Changes of the online CPUs after which the root cgroup kept CPUs of a valid partition.
    pub leaks: u64,
    /// Kills right after the plugin has logged such a move.
    pub struck: u64,
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
        (self.overlaps, self.moved, self.lost, self.leaks) == (0, 0, 0, 0)
            && !self.kernel_warned
            && self.distrusted.is_empty()
    }

    /// Why the storm proves nothing, if so.
    pub fn is_void(&self) -> Option<&'static str> {
        if self.exclusive == 0 {
            Some("no container ever had exclusive CPUs")
        } else if self.rebalanced == Some(0) {
            Some("no container was moved to better CPUs")
        } else if self.resized == Some(0) {
            Some("no container was resized")
        } else if self.hotplug == Some(0) {
            Some("no CPU went offline")
        } else {
            None
        }
    }

    pub fn line(&self) -> String {
        let Self { kills, creations, overlaps, moved, lost, .. } = self;
        let mut line = format!(
            "kills={kills} creations={creations} overlaps={overlaps} moved={moved} lost={lost}"
        );
        for (name, count) in
            [("rebalanced", self.rebalanced), ("resized", self.resized), ("hotplug", self.hotplug)]
        {
            if let Some(count) = count {
                line += &format!(" {name}={count}");
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_without_the_changes_that_it_is_for_proves_nothing() {
        let usual = Summary { kills: 3, creations: 9, exclusive: 5, ..Summary::default() };
        assert_eq!(usual.is_void(), None);
        assert_eq!(usual.line(), "kills=3 creations=9 overlaps=0 moved=0 lost=0");
        let none = Summary { rebalanced: Some(0), ..usual.clone() };
        assert_eq!(none.is_void(), Some("no container was moved to better CPUs"));
        let some = Summary { rebalanced: Some(2), ..usual.clone() };
        assert_eq!(some.is_void(), None);
        assert!(some.line().ends_with(" lost=0 rebalanced=2"));
        let others = Summary { resized: Some(4), hotplug: Some(6), ..some.clone() };
        assert_eq!(others.is_void(), None);
        assert!(others.line().ends_with(" lost=0 rebalanced=2 resized=4 hotplug=6"));
        let none = Summary { resized: Some(0), ..others.clone() };
        assert_eq!(none.is_void(), Some("no container was resized"));
        let none = Summary { hotplug: Some(0), ..others };
        assert_eq!(none.is_void(), Some("no CPU went offline"));
        let idle = Summary { exclusive: 0, ..some };
        assert_eq!(idle.is_void(), Some("no container ever had exclusive CPUs"));
    }
}
