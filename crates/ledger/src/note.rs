//! Notes of the ledger's decisions, for the log.

use super::annotations::{DOMAIN, MAX_ANNOTATIONS};
use super::device::{Device, MAX_DEVICES};
use super::model::{ContainerId, LeftAlone};
use core::time::Duration;
use cpuset::CpuSet;
use placement::{Placement, Request};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub namespace: String,
    pub pod: String,
    /// Empty if the note is about the own pool of the pod.
    pub container: String,
    pub id: ContainerId,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.pod)?;
        if self.container.is_empty() { Ok(()) } else { write!(f, "/{}", self.container) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    /// False with [`Stance::Observe`](super::Stance::Observe): the ledger only would have done it.
    pub done: bool,
    pub subject: Subject,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Assigned {
        placement: Placement,
        /// The engine chose the placement for this request.
        request: Box<Request>,
    },
    /// The engine chose all CPUs of a pod that has an own pool. The subject names no container.
    PodAssigned {
        placement: Placement,
        request: Box<Request>,
    },
    /// The container shares these CPUs with others of its pod only.
    SharesOwnPool(CpuSet),
    /// A restarted container got the CPUs of its predecessor.
    Kept(CpuSet),
    /// A container that does not run keeps these exclusive CPUs: it may be restarted.
    Held(CpuSet),
    /// A running container keeps these exclusive CPUs.
    Adopted(CpuSet),
    /// A running container could not keep its CPUs.
    Moved {
        /// The CPUs that the runtime had set; `None` if it had set none.
        from: Option<CpuSet>,
        to: CpuSet,
        why: MoveReason,
    },
    Rebalanced {
        from: CpuSet,
        to: CpuSet,
        why: String,
    },
    /// A dry run would have moved the container.
    Suggested {
        from: CpuSet,
        to: CpuSet,
        why: String,
    },
    Resized {
        /// The exclusive CPUs before; `None` if it shared CPUs.
        from: Option<CpuSet>,
        /// The exclusive CPUs from now on; `None` if it shares CPUs.
        to: Option<CpuSet>,
        /// Whether the CPUs that it shares are those of its pod's own pool.
        in_own_pool: bool,
    },
    /// A resize to fewer exclusive CPUs takes effect after this delay.
    Announced {
        leaving: CpuSet,
        delay: Duration,
    },
    /// The container asks for exclusive CPUs but runs in the shared pool, for this reason.
    LeftShared(String),
    Refused {
        why: String,
        /// The request that the engine refused; `None` if it was not asked.
        request: Option<Box<Request>>,
        /// The devices that counted for the NUMA affinity.
        devices: Vec<Device>,
    },
    Released(CpuSet),
    /// New settings put its pod on the reserved CPUs; it keeps its exclusive ones until it ends.
    Outlasts(CpuSet),
    /// A kubelet with an active CPU manager, or another plugin, named these CPUs for the container.
    Contested(CpuSet),
    /// Another program has set these CPUs for the container, and it stays on them.
    LeftAlone {
        cpus: CpuSet,
        why: LeftAlone,
    },
    /// An annotation for CRI-O changes nothing here.
    NoEffect {
        annotation: &'static str,
        why: &'static str,
    },
    /// The runtime itself sets interrupts and latency knobs of the pod.
    LeftToRuntime,
    /// None of the pod's annotations, or of the container's devices, counts.
    TooMany(Optional),
}

/// What a pod's author can write without a limit, and the plugin reads up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optional {
    Annotations,
    Devices,
}

/// Why a running container cannot keep its CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// The runtime has not set the CPUs of an earlier decision.
    NotSet,
    /// It is not pinned: it was created while the plugin did not run or did not assign CPUs.
    Unpinned,
    /// Its CPUs are also exclusive to another container.
    Conflict,
    Reserved,
    Offline,
    /// CPUs have come online, and it had fewer than it asks for.
    Online,
    /// It asks for exclusive CPUs and ran on shared ones, or on a different number.
    NotExclusive,
}

impl MoveReason {
    pub const ALL: [MoveReason; 7] = [
        MoveReason::NotSet,
        MoveReason::Unpinned,
        MoveReason::Conflict,
        MoveReason::Reserved,
        MoveReason::Offline,
        MoveReason::Online,
        MoveReason::NotExclusive,
    ];

