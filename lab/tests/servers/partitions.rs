//! `exclusivity: kernel` on a virtual machine: all processes leave, also while the plugin is dead;
//! cgroups are written by another program, CPUs belong to another partition, the partition type or
//! the mechanism changes; nothing is throttled.

use cpuset::CpuSet;
use lab::cgroup::Driver;
use lab::containerd::Version;
use lab::job::Software;
use lab::pod::{Container, Pod};
use lab::scenario::{exclusive, exclusivity, refusals, shared, views};
use lab::step::{CgroupRef, Outcome, Step};
use lab::view::View;
use lab::vm::Machine;

use crate::part::{Part, play, scenarios, scenarios_with};
use crate::privileges;

const PARTITION: &str = "cpuset.cpus.partition";
const CPUS: &str = "cpuset.cpus";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";

#[test]
fn partitions_hold_with_cgroupfs() {
    let mut parts = vec![
        all_processes_leave(),
        a_busy_container_is_not_throttled(),
        writes_by_other_programs_are_repaired(),
        type_and_mechanism_can_change(),
        restarted_at_once(),
        with_shared_containers_in_the_pod(),
    ];
    parts.extend(privileges::parts());
    // Last: the other partition stays.
    parts.push(cgroups_replace_refused_partitions());
    play(&machine(), Version::V2_1, &parts);
}

/// With pods as slices.
#[test]
fn partitions_hold_with_systemd() {
    let software = Software { driver: Driver::Systemd, ..Version::V2_1.into() };
    let mut parts = vec![all_processes_leave(), with_shared_containers_in_the_pod()];
    parts.extend(scenarios(&machine(), &["classes"]));
    for mechanism in ["groups", "kernel", "runtime"] {
        parts.extend(scenarios_with(&machine(), mechanism, &["uninstall"]));
    }
    play(&machine(), software, &parts);
}

fn machine() -> Machine {
    Machine::single("partitions", 1, 8)
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn texts(outcomes: &[Outcome]) -> Vec<&str> {
    outcomes
        .iter()
        .filter_map(|o| if let Outcome::Text(text) = o { Some(text.as_str()) } else { None })
        .collect()
}

fn container(pod: &str) -> CgroupRef {
    CgroupRef::Container(pod.to_owned())
}

fn write(group: CgroupRef, file: &str, value: &str) -> Step {
    Step::WriteCgroup(group, file.to_owned(), value.to_owned())
}

fn read(group: CgroupRef, file: &str) -> Step {
    Step::ReadCgroup(group, file.to_owned())
}

/// The kernel was checked and is not tainted.
#[track_caller]
fn check_kernel(outcomes: &[Outcome]) {
    let answers = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::KernelWarned(warned) => Some(*warned),
        _ => None,
    });
    let answers: Vec<bool> = answers.collect();
    assert_eq!(answers, [false], "the kernel warned or oopsed: see its console");
}

/// The process may run on these CPUs, and ran only on them.
#[track_caller]
fn check_busy(view: &View, name: &str, expected: &str) {
    let (allowed, ran) = view.busy(name);
    assert_eq!(allowed, expected, "where {name} may run");
    let (expected, ran) = (cpus(expected), cpus(ran));
    assert!(!ran.is_empty() && ran.is_subset(&expected), "{name} ran on {ran}, not {expected}");
}

/// A busy process in a shared pod and one of the host leave the exclusive CPUs, although their
/// cgroups are not written; also while the plugin is dead. When the pod ends, the CPUs return to the
/// host, and to containers when the plugin is back.
fn all_processes_leave() -> Part {
    let steps = vec![
        Step::StartPlugin(exclusivity("kernel")),
        Step::RunBusy(shared("web")),
        Step::RunBusyOnHost("service".into()),
        Step::View,
        Step::Run(exclusive("db", 2)),
        Step::View,
        Step::EndPlugin,
        Step::View,
        Step::Remove("db".into()),
        Step::View,
        Step::StartPlugin(exclusivity("kernel")),
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let views = views(outcomes);
        let [before, exclusive, plugin_dead, pod_gone, back] = views[..] else {
            panic!("{} views", views.len())
        };
        for view in [before, back] {
            let names = ["web", "service"];
            assert_eq!(names.map(|n| view.busy(n).0), ["0-7"; 2], "without exclusive CPUs");
            // The scheduler may keep a process with a quota on two CPUs, but both together have
            // more busy threads than there are CPUs.
            let ran = names.map(|n| cpus(view.busy(n).1));
            assert!(ran.iter().any(|ran| !ran.is_disjoint(&cpus("1-2"))), "they ran on {ran:?}");
        }
        for name in ["web", "service"] {
            check_busy(exclusive, name, "0,3-7");
            check_busy(plugin_dead, name, "0,3-7");
        }
        assert_eq!(["web", "service"].map(|name| pod_gone.busy(name).0), ["0,3-7", "0-7"]);
        assert_eq!([exclusive, plugin_dead].map(|view| view.allowed("db")), ["1-2"; 2]);
        assert_eq!(exclusive.disagreements(), [""; 0]);
        let written = |view: &View| view.busy.iter().map(|b| b.set.clone()).collect::<Vec<_>>();
        for view in [exclusive, plugin_dead, pod_gone, back] {
            assert_eq!(written(view), written(before), "the cgroup of a busy process was written");
        }
    };
    Part::new("all processes leave", steps, check)
}

