//! `exclusivity: kernel`: each exclusive container is a cpuset partition. On a machine with eight CPUs.

use anyhow::{Result, ensure};
use cpuset::CpuSet;

use super::shape::Shape;
use super::{exclusive, exclusivity, shared};
use crate::invariants::parse;
use crate::pod::{Container, Pod};
use crate::testbed::{CgroupRef, Testbed, says};
use crate::view::View;

const PARTITION: &str = "cpuset.cpus.partition";
const CPUS: &str = "cpuset.cpus";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// Of the pod `db`.
const DB: CgroupRef<'_> = CgroupRef::Container("db");

/// A pod's container is a partition of this type, or none (`member`).
fn is_partition(testbed: &mut Testbed<'_>, pod: &str, kind: &str) -> Result<()> {
    testbed.reads(CgroupRef::Container(pod), PARTITION, kind)
}

/// These pods or busy processes may run there.
fn may_run(view: &View, expected: &[(&str, &str)]) -> Result<()> {
    for (name, cpus) in expected {
        let allowed = view.allowed(name);
        ensure!(allowed == *cpus, "{name} may run on {allowed}, expected {cpus}");
    }
    Ok(())
}

/// The busy processes ran only there.
fn ran_on(view: &View, names: [&str; 2], cpus: &str) -> Result<()> {
    for name in names {
        let ran = view.ran(name);
        ensure!(!ran.is_empty() && ran.is_subset(&parse(cpus)), "{name} ran on {ran}, not {cpus}");
    }
    Ok(())
}

pub(super) fn partitions(testbed: &mut Testbed<'_>, _: &Shape) -> Result<()> {
    all_processes_leave(testbed)?;
    testbed.clear()?;
    a_busy_container_is_not_throttled(testbed)?;
    testbed.clear()?;
    restarted_at_once(testbed)?;
    testbed.clear()?;
    with_shared_containers_in_the_pod(testbed)
}

pub(super) fn writes(testbed: &mut Testbed<'_>, _: &Shape) -> Result<()> {
    writes_by_other_programs_are_repaired(testbed)?;
    testbed.clear()?;
    type_and_mechanism_can_change(testbed)
}

/// A busy process in a shared pod and one of the host leave the exclusive CPUs, although their
/// cgroups are not written; also while the plugin is dead. When the pod ends, the CPUs return to the
/// host, and to containers when the plugin is back.
fn all_processes_leave(testbed: &mut Testbed<'_>) -> Result<()> {
    let busy = ["web", "service"];
    let sets = |view: &View| view.busy.iter().map(|busy| busy.set.clone()).collect::<Vec<_>>();
    testbed.start_plugin(&exclusivity("kernel"))?;
    testbed.run_busy(&shared("web"))?;
    testbed.run_busy_on_host("service")?;
    let before = testbed.look()?;
    let all_run = |view: &View| -> Result<()> {
        may_run(view, &[("web", "0-7"), ("service", "0-7")])?;
        // The scheduler may keep a process with a quota on two CPUs, but both together have more busy
        // threads than there are CPUs.
        let ran = busy.iter().fold(CpuSet::EMPTY, |ran, name| ran | view.ran(name));
        ensure!(!ran.is_disjoint(&parse("1-2")), "they ran on {ran}");
        Ok(())
    };
    all_run(&before)?;
    testbed.exclusive("db", 2)?;
    let with_db = testbed.look()?;
    ensure!(with_db.disagreements().is_empty(), "{:?}", with_db.disagreements());
    testbed.end_plugin()?;
    let plugin_dead = testbed.look()?;
    for view in [&with_db, &plugin_dead] {
        may_run(view, &[("db", "1-2"), ("web", "0,3-7"), ("service", "0,3-7")])?;
        ran_on(view, busy, "0,3-7")?;
    }
    testbed.remove("db")?;
    let pod_gone = testbed.look()?;
    may_run(&pod_gone, &[("web", "0,3-7"), ("service", "0-7")])?;
    testbed.start_plugin(&exclusivity("kernel"))?;
    let back = testbed.look()?;
    all_run(&back)?;
    for view in [with_db, plugin_dead, pod_gone, back] {
        ensure!(sets(&view) == sets(&before), "the cgroup of a busy process was written");
    }
    Ok(())
}

