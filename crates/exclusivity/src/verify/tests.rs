//! A hierarchy and processes as files in a directory; the lab checks real ones.

use super::*;
use crate::lift_quota;
use ledger::note::Subject;
use ledger::{ContainerId, CpuSetting, Mechanism};
use std::fs;
use tempfile::TempDir;

struct FakeMachine(TempDir);

impl FakeMachine {
    fn new() -> FakeMachine {
        let machine = FakeMachine(tempfile::tempdir().unwrap());
        machine.file("cgroup.controllers", "cpuset cpu\n");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process whose name the kernel has cut in the middle of a character.
    fn process_with_cut_name(&self, pid: u32, allowed: &str) {
        let status = [
            "Name:\tОбработчи".as_bytes(),
            b"\xd0\nPPid:\t1\nCpus_allowed_list:\t",
            allowed.as_bytes(),
            b"\n",
        ];
        let path = self.0.path().join(format!("proc/{pid}/status"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, status.concat()).unwrap();
    }

    fn process(&self, pid: u32, parent: u32, allowed: &str) {
        let text = format!("Name:\tx\nPPid:\t{parent}\nCpus_allowed_list:\t{allowed}\n");
        self.file(&format!("proc/{pid}/status"), &text);
    }

    /// A container's group, as the kernel would show it.
    fn group(&self, cpus: &str, effective: &str, partition: &str, processes: &str) {
        for (file, text) in [
            ("cpuset.cpus", cpus),
            ("cpuset.cpus.effective", effective),
            ("cpuset.cpus.partition", partition),
            ("cgroup.procs", processes),
        ] {
            self.file(&format!("kubepods/poda/c/{file}"), &format!("{text}\n"));
        }
        self.file("kubepods/poda/cpu.max", "max 100000\n");
    }

    fn lift(&self, target: &Target) {
        let on = Hierarchy::open(self.0.path()).unwrap();
        lift_quota(&on, target).unwrap();
    }

    fn check(&self, target: &Target, kind: Option<PartitionType>) -> Vec<String> {
        let on = Hierarchy::open(self.0.path()).unwrap();
        let drift = Verifier::new(on, &self.0.path().join("proc"), kind).check(target);
        drift.iter().map(ToString::to_string).collect()
    }
}

fn exclusive(cpus: &str, enforced_by: Mechanism) -> Target {
    let cpus: CpuSet = cpus.parse().unwrap();
    Target {
        subject: Subject {
            namespace: "default".into(),
            pod: "a".into(),
            container: "c".into(),
            id: ContainerId("id".into()),
        },
        cgroup: CgroupPath::new("kubepods/poda/c"),
        setting: CpuSetting::exclusive(cpus).unwrap(),
        runs_on: cpus,
        kept_from_siblings: None,
        partition: enforced_by == Mechanism::Partitions,
        enforced_by,
        running: true,
        lifts_pod_quota: true,
    }
}

#[test]
fn a_container_as_decided_has_no_drift() {
    let machine = FakeMachine::new();
    machine.group("4-7", "4-7", "root", "0\n12\n13");
    machine.process(11, 1, "0-15");
    machine.process(12, 11, "4-7");
    // It has chosen less for itself.
    machine.process(13, 12, "5");
    let target = exclusive("4-7", Mechanism::Partitions);
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), [""; 0]);
    // Not running, no cgroup known, or the cgroup gone: nothing to check.
    let pending = Target { running: false, ..exclusive("8", Mechanism::Partitions) };
    let nowhere = Target { cgroup: None, ..exclusive("8", Mechanism::Partitions) };
    let gone = Target {
        cgroup: CgroupPath::new("kubepods/podb/c"),
        ..exclusive("8", Mechanism::Partitions)
    };
    for target in [pending, nowhere, gone] {
        assert_eq!(machine.check(&target, Some(PartitionType::Root)), [""; 0]);
    }
}

