//! Numbered interrupts, as `/proc/irq` and `/proc/interrupts` show them.
//!
//! `/proc/interrupts` has a column for each online CPU and a line for each interrupt that has a handler:
//! megabytes on large machines. `kernel/irq/proc.c` prints both. Names are chosen by drivers, and may
//! have spaces.

use crate::Roots;
use cpuset::CpuSet;
use kernel::Kernel;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The most interrupts that are read: 512 CPUs with 16 queues each have as many. Each takes some kilobytes.
pub const MOST_INTERRUPTS: usize = 8192;
/// The most of an interrupt's chip and names that is read, in bytes.
const MOST_DESCRIPTION: usize = 256;
/// The most names of an interrupt that are read.
const MOST_NAMES: usize = 8;

/// An interrupt that has a handler; all others cannot fire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupt {
    pub number: u32,
    /// The handlers' names. Several handlers can share an interrupt.
    pub names: Vec<String>,
    /// The interrupt controller.
    pub chip: String,
    /// Where it may fire (`smp_affinity_list`).
    pub affinity: CpuSet,
    /// The device's NUMA node.
    pub node: Option<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Those with handlers, by their numbers.
    pub active: BTreeMap<u32, Interrupt>,
    /// All others: those without handlers, or without a readable affinity, and those that are not read. An affinity
    /// outlasts a driver that stops and starts its device.
    pub idle: Vec<u32>,
    /// How many have handlers and are not read: more than [`MOST_INTERRUPTS`].
    pub unread: usize,
}

/// The directory of an interrupt.
fn directory(roots: &Roots, number: u32) -> PathBuf {
    roots.proc.join("irq").join(number.to_string())
}

pub(crate) fn affinity_file(roots: &Roots, number: u32) -> PathBuf {
    directory(roots, number).join("smp_affinity_list")
}

/// Reads all interrupts.
///
/// # Errors
/// If one of both listings cannot be read, which says nothing about any interrupt.
pub fn read(kernel: &dyn Kernel, roots: &Roots) -> io::Result<Interrupts> {
    let (mut lines, unread) = parse(&kernel.read(&roots.proc.join("interrupts"))?);
    let mut interrupts = Interrupts { unread, ..Interrupts::default() };
    for (name, is_directory) in kernel.entries(&roots.proc.join("irq"))? {
        let Ok(number) = name.parse::<u32>() else { continue };
        if !is_directory {
            continue;
        }
        let Some(mut interrupt) = lines.remove(&number) else {
            interrupts.idle.push(number);
            continue;
        };
        let Ok(affinity) = read_set(kernel, affinity_file(roots, number)) else {
            interrupts.idle.push(number);
            continue;
        };
        interrupt.affinity = affinity;
        let node = kernel.text(&directory(roots, number).join("node")).unwrap_or_default();
        // "-1" is no node.
        interrupt.node = node.parse().ok();
        interrupts.active.insert(number, interrupt);
    }
    Ok(interrupts)
}

/// Where an interrupt does fire; `None` if the kernel does not say.
pub(crate) fn effective(kernel: &dyn Kernel, roots: &Roots, number: u32) -> Option<CpuSet> {
    read_set(kernel, directory(roots, number).join("effective_affinity_list")).ok()
}

fn read_set(kernel: &dyn Kernel, path: PathBuf) -> io::Result<CpuSet> {
    let text = kernel.read(&path)?;
    let set = String::from_utf8_lossy(&text).parse::<CpuSet>();
    set.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The numbered lines of `/proc/interrupts` with handlers, in one pass, and how many more it has. Lines that are no
/// interrupt's are skipped.
fn parse(text: &[u8]) -> (BTreeMap<u32, Interrupt>, usize) {
    let mut lines = text.split(|&byte| byte == b'\n');
    let head = lines.next().unwrap_or_default();
    let columns = head.split(u8::is_ascii_whitespace).filter(|title| !title.is_empty()).count();
    let mut interrupts = BTreeMap::new();
    let mut unread = 0;
    for interrupt in lines.filter_map(|line| parse_line(line, columns)) {
        if interrupts.len() < MOST_INTERRUPTS {
            interrupts.entry(interrupt.number).or_insert(interrupt);
        } else {
            unread += 1;
        }
    }
    (interrupts, unread)
}

/// `None` for a line that is no interrupt's, or has no handlers.
fn parse_line(line: &[u8], columns: usize) -> Option<Interrupt> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (label, mut rest) = (&line[..colon], &line[colon + 1..]);
    let number = std::str::from_utf8(label).ok()?.trim().parse().ok()?;
    for _ in 0..columns {
        let (word, after) = split_word(rest);
        if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
            break;
        }
        rest = after;
    }
    let rest = rest.trim_ascii_start();
    let rest = String::from_utf8_lossy(&rest[..rest.len().min(MOST_DESCRIPTION)]);
    let (chip, rest) = next_word(&rest);
    let names = names(rest).split(", ").map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.take(MOST_NAMES).map(str::to_owned).collect();
    if names.is_empty() {
        return None;
    }
    Some(Interrupt { number, names, chip: chip.to_owned(), ..Interrupt::default() })
}