/// The pod's quota is lifted as well, so no period of 150 is throttled. With the mechanism runtime
/// it is not lifted, and a quarter of the periods are throttled.
fn a_busy_container_is_not_throttled(testbed: &mut Testbed<'_>) -> Result<()> {
    for (mode, seconds) in [("kernel", 15), ("runtime", 5)] {
        testbed.clear()?;
        testbed.start_plugin(&exclusivity(mode))?;
        testbed.run_busy(&exclusive("db", 2))?;
        let view = testbed.look()?;
        may_run(&view, &[("db", "1-2")])?;
        ensure!(view.quota("db").is_none(), "db has a quota");
        let throttled = testbed.throttling("db", seconds)?;
        testbed.begin(format!("throttled with {mode} (container, pod): {throttled:?}"));
        ensure!(mode == "runtime" || throttled == (0, 0), "throttled: {throttled:?}");
    }
    Ok(())
}

/// The kernel returns the CPUs of a removed cgroup with a delay, and a partition that takes them
/// too early corrupts it. So each instance of a failing container gets its CPUs once they are
/// returned.
fn restarted_at_once(testbed: &mut Testbed<'_>) -> Result<()> {
    testbed.start_plugin(&exclusivity("kernel"))?;
    testbed.exclusive("db", 4)?;
    for _ in 0..10 {
        testbed.stop("db")?;
        testbed.retry("db")?;
        is_partition(testbed, "db", "root")?;
    }
    may_run(&testbed.look()?, &[("db", "1-4")])?;
    testbed.kernel_is_sound()
}

/// The kernel refuses a partition with CPUs that another container of the pod has, and invalidates
/// one when they are written there later.
fn with_shared_containers_in_the_pod(testbed: &mut Testbed<'_>) -> Result<()> {
    testbed.start_plugin(&exclusivity("kernel"))?;
    let containers = [Container::guaranteed("early", 500), Container::guaranteed("main", 2000)];
    testbed.start(&Pod::new("mixed", containers))?;
    testbed.exclusive("db", 2)?;
    testbed.add("db", &Container::guaranteed("late", 500))?;
    is_partition(testbed, "db", "root")?;
    testbed.kill_plugin()?;
    testbed.add("db", &Container::guaranteed("later", 500))?;
    is_partition(testbed, "db", "root")?;
    let view = testbed.look()?;
    ensure!(view.disagreements().is_empty(), "{:?}", view.disagreements());
    may_run(&view, &[("db", "3-4")])?;
    testbed.kernel_is_sound()
}

/// A root user writes cgroup files; the plugin reports and repairs it.
fn writes_by_other_programs_are_repaired(testbed: &mut Testbed<'_>) -> Result<()> {
    let pod = CgroupRef::Pod("db");
    testbed.start_plugin(&exclusivity("kernel"))?;
    testbed.shared("web")?;
    testbed.exclusive("db", 2)?;
    is_partition(testbed, "db", "root")?;
    // Writes to different files, for one check pass.
    testbed.write(DB, PARTITION, "member")?;
    testbed.write(CgroupRef::Container("web"), CPUS, "5")?;
    testbed.wait_for("its cgroup is a cpuset partition \"member\": set again", 1)?;
    is_partition(testbed, "db", "root")?;
    testbed.write(DB, CPUS, "1")?;
    testbed.write(pod, "cpu.max", "200000 100000")?;
    testbed.wait_for("its cgroup has CPU 1 set: set again", 1)?;
    testbed.reads(DB, CPUS, "1-2")?;
    is_partition(testbed, "db", "root")?;
    testbed.reads(pod, "cpu.max", "max 100000")?;
    // The pass that repaired the partition may have come to it after its log line for db.
    testbed.reads(CgroupRef::Container("web"), CPUS, "0-7")?;
    may_run(&testbed.look()?, &[("db", "1-2"), ("web", "0,3-7")])
}

