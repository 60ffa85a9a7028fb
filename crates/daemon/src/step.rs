//! What the core takes and returns: [`Input`] and [`Effect`].
//!
//! The core is deterministic: the same inputs at the same moments give the same effects. It reads
//! and writes cgroups itself, through a [`Kernel`](kernel::Kernel). Everything that takes
//! long is an effect, and its end comes back as an input.

use super::checks::{CheckPass, Findings};
use super::devices::FoundDevices;
use super::quieting::{QuietOutcome, QuietPass};
use cgroups::Watched;
use config::{LogLevel, Reading};
use cpuset::CpuSet;
use edge::{Refusal, Response, Subscriptions};
use kubelet::StateFileReading;
use ledger::{Call, ContainerId, Update};
use nri::Capabilities;
use state::checkpoint::{SavedClaims, StateError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The number of a call of the runtime, by which its answer finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

#[derive(Debug)]
pub enum Input {
    /// A runtime has connected, and waits for an answer to each call for so long. Calls of an earlier
    /// connection get no answer any more.
    Connected {
        capabilities: Capabilities,
        answer_within: Duration,
    },
    /// Leads to [`Effect::Answer`].
    Call(CallId, Call),
    /// The runtime asks whether a new container may have these CPUs. Leads to
    /// [`Effect::Validated`] at once.
    Validate(CallId, ContainerId, Option<CpuSet>),
    /// The runtime has made another call, so that it has made the updates of the last answer.
    WentOn,
    /// Whether the runtime got an answer. It comes directly after [`Effect::Answer`].
    Answered(CallId, bool),
    /// [`Effect::Save`] has ended.
    Saved(Result<(), StateError>),
    /// [`Effect::Update`] has ended: whether the runtime says that it has made the updates.
    Updated(bool),
    /// [`Effect::Check`] has ended.
    Checked(Findings),
    /// A watched file has been written, or these directories are new.
    Groups(Vec<PathBuf>),
    /// A watched CFS quota has been written.
    Quotas,
    Kubelet(StateFileReading),
    Config(Reading),
    /// [`Effect::FindDevices`] has ended.
    Devices(FoundDevices),
    /// [`Effect::Quiet`] has ended.
    Quieted(QuietOutcome),
    /// The moment of `Owner::due` has come.
    Time,
}

impl Input {
    /// Whether the step may read or write files of the kernel. The other inputs only record something,
    /// so that their steps need no other thread. What is outstanding after them waits for the next
    /// [`Input::Time`], which is due at once.
    pub(super) fn may_wait_for_kernel(&self) -> bool {
        !matches!(
            self,
            Input::Answered(..)
                | Input::Validate(..)
                | Input::WentOn
                | Input::Quotas
                | Input::Devices(_)
                | Input::Quieted(_)
        )
    }
}

#[derive(Debug)]
pub enum Effect {
    /// The answer to [`Input::Connected`]: the optional calls that the runtime is asked for.
    Subscribe(Subscriptions),
    Answer(CallId, Result<Response, Refusal>),
    Validated(CallId, Result<(), Refusal>),
    /// Replace the state file by these claims, on disk. At most one at a time.
    Save(SavedClaims),
    /// Call the runtime with these updates. At most one at a time.
    Update(Vec<Update>),
    /// Check all containers. At most one at a time.
    Check(CheckPass),
    /// Watch these for [`Input::Groups`], and nothing else.
    WatchGroups(BTreeMap<PathBuf, Watched>),
    /// Watch these for [`Input::Quotas`], and nothing else.
    WatchQuotas(BTreeMap<PathBuf, Watched>),
    /// Ask the kubelet and drivers where devices are. At most one search at a time.
    FindDevices,
    /// Bring interrupts and latency knobs to what containers ask for. At most one pass at a time.
    Quiet(QuietPass),
    /// Follow the kubelet's state files in this directory, beginning with their content.
    WatchKubelet(Option<PathBuf>),
    /// Log this from now on.
    Log(LogLevel),
}
