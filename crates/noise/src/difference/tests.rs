use super::*;
use crate::fake::{Files, Task};
use crate::sample::Roots;
use proptest::prelude::*;

const MAIN: &str = "/kubepods.slice/poda/main";
const SIDE: &str = "/kubepods.slice/podb/side";
const OTHER: &str = "/kubepods.slice/podc/other";

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn owners() -> Vec<Owner> {
    let owner = |name: &str, cgroup, list| Owner {
        name: name.to_owned(),
        cgroup: CgroupPath::new(cgroup).unwrap(),
        cpus: cpus(list),
        in_force: InForce::default(),
    };
    vec![owner("default/a/main", MAIN, "2-3"), owner("default/b/side", SIDE, "5")]
}

/// A table with columns for these CPUs. In a row, counts come before the description.
fn table(columns: &[usize], rows: &[&str]) -> String {
    let titles: Vec<String> = columns.iter().map(|cpu| format!("CPU{cpu}")).collect();
    format!("           {}\n{}\n", titles.join("       "), rows.join("\n"))
}

fn sample(interrupts: &str, softirqs: &str, tasks: &[Task]) -> Sample {
    let files = Files::host(interrupts, softirqs, tasks);
    Sample::take(&files, &Roots::default(), cpus("2-3,5")).unwrap()
}

/// A sample in which only threads matter.
fn threads(tasks: &[Task]) -> Sample {
    let table = table(&[2, 3, 5], &[]);
    sample(&table, &table, tasks)
}

fn observe(samples: impl IntoIterator<Item = Sample>) -> Observation {
    let samples: Vec<Sample> = samples.into_iter().collect();
    let mut observation = Observation::new(owners());
    samples.windows(2).for_each(|pair| observation.add(&pair[0], &pair[1]));
    observation
}

/// As `CPU KIND NAME COUNT/TICKS`.
fn causes(observation: &Observation) -> Vec<String> {
    let of = |(cpu, tally): (&usize, &CpuTally)| -> Vec<String> {
        let causes = tally.causes.iter();
        causes
            .map(|(cause, amount)| {
                let Amount { count, ticks, .. } = amount;
                format!("{cpu} {} {} {count}/{ticks}", cause.kind.name(), cause.name)
            })
            .collect()
    };
    observation.tallies.iter().flat_map(of).collect()
}

/// Runs for two ticks and three switches, one of them involuntary.
fn ran(task: &Task) -> Task {
    Task {
        ticks: task.ticks + 2,
        voluntary: task.voluntary + 2,
        involuntary: task.involuntary + 1,
        ..task.clone()
    }
}

#[test]
fn interrupts_and_softirqs_count_on_the_cpu_of_their_column() {
    let columns = [0, 2, 3];
    let before = sample(
        &table(
            &columns,
            &["24: 1 10 100 PCI-MSI 1-edge nvme0q1", "LOC: 1 1 1 Local timer interrupts"],
        ),
        &table(&columns, &["NET_RX: 1 1 1", "TIMER: 1 1 1"]),
        &[],
    );
    let after = sample(
        &table(
            &columns,
            &[
                "24: 9 10 107 PCI-MSI 1-edge nvme0q1",
                "30: 0 4 0 PCI-MSI 2-edge eth0",
                "LOC: 2 5 2 Local timer interrupts",
            ],
        ),
        &table(&columns, &["NET_RX: 9 3 1", "TIMER: 2 1 4"]),
        &[],
    );
    assert_eq!(
        causes(&observe([before, after])),
        [
            "2 device interrupt eth0 4/0",
            "2 softirq NET_RX 2/0",
            "2 tick LOC 4/0",
            "3 device interrupt nvme0q1 7/0",
            "3 tick LOC 1/0",
            "3 softirq of the tick TIMER 3/0",
        ]
    );
}

#[test]
fn a_counter_wraps_around_at_32_bits() {
    let most = u64::from(u32::MAX);
    assert_eq!(grown(5, 9), 4);
    assert_eq!(grown(most - 1, 3), 5);
    // The number has a new device.
    assert_eq!(grown(1000, 3), 3);
    assert_eq!(grown(most, most + 2), 2);
    assert_eq!(grown(u64::MAX, 7), 7);
    assert_eq!(grown(u64::MAX, u64::MAX - 1), u64::MAX - 1);
}