/// The pod's quota is lifted as well, so no period of 150 is throttled. With the mechanism runtime
/// it is not lifted, and a quarter of the periods are throttled: the figure is printed.
fn a_busy_container_is_not_throttled() -> Part {
    let busy = |mode, seconds| {
        [
            Step::StartPlugin(exclusivity(mode)),
            Step::RunBusy(exclusive("db", 2)),
            Step::View,
            Step::Throttling("db".into(), seconds),
        ]
    };
    let steps = [&busy("kernel", 15)[..], &[Step::Clear], &busy("runtime", 5)].concat();
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        for view in views(outcomes) {
            check_busy(view, "db", "1-2");
            assert_eq!(view.quota("db"), None);
        }
        let throttled = outcomes.iter().filter_map(|o| match o {
            Outcome::Throttled { container, pod } => Some((*container, *pod)),
            _ => None,
        });
        let throttled: Vec<(u64, u64)> = throttled.collect();
        println!("throttled periods (container, pod): kernel 15 s, runtime 5 s {throttled:?}");
        assert_eq!((throttled.len(), throttled.first()), (2, Some(&(0, 0))));
    };
    Part::new("a busy container is not throttled", steps, check)
}

/// A root user writes cgroup files; the plugin reports and repairs it.
fn writes_by_other_programs_are_repaired() -> Part {
    let steps = vec![
        Step::StartPlugin(exclusivity("kernel")),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        read(container("db"), PARTITION),
        // Writes to different files, for one check pass.
        write(container("db"), PARTITION, "member"),
        write(container("web"), CPUS, "5"),
        Step::WaitFor("its cgroup is a cpuset partition \"member\": set again".into(), 1),
        read(container("db"), PARTITION),
        write(container("db"), CPUS, "1"),
        write(CgroupRef::Pod("db".into()), "cpu.max", "200000 100000"),
        Step::WaitFor("its cgroup has CPU 1 set: set again".into(), 1),
        read(container("db"), CPUS),
        read(container("db"), PARTITION),
        read(CgroupRef::Pod("db".into()), "cpu.max"),
        // The pass that repaired the partition may have come to it after its log line for db.
        read(container("web"), CPUS),
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        assert_eq!(texts(outcomes), ["root", "root", "1-2", "root", "max 100000", "0-7"]);
        let view = views(outcomes)[0];
        assert_eq!([view.allowed("db"), view.allowed("web")], ["1-2", "0,3-7"]);
    };
    Part::new("writes by other programs are repaired", steps, check)
}

