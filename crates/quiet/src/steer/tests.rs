#![allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]
#![allow(clippy::disallowed_types, reason = "a fake kernel that remembers")]

use super::*;
use crate::goal::{InterruptMode, QuietContainer};
use crate::knobs::Knobs;
use crate::originals::tests::InMemory;
use kernel::{Linux, RecordFile};
use nix::errno::Errno;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Linux on a copy of its files. It counts writes, refuses those of some files, and changes others.
#[derive(Debug, Default)]
struct Fake {
    written: Mutex<Vec<String>>,
    refused: Mutex<BTreeMap<String, Errno>>,
    /// Files that cannot be opened for writing.
    read_only: Mutex<BTreeSet<String>>,
    /// What files say after any write.
    rounded: Mutex<BTreeMap<String, String>>,
}

fn has<T>(files: &BTreeMap<String, T>, path: &Path) -> Option<String> {
    files.keys().find(|file| path.ends_with(file)).cloned()
}

impl Kernel for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Linux.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.written.lock().unwrap().push(format!("{}: {text}", path.display()));
        self.check_writable(path)?;
        let refused = self.refused.lock().unwrap();
        if let Some(file) = has(&refused, path) {
            return Err(refused[&file].into());
        }
        if path.ends_with("scaling_min_freq") {
            let max = fs::read_to_string(path.with_file_name("scaling_max_freq"))?;
            if text.parse::<u64>().unwrap() > max.trim().parse().unwrap() {
                return Err(Errno::EINVAL.into());
            }
        }
        let requested = path.with_file_name("cpumask_requested");
        if path.ends_with("workqueue/cpumask") && requested.exists() {
            Linux.write(&requested, &format!("{text}\n"))?;
        }
        let rounded = self.rounded.lock().unwrap();
        let text = has(&rounded, path).map_or(text, |file| rounded[&file].as_str());
        Linux.write(path, &format!("{text}\n"))
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        if self.read_only.lock().unwrap().iter().any(|file| path.ends_with(file)) {
            return Err(Errno::EACCES.into());
        }
        Linux.check_writable(path)
    }

    fn entries(&self, path: &Path) -> io::Result<kernel::Entries> {
        Linux.entries(path)
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        Linux.number(path)
    }

    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()> {
        Linux.set_affinity(thread, cpus)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Linux.resolve(path)
    }

    fn own_process(&self) -> u32 {
        Linux.own_process()
    }
}

struct Node {
    root: TempDir,
    kernel: Fake,
    file: Arc<InMemory>,
    steering: Steering,
    interrupts: BTreeMap<u32, &'static str>,
    goal: Goal,
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

impl Node {
    /// Eight CPUs on two NUMA nodes, with CPUs 0 and 4, 1 and 5, ... as siblings, and a default affinity.
    fn new() -> Node {
        let root = tempfile::tempdir().unwrap();
        let file = Arc::new(InMemory::default());
        let steering = Node::start(root.path(), &file);
        let siblings = (0..4).map(|cpu| cpus(&format!("{cpu},{}", cpu + 4))).collect();
        let goal = Goal {
            online: cpus("0-7"),
            nodes: BTreeMap::from([(0, cpus("0-1,4-5")), (1, cpus("2-3,6-7"))]),
            cores: siblings,
            containers: Vec::new(),
        };
        let kernel = Fake::default();
        let node = Node { root, kernel, file, steering, interrupts: BTreeMap::new(), goal };
        node.set("proc/irq/default_smp_affinity", "ff");
        node.list();
        node
    }

    fn start(root: &Path, file: &Arc<InMemory>) -> Steering {
        let roots = Roots::below(root);
        let file = Arc::clone(file) as Arc<dyn RecordFile>;
        let (originals, problem) = Originals::open(file, &Linux, &roots.proc);
        assert_eq!(problem, None);
        Steering::new(roots, originals, Irqbalance::new(Vec::new()))
    }

    /// The process ends at any moment, and another one starts.
    fn restart(&mut self) {
        self.steering = Node::start(self.root.path(), &self.file);
    }

    fn set(&self, file: &str, text: &str) {
        let path = self.root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.root.path().join(file)).unwrap().trim().to_owned()
    }

