use super::*;
use crate::fake::{Files, Task};
use crate::{Owner, Roots, Sample};
use cpuset::CgroupPath;
use kernel::Linux;
use proptest::prelude::*;
use std::thread::sleep;

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn owner(name: &str, cgroup: &str, list: &str) -> Owner {
    let cgroup = CgroupPath::new(cgroup).unwrap();
    Owner { name: name.to_owned(), cgroup, cpus: cpus(list), in_force: InForce::default() }
}

const SOFTIRQS: &str = "CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\nTIMER: 0 0 0 0 0 0\n";

/// A node whose interrupts and threads have counted up to `n`.
fn node(n: u64) -> Files {
    let interrupts = format!(
        "CPU0 CPU2 CPU3 CPU4\n\
         41: 0 0 {} 0 PCI-MSIX-0000:00:05.0 3-edge nvme0q3\n\
         42: 0 0 {n} 0 PCI-MSIX-0000:00:06.0 1-edge eth0\n\
         LOC: 0 {n} {n} {n} Local timer interrupts\n\
         RES: 0 {n} 0 0 Rescheduling interrupts\n\
         PMI: 0 0 {n} 0 Performance monitoring interrupts\n",
        n * 7
    );
    let softirqs = format!("{SOFTIRQS}NET_RX: 0 0 0 {n} 0 0\n");
    let run = |task: Task| Task { voluntary: task.voluntary + n, ..task };
    let on_3 = |task: Task| Task { last_cpu: 3, ..task };
    Files::host(
        &interrupts,
        &softirqs,
        &[
            run(Task::kernel(20, "ksoftirqd/2", "2")),
            run(on_3(Task::kernel(22, "kworker/u16:4-writeback", "0-7"))),
            run(on_3(Task {
                ticks: n,
                ..Task::process(50, "containerd", "/system.slice/containerd.service")
            })),
            run(on_3(Task::process(60, "neigh\x1b[2Jbour", "/kubepods.slice/podc/other"))),
            Task {
                involuntary: n,
                last_cpu: 2,
                ..Task::process(70, "main", "/kubepods.slice/poda/main")
            },
        ],
    )
}

fn observe(owners: Vec<Owner>, samples: &[Files]) -> Observation {
    let watched = owners.iter().map(|owner| owner.cpus).collect();
    let take = |files: &Files| Sample::take(files, &Roots::default(), watched).unwrap();
    let mut observation = Observation::new(owners);
    samples.windows(2).for_each(|pair| observation.add(&take(&pair[0]), &take(&pair[1])));
    observation
}

/// Advice for the findings on CPU 3, for an owner for whose CPUs these settings hold.
fn advice(in_force: InForce) -> Vec<(Kind, Option<Advice>)> {
    let owner = Owner { in_force, ..owner("default/a/main", "kubepods.slice/poda/main", "2-3") };
    let noise = observe(vec![owner], &[node(0), node(5)])
        .noise(Duration::from_secs(1), &BTreeSet::from([41]));
    noise.containers[0].by_cpu[1].findings.iter().map(|one| (one.kind, one.advice)).collect()
}

#[test]
fn advice_never_names_a_setting_that_is_in_force() {
    use PartitionInForce::{Missing, Of};
    for (partition, host_process, kernel_thread) in [
        (Of(PartitionType::Root), Advice::ObserveAgain, Advice::IsolatedPartition),
        (Of(PartitionType::Isolated), Advice::ObserveAgain, Advice::BootIsolation),
        (Missing, Advice::NoPartition, Advice::BootIsolation),
    ] {
        let found = advice(InForce { partition, interrupts_away: true });
        for expected in [
            (Kind::HostProcess, Some(host_process)),
            (Kind::KernelThread, Some(kernel_thread)),
            (Kind::DeviceInterrupt, Some(Advice::KernelManaged)),
            (Kind::DeviceInterrupt, Some(Advice::NotAway)),
            (Kind::Softirq, Some(Advice::OwnTraffic)),
        ] {
            assert!(found.contains(&expected), "{expected:?} in {found:?}");
        }
    }
}

#[test]
fn only_lines_of_noisy_cpus_are_coloured() {
    let text = noise().text(true);
    let coloured: Vec<&str> = text.lines().filter(|line| line.contains('\x1b')).collect();
    assert_eq!(coloured, ["  \x1b[31mnoisy: CPU 3\x1b[0m"]);
    assert_eq!(text.replace("\x1b[31m", "").replace("\x1b[0m", ""), noise().text(false));
}

