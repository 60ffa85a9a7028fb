//! Steps on a node as data, and their outcomes.
//!
//! The same steps run on this machine and in a virtual machine, which sends back the outcomes.
//! [`Player`](crate::player::Player) plays them.

use serde::{Deserialize, Serialize};

use crate::cgroup_model::{Comparison, ComparisonSettings};
use crate::cgroup_snapshot::CgroupSnapshot;
use crate::chaos::summary::{StormSettings, Summary};
use crate::daemonset::Confinement;
use crate::latency::{ClassWrite, LatencySettings, Medians};
use crate::manifests::Manifests;
use crate::node::{FirstInstruction, Strayed};
use crate::overlap::Watched;
use crate::pod::{Container, Pod};
use crate::view::View;

mod describe;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Start the plugin as shipped, with this configuration and no state: in the pod of the base,
    /// or of the overlay that the configuration needs.
    StartPlugin(String),
    /// As [`StartPlugin`](Self::StartPlugin), but with these manifests.
    StartDaemonSet(Box<Manifests>),
    /// Record what the runtime sends to the plugin that the next step starts as a plain process.
    Record,
    /// As [`StartPlugin`](Self::StartPlugin), but as a plain process with full root privileges.
    StartBare(String),
    /// Install the plugin in the runtime's plugin directory without state and restart the runtime,
    /// which launches it. In virtual machines only: its state is in the default directory.
    Launch(String),
    /// Report how the process in the plugin's pod is confined.
    Confinement,
    Log,
    KillPlugin,
    /// SIGKILL without a restart.
    EndPlugin,
    /// Start a pod whose container `main` is always busy. A refusal is an outcome.
    RunBusy(Pod),
    RunCrowd(usize),
    /// Start a pod whose container `main` reads, as its first act, where it and all busy processes
    /// may run.
    RunFirstInstruction(Pod),
    /// Start a pod, and watch whether its processes run on exclusive CPUs of others meanwhile.
    RunWatched(Pod),
    /// Rewrite the cgroups of QoS classes, as systemd does with its slices at any time.
    RealiseClasses,
    /// Start a busy process outside of all pods.
    RunBusyOnHost(String),
    /// Count the throttled periods of a busy pod's container `main` for so many seconds.
    Throttling(String, u64),
    /// Restart the plugin (SIGTERM) with this configuration; its state is kept.
    Reconfigure(String),
    /// SIGKILL to the runtime, and restart it: the plugin must reconnect, or is launched again.
    KillRuntime,
    /// Change the plugin's configuration like a kubelet that changes a mounted ConfigMap.
    SwapConfig(String),
    Status,
    /// Wait until the plugin has logged this text so many times since its last start.
    WaitFor(String, usize),
    /// Set a CPU online or offline.
    SetOnline(usize, bool),
    /// Start a pod. A refusal is an outcome, not a failure; also in the next steps.
    Run(Pod),
    /// Wait until all containers are as decided, for at most so many seconds.
    Settle(u64),
    /// Do these steps, and meanwhile check that containers do not meet on an exclusive CPU.
    Watch(Vec<Step>),
    Wait(u64),
    /// Start the refused containers of a pod again, as the kubelet does.
    Retry(String),
    Add(String, Container),
    /// The runtime stops a container; its pod keeps running.
    Stop(String, String),
    /// A container's process ends by itself, like an init container or a crash; its pod keeps
    /// running.
    End(String, String),
    /// Give the container `main` of a pod so many thousandths of a CPU, in place.
    Resize(String, i64),
    /// As [`Resize`](Self::Resize), to each of these sizes, but checks only this container, which
    /// must be running after each.
    ResizeInARow(String, Vec<i64>),
    Remove(String),
    /// Write a cgroup file, as any root user can.
    WriteCgroup(CgroupRef, String, String),
    /// Make a cgroup within that of a pod's first container, with one of its CPUs and two processes,
    /// as hypervisors do for their own threads. Cgroup v2 only.
    Nest(String),
    /// Read a cgroup file.
    ReadCgroup(CgroupRef, String),
    /// Whether the kernel has warned of itself since it was started.
    KernelWarned,
    /// Read where processes may run, and what was decided.
    View,
    /// Time exclusive containers on an empty node without a plugin.
    Latency(LatencySettings),
    ClassWrites,
    /// Run a storm; the node has only the plugin.
    Storm(StormSettings),
    /// Random cgroup actions, each compared with the plugin's model. In virtual machines only.
    CompareCgroups(ComparisonSettings),
    /// Crash the kernel: on virtual machines only.
    Panic,
    Uninstall,
    /// Apply `manifests/release`, with or without `--containers`, wait until its pod is ready, and
    /// remove it. The outcome is its log; the failure of an init container is an outcome as well.
    Release(bool),
    SnapshotCgroups,
    /// Remove every pod and end the plugin: the next step starts with an empty node.
    Clear,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum CgroupRef {
    /// Of the first container of a pod.
    Container(String),
    Pod(String),
    /// That of the pod's QoS class.
    Class(String),
    /// A path below the root of cgroup v2; created unless it exists.
    Named(String),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// The runtime refused the pod or the resize, with these words.
    Refused(String),
    View(View),
    /// Whether all containers reached their decided state.
    Settled(Settled),
    Watched(Watched),
    FirstInstruction(FirstInstruction),
    Strayed(Strayed),
    /// CPUs, as a list.
    Ran(String),
    Text(String),
    Confinement(Confinement),
    /// Whether the kernel is tainted.
    KernelWarned(bool),
    /// Throttled periods.
    Throttled {
        container: u64,
        pod: u64,
    },
    Latency(Vec<Medians>),
    ClassWrites(Vec<ClassWrite>),
    Storm(Summary),
    /// Comparison of the cgroup model with the kernel.
    Comparison(Comparison),
    Snapshot(CgroupSnapshot),
}

/// How the containers of a node reached their decided state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settled {
    /// Disagreements at the start.
    pub first: Vec<String>,
    /// Disagreements at the end: empty on success.
    pub last: Vec<String>,
}