    /// Writes `/proc/interrupts`.
    fn list(&self) {
        let mut text = "     CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n".to_owned();
        for (number, name) in &self.interrupts {
            text += &format!("{number:>4}:  1 0 0 0 0 0 0 0  PCI-MSI  {number}-edge      {name}\n");
        }
        self.set("proc/interrupts", text.trim_end());
    }

    fn add(&mut self, number: u32, name: &'static str, affinity: &str) {
        self.interrupts.insert(number, name);
        self.list();
        self.set_affinity(number, affinity);
    }

    fn set_affinity(&self, number: u32, affinity: &str) {
        self.set(&format!("proc/irq/{number}/smp_affinity_list"), affinity);
    }

    fn affinity(&self, number: u32) -> String {
        self.get(&format!("proc/irq/{number}/smp_affinity_list"))
    }

    fn avoid(&mut self, list: &str) {
        self.goal.containers = vec![QuietContainer {
            name: "pod/container".to_owned(),
            cpus: cpus(list),
            interrupts: InterruptMode::Away,
            knobs: Knobs::default(),
        }];
    }

    fn knobs(&mut self, container: usize, words: &[(&str, &str)]) {
        for (key, value) in words {
            self.goal.containers[container].knobs.set(key, value).unwrap();
        }
    }

    fn pass(&mut self) -> Report {
        let before = self.kernel.written.lock().unwrap().len();
        let report = self.steering.pass(&self.kernel, &self.goal);
        let after = self.kernel.written.lock().unwrap().len();
        assert_eq!(report.written, (after - before) as u64);
        report
    }

    /// A pass that nothing disturbs.
    fn quiet_pass(&mut self) -> u64 {
        let report = self.pass();
        let Report { written, irqbalance, away, .. } = report.clone();
        assert_eq!(report, Report { written, irqbalance, away, ..Report::default() });
        written
    }

    fn restore(&mut self) -> Restored {
        self.steering.restore(&self.kernel)
    }
}

#[test]
fn a_second_pass_over_600_interrupts_and_100_containers_writes_nothing() {
    let mut node = Node::new();
    for number in 0..600 {
        node.interrupts.insert(number, "queue");
        node.set_affinity(number, if number % 3 == 0 { "0-255" } else { "0-3" });
    }
    node.list();
    node.set("proc/irq/default_smp_affinity", &mask(cpus("0-255")));
    node.goal.online = cpus("0-255");
    let containers = (0..100).map(|index| QuietContainer {
        name: format!("container {index}"),
        cpus: cpus(&format!("{}-{}", 16 + 2 * index, 17 + 2 * index)),
        interrupts: InterruptMode::Away,
        knobs: Knobs::default(),
    });
    node.goal.containers = containers.collect();
    assert_eq!(node.quiet_pass(), 201);
    assert_eq!(node.affinity(0), "0-15,216-255");
    assert_eq!(node.get("proc/irq/default_smp_affinity").len(), 8 * 8 + 7);
    // One save before all writes, one after.
    assert_eq!(*node.file.writes.lock().unwrap(), 2);
    assert_eq!(node.quiet_pass(), 0);
    assert_eq!(*node.file.writes.lock().unwrap(), 2);
    node.restart();
    assert_eq!(node.quiet_pass(), 0);
    node.goal.containers.pop();
    assert_eq!(node.quiet_pass(), 201);
    assert_eq!(node.affinity(0), "0-15,214-255");
    assert_eq!(node.restore().files, 201);
    assert_eq!([node.affinity(0), node.affinity(1)], ["0-255", "0-3"]);
    assert!(node.steering.is_unused());
}