/// Partitions without load balancing, with it, and none: no container moves.
fn type_and_mechanism_can_change(testbed: &mut Testbed<'_>) -> Result<()> {
    testbed.start_plugin(&format!("{}cpusetPartition: isolated\n", exclusivity("kernel")))?;
    testbed.shared("web")?;
    testbed.exclusive("db", 2)?;
    is_partition(testbed, "db", "isolated")?;
    may_run(&testbed.look()?, &[("db", "1-2"), ("web", "0,3-7")])?;
    for (mode, kind, rest) in [("kernel", "root", "0,4-7"), ("runtime", "member", "0,5-7")] {
        testbed.reconfigure(&exclusivity(mode))?;
        testbed.exclusive(mode, 1)?;
        if mode == "runtime" {
            testbed.wait_for("cpuset partitions ended: 2", 1)?;
        }
        is_partition(testbed, "db", kind)?;
        is_partition(testbed, mode, kind)?;
        may_run(&testbed.look()?, &[("db", "1-2"), ("web", rest)])?;
    }
    Ok(())
}

/// The kernel refuses a partition with CPUs that another cgroup may make one of: cgroups keep others
/// off them for this container only, and the CPUs return. CPUs of a partition that is there are
/// nobody's, until it ends.
pub(super) fn foreign(testbed: &mut Testbed<'_>, _: &Shape) -> Result<()> {
    let other = CgroupRef::Named("other");
    let above = CgroupRef::Named("third");
    let partition = CgroupRef::Named("third/partition");
    testbed.start_plugin(&exclusivity("kernel"))?;
    testbed.write(CgroupRef::Named(""), "cgroup.subtree_control", "+cpuset")?;
    testbed.write(other, CPUS, "3-4")?;
    testbed.write(other, EXCLUSIVE, "3-4")?;
    testbed.write(above, "cgroup.subtree_control", "+cpuset")?;
    testbed.write(above, EXCLUSIVE, "5-6")?;
    testbed.write(partition, CPUS, "5-6")?;
    testbed.write(partition, EXCLUSIVE, "5-6")?;
    testbed.write(partition, PARTITION, "root")?;
    testbed.shared("web")?;
    testbed.exclusive("db", 2)?;
    testbed.exclusive("refused", 2)?;
    testbed.wait_for("no partition: groups keep others off its CPUs", 1)?;
    is_partition(testbed, "db", "root")?;
    is_partition(testbed, "refused", "member")?;
    may_run(&testbed.look()?, &[("db", "1-2"), ("refused", "3-4"), ("web", "0,7")])?;
    let line = "foreign 5-6: cpuset partition third/partition of another program";
    says(&testbed.status()?, &[line])?;
    testbed.exclusive("last", 1)?;
    is_partition(testbed, "last", "root")?;
    testbed.reads(partition, PARTITION, "root")?;
    testbed.kernel_is_sound()?;
    testbed.remove("last")?;
    testbed.remove("refused")?;
    testbed.shared("another")?;
    let rest = "0,3-4,7";
    may_run(&testbed.look()?, &[("db", "1-2"), ("web", rest), ("another", rest)])?;

    testbed.write(partition, PARTITION, "member")?;
    for group in [partition, above, other] {
        testbed.write(group, EXCLUSIVE, "")?;
    }
    testbed.wait_for("foreign partition: third/partition has ended", 1)?;
    testbed.shared("after")?;
    let rest = "0,3-7";
    may_run(&testbed.look()?, &[("db", "1-2"), ("web", rest), ("after", rest)])
}
