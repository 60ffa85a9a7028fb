//! What a storm is made of, and what came of it.

use serde::{Deserialize, Serialize};

/// What a storm is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// How often the plugin, the runtime or both are killed.
    pub kills: u64,
    /// Containers that are created between two kills, on average.
    pub creations_per_kill: u64,
    /// Kubelets at work at the same time.
    pub workers: usize,
    /// What is done follows from it; how the threads' and the runtime's work interleaves does not.
    pub seed: u64,
    /// CPUs that are never exclusive.
    pub reserved: String,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rounds of SIGKILLs: to the plugin, the runtime, or both.
    pub kills: u64,
    /// Those of them that killed the runtime.
    pub runtime_kills: u64,
    /// How often the groups of classes were written anew.
    pub realised: u64,
    /// Containers that the runtime created.
    pub creations: u64,
    /// Containers that were not created: too large for the node, or for what was free, or another
    /// plugin's refusal.
    pub refused: u64,
    /// Those of them that another plugin refused, after ours had decided.
    pub spoiled: u64,
    /// Pods that got another sandbox, while the runtime went on listing the dead one.
    pub reborn: u64,
    /// Containers that failed several times in a row before they came back.
    pub relapsed: u64,
    /// Pods whose init container ended before their own containers were made.
    pub initialised: u64,
    /// Other calls that the runtime could not carry out.
    pub failed: u64,
    /// Containers that were seen to have CPUs for themselves: without any there is nothing to
    /// break.
    pub exclusive: u64,
    /// Pairs of running containers that had a CPU together, which one of them had for itself.
    pub overlaps: u64,
    /// Containers whose exclusive CPUs changed without a request.
    pub moved: u64,
    /// CPUs that no container could get any more when all pods were gone.
    pub lost: u64,
    /// Whether the kernel warned of itself meanwhile.
    pub kernel_warned: bool,
    /// How often all processes were looked at.
    pub looks: u64,
    /// How long the storm was, in milliseconds.
    pub millis: u64,
    /// How long the longest repair took that the plugin needed an event for, in milliseconds.
    pub longest_repair: u64,
    /// What was wrong, in words; the first few.
    pub findings: Vec<String>,
    /// The end of what the plugin logged, over all its lives, and of what the runtime complained
    /// of.
    pub log: String,
}

impl Summary {
    /// Whether every promise was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (self.overlaps, self.moved, self.lost) == (0, 0, 0) && !self.kernel_warned
    }

    /// The command's last line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { kills, creations, overlaps, moved, lost, .. } = self;
        format!("kills={kills} creations={creations} overlaps={overlaps} moved={moved} lost={lost}")
    }
}