#[test]
fn interrupts_leave_exclusive_cpus_and_return() {
    let mut node = Node::new();
    node.add(24, "nic-0", "0-7");
    node.add(25, "nic-1", "6");
    node.add(26, "disk", "1");
    node.set("proc/irq/27/smp_affinity_list", "6");
    node.set("sys/devices/virtual/workqueue/cpumask", "00000000,000000ff");
    node.avoid("2,6");
    let report = node.pass();
    assert_eq!(report.written, 4);
    let away = BTreeMap::from([(24, cpus("2,6")), (25, cpus("6"))]);
    assert_eq!((report.away.clone(), node.pass().away), (away.clone(), away));
    assert_eq!([24, 25, 26, 27].map(|irq| node.affinity(irq)), ["0-1,3-5,7", "3,7", "1", "6"]);
    assert_eq!(node.get("proc/irq/default_smp_affinity"), "000000bb");
    assert_eq!(node.get("sys/devices/virtual/workqueue/cpumask"), "000000bb");
    node.goal.containers[0].interrupts = InterruptMode::Housekeeping;
    assert_eq!(node.quiet_pass(), 4);
    assert_eq!([24, 25].map(|irq| node.affinity(irq)), ["0-7", "6"]);
    assert!(node.steering.is_unused());
    node.avoid("");
    assert_eq!(node.quiet_pass(), 0);
}

#[test]
fn drift_is_corrected_and_a_harmless_change_is_the_new_original() {
    let mut node = Node::new();
    node.add(24, "nic", "0-7");
    node.avoid("2,6");
    node.quiet_pass();
    for observed in ["0-7", "2"] {
        node.set_affinity(24, observed);
        let report = node.pass();
        let target = SettingValue::Cpus(cpus("0-1,3-5,7"));
        let observed = SettingValue::Cpus(cpus(observed));
        assert_eq!(report.drift, [Drift { setting: Setting::Interrupt(24), observed, target }]);
        assert_eq!(node.affinity(24), "0-1,3-5,7");
        assert_eq!(node.quiet_pass(), 0);
    }
    node.set_affinity(24, "1");
    assert_eq!(node.quiet_pass(), 0);
    let restored = node.restore();
    assert_eq!((restored.files, restored.left), (1, vec![]));
    assert_eq!(node.affinity(24), "1");
    assert_eq!(node.get("proc/irq/default_smp_affinity"), "000000ff");
}

#[test]
fn a_crash_between_record_and_write_is_no_drift() {
    for there in ["0-5,7", "0-7"] {
        let mut node = Node::new();
        node.add(24, "nic", "0-7");
        node.avoid("6");
        node.quiet_pass();
        let [six, both] = ["0-5,7", "0-4,7"].map(|list| SettingValue::Cpus(cpus(list)));
        let names = ["nic".to_owned()];
        let original = SettingValue::Cpus(cpus("0-7"));
        let write = (&original, &both);
        node.steering.originals.will_write(&Setting::Interrupt(24), &names, write);
        node.steering.originals.save().unwrap();
        let ours = &node.steering.originals.get(&Setting::Interrupt(24)).unwrap().ours;
        assert_eq!(*ours, [six, both]);

        node.set_affinity(24, there);
        node.restart();
        assert_eq!(node.pass().drift, []);
        assert_eq!(node.affinity(24), "0-5,7");
        node.restore();
        assert_eq!(node.affinity(24), "0-7");
    }
}

#[test]
fn nothing_is_written_that_is_not_recorded() {
    let mut node = Node::new();
    node.add(24, "nic", "0-7");
    node.avoid("6");
    *node.file.is_full.lock().unwrap() = true;
    let report = node.pass();
    assert_eq!((report.written, report.errors.len()), (0, 2));
    assert_eq!(node.affinity(24), "0-7");
    *node.file.is_full.lock().unwrap() = false;
    assert_eq!(node.quiet_pass(), 2);
    *node.file.is_full.lock().unwrap() = true;
    let restored = node.restore();
    assert_eq!((restored.files, restored.errors.len()), (2, 1));
    assert_eq!(node.affinity(24), "0-7");
}