fn noise() -> NoiseReport {
    let owners = vec![
        owner("default/a/main", "kubepods.slice/poda/main", "2-3"),
        owner("default/b/main", "kubepods.slice/podb/main", "4-5"),
    ];
    let refused = BTreeSet::from([41]);
    observe(owners, &[node(0), node(2), node(5)]).noise(Duration::from_millis(2500), &refused)
}

#[test]
fn findings_have_their_weight_and_their_advice() {
    let noise = noise();
    let [quiet, noisy] = &noise.containers[0].by_cpu[..] else { panic!("{noise:?}") };
    let found: Vec<(Kind, u64, Option<Advice>)> =
        noisy.findings.iter().map(|one| (one.kind, one.count, one.advice)).collect();
    assert_eq!(
        found,
        [
            (Kind::OtherContainer, 5, Some(Advice::ReportDefect)),
            (Kind::HostProcess, 5, Some(Advice::KernelExclusivity)),
            (Kind::DeviceInterrupt, 35, Some(Advice::KernelManaged)),
            (Kind::KernelThread, 5, Some(Advice::IsolatedPartition)),
            (Kind::DeviceInterrupt, 5, Some(Advice::InterruptsAway)),
            (Kind::Softirq, 5, Some(Advice::FollowsInterrupts)),
            (Kind::OtherInterrupt, 5, Some(Advice::Watchdog)),
        ]
    );
    assert_eq!(noisy.verdict, Verdict::Noisy);

    let expected: Vec<(Kind, Option<Advice>)> =
        quiet.expected.iter().map(|one| (one.kind, one.advice)).collect();
    assert_eq!(
        expected,
        [
            (Kind::Tick, Some(Advice::BootParameters)),
            (Kind::SystemInterrupt, None),
            (Kind::PerCpuThread, Some(Advice::BootParameters)),
        ]
    );
    assert_eq!((quiet.verdict, quiet.involuntary_context_switches), (Verdict::Quiet, Some(5)));

    let verdicts: Vec<Verdict> = noise.containers[1].by_cpu.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Quiet, Verdict::Unobserved]);
}

#[test]
fn the_thread_of_an_interrupt_has_the_interrupts_advice() {
    for (name, unmovable, expected) in [
        ("irq/41-nvme0q3", 41, Advice::KernelManaged),
        ("irq/41-nvme0q3", 42, Advice::InterruptsAway),
        ("irq/x", 41, Advice::InterruptsAway),
    ] {
        let cause = Cause {
            kind: Kind::InterruptThread,
            number: Some(900),
            name: name.to_owned(),
            detail: String::new(),
        };
        assert_eq!(
            Advice::of(&cause, &BTreeSet::from([unmovable]), InForce::default()),
            Some(expected),
            "{name}"
        );
    }
}

#[test]
fn the_text_has_a_table_and_the_advice() {
    let expected = "\
noise on exclusive CPUs in 2.5 s, 3 samples

default/a/main, CPUs 2-3
  quiet: CPU 2
  noisy: CPU 3
  involuntary context switches of its own threads: 5
  seen on  source            count  time   name
  CPU 3    other container   5      0 ms   pid 60 neigh\u{fffd}[2Jbour, /kubepods.slice/podc/other
  CPU 3    host process      5      50 ms  pid 50 containerd, /system.slice/containerd.service
  CPU 3    device interrupt  35     -      IRQ 41 nvme0q3, PCI-MSIX-0000:00:05.0
  CPU 3    kernel thread     5      0 ms   pid 22 kworker/u16:4-writeback
  CPU 3    device interrupt  5      -      IRQ 42 eth0, PCI-MSIX-0000:00:06.0
  CPU 3    softirq           5      -      NET_RX
  CPU 3    other interrupt   5      -      PMI, Performance monitoring interrupts
  expected: LOC 10, RES 5, 1 per-CPU kernel thread

default/b/main, CPUs 4-5
  quiet: CPU 4
  not observed (offline, or one sample only): CPU 5
  expected: LOC 5
";
    let text = noise().text(false);
    let (table, advice) = text.split_once("\nThreads are").unwrap();
    assert_eq!(table, expected);
    let advice: Vec<&str> = advice.lines().skip(3).collect();
    assert_eq!(advice.len(), 8, "{text}");
    assert!(advice[0].starts_with("  other container: "), "{text}");
    assert!(advice[7].starts_with("  per-CPU kernel thread, tick: boot with nohz_full="), "{text}");
}

#[test]
fn json_reads_back() {
    let noise = noise();
    let json = serde_json::to_value(&noise).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["visibility"], "host");
    assert_eq!(json["containers"][0]["cpus"], "2-3");
    assert_eq!(json["containers"][0]["by_cpu"][0]["verdict"], "quiet");
    let finding = &json["containers"][0]["by_cpu"][1]["findings"][2];
    assert_eq!(
        *finding,
        serde_json::json!({
            "kind": "device_interrupt", "number": 41, "name": "nvme0q3", "detail": "PCI-MSIX-0000:00:05.0",
            "count": 35, "milliseconds": null, "threads": null, "advice": "kernel_managed"
        })
    );
    assert_eq!(serde_json::from_value::<NoiseReport>(json).unwrap(), noise);
}