#[test]
fn columns_are_matched_by_cpu_when_one_goes_offline() {
    let with = |columns: &[usize], counts: &str| {
        let interrupts = table(columns, &[&format!("24: {counts} PCI-MSI 1-edge nvme0q1")]);
        sample(&interrupts, &table(&[0, 1, 2, 3, 4, 5], &[]), &[])
    };
    let all = with(&[0, 2, 3, 5], "7 10 100 1000");
    let without_2 = with(&[0, 3, 5], "8 101 1002");
    let back = with(&[0, 2, 3, 5], "9 50 103 1003");

    let observation = observe([all.clone(), without_2.clone()]);
    let expected = ["3 device interrupt nvme0q1 1/0", "5 device interrupt nvme0q1 2/0"];
    assert_eq!(causes(&observation), expected);
    let observed: Vec<bool> = observation.tallies.values().map(|tally| tally.is_observed).collect();
    assert_eq!(observed, [false, true, true]);

    let observation = observe([all, without_2, back]);
    let expected = ["3 device interrupt nvme0q1 3/0", "5 device interrupt nvme0q1 3/0"];
    assert_eq!(causes(&observation), expected);
}

#[test]
fn a_description_has_chip_and_handlers() {
    for (text, chip, hardware, name) in [
        (
            "PCI-MSIX-0000:00:05.0   1-edge      eth0-rx-0",
            "PCI-MSIX-0000:00:05.0",
            "1-edge",
            "eth0-rx-0",
        ),
        ("IO-APIC   9-fasteoi   acpi, i2c 1", "IO-APIC", "9-fasteoi", "acpi, i2c 1"),
        ("GICv3  27 Level     arch_timer", "GICv3", "27", "arch_timer"),
        ("ITS-MSI 524288 Edge      nvme0q0", "ITS-MSI", "524288", "nvme0q0"),
        ("RISC-V INTC   5 Edge      riscv-timer", "RISC-V INTC", "5", "riscv-timer"),
        ("xen-percpu    -virq      timer0", "xen-percpu", "-virq", "timer0"),
        ("IO-APIC   9-fasteoi", "IO-APIC", "9-fasteoi", ""),
        ("dummy      some handler", "dummy", "", "some handler"),
        ("chip", "chip", "", ""),
        ("", "", "", ""),
    ] {
        let expected =
            Device { chip: chip.to_owned(), hardware: hardware.to_owned(), name: name.to_owned() };
        assert_eq!(Device::parse(text), expected, "{text:?}");
    }
}

#[test]
fn interrupts_of_one_cpu_are_not_devices() {
    for (label, description, kind) in [
        ("24", "PCI-MSI 1-edge nvme0q1", Kind::DeviceInterrupt),
        ("11", "GICv3  27 Level     arch_timer", Kind::Tick),
        ("12", "GICv3  23 Level     arm-pmu", Kind::OtherInterrupt),
        ("13", "GICv3  47 Level     uart-pl011", Kind::DeviceInterrupt),
        ("5", "RISC-V INTC   5 Edge      riscv-timer", Kind::Tick),
        ("16", "xen-percpu    -ipi       resched0", Kind::SystemInterrupt),
        ("IPI0", "Rescheduling interrupts", Kind::SystemInterrupt),
        ("RES", "Rescheduling interrupts", Kind::SystemInterrupt),
        ("LOC", "Local timer interrupts", Kind::Tick),
        ("NMI", "Non-maskable interrupts", Kind::OtherInterrupt),
        ("NEW", "Something of a later kernel", Kind::OtherInterrupt),
    ] {
        let row = Row { counts: Vec::new(), description: description.to_owned() };
        assert_eq!(interrupt(label, &row).kind, kind, "{label}");
    }
}