#[test]
fn refused_interrupts_are_reported_and_rarely_tried_again() {
    let mut node = Node::new();
    node.add(0, "timer", "0-7");
    node.add(30, "nvme0q3", "6");
    node.add(31, "nvme0q1", "0");
    node.set("proc/irq/0/effective_affinity_list", "0");
    node.kernel.refused.lock().unwrap().insert("irq/0/smp_affinity_list".to_owned(), Errno::EIO);
    let managed = "irq/30/smp_affinity_list".to_owned();
    node.kernel.read_only.lock().unwrap().insert(managed.clone());
    node.avoid("6");
    let report = node.pass();
    let noise = |report: &Report| {
        let refused = report.refused.iter();
        refused
            .map(|RefusedInterrupt { interrupt: noise, why }| {
                assert_eq!(noise.chip, "PCI-MSI");
                format!("{} {} {} {why}", noise.number, noise.names.join("+"), noise.cpus)
            })
            .collect::<Vec<_>>()
    };
    let refused = [
        "0 timer 6 Input/output error (os error 5)",
        "30 nvme0q3 6 Permission denied (os error 13)",
    ];
    assert_eq!(noise(&report), refused);
    assert_eq!(report.written, 3);
    // Another goal is no reason to try again.
    let first = &report.refused[0].interrupt;
    assert_eq!(first.to_string(), "interrupt 0 (timer, PCI-MSI) on CPU 6");
    node.avoid("5-6");
    for _ in 0..RETRY {
        let report = node.pass();
        assert_eq!(noise(&report).len(), 2);
    }
    assert_eq!(node.kernel.written.lock().unwrap().len(), 4);
    assert_eq!(node.pass().written, 2);
    assert_eq!(node.pass().written, 0);
    // Another device.
    node.add(0, "other", "0-7");
    assert_eq!(node.pass().written, 1);
    // The file's mode.
    node.kernel.read_only.lock().unwrap().clear();
    let report = node.pass();
    assert_eq!(report.written, 1);
    assert_eq!(noise(&report).len(), 1);
    assert_eq!(node.affinity(30), "2-3,7");
    node.kernel.read_only.lock().unwrap().insert(managed);
    let restored = node.restore();
    assert_eq!(restored.left.len(), 1, "{restored:?}");
    assert_eq!(restored.left[0].0, Setting::Interrupt(30));
    node.kernel.read_only.lock().unwrap().clear();
    assert_eq!(node.restore().files, 1);
    assert_eq!(node.affinity(30), "6");
    assert!(node.steering.is_unused());
}

#[test]
fn cpus_without_free_vectors_are_not_tried_again_but_others_are() {
    let mut node = Node::new();
    node.add(24, "nic", "6");
    node.kernel
        .refused
        .lock()
        .unwrap()
        .insert("irq/24/smp_affinity_list".to_owned(), Errno::ENOSPC);
    node.avoid("6");
    assert_eq!(node.pass().refused.len(), 1);
    assert_eq!(node.pass().written, 0);
    node.kernel.refused.lock().unwrap().clear();
    node.avoid("6-7");
    assert_eq!(node.quiet_pass(), 2);
    assert_eq!(node.affinity(24), "2-3");
}

#[test]
fn effective_masks_are_pending_until_the_next_interrupt() {
    let mut node = Node::new();
    node.add(24, "nic", "0-7");
    node.set("proc/irq/24/effective_affinity_list", "6");
    node.avoid("6");
    let pending = |report: Report| {
        assert_eq!(report.refused, []);
        report.pending.iter().map(|noise| (noise.number, noise.cpus)).collect::<Vec<_>>()
    };
    assert_eq!(pending(node.pass()), [(24, cpus("6"))]);
    assert_eq!(pending(node.pass()), [(24, cpus("6"))]);
    node.set("proc/irq/24/effective_affinity_list", "1");
    assert_eq!(pending(node.pass()), []);
    node.avoid("0-7");
    let report = node.pass();
    assert_eq!(report.written, 0);
    assert_eq!(report.nowhere.len(), 1);
}

#[test]
fn new_devices_with_old_numbers_are_new() {
    let mut node = Node::new();
    node.add(24, "nic", "0-7");
    node.add(25, "disk", "0-7");
    node.add(26, "gpu", "0-7");
    node.avoid("6");
    assert_eq!(node.quiet_pass(), 4);
    // The kernel gives new interrupts the default affinity.
    node.add(24, "other", "0-5,7");
    node.add(30, "late", "0-5,7");
    node.add(31, "fixed", "5");
    // A device that is stopped, and one that is gone.
    node.interrupts.remove(&25);
    node.interrupts.remove(&26);
    node.list();
    fs::remove_dir_all(node.root.path().join("proc/irq/26")).unwrap();
    assert_eq!(node.quiet_pass(), 0);
    node.add(25, "disk", "0-5,7");
    assert_eq!(node.quiet_pass(), 0);
    assert_eq!(node.restore().files, 4);
    assert_eq!([24, 25, 30, 31].map(|irq| node.affinity(irq)), ["0-7", "0-7", "0-7", "5"]);
}

