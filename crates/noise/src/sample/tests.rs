use super::*;
use crate::fake::{Files, Task};
use kernel::Linux;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const INTERRUPTS: &str = "\
           CPU0       CPU2       CPU3      \x20
  0:         44          0          0  IO-APIC   2-edge      timer
 24:         12          7 4294967295  PCI-MSIX-0000:00:05.0   1-edge      nvme0q1
 25:          0          1          0  PCI-MSIX-0000:00:06.0   0-edge      eth0-TxRx-0, eth0-TxRx-1
NMI:          1          2          3   Non-maskable interrupts
LOC:     100000     200000     300000   Local timer interrupts
ERR:          0
MIS:          0
";

const SOFTIRQS: &str = "\
                    CPU0       CPU1       CPU2       CPU3      \x20
          HI:          1          0          0          0
       TIMER:      66095      77087          5          6
      NET_RX:      10276      12305          7          8
";

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn take(files: &Files, watched: &str) -> Sample {
    Sample::take(files, &Roots::default(), cpus(watched)).unwrap()
}

#[test]
fn columns_are_those_of_watched_cpus() {
    let table = Table::parse(INTERRUPTS.as_bytes(), &cpus("2-4")).unwrap();
    assert_eq!(table.cpus, [2, 3]);
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), ["0", "24", "25", "LOC", "NMI"]);
    assert_eq!(table.rows["24"].counts, [7, u64::from(u32::MAX)]);
    assert_eq!(table.rows["24"].description, "PCI-MSIX-0000:00:05.0   1-edge      nvme0q1");
    assert_eq!(table.rows["NMI"].description, "Non-maskable interrupts");

    let table = Table::parse(SOFTIRQS.as_bytes(), &cpus("1,3")).unwrap();
    assert_eq!(table.cpus, [1, 3]);
    assert_eq!(table.rows["NET_RX"].counts, [12305, 8]);
}

#[test]
fn a_table_is_bounded_by_the_counters_of_watched_cpus() {
    let titles: String = (0..100).map(|cpu| format!(" CPU{cpu}")).collect();
    let row = |number| format!("\n{number}:{} chip {}", " 1".repeat(100), "x".repeat(9000));
    let text: String = std::iter::once(titles).chain((0..2000).map(row)).collect();
    let sample = |text: &str, rows: usize, watched| {
        let text: Vec<&str> = text.lines().take(rows + 1).collect();
        take(&Files::host(&text.join("\n"), SOFTIRQS, &[]), watched).interrupts
    };
    let complete = sample(&text, 1000, "0-99").unwrap();
    assert_eq!(complete.rows.len(), 1000);
    assert_eq!(complete.rows["7"].description.len(), MOST_DESCRIPTION);
    assert_eq!(sample(&text, 1700, "0-3").unwrap().rows.len(), 1700);
    let rows: String = (0..9000).map(|at| format!("\n{at}:{} chip", " 1".repeat(100))).collect();
    let large = text.lines().next().unwrap().to_owned() + &rows;
    assert_eq!(
        sample(&large, 9000, "0-99").unwrap_err(),
        "/proc/interrupts has more than 8 MiB of counters for the watched CPUs: not observed"
    );
}