#[test]
fn without_the_hosts_threads_quiet_has_a_limit() {
    let blind = |n: u64| {
        let interrupts = format!("CPU0 CPU2\nLOC: 0 {n} Local timer interrupts\n");
        Files { own_process: 1, ..Files::default() }
            .with("/proc/interrupts", interrupts)
            .with("/proc/softirqs", SOFTIRQS)
            .with_task(&Task::process(1, "nri-cpu-manager", "/"))
    };
    let owners = vec![owner("default/a/main", "kubepods/poda/main", "2")];
    let noise =
        observe(owners, &[blind(0), blind(3)]).noise(Duration::from_secs(1), &BTreeSet::new());
    let one = &noise.containers[0].by_cpu[0];
    assert_eq!(one.verdict, Verdict::QuietAsFarAsVisible);
    assert_eq!(one.involuntary_context_switches, None);
    let text = noise.text(false);
    assert!(
        text.contains("threads: not visible without the host's pid namespace (overlay host-pid)"),
        "{text}"
    );
    assert!(text.contains("quiet as far as visible: CPU 2"), "{text}");
}

#[test]
fn a_cpu_of_two_owners_is_reported_for_the_first() {
    let owners = vec![owner("a", "a", "2-3"), owner("b", "b", "3-4")];
    let noise =
        observe(owners, &[node(0), node(1)]).noise(Duration::from_secs(1), &BTreeSet::new());
    let lists: Vec<String> = noise.containers.iter().map(|one| one.cpus.to_string()).collect();
    assert_eq!(lists, ["2-3", "4"]);
}

#[test]
fn long_texts_say_how_much_is_left_out() {
    let interrupts = |n: usize| {
        let rows: String = (0..60)
            .map(|row| format!("{row}: {} PCI-MSI {row}-edge dev{row}\n", n * row))
            .collect();
        Files::host(&format!("CPU2\n{rows}"), SOFTIRQS, &[])
    };
    let owners = vec![owner("a", "a", "2")];
    let noise = observe(owners, &[interrupts(0), interrupts(1)])
        .noise(Duration::from_secs(1), &BTreeSet::new());
    assert_eq!(noise.containers[0].by_cpu[0].findings.len(), 59);
    // The heaviest first.
    assert_eq!(noise.containers[0].by_cpu[0].findings[0].name, "dev59");
    assert!(noise.text(false).contains("  and 19 more (as JSON: all)\n"));
}

#[test]
fn names_have_no_control_characters_and_a_bounded_length() {
    let cause = Cause {
        kind: Kind::HostProcess,
        number: Some(1),
        name: "x\n\x1b]0;".repeat(100),
        detail: "/\u{202e}".repeat(4000),
    };
    let finding = Finding::of(&cause, &Amount::default(), &BTreeSet::new(), InForce::default());
    let shown = finding.full_name();
    assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown}");
    assert!(shown.chars().count() < LONGEST_NAME + LONGEST_DETAIL + 80, "{shown}");
}