/// The kernel takes CPUs out of the mask while they are in an isolated partition, and computes it from the
/// requested one when partitions change.
#[test]
fn workers_stay_off_isolated_partitions() {
    let mut node = Node::new();
    let file = |name: &str| format!("sys/devices/virtual/workqueue/{name}");
    let isolate = |node: &Node, list: &str| {
        let requested = CpuSet::from_mask(&node.get(&file("cpumask_requested"))).unwrap();
        node.set(&file("cpumask_isolated"), &mask(cpus(list)));
        node.set(&file("cpumask"), &mask(requested - cpus(list)));
    };
    let masks = |node: &Node| {
        let masks = ["cpumask", "cpumask_requested"].map(|name| node.get(&file(name)));
        masks.map(|mask| CpuSet::from_mask(&mask).unwrap().to_string())
    };
    node.set(&file("cpumask_requested"), "ff");
    isolate(&node, "6");
    // The kernel has done it.
    node.avoid("6");
    node.quiet_pass();
    assert_eq!(masks(&node), ["0-5,7", "0-7"]);
    node.avoid("5-6");
    node.quiet_pass();
    assert_eq!(masks(&node), ["0-4,7", "0-4,7"]);
    isolate(&node, "3,6");
    assert_eq!(node.quiet_pass(), 1);
    assert_eq!(masks(&node), ["0-2,4,7", "0-2,4,7"]);
    assert_eq!(node.quiet_pass(), 0);
    isolate(&node, "");
    assert_eq!(node.quiet_pass(), 1);
    assert_eq!(masks(&node), ["0-4,7", "0-4,7"]);
    isolate(&node, "3");
    node.quiet_pass();
    node.restore();
    assert_eq!(masks(&node)[0], "0-2,4-7");
    node.restart();
    isolate(&node, "");
    assert_eq!(node.restore().files, 0);
}

#[test]
fn values_of_other_programs_survive_a_restore() {
    let mut node = Node::new();
    for (number, name) in [(24, "nic"), (25, "disk"), (26, "gpu")] {
        node.add(number, name, "0-7");
    }
    node.avoid("6");
    node.quiet_pass();
    node.set_affinity(24, "6");
    fs::remove_dir_all(node.root.path().join("proc/irq/25")).unwrap();
    node.restart();
    let restored = node.restore();
    assert_eq!((restored.files, restored.left), (2, vec![]));
    assert_eq!([node.affinity(24), node.affinity(26)], ["6", "0-7"]);
    assert!(node.steering.is_unused());
}

#[test]
fn unreadable_listings_forget_nothing() {
    let mut node = Node::new();
    node.add(24, "nic", "0-7");
    node.avoid("6");
    node.quiet_pass();
    let listing = node.root.path().join("proc/interrupts");
    fs::remove_file(&listing).unwrap();
    assert_eq!(node.pass().errors.len(), 1);
    node.list();
    assert_eq!(node.quiet_pass(), 0);
    assert_eq!(node.restore().files, 2);
    assert_eq!(node.affinity(24), "0-7");
}

/// The files of a CPU with frequency scaling from 800 MHz to 4 GHz.
fn add_cpu(node: &Node, cpu: usize) {
    let directory = format!("sys/devices/system/cpu/cpu{cpu}");
    node.set(&format!("{directory}/power/pm_qos_resume_latency_us"), "0");
    for (file, text) in [
        ("scaling_available_governors", "performance powersave"),
        ("scaling_governor", "powersave"),
        ("scaling_min_freq", "800000"),
        ("scaling_max_freq", "2000000"),
        ("cpuinfo_min_freq", "800000"),
        ("cpuinfo_max_freq", "4000000"),
    ] {
        node.set(&format!("{directory}/cpufreq/{file}"), text);
    }
}

fn knob(node: &Node, cpu: usize, file: &str) -> String {
    node.get(&format!("sys/devices/system/cpu/cpu{cpu}/{file}"))
}

const FILES: [&str; 4] = [
    "power/pm_qos_resume_latency_us",
    "cpufreq/scaling_governor",
    "cpufreq/scaling_min_freq",
    "cpufreq/scaling_max_freq",
];