/// Where cgroups are mounted with `nsdelegate`, the plugin must not write its own.
#[test]
fn the_plugins_own_threads_count_where_its_cgroup_is_wider() {
    let machine = FakeMachine::new();
    let own = std::process::id();
    let pool: CpuSet = "0-5".parse().unwrap();
    let target = Target {
        setting: CpuSetting::shared("0-15".parse().unwrap()).unwrap(),
        runs_on: pool,
        kept_from_siblings: Some(CpuSet::EMPTY),
        lifts_pod_quota: false,
        ..exclusive("0-5", Mechanism::Groups)
    };
    let is_wider = ["the kernel lets its cgroup run on CPUs 0-15"];
    for (pid, allowed, expected) in
        [(own, "0-5", &[""; 0][..]), (own, "0-6", &is_wider), (own + 1, "0-5", &is_wider)]
    {
        machine.group("", "0-15", "member", &pid.to_string());
        machine.process(pid, 1, allowed);
        assert_eq!(machine.check(&target, None), expected, "{allowed}");
    }
}

#[test]
fn every_difference_from_the_decision_is_a_drift() {
    let machine = FakeMachine::new();
    let target = exclusive("4-7", Mechanism::Partitions);
    machine.process(11, 1, "0-5");
    machine.process(12, 11, "4-7");
    machine.group("0-15", "0-15", "root", "12");
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), ["its cgroup has CPUs 0-15 set"]);
    machine.group("4-7", "4-7", "root invalid (Cpu list in cpuset.cpus not exclusive)", "12");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        [
            r#"its cgroup is a cpuset partition "root invalid (Cpu list in cpuset.cpus not exclusive)""#
        ]
    );
    machine.group("4-7", "4-7", "member", "12");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Isolated)),
        [r#"its cgroup is a cpuset partition "member""#]
    );
    // The runtime keeps exclusivity: a partition does not matter.
    assert_eq!(machine.check(&exclusive("4-7", Mechanism::Runtime), None), [""; 0]);
    machine.group("4-7", "4-8", "root", "12");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        ["the kernel lets its cgroup run on CPUs 4-8"]
    );
    // CPU 7 is not available to the cgroups above it.
    machine.group("4-7", "4-6", "member", "");
    let by_runtime = exclusive("4-7", Mechanism::Runtime);
    assert_eq!(
        machine.check(&by_runtime, Some(PartitionType::Root)),
        ["the kernel lets its cgroup run on CPUs 4-6"]
    );
    machine.group("4-7", "4-7", "root", "12");
    machine.process(12, 11, "4-8");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        ["its process 12 may run on CPUs 4-8"]
    );
    machine.process(12, 11, "4-7");
    machine.file("kubepods/poda/cpu.max", "400000 100000\n");
    let quota = ["its pod has the CFS quota \"400000 100000\""];
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), quota);
    let keeps = Target { lifts_pod_quota: false, ..target.clone() };
    assert_eq!(machine.check(&keeps, Some(PartitionType::Root)), [""; 0]);
    machine.file("kubepods/poda/cpu.max", "max 100000\n");
    machine.file("kubepods/poda/c/cpu.max", "300000 100000\n");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        ["it has the CFS quota \"300000 100000\""]
    );
    machine.file("kubepods/poda/c/cpu.max", "max 100000\n");
    machine.process(12, 11, "4-5");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        ["its process 12 may run on CPUs 4-5 only: it inherited the runtime's affinity"]
    );
}