/// The kernel refuses a partition with CPUs that another cgroup may make one of: cgroups keep others
/// off them for this container only, and the CPUs return. CPUs of a partition that is there are
/// nobody's.
fn cgroups_replace_refused_partitions() -> Part {
    let other = || CgroupRef::Named("other".into());
    let above = || CgroupRef::Named("third".into());
    let partition = || CgroupRef::Named("third/partition".into());
    let steps = vec![
        Step::StartPlugin(exclusivity("kernel")),
        write(CgroupRef::Named(String::new()), "cgroup.subtree_control", "+cpuset"),
        write(other(), CPUS, "3-4"),
        write(other(), EXCLUSIVE, "3-4"),
        write(above(), "cgroup.subtree_control", "+cpuset"),
        write(above(), EXCLUSIVE, "5-6"),
        write(partition(), CPUS, "5-6"),
        write(partition(), EXCLUSIVE, "5-6"),
        write(partition(), PARTITION, "root"),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        Step::Run(exclusive("refused", 2)),
        Step::WaitFor("no partition: groups keep others off its CPUs".into(), 1),
        read(container("db"), PARTITION),
        read(container("refused"), PARTITION),
        Step::View,
        Step::Run(exclusive("last", 1)),
        read(container("last"), PARTITION),
        read(partition(), PARTITION),
        Step::KernelWarned,
        Step::Remove("last".into()),
        Step::Remove("refused".into()),
        Step::Run(shared("another")),
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        assert_eq!(texts(outcomes), ["root", "member", "root", "root"]);
        check_kernel(outcomes);
        let [refused, after] = views(outcomes)[..] else { panic!("two views") };
        let allowed = ["db", "refused", "web"].map(|pod| refused.allowed(pod));
        assert_eq!(allowed, ["1-2", "3-4", "0,7"]);
        assert_eq!(
            ["db", "web", "another"].map(|pod| after.allowed(pod)),
            ["1-2", "0,3-4,7", "0,3-4,7"]
        );
    };
    Part::new("cgroups replace refused partitions", steps, check)
}

/// The kernel returns the CPUs of a removed cgroup with a delay, and a partition that takes them
/// too early corrupts it. So each instance of a failing container gets its CPUs once they are
/// returned.
fn restarted_at_once() -> Part {
    let mut steps = vec![Step::StartPlugin(exclusivity("kernel")), Step::Run(exclusive("db", 4))];
    for _ in 0..10 {
        steps.extend([
            Step::Stop("db".into(), "main".into()),
            Step::Retry("db".into()),
            read(container("db"), PARTITION),
        ]);
    }
    steps.extend([Step::View, Step::KernelWarned]);
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        assert_eq!(texts(outcomes), ["root"; 10]);
        assert_eq!(views(outcomes)[0].allowed("db"), "1-4");
        check_kernel(outcomes);
    };
    Part::new("restarted at once", steps, check)
}

/// The kernel refuses a partition with CPUs that another container of the pod has, and invalidates
/// one when they are written there later.
fn with_shared_containers_in_the_pod() -> Part {
    let containers = ["early", "main"].map(|name| match name {
        "main" => Container::guaranteed(name, 2000),
        _ => Container::guaranteed(name, 500),
    });
    let pod = Pod::new("mixed", containers.to_vec());
    let steps = vec![
        Step::StartPlugin(exclusivity("kernel")),
        Step::Run(pod),
        Step::Run(exclusive("db", 2)),
        Step::Add("db".into(), Container::guaranteed("late", 500)),
        read(container("db"), PARTITION),
        Step::KillPlugin,
        Step::Add("db".into(), Container::guaranteed("later", 500)),
        read(container("db"), PARTITION),
        Step::View,
        Step::KernelWarned,
    ];
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        assert_eq!(texts(outcomes), ["root"; 2]);
        let view = views(outcomes)[0];
        assert_eq!(view.disagreements(), [""; 0]);
        assert_eq!(view.allowed("db"), "3-4");
        check_kernel(outcomes);
    };
    Part::new("with shared containers in the pod", steps, check)
}

/// Partitions without load balancing, with it, and none: no container moves.
fn type_and_mechanism_can_change() -> Part {
    let isolated = format!("{}cpusetPartition: isolated\n", exclusivity("kernel"));
    let mut steps = vec![
        Step::StartPlugin(isolated),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        read(container("db"), PARTITION),
        Step::View,
    ];
    for mode in ["kernel", "runtime"] {
        steps.extend([Step::Reconfigure(exclusivity(mode)), Step::Run(exclusive(mode, 1))]);
        if mode == "runtime" {
            // Partitions end with another mechanism.
            steps.push(Step::WaitFor("cpuset partitions ended: 2".into(), 1));
        }
        steps.extend([
            read(container("db"), PARTITION),
            read(container(mode), PARTITION),
            Step::View,
        ]);
    }
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let texts = texts(outcomes);
        assert_eq!((texts[0], texts[2], texts[4]), ("isolated", "root", "member"));
        assert_eq!(texts[1], "root");
        let views = views(outcomes);
        let allowed = |pod| views.iter().map(|view| view.allowed(pod)).collect::<Vec<_>>();
        assert_eq!(allowed("db"), ["1-2"; 3]);
        assert_eq!(allowed("web"), ["0,3-7", "0,4-7", "0,5-7"]);
    };
    Part::new("type and mechanism can change", steps, check)
}
