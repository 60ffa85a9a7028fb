//! The cgroups of QoS classes, which keep shared containers off exclusive CPUs: they empty, refill
//! and are rewritten by systemd.

use anyhow::Result;

use super::shape::Shape;
use super::{exclusive, shared};
use crate::pod::{Container, Pod};
use crate::testbed::{CgroupRef, Testbed, says_no};

/// How often the class empties and fills again.
const ROUNDS: usize = 4;
/// Seconds in which a check pass has certainly run.
const PASSED: u64 = 12;
/// Busy pods that the probe checks.
const CROWD: usize = 50;
/// Logged when a cgroup is not relied on any more.
pub(crate) const DISTRUSTED: &str = "setting each cgroup below it individually";

/// Logged when a cgroup loses its CPUs while it is in use.
const CLEARED: &str = "its CPUs were cleared while a container ran in it";

fn best_effort(name: &str) -> Pod {
    Pod::new(name, [Container::best_effort("main")])
}

/// Each round fills a class and starts an exclusive pod once it is empty, with static pods and with
/// rewrites by systemd in between.
pub(super) fn emptied(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    for round in 0..ROUNDS.min(shape.room()) {
        let name = format!("job-{round}");
        let pod = best_effort(&name);
        testbed.first_instruction(&if round % 2 == 0 { pod } else { pod.from_file() }, 0)?;
        testbed.realise_classes()?;
        testbed.view()?;
        testbed.remove(&name)?;
        testbed.realise_classes()?;
        testbed.exclusive(&format!("db-{round}"), 1)?;
    }
    testbed.first_instruction(&best_effort("last"), 0)?;
    testbed.view()?;
    says_no(&testbed.log()?, DISTRUSTED)
}

/// Nothing is exclusive while another program writes all CPUs into a class's cgroup and the class is
/// made again: that is nobody's bound, and the next exclusive pod finds every class reliable.
pub(super) fn idle(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.start(&best_effort("job"))?;
    // The first write is put right, the second is the remedy that status names for bounds of others.
    for cpus in [shape.reserved, shape.online] {
        testbed.wait(PASSED);
        testbed.write(CgroupRef::Class("job"), "cpuset.cpus", &cpus.to_string())?;
    }
    for _ in 0..ROUNDS {
        testbed.wait(PASSED);
        testbed.remove("job")?;
        testbed.realise_classes()?;
        testbed.start(&best_effort("job"))?;
    }
    testbed.wait(PASSED);
    testbed.exclusive("db", 1)?;
    testbed.first_instruction(&best_effort("last"), 0)?;
    testbed.view()?;
    let log = testbed.log()?;
    says_no(&log, CLEARED)?;
    says_no(&log, DISTRUSTED)
}

/// New pods of every class next to an exclusive one: not even their pause containers run on its CPUs.
pub(super) fn new_pods(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.exclusive("db", 1)?;
    for _ in 0..ROUNDS {
        let half = Pod::new("half", [Container::guaranteed("main", 500)]);
        for pod in [best_effort("best"), shared("web"), half] {
            testbed.begins_in_pool(&pod)?;
            testbed.remove(&pod.name)?;
        }
    }
    testbed.view()?;
    says_no(&testbed.log()?, DISTRUSTED)
}

/// As an exclusive container's first process begins, no thread of many busy pods may run on its
/// CPUs, nor may one of a class that was just created.
pub(super) fn first_instruction(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(""))?;
    testbed.run_crowd(CROWD)?;
    testbed.first_instruction(&exclusive("db", 1), CROWD)?;
    testbed.first_instruction(&best_effort("job"), CROWD)?;
    testbed.remove("job")?;
    testbed.first_instruction(&best_effort("job-again"), CROWD)?;
    if shape.room() > 1 {
        testbed.first_instruction(&exclusive("cache", 1), CROWD)?;
    }
    testbed.view()?;
    says_no(&testbed.log()?, DISTRUSTED)
}