#[test]
fn a_table_without_cpus_in_its_first_line_is_refused() {
    for text in ["", "\n", "24: 1 2 3 chip", "CPU0 CPUx\n", "CPU0 and CPU1\n"] {
        assert_eq!(Table::parse(text.as_bytes(), &cpus("0-3")), None, "{text:?}");
    }
    let files = Files::host("", SOFTIRQS, &[]);
    let sample = Sample::take(&files, &Roots::default(), cpus("0")).unwrap();
    assert_eq!(
        sample.interrupts.unwrap_err(),
        "unexpected format of /proc/interrupts: the first line must name CPUs, such as CPU0"
    );
    assert!(!sample.softirqs.rows.is_empty());
    let error = Sample::take(&Files::default(), &Roots::default(), cpus("0")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /proc/softirqs: entity not found");
}

#[test]
fn a_threads_name_may_look_like_the_fields_behind_it() {
    let text = "77 (a) R 9 (b) c) S 1 77 77 0 -1 2097216 0 0 0 0 30 12 0 0 20 0 1 0 4711 0 0 0 0 0 0 0 0 0 0 0 0 \
                0 0 0 17 5 0 0 0 0 0";
    let expected =
        Stat { name: "a) R 9 (b) c", is_kernel: true, ticks: 42, started: 4711, last_cpu: 5 };
    assert_eq!(Stat::parse(text), Some(expected));
    assert_eq!(Stat::parse("77 (short) S 1 2 3"), None);
}

#[test]
fn a_status_needs_its_three_lines() {
    let text = "Name:\tx\nCpus_allowed_list:\t2-3,8\nvoluntary_ctxt_switches:\t9\n\
                nonvoluntary_ctxt_switches:\t4\n";
    let expected = Status { allowed: cpus("2-3,8"), voluntary: 9, involuntary: 4 };
    assert_eq!(Status::parse(text), Some(expected));
    assert_eq!(Status::parse("Cpus_allowed_list:\t2-3,8\n"), None);
}

#[test]
fn cgroups_are_those_of_the_cpuset_controller() {
    let of = |text: &str| Membership::parse(text, None).path;
    assert_eq!(of("0::/kubepods.slice/a/b\n"), "kubepods.slice/a/b");
    assert_eq!(of("0::/\n"), "");
    assert_eq!(of("9:name=systemd:/s\n3:cpu,cpuset:/kubepods/pod1/c\n0::/\n"), "kubepods/pod1/c");
    assert_eq!(of("0::/kubepods/x (deleted)\n"), "kubepods/x");
    assert_eq!(of("garbage\n"), "");
}

#[test]
fn paths_of_a_cgroup_namespace_are_resolved_or_compared_by_their_ends() {
    let namespace = CgroupPath::new("kubepods.slice/poda/plugin").unwrap();
    let owner = CgroupPath::new("kubepods.slice/podb/main").unwrap();
    for (path, resolved, is_in) in [
        ("/../../podb/main", "kubepods.slice/podb/main", true),
        ("/../../podb/main/child", "kubepods.slice/podb/main/child", true),
        ("/../../podb/mainly", "kubepods.slice/podb/mainly", false),
        ("/../../../system.slice/sshd.service", "system.slice/sshd.service", false),
        ("/../../../../../..", "", false),
        ("/", "kubepods.slice/poda/plugin", false),
    ] {
        let text = format!("0::{path}\n");
        let whole = Membership::parse(&text, Some(&namespace));
        assert_eq!(whole, Membership { path: resolved.to_owned(), is_end: false }, "{path}");
        assert_eq!(whole.is_in(&owner), is_in, "{path}");
        assert_eq!(Membership::parse(&text, None).is_in(&owner), is_in, "{path}");
    }
}

#[test]
fn threads_of_other_cpus_are_kept_as_counters_only() {
    let near = Task { allowed: "0-3", ..Task::process(50, "near", "/system.slice/near.service") };
    let far = Task { allowed: "0-1", ..Task::process(51, "far", "/") };
    let moved = Task { allowed: "0-1", last_cpu: 3, ..Task::process(52, "moved", "/") };
    let sample = take(&Files::host(INTERRUPTS, SOFTIRQS, &[near, far, moved]), "2-3");
    assert_eq!(sample.visibility, Visibility::Host);
    let names: Vec<&str> = sample.threads.values().map(|thread| &*thread.name).collect();
    assert_eq!(names, ["near", "moved"]);
    let near = sample.threads.values().next().unwrap();
    assert_eq!(near.cgroup.path, "system.slice/near.service");
    assert_eq!(near.usage, Usage { ticks: 10, voluntary: 5, involuntary: 5 });
    let others: Vec<u32> = sample.elsewhere.keys().map(|id| id.thread).collect();
    assert_eq!(others, [2, 51]);
}

#[test]
fn a_thread_that_vanishes_is_left_out() {
    let mut files = Files::host(INTERRUPTS, SOFTIRQS, &[]);
    for process in 50..53 {
        files = files.with_task(&Task::process(process, "gone", "/"));
    }
    files.files.remove(Path::new("/proc/50/task/50/status"));
    files.files.remove(Path::new("/proc/51/task/51/stat"));
    files.files.remove(Path::new("/proc/52/cgroup"));
    let sample = take(&files, "2-3");
    let threads: Vec<u32> = sample.threads.keys().map(|id| id.thread).collect();
    assert_eq!(threads, [52]);
    assert_eq!(sample.threads.values().next().unwrap().cgroup, Membership::default().into());
}

/// A host with many processes, each with one thread and in a cgroup of its own.
#[derive(Debug)]
struct Crowd {
    host: Files,
    processes: u32,
    read: AtomicUsize,
}

impl Kernel for Crowd {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read.fetch_add(1, Relaxed);
        let name = path.strip_prefix("/proc").ok().and_then(|path| path.iter().next()?.to_str());
        match name.and_then(|name| name.parse().ok()) {
            Some(process @ 10..) => {
                let task = Task::process(process, "evil", "/");
                let files = Files::default().with_task(&task);
                let long = format!("0::/kubepods/{process}/{}\n", "x/".repeat(2000));
                files.with(&format!("/proc/{process}/cgroup"), long).read(path)
            }
            _ => self.host.read(path),
        }
    }

    fn entries(&self, path: &Path) -> io::Result<kernel::Entries> {
        if path == Path::new("/proc") {
            let crowd = 10..10 + self.processes;
            let crowd = crowd.map(|process| (process.to_string(), true));
            return Ok(Box::new(self.host.entries(path)?.chain(crowd)));
        }
        let process = path.iter().rev().nth(1).and_then(|name| name.to_str());
        let threads = process.map(|thread| (thread.to_owned(), true));
        Ok(Box::new(threads.into_iter()))
    }

    fn write(&self, _: &Path, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn check_writable(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn number(&self, _: &Path) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_affinity(&self, _: u32, _: CpuSet) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn own_process(&self) -> u32 {
        self.host.own_process
    }
}

#[test]
fn a_crowd_of_processes_and_cgroups_costs_a_sample_no_more_than_its_bounds() {
    let host = Files::host(INTERRUPTS, SOFTIRQS, &[]);
    let processes = 3 * MOST_THREADS as u32;
    let crowd = Crowd { host, processes, read: AtomicUsize::new(0) };
    let sample = Sample::take(&crowd, &Roots::default(), cpus("2-3")).unwrap();
    assert_eq!(sample.threads.len() + sample.elsewhere.len(), MOST_CGROUPS);
    // kthreadd is one of those that were read.
    assert_eq!(sample.unread, 3 * MOST_THREADS + 1 - MOST_CGROUPS);
    let read = crowd.read.into_inner();
    assert!(read <= MOST_THREADS + 2 * MOST_CGROUPS + 10, "{read} files were read");
    let longest = sample.threads.values().map(|thread| thread.cgroup.path.len()).max();
    assert_eq!(longest, Some(LONGEST_PATH));
}

/// docs/security.md has this figure.
#[test]
fn two_full_samples_take_at_most_24_mib() {
    // The counters of a value that threads share, its size in a heap, and its place in a set.
    const SHARED: usize = size_of::<[usize; 8]>();
    // Nodes of the map are at least half full.
    let of_thread = 2 * size_of::<(ThreadId, Thread)>()
        + (SHARED + "sixteen letters.".len())
        + (SHARED + size_of::<CpuSet>());
    let of_cgroup = SHARED + size_of::<Membership>() + LONGEST_PATH;
    let full = MOST_THREADS * of_thread + MOST_CGROUPS * of_cgroup;
    assert!(
        2 * full <= 24 << 20,
        "{full} bytes a sample: {of_thread} a thread, {of_cgroup} a cgroup"
    );
}

#[test]
fn visibility_depends_on_the_pid_namespace() {
    let container = Files { own_process: 30, ..Files::default() }
        .with("/proc/interrupts", INTERRUPTS)
        .with("/proc/softirqs", SOFTIRQS)
        .with_task(&Task::process(1, "nri-cpu-manager", "/"))
        .with_task(&Task::process(2, "sh", "/"));
    let alone = take(&container, "2-3");
    assert_eq!(alone.visibility, Visibility::InterruptsOnly);
    assert_eq!(alone.threads.len() + alone.elsewhere.len(), 0);

    // As of a node in a container: many processes, no kernel thread.
    let mut node = container;
    for process in 3..30 {
        node = node.with_task(&Task::process(process, "kubelet", "/kubelet.slice"));
    }
    assert_eq!(take(&node, "2-3").visibility, Visibility::Processes);
    // A container with many processes, whose first one is the plugin.
    node = node.with_task(&Task::process(30, "nri-cpu-manager", "/"));
    assert_eq!(take(&node, "2-3").visibility, Visibility::InterruptsOnly);
    assert!(Visibility::InterruptsOnly < Visibility::Processes);
    assert!(Visibility::Processes < Visibility::Host);
}

#[test]
fn this_machines_files_are_read() {
    let watched = cpus("0-63");
    let sample = Sample::take(&Linux, &Roots::default(), watched).unwrap();
    assert!(!sample.interrupts.as_ref().unwrap().cpus.is_empty());
    assert!(!sample.interrupts.as_ref().unwrap().rows.is_empty());
    assert!(sample.softirqs.rows.contains_key("TIMER"));
    if sample.visibility != Visibility::InterruptsOnly {
        let own = std::process::id();
        let mut threads = sample.threads.values().filter(|thread| thread.process == own);
        assert!(threads.any(|thread| thread.usage.voluntary + thread.usage.involuntary > 0));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = Table::parse(text.as_bytes(), &cpus("0-7"));
        let _ = Stat::parse(&text);
        let _ = Status::parse(&text);
        let _ = Membership::parse(&text, None);
    }

    #[test]
    fn no_text_in_the_kernels_format_panics(
        table in "(CPU[0-9]{1,5} ?){1,4}\n([A-Z0-9]{1,3}:( [0-9]{1,20}){0,5} .{0,9}\n){0,5}",
        stat in "[0-9]{1,3} \\([ -~]{0,9}\\) [RSZ]( -?[0-9]{1,20}){0,50}",
        status in "(Cpus_allowed_list|voluntary_ctxt_switches):\t[-0-9,:/]{0,9}\n",
        cgroup in "(0:(cpuset)?:(/(\\.\\.|[a-z]{0,3})){0,5}\n){0,3}",
    ) {
        let files = Files { own_process: 1, ..Files::default() }
            .with("/proc/interrupts", table.clone())
            .with("/proc/softirqs", table)
            .with("/proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                                   0 0 0 0 0 0 0 0 0")
            .with("/proc/7/task/7/stat", stat)
            .with("/proc/7/task/7/status", status)
            .with("/proc/7/cgroup", cgroup.clone());
        let _ = Sample::take(&files, &Roots::default(), cpus("0-7"));
        let namespace = CgroupPath::new("a/b").unwrap();
        let _ = Membership::parse(&cgroup, Some(&namespace)).is_in(&namespace);
        let _ = Membership::parse(&cgroup, None).is_in(&namespace);
    }
}