#[test]
fn threads_that_ran_are_told_apart() {
    let on = |cpu, task: Task| Task { last_cpu: cpu, ..task };
    let tasks = [
        Task::kernel(20, "ksoftirqd/2", "2"),
        Task::kernel(21, "kworker/3:1-events", "3"),
        on(2, Task::kernel(22, "kworker/u16:4-writeback", "0-7")),
        on(3, Task::kernel(23, "kswapd0", "0-3")),
        Task::kernel(24, "irq/41-nvme0q3", "3"),
        // Bound to another CPU since it ran.
        on(5, Task::kernel(25, "rcuop/7", "7")),
        on(2, Task::process(50, "containerd", "/system.slice/containerd.service")),
        on(3, Task::process(60, "neighbour", OTHER)),
        on(5, Task::process(70, "main", MAIN)),
        on(3, Task::process(71, "main", MAIN)),
        on(3, Task::process(72, "child", "/kubepods.slice/poda/main/child")),
    ];
    // A thread without growth is none.
    let idle = on(2, Task::process(80, "idle", "/"));
    let before = [&tasks[..], std::slice::from_ref(&idle)].concat();
    let mut after: Vec<Task> = tasks.iter().map(ran).collect();
    after.push(idle);
    let observation = observe([threads(&before), threads(&after)]);
    assert_eq!(
        causes(&observation),
        [
            "2 host process containerd 3/2",
            "2 kernel thread kworker/u16:4-writeback 3/2",
            "2 per-CPU kernel thread ksoftirqd/2 3/2",
            "3 other container neighbour 3/2",
            "3 kernel thread kswapd0 3/2",
            "3 interrupt thread irq/41-nvme0q3 3/2",
            "3 per-CPU kernel thread kworker/3:1-events 3/2",
            "5 other container main 3/2",
            "5 kernel thread rcuop/7 3/2",
        ]
    );
    // Threads of the owner, also in cgroups below.
    let involuntary: Vec<u64> =
        observation.tallies.values().map(|tally| tally.involuntary).collect();
    assert_eq!(involuntary, [0, 2, 0]);
    let cause = observation.tallies[&5].causes.keys().next().unwrap();
    assert_eq!(cause.detail, "default/a/main");
    let cause = observation.tallies[&2].causes.keys().next().unwrap();
    assert_eq!(cause.detail, "/system.slice/containerd.service");
}

#[test]
fn a_container_that_may_not_run_on_a_cpu_any_more_is_no_defect() {
    // Asleep since its CPUs changed, or since its process joined the container's cgroup.
    let before = Task { last_cpu: 2, ..Task::process(60, "neighbour", OTHER) };
    let after = Task { allowed: "0-1", ..ran(&before) };
    let observation = observe([threads(&[before]), threads(&[after])]);
    assert_eq!(causes(&observation), ["2 former container neighbour 3/2"]);
}

#[test]
fn a_pods_cgroup_is_known_by_its_name() {
    for (path, expected) in [
        ("kubepods/burstable/pod1/c", Kind::OtherContainer),
        ("kubelet.slice/kubelet-kubepods.slice/x.slice/c.scope", Kind::OtherContainer),
        ("kubepods-besteffort-podx.slice/cri-containerd-1.scope", Kind::OtherContainer),
        ("pod01234567-89ab-cdef-0123-456789abcdef/c", Kind::OtherContainer),
        ("crio-1.scope", Kind::OtherContainer),
        ("system.slice/podman.service", Kind::HostProcess),
        ("", Kind::HostProcess),
    ] {
        let files = Files::host(
            &table(&[2], &[]),
            &table(&[2], &[]),
            &[Task { last_cpu: 2, ..Task::process(50, "x", "/") }],
        );
        let files = files.with("/proc/50/cgroup", format!("0::/{path}\n"));
        let sample = Sample::take(&files, &Roots::default(), cpus("2")).unwrap();
        let thread = sample.threads.values().find(|thread| thread.process == 50).unwrap();
        assert_eq!(thread_kind(&owners(), thread, 2), expected, "{path}");
    }
}

#[test]
fn a_thread_that_moved_was_seen_on_both_cpus() {
    let before = Task { last_cpu: 2, ..Task::process(50, "sshd", "/system.slice/sshd.service") };
    let after = Task { last_cpu: 3, ..ran(&before) };
    let expected = ["2 host process sshd 3/2", "3 host process sshd 3/2"];
    assert_eq!(
        causes(&observe([threads(std::slice::from_ref(&before)), threads(&[after])])),
        expected
    );

    // It left while it was still allowed, and may not return.
    let gone = Task { last_cpu: 0, allowed: "0-1", ..ran(&before) };
    let expected = ["2 host process sshd 3/2"];
    assert_eq!(
        causes(&observe([
            threads(std::slice::from_ref(&before)),
            threads(std::slice::from_ref(&gone))
        ])),
        expected
    );

    // It ran on CPU 2 once, but was not allowed there at either time.
    let shut_out = Task { allowed: "0-1", ..before };
    assert!(causes(&observe([threads(&[shut_out]), threads(&[gone])])).is_empty());
}