#[test]
fn knobs_are_set_kept_and_restored() {
    let mut node = Node::new();
    (5..8).for_each(|cpu| add_cpu(&node, cpu));
    node.avoid("6-7");
    node.goal.containers[0].interrupts = InterruptMode::Leave;
    let words = [
        ("c-states", "disable"),
        ("frequency-governor", "performance"),
        ("min-frequency", "3GHz"),
        ("max-frequency", "3.5GHz"),
    ];
    node.knobs(0, &words);
    // The lowest frequency of each is refused until the highest one is set, or the other way round.
    node.quiet_pass();
    let set = ["n/a", "performance", "3000000", "3500000"];
    let unset = ["0", "powersave", "800000", "2000000"];
    for (cpu, values) in [(5, unset), (6, set), (7, set)] {
        assert_eq!(FILES.map(|file| knob(&node, cpu, file)), values);
    }
    assert_eq!(node.quiet_pass(), 0);
    node.set("sys/devices/system/cpu/cpu6/cpufreq/scaling_governor", "powersave");
    let report = node.pass();
    assert_eq!((report.written, report.drift.len()), (1, 1));
    node.restart();
    assert_eq!(node.quiet_pass(), 0);
    // A container that leaves a CPU, and one that asks for less.
    node.goal.containers[0].cpus = cpus("7");
    node.goal.containers[0].knobs = Knobs::default();
    node.knobs(0, &words[..1]);
    node.quiet_pass();
    assert_eq!(FILES.map(|file| knob(&node, 6, file)), unset);
    assert_eq!(FILES.map(|file| knob(&node, 7, file)), ["n/a", "powersave", "800000", "2000000"]);
    node.goal.containers[0].knobs = Knobs::default();
    node.knobs(0, &words);
    node.quiet_pass();
    let restored = node.restore();
    assert_eq!((restored.files, &restored.left[..]), (4, &[][..]));
    assert_eq!(FILES.map(|file| knob(&node, 7, file)), unset);
    assert!(node.steering.is_unused());
}

#[test]
fn knobs_name_what_the_node_allows() {
    let mut node = Node::new();
    add_cpu(&node, 6);
    node.set("sys/devices/system/cpu/cpu7/online", "1");
    node.avoid("6-7");
    node.goal.containers[0].interrupts = InterruptMode::Leave;
    node.knobs(
        0,
        &[
            ("frequency-governor", "turbo"),
            ("max-frequency", "9GHz"),
            ("c-states", "max-latency:5"),
        ],
    );
    let report = node.pass();
    let denied: Vec<&str> = report.denied.iter().map(|denied| denied.why.as_str()).collect();
    assert_eq!(
        denied,
        [
            "frequency governor \"turbo\" is not available: scaling_available_governors has performance powersave",
            "scaling_max_freq cannot be 9000000 kHz: cpuinfo_min_freq and cpuinfo_max_freq allow 800000 to 4000000 kHz",
        ]
    );
    let unavailable: Vec<&str> = report.unavailable.into_iter().collect();
    assert_eq!(unavailable, ["pm_qos_resume_latency_us", "scaling_governor", "scaling_max_freq"]);
    assert_eq!(node.pass().unavailable.len(), 0);
    assert_eq!(knob(&node, 6, FILES[0]), "5");
}

#[test]
fn cpus_of_one_frequency_policy_have_one_value() {
    let mut node = Node::new();
    add_cpu(&node, 6);
    let cpu7 = node.root.path().join("sys/devices/system/cpu/cpu7");
    fs::create_dir_all(&cpu7).unwrap();
    std::os::unix::fs::symlink("../cpu6/cpufreq", cpu7.join("cpufreq")).unwrap();
    node.avoid("6");
    node.goal.containers.push(node.goal.containers[0].clone());
    node.goal.containers[0].name = "first".to_owned();
    node.goal.containers[1].cpus = cpus("7");
    node.knobs(0, &[("frequency-governor", "performance")]);
    node.knobs(1, &[("frequency-governor", "powersave")]);
    for _ in 0..2 {
        let report = node.pass();
        assert_eq!(report.denied.len(), 1, "{report:?}");
        let denied = report.denied.first().unwrap();
        assert_eq!(denied.container, "pod/container");
        assert!(denied.why.contains("performance for first"), "{}", denied.why);
        assert_eq!(knob(&node, 6, "cpufreq/scaling_governor"), "performance");
    }
}