/// What follows the chip, without the number of the interrupt at the chip and its trigger:
/// `512000-edge`, `25 Level`, or nothing.
fn names(after_chip: &str) -> &str {
    let mut rest = after_chip.trim();
    let (word, after) = next_word(rest);
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if (digits > 0 && matches!(word.as_bytes().get(digits), None | Some(b'-')))
        || (word.starts_with('-') && word.len() > 1)
    {
        rest = after.trim_start();
    }
    let (word, after) = next_word(rest);
    if ["Level", "Edge"].contains(&word) { after.trim_start() } else { rest }
}

fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(' ').unwrap_or(text.len()))
}

fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let bytes = bytes.trim_ascii_start();
    bytes.split_at(bytes.iter().position(u8::is_ascii_whitespace).unwrap_or(bytes.len()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]
mod tests {
    use super::*;
    use kernel::Linux;
    use proptest::prelude::*;
    use std::fs;

    const LISTING: &str = "           CPU0       CPU2       \n  \
        0:         26          0   IO-APIC   2-edge      timer\n  \
        8:          0          0   IO-APIC   8-edge      rtc0\n \
        24:          0         17  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config\n \
        25:          3          4     GICv3  25 Level     vgic, kvm timer\n \
        26:          5          6  PCI-MSI-edge      eth0\n \
        27:          1          0   dummy  44  x, y, z\n \
        28:          0          0   dummy  45\n\
        NMI:          1          2   Non-maskable interrupts\n\
        ERR:          0\nMIS:          0\n";

    #[test]
    fn lines_have_a_chip_and_names() {
        let (lines, unread) = parse(LISTING.as_bytes());
        let line = |number: u32| {
            let Interrupt { names, chip, .. } = &lines[&number];
            (chip.as_str(), names.join("|"))
        };
        assert_eq!(line(0), ("IO-APIC", "timer".to_owned()));
        assert_eq!(line(24), ("PCI-MSIX-0000:00:01.0", "virtio0-config".to_owned()));
        assert_eq!(line(25), ("GICv3", "vgic|kvm timer".to_owned()));
        assert_eq!(line(26).1, "eth0");
        assert_eq!(line(27).1, "x|y|z");
        assert!(lines.keys().eq(&[0, 8, 24, 25, 26, 27]), "number 28 has no handler");
        assert_eq!(unread, 0);
    }

    #[test]
    fn more_interrupts_and_longer_names_than_the_bound_are_not_read() {
        let mut text = "CPU0\n".to_owned();
        for number in 0..MOST_INTERRUPTS + 3 {
            text += &format!("{number}: 1 PCI-MSI {number}-edge {}\n", "a, ".repeat(1000));
        }
        let (lines, unread) = parse(text.as_bytes());
        assert_eq!((lines.len(), unread), (MOST_INTERRUPTS, 3));
        assert!(lines.values().all(|line| line.names.len() == MOST_NAMES));
        let long =
            format!("CPU0\n1: 1 {} 1-edge eth0\n2: 1 c {}", "x".repeat(300), "é".repeat(300));
        let lines = parse(long.as_bytes()).0;
        assert!(lines.keys().eq(&[2]), "the name of the first begins beyond the bound");
        assert_eq!(lines[&2].names, ["é".repeat(127)]);
    }

    #[test]
    fn files_complete_the_lines() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::below(root.path());
        let irq = roots.proc.join("irq");
        for (file, text) in [
            ("8/smp_affinity_list", "0-3\n"),
            ("24/smp_affinity_list", "0,2\n"),
            ("24/effective_affinity_list", "2\n"),
            ("24/node", "1\n"),
            ("25/smp_affinity_list", "0-3\n"),
            ("25/node", "-1\n"),
            ("26/smp_affinity_list", "odd\n"),
            ("28/smp_affinity_list", "0-3\n"),
            ("99/smp_affinity_list", "0-3\n"),
            ("default_smp_affinity", "f\n"),
            ("odd/smp_affinity_list", "0\n"),
        ] {
            let path = irq.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(read(&Linux, &roots).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(roots.proc.join("interrupts"), LISTING).unwrap();
        let mut interrupts = read(&Linux, &roots).unwrap();
        interrupts.idle.sort_unstable();
        assert_eq!(interrupts.idle, [26, 28, 99]);
        assert!(interrupts.active.keys().eq(&[8, 24, 25]));
        let virtio = &interrupts.active[&24];
        assert_eq!(virtio.affinity.to_string(), "0,2");
        assert_eq!(effective(&Linux, &roots, 24).map(|set| set.to_string()).as_deref(), Some("2"));
        assert_eq!(virtio.node, Some(1));
        assert_eq!((effective(&Linux, &roots, 25), interrupts.active[&25].node), (None, None));
    }

    #[test]
    fn a_large_listing_is_read_completely() {
        let head: String = (0..512).map(|cpu| format!("{:>11}", format!("CPU{cpu}"))).collect();
        let counts = "          7".repeat(512);
        let mut text = head;
        for number in 0..600 {
            text += &format!("\n{number:>4}:{counts}  PCI-MSI {number}-edge      queue-{number}");
        }
        let lines = parse(text.as_bytes()).0;
        assert_eq!(lines.len(), 600);
        assert_eq!(lines[&599].names, ["queue-599"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }

        #[test]
        fn any_line_is_read(text in "[ 0-9:,CPUé-]{0,60}\n([ 0-9:,a-zé-]{0,80}\n){0,4}") {
            parse(text.as_bytes());
        }
    }
}