#[test]
fn the_heaviest_findings_of_a_container_come_first_whatever_their_cpus() {
    let heaviest: Vec<String> = noise().containers[0]
        .heaviest()
        .iter()
        .map(|(cpu, finding)| format!("CPU {cpu}: {finding}"))
        .collect();
    assert_eq!(
        heaviest[..3],
        [
            "CPU 3: other container pid 60 neigh�[2Jbour, /kubepods.slice/podc/other: 5 times, 0 ms",
            "CPU 3: host process pid 50 containerd, /system.slice/containerd.service: 5 times, 50 ms",
            "CPU 3: device interrupt IRQ 41 nvme0q3, PCI-MSIX-0000:00:05.0: 35 times",
        ]
    );
}

#[test]
fn observations_add_up_on_cpus_that_keep_their_owner() {
    let a = |list: &str| owner("default/a/main", "kubepods.slice/poda/main", list);
    // Since the first observation, CPU 2 has gone to b, and CPU 4 is new to a.
    let first = observe(vec![a("2-3")], &[node(0), node(2)]);
    let b = owner("default/b/main", "kubepods.slice/podb/main", "2");
    let mut sum = observe(vec![a("3-4"), b], &[node(2), node(5)]);
    sum.merge(&first);
    let noise = sum.noise(Duration::from_secs(5), &BTreeSet::new());
    assert_eq!(noise.samples, 3);
    let tick = |container: usize, cpu: usize| {
        let by_cpu = &noise.containers[container].by_cpu;
        let of_cpu = by_cpu.iter().find(|one| one.cpu == cpu).unwrap();
        of_cpu.expected.iter().find(|one| one.kind == Kind::Tick).unwrap().count
    };
    assert_eq!([tick(0, 3), tick(0, 4), tick(1, 2)], [5, 3, 3]);
    // The same name in another cgroup is another container.
    let restarted = owner("default/a/main", "kubepods.slice/poda/again", "3");
    let mut sum = observe(vec![restarted], &[node(2), node(5)]);
    sum.merge(&first);
    let noise = sum.noise(Duration::from_secs(5), &BTreeSet::new());
    let tick = noise.containers[0].by_cpu[0].expected.iter().find(|one| one.kind == Kind::Tick);
    assert_eq!(tick.unwrap().count, 3);
}

#[test]
fn without_interrupts_a_cpu_is_quiet_as_far_as_visible() {
    let masked = |n: u64| node(n).with("/proc/interrupts", "");
    let owners = || vec![owner("default/a/main", "kubepods.slice/poda/main", "2-3")];
    let noise = |samples: &[Files]| {
        observe(owners(), samples).noise(Duration::from_secs(2), &BTreeSet::new())
    };
    // One sample without them is enough.
    for samples in [[masked(0), masked(2)], [node(0), masked(2)], [masked(0), node(2)]] {
        let noise = noise(&samples);
        let [quiet, noisy] = &noise.containers[0].by_cpu[..] else { panic!("{noise:?}") };
        assert_eq!(quiet.verdict, Verdict::QuietAsFarAsVisible);
        let kinds: Vec<Kind> = noisy.findings.iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&Kind::Softirq) && kinds.contains(&Kind::HostProcess));
        assert!(!kinds.contains(&Kind::DeviceInterrupt));
        assert!(
            noise.text(false).contains("\ninterrupts: not visible: unexpected format"),
            "{}",
            noise.text(false)
        );
    }
    let mut sum = observe(owners(), &[node(0), node(2)]);
    assert_eq!(sum.interrupts_error, None);
    sum.merge(&observe(owners(), &[masked(2), node(3)]));
    assert!(sum.interrupts_error.is_some());
}