#[test]
fn a_rounded_value_is_not_written_at_every_pass() {
    let mut node = Node::new();
    add_cpu(&node, 6);
    let file = "cpu6/cpufreq/scaling_max_freq".to_owned();
    node.kernel.rounded.lock().unwrap().insert(file, "2400000".to_owned());
    node.avoid("6");
    node.goal.containers[0].interrupts = InterruptMode::Leave;
    node.knobs(0, &[("max-frequency", "2401MHz")]);
    let report = node.pass();
    assert_eq!(report.refused_files.len(), 1);
    assert_eq!(report.refused_files[0].1, "it is 2400000 after a write of 2401000");
    let report = node.pass();
    assert_eq!((report.written, report.refused_files.len(), report.drift.len()), (0, 1, 0));
    node.knobs(0, &[("max-frequency", "2500MHz")]);
    assert_eq!(node.pass().refused_files[0].1, "it is 2400000 after a write of 2500000");
    node.kernel.rounded.lock().unwrap().clear();
    assert_eq!(node.restore().files, 1);
    assert_eq!(knob(&node, 6, FILES[3]), "2000000");
}

#[test]
fn masks_have_groups_of_eight_digits() {
    for list in ["", "0", "0-31", "0,32", "63-65,500"] {
        assert_eq!(CpuSet::from_mask(&mask(cpus(list))), Ok(cpus(list)));
    }
    assert_eq!(mask(cpus("0,32-39")), "000000ff,00000001");
}

fn any_cpus() -> impl Strategy<Value = CpuSet> {
    (0..256_u32).prop_map(|bits| CpuSet::from_mask(&format!("{bits:x}")).unwrap())
}

#[derive(Debug, Clone)]
enum Event {
    Goal(CpuSet),
    Other(u32, CpuSet),
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any_cpus().prop_map(Event::Goal),
        (24..27_u32, any_cpus()).prop_map(|(irq, cpus)| Event::Other(irq, cpus)),
        Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// After each pass no interrupt is on avoided CPUs unless all are avoided, a second pass writes
    /// nothing, and the end restores what was there before, or what another program has set since.
    #[test]
    fn passes_converge_and_restore(
        before in proptest::collection::vec(any_cpus(), 3),
        events in proptest::collection::vec(event(), 0..8),
    ) {
        let mut node = Node::new();
        let mut original = BTreeMap::new();
        for (irq, cpus) in (24..27).zip(before) {
            let cpus = if cpus.is_empty() { "0".parse().unwrap() } else { cpus };
            node.add(irq, ["a", "b", "c"][irq as usize - 24], &cpus.to_string());
            original.insert(irq, vec![cpus]);
        }
        for event in events {
            match event {
                Event::Goal(cpus) => node.avoid(&cpus.to_string()),
                Event::Other(irq, cpus) if !cpus.is_empty() => {
                    node.set_affinity(irq, &cpus.to_string());
                    original.get_mut(&irq).unwrap().push(cpus);
                }
                Event::Other(..) => {}
                Event::Restart => node.restart(),
            }
            let report = node.pass();
            prop_assert!(report.errors.is_empty() && report.refused.is_empty());
            let avoided = node.goal.avoided();
            for irq in 24..27 {
                let has = cpus(&node.affinity(irq));
                prop_assert!(!has.is_empty());
                prop_assert!(has.is_disjoint(&avoided) || node.goal.online.is_subset(&avoided));
            }
            prop_assert_eq!(node.pass().written, 0);
        }
        let restored = node.restore();
        prop_assert!(restored.left.is_empty() && restored.errors.is_empty());
        for (irq, sets) in original {
            prop_assert!(sets.contains(&cpus(&node.affinity(irq))), "{} {:?}", irq, sets);
        }
        let default = node.get("proc/irq/default_smp_affinity");
        prop_assert_eq!(default.trim_start_matches('0'), "ff");
        prop_assert!(node.steering.is_unused());
    }
}
