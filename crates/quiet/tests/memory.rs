//! The memory that a pass takes on a node with more interrupts than any has.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test"
)]

use kernel::Linux;
use quiet::{Goal, InterruptMode, Irqbalance, Originals, QuietContainer, Roots, Steering};
use std::fs;

const INTERRUPTS: u32 = 20_000;
const CPUS: usize = 300;
const MOST_KIB: u64 = 64 << 10;

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn twenty_thousand_interrupts_take_bounded_memory() {
    let root = tempfile::tempdir().unwrap();
    let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
    let irq = roots.proc.join("irq");
    let mut listing: String = (0..CPUS).map(|cpu| format!(" CPU{cpu}")).collect();
    let counts = " 1".repeat(CPUS);
    for number in 0..INTERRUPTS {
        let directory = irq.join(number.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("smp_affinity_list"), "0-299\n").unwrap();
        listing += &format!("\n{number}:{counts} PCI-MSI {number}-edge queue-{number}");
    }
    fs::write(roots.proc.join("interrupts"), listing).unwrap();
    let mut steering = Steering::new(roots, Originals::default(), Irqbalance::new(Vec::new()));
    let container = QuietContainer {
        name: "default/db/main".to_owned(),
        cpus: "1".parse().unwrap(),
        interrupts: InterruptMode::Away,
        ..QuietContainer::default()
    };
    let online = "0-299".parse().unwrap();
    let goal = Goal { online, containers: vec![container], ..Goal::default() };
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_kib();
    let report = steering.pass(&Linux, &goal);
    let again = steering.pass(&Linux, &goal);
    let peak = peak_kib() - before;
    println!("{peak} KiB, {} written, {:?}", report.written, report.errors);
    assert!(peak < MOST_KIB, "{peak} KiB");
    assert_eq!(again.written, 0);
    assert!(report.errors[0].starts_with("only 8192 of 20000 interrupts"), "{:?}", report.errors);
}