    /// A stable name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            MoveReason::NotSet => "not_set",
            MoveReason::Unpinned => "unpinned",
            MoveReason::Conflict => "conflict",
            MoveReason::Reserved => "reserved",
            MoveReason::Offline => "offline",
            MoveReason::Online => "online",
            MoveReason::NotExclusive => "not_exclusive",
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveReason::NotSet => "decided earlier, but not set by the runtime",
            MoveReason::Unpinned => "created while no plugin pinned containers",
            MoveReason::Conflict => "its CPUs are also exclusive to another container",
            MoveReason::Reserved => "some of its CPUs are now reserved",
            MoveReason::Offline => "some of its CPUs are now offline or another program's",
            MoveReason::Online => "it had fewer CPUs than requested, and more are available now",
            MoveReason::NotExclusive => "it requests exclusive CPUs and ran on others",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unless = if self.done { "" } else { "observing, not done: " };
        write!(f, "{}: {unless}{}", self.subject, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Assigned { placement: Placement { cpus, hint }, .. } => match hint.nodes {
                None => write!(f, "exclusive {}", wording::cpus(cpus)),
                Some(nodes) => {
                    let fit = if hint.preferred { "" } else { ", not preferred" };
                    write!(f, "exclusive {} (NUMA affinity {nodes}{fit})", wording::cpus(cpus))
                }
            },
            What::PodAssigned { placement: Placement { cpus, .. }, .. } => {
                write!(f, "{} for the containers of this pod only", wording::cpus(cpus))
            }
            What::SharesOwnPool(cpus) => {
                write!(f, "shares {} with containers of its pod only", wording::cpus(cpus))
            }
            What::Kept(cpus) => write!(f, "restarted, keeps exclusive {}", wording::cpus(cpus)),
            What::Held(cpus) => {
                let are = wording::agree(cpus, "stays", "stay");
                write!(f, "not running, exclusive {} {are} its own", wording::cpus(cpus))
            }
            What::Adopted(cpus) => {
                write!(f, "found running, keeps exclusive {}", wording::cpus(cpus))
            }
            What::Moved { from: None, to, why } => {
                write!(f, "moved to exclusive {}: {why}", wording::cpus(to))
            }
            What::Moved { from: Some(from), to, why } => {
                let (from, to) = (wording::cpus(from), wording::cpus(to));
                write!(f, "moved from {from} to exclusive {to}: {why}")
            }
            What::Rebalanced { from, to, why } => {
                write!(f, "moved from exclusive {} to {to}: {why}", wording::cpus(from))
            }
            What::Suggested { from, to, why } => {
                write!(f, "would move from exclusive {} to {to}: {why}", wording::cpus(from))
            }
            What::Resized { from: Some(from), to: Some(to), .. } => {
                write!(f, "resized from exclusive {} to {to}", wording::cpus(from))
            }
            What::Resized { from: None, to: Some(to), in_own_pool } => {
                let pool = shared_pool(*in_own_pool);
                write!(f, "resized, from {pool} to exclusive {}", wording::cpus(to))
            }
            What::Resized { from: Some(from), to: None, in_own_pool } => {
                let pool = shared_pool(*in_own_pool);
                write!(f, "resized, from exclusive {} to {pool}", wording::cpus(from))
            }
            What::Resized { from: None, to: None, in_own_pool } => {
                write!(f, "resized in {}", shared_pool(*in_own_pool))
            }
            What::Announced { leaving, delay } => {
                let (cpus, seconds) = (wording::cpus(leaving), delay.as_secs_f64());
                write!(f, "resized, leaves exclusive {cpus} in {seconds} s")
            }
            What::LeftShared(why) => write!(f, "runs in the shared pool: {why}"),
            What::Refused { why, .. } => write!(f, "refused: {why}"),
            What::Released(cpus) => {
                let are = wording::agree(cpus, "is", "are");
                write!(f, "exclusive {} {are} free again", wording::cpus(cpus))
            }
            What::Outlasts(cpus) => write!(
                f,
                "keeps exclusive {} until it ends: its pod is for the reserved CPUs now",
                wording::cpus(cpus)
            ),
            What::Contested(cpus) => write!(
                f,
                "{} {} requested for it by the kubelet or another plugin: check that the kubelet's cpuManagerPolicy is none",
                wording::cpus(cpus),
                wording::agree(cpus, "was", "were")
            ),
            What::LeftAlone { cpus, why } => {
                write!(f, "stays on {}, set before this plugin: {why}", wording::cpus(cpus))
            }
            What::NoEffect { annotation, why } => {
                write!(f, "annotation {annotation} has no effect: {why}")
            }
            What::TooMany(Optional::Annotations) => write!(
                f,
                "too many annotations: none counts, as the pod has more than {MAX_ANNOTATIONS} of the form KEY{DOMAIN} or KEY.crio.io"
            ),
            What::TooMany(Optional::Devices) => write!(
                f,
                "too many devices: none counts for its NUMA affinity, as the container has more than {MAX_DEVICES}"
            ),
            What::LeftToRuntime => f.write_str(
                "interrupts and latency knobs are left to the runtime, whose high-performance handler sets them",
            ),
        }
    }
}

fn shared_pool(is_own: bool) -> &'static str {
    if is_own { "the pod's pool" } else { "the shared pool" }
}
