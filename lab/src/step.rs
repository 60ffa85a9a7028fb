//! What happens on a node, as data: a script of steps, and what came of each.
//!
//! The same script runs on this machine and in a virtual server; only its outcomes travel back.
//! [`Player`](crate::player::Player) carries it out.

use serde::{Deserialize, Serialize};

use crate::cgroup_model;
use crate::chaos::summary as chaos;
use crate::latency::figures as latency;
use crate::manifests::Manifests;
use crate::pod::{Container, Pod};

mod describe;
mod outcome;

pub use outcome::{Outcome, Settled};

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Start the plugin as it ships, with this configuration and no memory of earlier runs: as the
    /// pod of the base or, with `exclusivity: kernel`, of the overlay for that.
    StartPlugin(String),
    /// As [`StartPlugin`](Self::StartPlugin), but the pod of these manifests.
    StartDaemonSet(Box<Manifests>),
    /// As [`StartPlugin`](Self::StartPlugin), but the program alone, with all that root may do.
    StartBare(String),
    /// Put the plugin with this configuration into the runtime's directories and restart the
    /// runtime, which launches it, with no memory of earlier runs. Its state is where it is by
    /// default: for virtual servers only.
    Launch(String),
    /// Look how the process in the plugin's pod is confined.
    Confinement,
    /// What the plugin has logged, over all its starts.
    Log,
    /// Kill the plugin with SIGKILL and start it again, with the memory it has.
    KillPlugin,
    /// Kill the plugin with SIGKILL, for good.
    EndPlugin,
    /// Start a pod whose container `main` is always busy; refusing it is an outcome too.
    RunBusy(Pod),
    /// Start so many Burstable pods that are all busy from then on.
    RunCrowd(usize),
    /// Start a pod whose container `main` looks as its very first act where it may run, and where
    /// all that is busy may.
    RunFirst(Pod),
    /// Write the groups of classes anew, as systemd does with its slices at any moment.
    RealiseClasses,
    /// Start a process that is always busy, outside of all pods.
    RunBusyOnHost(String),
    /// Wait so many seconds, and count in how many periods the container `main` of a busy pod was
    /// throttled meanwhile.
    Throttling(String, u64),
    /// Stop the plugin and start it with this configuration, with the memory it has.
    Reconfigure(String),
    /// Kill the runtime with SIGKILL and start it again: the plugin has to come back by itself, or
    /// is launched anew.
    KillRuntime,
    /// Kill both with SIGKILL and start both again.
    KillBoth,
    /// Change the plugin's configuration file as the kubelet changes a mounted ConfigMap.
    SwapConfig(String),
    /// What `nri-cpu-manager status` says.
    Status,
    /// What the plugin answers over HTTP to a GET of this path.
    Fetch(String),
    /// Wait until the plugin's log has said this since the plugin was started, as often as given.
    WaitFor(String, usize),
    /// Take a CPU of the machine offline, or online again.
    SetOnline(usize, bool),
    /// Start a pod; refusing it is an outcome, not a failure, here and in the next ones.
    Run(Pod),
    /// Start pods at the same time.
    RunTogether(Vec<Pod>),
    /// Start a pod with one container, and carry these steps out while the runtime is starting
    /// that.
    RunSlowly(Pod, Vec<Step>),
    /// Wait until all containers' processes are as decided, for so many seconds at most.
    Settle(u64),
    /// Carry these steps out, and look meanwhile whether containers meet on a CPU that one of them
    /// has for itself.
    Watch(Vec<Step>),
    /// Wait so many seconds.
    Wait(u64),
    /// Start what of a pod was refused once more, as the kubelet does.
    Retry(String),
    /// Start one more container in a pod.
    Add(String, Container),
    /// Have a container of a pod that goes on ended by the runtime.
    Stop(String, String),
    /// The process of a container of a pod that goes on ends by itself: an init container that is
    /// done, or one that has crashed.
    End(String, String),
    /// Give the container `main` of a pod so many thousandths of a CPU, in place.
    Resize(String, i64),
    /// Remove a pod.
    Remove(String),
    /// The kubelet writes its CPU manager's state file.
    KubeletState(String),
    /// Write a file of a control group, as any user with root can.
    WriteGroup(Group, String, String),
    /// Read a file of a control group.
    ReadGroup(Group, String),
    /// Wait until the plugin has logged this.
    Await(String),
    /// Whether the kernel has warned of itself since it was started.
    KernelWarned,
    /// Look at the node: what the processes say, beside what was decided.
    Look,
    /// How much memory the plugin uses.
    Measure,
    /// Time exclusive containers, on an empty node without a plugin.
    Latency(latency::Settings),
    /// Time writes to a class, by the containers below it.
    ClassWrites,
    /// A storm of pods and of SIGKILLs to the plugin, on a node that is empty but for it.
    Storm(chaos::Settings),
    /// Random actions on groups, each compared with the plugin's model of them: for virtual servers
    /// only.
    CompareCgroups(cgroup_model::Settings),
    /// End the kernel with a panic: for virtual servers only.
    Panic,
    /// Remove the plugin's pod from the node, as with its DaemonSet.
    Uninstall,
    /// Apply `manifests/release`, with the option for containers or without, wait until its pod is
    /// ready, and remove it. The outcome is what it says it has done; that an init container fails
    /// is one, too.
    Release(bool),
    /// Take down what all cgroups say.
    Groups,
    /// Remove every pod and end the plugin: the next step starts with an empty node.
    Clear,
}

/// A control group, by whose it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Group {
    /// That of the first container of a pod.
    Container(String),
    /// That of a pod.
    Pod(String),
    /// This one below the root of cgroup v2. It is made if it is not there.
    Named(String),
}