#[test]
fn other_cpus_are_no_drift_where_the_cgroup_above_has_none_of_the_decided_ones() {
    let machine = FakeMachine::new();
    machine.group("0-3,8-15", "8-9", "member", "");
    let target = exclusive("4-7", Mechanism::Groups);
    let set = ["its cgroup has CPUs 0-3,8-15 set"];
    let runs_on = ["the kernel lets its cgroup run on CPUs 8-9"];
    for (above, expected) in [("8-9", &runs_on), ("7-9", &set)] {
        machine.file("kubepods/poda/cpuset.cpus.effective", above);
        assert_eq!(machine.check(&target, None), expected, "{above}");
    }
    // A pod has none of the CPUs of its partitions.
    machine.file("kubepods/poda/cpuset.cpus.effective", "8-9");
    machine.group("5", "5", "root", "");
    let target = exclusive("4-7", Mechanism::Partitions);
    let set = ["its cgroup has CPU 5 set"];
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), set);
}

/// crun, and programs that make cgroups, put processes into an inner cgroup.
#[test]
fn processes_in_inner_cgroups_are_checked_up_to_a_limit() {
    let machine = FakeMachine::new();
    machine.group("4-7", "4-7", "root", "");
    machine.process(12, 11, "4-8");
    machine.file("kubepods/poda/c/container/deeper/cgroup.procs", "12\n");
    let target = exclusive("4-7", Mechanism::Partitions);
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        ["its process 12 may run on CPUs 4-8"]
    );
    // As many as in the container's own cgroup.
    for group in 0..100 {
        machine.file(&format!("kubepods/poda/c/{group}/cgroup.procs"), "12\n");
    }
    assert_eq!(machine.check(&target, Some(PartitionType::Root)).len(), PROCESSES);
}

/// A container gives some of its processes a cgroup with a part of its CPUs, as systemd and
/// hypervisors do. Their parents may be there as well.
#[test]
fn a_mask_with_the_cpus_of_an_inner_cgroup_is_not_inherited() {
    let machine = FakeMachine::new();
    machine.group("4-7", "4-7", "root", "");
    machine.process(11, 1, "4");
    machine.process(12, 11, "4");
    machine.file("kubepods/poda/c/system.slice/service/cgroup.procs", "12\n");
    let target = exclusive("4-7", Mechanism::Partitions);
    let inherited = ["its process 12 may run on CPU 4 only: it inherited the runtime's affinity"];
    for (inner, expected) in [("4", &[][..]), ("4-7", &inherited), ("5", &inherited)] {
        let file = "kubepods/poda/c/system.slice/service/cpuset.cpus.effective";
        machine.file(file, &format!("{inner}\n"));
        assert_eq!(machine.check(&target, Some(PartitionType::Root)), expected, "{inner}");
    }
    // The processes of a threaded cgroup are listed above it.
    machine.group("4-7", "4-7", "root", "12");
    machine.file("kubepods/poda/c/housekeeping/cpuset.cpus.effective", "4\n");
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), [""; 0]);
}

/// Children of the first process have its mask as well; another mask is the process's choice.
#[test]
fn an_inherited_mask_is_widened_in_all_processes_that_have_it() {
    let machine = FakeMachine::new();
    let proc = Path::new("/proc");
    let verifier = Verifier::new(Hierarchy::open(machine.0.path()).unwrap(), proc, None);
    let all = verifier.status(std::process::id()).unwrap().allowed;
    let one = all.lowest(1);
    let others = if all == one { one } else { (all - one).lowest(1) };
    let masks = [one, one, others];
    let mut children = masks.map(|mask| {
        let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        widen(&kernel::Linux, proc, child.id(), mask).unwrap();
        child
    });
    let pids: Vec<String> = children.iter().map(|child| child.id().to_string()).collect();
    machine.group("", "", "member", &pids.join("\n"));
    let target = Target { runs_on: all, ..exclusive("4-7", Mechanism::Runtime) };
    let widened = verifier.widen(&target, one);
    let allowed =
        children.each_ref().map(|child| verifier.status(child.id()).map(|status| status.allowed));
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    widened.unwrap();
    assert_eq!(allowed, [all, all, others].map(Some));
}