#[test]
fn samples_between_show_where_a_thread_ran() {
    let start = Task { last_cpu: 0, ..Task::process(50, "sshd", "/system.slice/sshd.service") };
    let visit = Task { last_cpu: 3, ..ran(&start) };
    let back = Task { last_cpu: 0, ..ran(&visit) };
    let first = threads(&[start]);
    let last = threads(&[back]);
    assert!(causes(&observe([first.clone(), last.clone()])).is_empty());
    let observation = observe([first, threads(&[visit]), last]);
    assert_eq!(causes(&observation), ["3 host process sshd 6/4"]);
    assert_eq!(observation.pairs, 2);
}

#[test]
fn a_new_thread_under_an_old_id_counts_from_its_start() {
    let before = Task { last_cpu: 2, ticks: 900, ..Task::process(50, "old", "/") };
    let after = Task { last_cpu: 2, started: 101, ticks: 1, ..Task::process(50, "new", "/") };
    let observation = observe([threads(&[before]), threads(&[after])]);
    assert_eq!(causes(&observation), ["2 host process new 10/1"]);
}

#[test]
fn a_thread_that_comes_from_unwatched_cpus_counts_from_its_earlier_counters() {
    let before = Task { allowed: "0-1", ticks: 900, ..Task::process(50, "pinned", "/") };
    let after = Task { last_cpu: 2, allowed: "0-7", ..ran(&before) };
    let observation = observe([threads(&[before]), threads(&[after])]);
    assert_eq!(causes(&observation), ["2 host process pinned 3/2"]);
}

#[test]
fn threads_of_a_process_with_one_name_are_one_cause() {
    let first = Task { last_cpu: 2, ..Task::process(50, "worker", "/system.slice/x.service") };
    let second = Task { thread: 51, ..first.clone() };
    let other = Task { thread: 52, name: "timer", ..first.clone() };
    let before = [first, second, other];
    let after: Vec<Task> = before.iter().map(ran).collect();
    let observation = observe([threads(&before), threads(&after)]);
    let expected = ["2 host process timer 3/2", "2 host process worker 6/4"];
    assert_eq!(causes(&observation), expected);
    let amounts: Vec<usize> =
        observation.tallies[&2].causes.values().map(|amount| amount.threads.len()).collect();
    assert_eq!(amounts, [1, 2]);
}

#[test]
fn threads_that_one_sample_could_not_see_are_not_new() {
    let task = Task { last_cpu: 2, ..Task::process(50, "sshd", "/") };
    let mut blind = threads(&[]);
    blind.visibility = Visibility::InterruptsOnly;
    blind.threads.clear();
    let observation = observe([blind, threads(&[task])]);
    assert!(causes(&observation).is_empty());
    assert_eq!(observation.visibility, Visibility::InterruptsOnly);
}

#[test]
fn a_machine_with_512_cpus_and_600_interrupts_takes_one_pass() {
    let columns: Vec<usize> = (0..512).collect();
    let at = |offset: usize| {
        let rows: Vec<String> = (0..600)
            .map(|number| {
                let counts: Vec<String> =
                    columns.iter().map(|cpu| format!("{:>10}", number * cpu + offset)).collect();
                format!(
                    "{number:>4}: {} PCI-MSIX-0000:00:05.0 {number}-edge mlx5_comp{number}",
                    counts.join(" ")
                )
            })
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let files = Files::host(&table(&columns, &rows), &table(&columns, &[]), &[]);
        Sample::take(&files, &Roots::default(), cpus("0-511")).unwrap()
    };
    let owner = Owner {
        name: "large".to_owned(),
        cgroup: CgroupPath::new("kubepods/large").unwrap(),
        cpus: cpus("0-511"),
        in_force: InForce::default(),
    };
    let mut observation = Observation::new(vec![owner]);
    observation.add(&at(0), &at(3));
    assert_eq!(observation.tallies.len(), 512);
    for tally in observation.tallies.values() {
        assert_eq!(tally.causes.len(), 600);
        assert!(tally.causes.values().all(|amount| amount.count == 3));
    }
}

proptest! {
    #[test]
    fn growth_is_found_across_a_wrap_around(start: u64, steps in 0u64..1 << 31) {
        prop_assert_eq!(grown(start, start.saturating_add(steps)), start.saturating_add(steps) - start);
        let start = u64::from(start as u32);
        let end = u64::from((start + steps) as u32);
        prop_assert_eq!(grown(start, end), steps);
    }

    #[test]
    fn no_description_panics(label in "[ -~]{0,6}", description in "\\PC{0,40}") {
        let row = Row { counts: Vec::new(), description };
        let _ = interrupt(&label, &row);
        let _ = softirq(&label, &row);
    }
}
