//! What a storm is made of, and what came of it.

use serde::{Deserialize, Serialize};

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
    /// CPUs that no container could get any more when all pods were gone.
    pub lost: u64,
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
}

impl Summary {
    /// Whether all invariants held.
    pub fn is_good(&self) -> bool {
        (self.overlaps, self.moved, self.lost) == (0, 0, 0) && !self.kernel_warned
    }

    pub fn line(&self) -> String {
        let Self { kills, creations, overlaps, moved, lost, .. } = self;
        format!("kills={kills} creations={creations} overlaps={overlaps} moved={moved} lost={lost}")
    }
}