#[test]
fn a_partition_of_a_shared_container_is_a_drift() {
    let machine = FakeMachine::new();
    let target = Target {
        setting: CpuSetting::shared("0-15".parse().unwrap()).unwrap(),
        runs_on: "0-3,8-15".parse().unwrap(),
        ..exclusive("4-7", Mechanism::Partitions)
    };
    // It may well run on less.
    machine.group("0-15", "0-3,8-13", "member", "");
    assert_eq!(machine.check(&target, Some(PartitionType::Root)), [""; 0]);
    machine.group("0-15", "0-15", "root", "");
    assert_eq!(
        machine.check(&target, Some(PartitionType::Root)),
        [r#"its cgroup is a cpuset partition "root""#]
    );
}

#[test]
fn cgroup_v1_is_checked_by_its_own_files() {
    let machine = FakeMachine::new();
    machine.file("cgroup.controllers", "");
    machine.file("cpuset/cpuset.cpus", "0-15\n");
    let file =
        |name: &str, text: &str| machine.file(&format!("cpuset/kubepods/poda/c/{name}"), text);
    file("cpuset.cpus", "4-7\n");
    file("cpuset.effective_cpus", "4-7\n");
    file("cgroup.procs", "");
    let target = exclusive("4-7", Mechanism::Runtime);
    assert_eq!(machine.check(&target, None), [""; 0]);
    file("cpuset.cpus", "0-15\n");
    assert_eq!(machine.check(&target, None), ["its cgroup has CPUs 0-15 set"]);
    file("cpuset.cpus", "4-7\n");
    let quota = "cpu/kubepods/poda/c/cpu.cfs_quota_us";
    machine.file(quota, "300000\n");
    assert_eq!(machine.check(&target, None), ["it has the CFS quota \"300000\""]);
    machine.lift(&target);
    assert_eq!(fs::read_to_string(machine.0.path().join(quota)).unwrap(), "-1\n");
    assert_eq!(machine.check(&target, None), [""; 0]);
}

/// Some runtimes do not lift it for a running container.
#[test]
fn a_quota_of_an_exclusive_container_is_a_drift_and_can_be_lifted() {
    let machine = FakeMachine::new();
    machine.group("4-7", "4-7", "member", "");
    let target = exclusive("4-7", Mechanism::Runtime);
    let own = "kubepods/poda/c/cpu.max";
    // The controller is not in use.
    assert_eq!(machine.check(&target, None), [""; 0]);
    machine.file(own, "300000 100000\n");
    // The pod's is not ours to lift in this mode.
    machine.file("kubepods/poda/cpu.max", "300000 100000\n");
    assert_eq!(machine.check(&target, None), ["it has the CFS quota \"300000 100000\""]);
    let shared = Target { setting: CpuSetting::shared(target.runs_on).unwrap(), ..target.clone() };
    assert_eq!(machine.check(&shared, None), [""; 0]);
    machine.lift(&shared);
    assert_eq!(machine.check(&target, None).len(), 1, "a shared container keeps its own");
    machine.lift(&target);
    assert_eq!(machine.check(&target, None), [""; 0]);
    assert_eq!(fs::read_to_string(machine.0.path().join(own)).unwrap(), "max\n");
}

#[test]
fn processes_with_any_name_are_checked() {
    let machine = FakeMachine::new();
    machine.group("4-7", "4-7", "member", "101\n");
    machine.file("kubepods/poda/c/cgroup.threads", "101\n");
    let target = exclusive("4-7", Mechanism::Runtime);
    let on = Hierarchy::open(machine.0.path()).unwrap();
    let verifier = Verifier::new(on, &machine.0.path().join("proc"), None);
    machine.process_with_cut_name(101, "4-7");
    assert!(!verifier.has_bound_itself(&target));
    machine.process_with_cut_name(101, "4-5");
    assert!(verifier.has_bound_itself(&target));
    machine.process_with_cut_name(101, "0-7");
    assert_eq!(verifier.check(&target), [Drift::Process(101, "0-7".parse().unwrap())]);
}
