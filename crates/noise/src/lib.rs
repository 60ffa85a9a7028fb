//! Noise: what ran or fired on exclusive CPUs besides the container that owns them.
//!
//! A [`Sample`] has the counters of `/proc` at one moment: interrupts, softirqs, and threads that may run
//! on the watched CPUs. An [`Observation`] adds up what grew from one sample to the next, by CPU, and a
//! [`NoiseReport`] is the report: findings with their advice, as JSON or as text.
//!
//! ```
//! use cpuset::{CgroupPath, CpuSet};
//! use kernel::Linux;
//! use noise::{InForce, Observation, Owner, Roots, Sample};
//! use std::collections::BTreeSet;
//! use std::time::Duration;
//!
//! let cpus: CpuSet = "0".parse()?;
//! let cgroup = CgroupPath::new("kubepods.slice/pod1/main").ok_or("no path of a cgroup")?;
//! let in_force = InForce::default();
//! let owner = Owner { name: "default/db/main".into(), cgroup, cpus, in_force };
//! let roots = Roots::default();
//!
//! let mut observation = Observation::new(vec![owner]);
//! let earlier = Sample::take(&Linux, &roots, cpus)?;
//! // Each further sample narrows down where threads ran.
//! let later = Sample::take(&Linux, &roots, cpus)?;
//! observation.add(&earlier, &later);
//! let noise = observation.noise(Duration::from_secs(1), &BTreeSet::new());
//! assert_eq!(noise.containers.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `/proc` does not say on which CPU a thread spent its time, only the CPU that it ran on last. A thread
//! is therefore *seen on* a CPU, and one that comes and goes between two samples is not seen at all.
//! Interrupts and softirqs are counted exactly.
//!
//! # Errors
//! Only the tables of interrupts and softirqs are required. Threads end while they are read, and a
//! program without the host's pid namespace does not see them: [`Visibility`] says which it is.
//!
//! Nothing here changes the node, waits, or has a clock.

mod difference;
#[cfg(test)]
mod fake;
mod report;
mod sample;

pub use difference::{InForce, Kind, Observation, Owner, PartitionInForce};
pub use report::{Advice, ContainerNoise, CpuNoise, Finding, NoiseReport, VERSION, Verdict};
pub use sample::{
    MOST_CGROUPS, MOST_OF_CGROUP, MOST_THREADS, Roots, Sample, SampleError, Visibility,
};