#[test]
fn names_can_be_left_out_and_so_can_what_is_expected() {
    let text = serde_json::to_string(&noise().without_names()).unwrap();
    for name in ["default", "containerd", "kubepods", "neigh", "kworker"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert!(text.contains("nvme0q3") && text.contains("LOC"), "{text}");
    let text = serde_json::to_string(&noise().without_expected()).unwrap();
    assert!(text.contains("nvme0q3") && !text.contains("LOC"), "{text}");
}

#[test]
fn words_are_those_of_the_json() {
    for visibility in Visibility::ALL {
        assert_eq!(serde_json::to_value(visibility).unwrap(), visibility.word());
    }
    let kinds = noise().containers.into_iter().flat_map(|container| container.by_cpu);
    let kinds: BTreeSet<Kind> = kinds
        .flat_map(|one| one.findings.into_iter().chain(one.expected))
        .map(|finding| finding.kind)
        .chain([Kind::FormerContainer, Kind::InterruptThread, Kind::TickSoftirq])
        .collect();
    assert_eq!(kinds.len(), 12);
    for kind in kinds {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
    }
}

/// This test's own threads are on some CPU, and belong to no owner.
#[test]
fn this_machine_is_observed() {
    let watched = cpus("0-1023");
    let take = || Sample::take(&Linux, &Roots::default(), watched).unwrap();
    let owners = vec![owner("none/none/none", "kubepods/none/none", "0-1023")];
    let mut observation = Observation::new(owners);
    let mut earlier = take();
    for _ in 0..5 {
        sleep(Duration::from_millis(20));
        let later = take();
        observation.add(&earlier, &later);
        earlier = later;
    }
    let noise = observation.noise(Duration::from_millis(100), &BTreeSet::new());
    let by_cpu = &noise.containers[0].by_cpu;
    assert!(by_cpu.iter().any(|one| !one.expected.is_empty()), "{}", noise.text(false));
    if noise.visibility != Visibility::InterruptsOnly {
        let own = std::process::id();
        let mut findings = by_cpu.iter().flat_map(|one| &one.findings);
        assert!(
            findings.any(|one| one.kind.is_thread() && one.number == Some(own)),
            "{}",
            noise.text(false)
        );
    }
}

proptest! {
    #[test]
    fn no_hostile_text_panics(
        before in "(CPU[0-9] ){1,3}\n([A-Z0-9]{1,3}:( [0-9]{1,20}){3} \\PC{0,20}\n){0,4}",
        after in "(CPU[0-9] ){1,3}\n([A-Z0-9]{1,3}:( [0-9]{1,20}){3} \\PC{0,20}\n){0,4}",
    ) {
        let files = |text: &str| Files::default().with("/proc/interrupts", text).with("/proc/softirqs", text);
        let owners = vec![owner("a", "a", "0-9")];
        let all = [files(&before), files(&after), files(&before), files(&after)];
        let noise = observe(owners, &all).noise(Duration::from_secs(1), &BTreeSet::new());
        let text = noise.text(false);
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }
}

/// A container with 40,000 threads sleeps on its CPU, and a process of the host runs there.
#[test]
fn a_container_with_many_threads_hides_no_others() {
    let many =
        Task { last_cpu: 2, allowed: "2", ..Task::process(1000, "sleeps", "/kubepods/pod1/main") };
    let host = |voluntary| Task {
        last_cpu: 2,
        voluntary,
        ..Task::process(2000, "cron", "/system.slice/cron.service")
    };
    let sample = |voluntary| {
        let mut files = Files::host("CPU2\n", "CPU2\nTIMER: 0\n", &[host(voluntary)]);
        for thread in 100_000..140_000 {
            files = files.with_task(&Task { thread, ..many.clone() });
        }
        Sample::take(&files, &Roots::default(), "2".parse().unwrap()).unwrap()
    };
    let owner = Owner {
        name: "ns/pod1/main".to_owned(),
        cgroup: CgroupPath::new("kubepods/pod1/main").unwrap(),
        cpus: "2".parse().unwrap(),
        in_force: InForce::default(),
    };
    let mut observation = Observation::new(vec![owner]);
    let (earlier, later) = (sample(5), sample(6));
    let bytes = format!("{later:?}").len();
    assert!(bytes < 2 << 20, "a sample has {bytes} bytes as text");
    observation.add(&earlier, &later);
    let noise = observation.noise(Duration::from_secs(10), &BTreeSet::new());
    assert_eq!(
        noise.hidden(),
        [
            "37952 threads not observed: a sample reads 2048 of one cgroup, and 16384 of 2048 cgroups in all"
        ]
    );
    let [cpu] = &noise.containers[0].by_cpu[..] else { panic!("{noise:?}") };
    assert_eq!(cpu.findings.len(), 1, "{cpu:?}");
    let mut observation = Observation::new(observation.owners);
    observation.add(&later, &later);
    let noise = observation.noise(Duration::from_secs(10), &BTreeSet::new());
    assert_eq!(noise.containers[0].by_cpu[0].verdict, Verdict::QuietAsFarAsVisible);
}
