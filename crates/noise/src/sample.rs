//! [`Sample`]: interrupts, softirqs and threads at one moment, from `/proc`.
//!
//! The formats are those of proc(5) and of the kernel's `kernel/irq/proc.c` (`show_interrupts`),
//! `fs/proc/softirqs.c` and `fs/proc/array.c`. Threads vanish while they are read: a thread without a
//! readable file is left out, and is never an error.

use cpuset::{CgroupPath, CpuSet};
use kernel::Kernel;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A flag of kernel threads in field 9 of `/proc/PID/stat` (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;
/// In the first pid namespace, and only there, this is kthreadd.
const KTHREADD: &str = "2";
/// A pid namespace with fewer processes, none of them a kernel thread, is a container's.
const FEW_PROCESSES: usize = 8;

/// The most threads that a sample reads, and the most processes: about 300 bytes and 20 microseconds each.
pub const MOST_THREADS: usize = 16_384;
/// The most threads of one cgroup, so that a container with many threads hides none of others. The root cgroup, which
/// has the kernel's threads, has no such limit.
pub const MOST_OF_CGROUP: usize = 2048;
/// The most cgroups whose threads a sample reads.
pub const MOST_CGROUPS: usize = 2048;
/// The most bytes of a cgroup's path, of which a container may make longer ones below its own.
const LONGEST_PATH: usize = 512;

/// The most memory in bytes that a table may take: counters of 300 CPUs for 3000 interrupts.
const MOST_OF_TABLE: usize = 8 << 20;
/// What a row of a table counts besides its texts and counters.
const ROW: usize = 128;
/// The most of a row's description that is read, in bytes.
const MOST_DESCRIPTION: usize = 256;

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// The table of interrupts, which is the host's. The kubelet masks `/proc/interrupts` in containers
    /// (since 1.34, and in later patch releases of 1.31 to 1.33): a container needs the host's mounted.
    pub interrupts: PathBuf,
    /// The table of softirqs, which is the host's in every container.
    pub softirqs: PathBuf,
    /// The directory with a directory for each process.
    pub processes: PathBuf,
    /// The cgroup at which this program's cgroup namespace begins. `/proc/PID/cgroup` is relative to
    /// it. `None` if this program is in the host's cgroup namespace, or if the cgroup is unknown:
    /// relative paths are then compared by their ends.
    pub cgroup_namespace: Option<CgroupPath>,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            interrupts: "/proc/interrupts".into(),
            softirqs: "/proc/softirqs".into(),
            processes: "/proc".into(),
            cgroup_namespace: None,
        }
    }
}

/// Which threads a program sees, from none to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Interrupts and softirqs only: this program's pid namespace has only its own container.
    InterruptsOnly,
    /// Processes of this program's pid namespace. There are kernel threads, but none is visible.
    Processes,
    /// All threads of the host.
    Host,
}

impl Visibility {
    pub const ALL: [Visibility; 3] =
        [Visibility::InterruptsOnly, Visibility::Processes, Visibility::Host];

    /// As in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Visibility::InterruptsOnly => "interrupts_only",
            Visibility::Processes => "processes",
            Visibility::Host => "host",
        }
    }
}

#[derive(Debug)]
pub enum SampleError {
    Unreadable { path: PathBuf, source: io::Error },
    NoHeader { path: PathBuf },
    TooLarge { path: PathBuf },
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleError::Unreadable { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            SampleError::NoHeader { path } => write!(
                f,
                "unexpected format of {}: the first line must name CPUs, such as CPU0",
                path.display()
            ),
            SampleError::TooLarge { path } => write!(
                f,
                "{} has more than {} MiB of counters for the watched CPUs: not observed",
                path.display(),
                MOST_OF_TABLE >> 20
            ),
        }
    }
}

impl Error for SampleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SampleError::Unreadable { source, .. } => Some(source),
            SampleError::NoHeader { .. } | SampleError::TooLarge { .. } => None,
        }
    }
}

/// The counters of watched CPUs at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Or why it cannot be read.
    pub(crate) interrupts: Result<Table, String>,
    pub(crate) softirqs: Table,
    pub(crate) visibility: Visibility,
    /// Threads that may run on watched CPUs, or ran there last.
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    /// All other threads, which may become one of the former before the next sample.
    pub(crate) elsewhere: BTreeMap<ThreadId, Usage>,
    /// Threads that were not read: more than [`MOST_THREADS`], [`MOST_OF_CGROUP`] or those of [`MOST_CGROUPS`].
    pub(crate) unread: usize,
}

/// Values that many threads share.
#[derive(Debug, Default)]
struct Shared {
    names: HashSet<Arc<str>>,
    masks: HashSet<Arc<CpuSet>>,
    /// How many threads of each cgroup were read.
    of_cgroup: HashMap<Arc<Membership>, usize>,
}

impl Shared {
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    fn mask(&mut self, mask: CpuSet) -> Arc<CpuSet> {
        if let Some(known) = self.masks.get(&mask) {
            return Arc::clone(known);
        }
        let mask = Arc::new(mask);
        self.masks.insert(Arc::clone(&mask));
        mask
    }
}

impl Sample {
    /// Reads the counters of the CPUs in `watched`. The time and memory that this takes grow with the number of
    /// threads, two files for each, up to [`MOST_THREADS`].
    ///
    /// A sample without the table of interrupts has softirqs and threads only. [`Kernel::read`] refuses
    /// one of more than 16 MiB, which takes about 2000 CPUs with 800 interrupts.
    ///
    /// # Errors
    /// If the table of softirqs cannot be read.
    pub fn take(
        kernel: &dyn Kernel,
        roots: &Roots,
        watched: CpuSet,
    ) -> Result<Sample, SampleError> {
        let interrupts = read_table(kernel, roots.interrupts.clone(), &watched)
            .map_err(|error| error.to_string());
        let softirqs = read_table(kernel, roots.softirqs.clone(), &watched)?;
        let mut sample = Sample {
            interrupts,
            softirqs,
            visibility: Visibility::InterruptsOnly,
            threads: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            unread: 0,
        };
        let (processes, unread) = numbered(kernel, &roots.processes, MOST_THREADS);
        sample.unread = unread;
        sample.visibility = visibility(kernel, &roots.processes, processes.len());
        if sample.visibility != Visibility::InterruptsOnly {
            let mut shared = Shared::default();
            for process in processes {
                sample.add_process(kernel, roots, process, &watched, &mut shared);
            }
        }
        Ok(sample)
    }

    fn add_process(
        &mut self,
        kernel: &dyn Kernel,
        roots: &Roots,
        process: u32,
        watched: &CpuSet,
        shared: &mut Shared,
    ) {
        let directory = roots.processes.join(process.to_string());
        let text = read(kernel, &directory.join("cgroup")).unwrap_or_default();
        let cgroup = Membership::parse(&text, roots.cgroup_namespace.as_ref());
        let (cgroup, of_cgroup) = match shared.of_cgroup.get_key_value(&cgroup) {
            Some((known, count)) => (Arc::clone(known), *count),
            None if shared.of_cgroup.len() < MOST_CGROUPS => (Arc::new(cgroup), 0),
            None => {
                self.unread += numbered(kernel, &directory.join("task"), 0).1;
                return;
            }
        };
        let read_threads = self.threads.len() + self.elsewhere.len();
        let mut room = MOST_THREADS.saturating_sub(read_threads);
        if !cgroup.path.is_empty() {
            room = room.min(MOST_OF_CGROUP.saturating_sub(of_cgroup));
        }
        let (threads, unread) = numbered(kernel, &directory.join("task"), room);
        self.unread += unread;
        shared.of_cgroup.insert(Arc::clone(&cgroup), of_cgroup + threads.len());
        for thread in threads {
            let files = directory.join("task").join(thread.to_string());
            let Some(stat) = read(kernel, &files.join("stat")) else { continue };
            let Some(stat) = Stat::parse(&stat) else { continue };
            let Some(status) =
                read(kernel, &files.join("status")).and_then(|text| Status::parse(&text))
            else {
                continue;
            };
            let id = ThreadId { thread, started: stat.started };
            let usage = Usage {
                ticks: stat.ticks,
                voluntary: status.voluntary,
                involuntary: status.involuntary,
            };
            if status.allowed.is_disjoint(watched) && !watched.contains(stat.last_cpu) {
                self.elsewhere.insert(id, usage);
                continue;
            }
            let thread = Thread {
                process,
                name: shared.name(stat.name),
                is_kernel: stat.is_kernel,
                last_cpu: stat.last_cpu,
                allowed: shared.mask(status.allowed),
                usage,
                cgroup: Arc::clone(&cgroup),
            };
            self.threads.insert(id, thread);
        }
    }
}

/// A thread id is used again; its start tells one thread from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThreadId {
    pub(crate) thread: u32,
    /// In ticks since the boot.
    pub(crate) started: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) process: u32,
    /// As in `/proc`: any bytes but NUL, with U+FFFD where they are not UTF-8.
    pub(crate) name: Arc<str>,
    pub(crate) is_kernel: bool,
    pub(crate) last_cpu: usize,
    pub(crate) allowed: Arc<CpuSet>,
    pub(crate) usage: Usage,
    pub(crate) cgroup: Arc<Membership>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// User and system time, in units of 10 ms (`USER_HZ`). A thread that runs for microseconds may
    /// have none: its context switches show that it ran.
    pub(crate) ticks: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

/// The cgroup of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Membership {
    /// Without a slash at either end; empty for the root. At most [`LONGEST_PATH`] of its bytes.
    pub(crate) path: String,
    /// Whether only the end of the path is known: `/proc` shows `..` for cgroups above the program's
    /// own cgroup namespace.
    pub(crate) is_end: bool,
}

impl Membership {
    /// Reads `/proc/PID/cgroup`: the line of cgroup v1's cpuset controller, or that of v2.
    fn parse(text: &str, namespace: Option<&CgroupPath>) -> Membership {
        let mut unified = None;
        let mut cpuset = None;
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            match (parts.next(), parts.next()) {
                (Some(""), Some(path)) => unified = Some(path),
                (Some(controllers), Some(path))
                    if controllers.split(',').any(|one| one == "cpuset") =>
                {
                    cpuset = Some(path);
                }
                _ => {}
            }
        }
        let path = cpuset.or(unified).unwrap_or_default().trim_matches('/');
        // The kernel appends this to the path of a removed cgroup.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let end = (0..=LONGEST_PATH).rev().find(|&end| path.is_char_boundary(end));
        let path = &path[..end.unwrap_or_default()];
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let above = parts.iter().take_while(|part| **part == "..").count();
        parts.drain(..above);
        let Some(namespace) = namespace else {
            return Membership { path: parts.join("/"), is_end: above > 0 };
        };
        let root: Vec<&str> = namespace.as_str().split('/').collect();
        let kept = &root[..root.len().saturating_sub(above)];
        Membership { path: [kept, &parts].concat().join("/"), is_end: false }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &str> {
        self.path.split('/')
    }

    /// Whether this is the cgroup, or one below it.
    pub(crate) fn is_in(&self, cgroup: &CgroupPath) -> bool {
        if !self.is_end {
            let rest = self.path.strip_prefix(cgroup.as_str());
            return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        }
        // The known part begins with an end of the cgroup's path.
        let parts: Vec<&str> = self.parts().collect();
        let whole: Vec<&str> = cgroup.as_str().split('/').collect();
        (1..=parts.len().min(whole.len())).any(|length| whole.ends_with(&parts[..length]))
    }
}

/// A table with a column for each CPU: `/proc/interrupts` has the online CPUs, `/proc/softirqs` all
/// that are possible. Only the columns of watched CPUs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// The CPUs of the columns.
    pub(crate) cpus: Vec<usize>,
    /// By label: a number, or a name such as `LOC`. Rows without a count for each CPU, such as `ERR`,
    /// are left out.
    pub(crate) rows: BTreeMap<String, Row>,
    /// Whether all rows fit.
    is_complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// In the order of [`Table::cpus`].
    pub(crate) counts: Vec<u64>,
    /// The text behind the counts.
    pub(crate) description: String,
}

impl Table {
    /// `None` unless the first line names CPUs, and nothing else.
    pub(crate) fn parse(text: &[u8], watched: &CpuSet) -> Option<Table> {
        let mut lines = text.split(|&byte| byte == b'\n');
        let mut cpus = Vec::new();
        let mut unseen = *watched;
        let mut is_kept = Vec::new();
        for title in str::from_utf8(lines.next()?).ok()?.split_ascii_whitespace() {
            let cpu: usize = title.strip_prefix("CPU")?.parse().ok()?;
            let keep = unseen.contains(cpu);
            if keep {
                unseen -= CpuSet::of(cpu).ok()?;
                cpus.push(cpu);
            }
            is_kept.push(keep);
        }
        if is_kept.is_empty() {
            return None;
        }
        let mut table = Table { cpus, rows: BTreeMap::new(), is_complete: true };
        let mut room = MOST_OF_TABLE;
        for line in lines {
            let Some((label, row)) = Row::parse(line, &is_kept) else { continue };
            let counts = size_of_val(row.counts.as_slice());
            let Some(rest) = room.checked_sub(ROW + label.len() + row.description.len() + counts)
            else {
                table.is_complete = false;
                break;
            };
            room = rest;
            table.rows.insert(label.to_owned(), row);
        }
        Some(table)
    }
}

impl Row {
    /// A row with its label.
    fn parse<'a>(line: &'a [u8], is_kept: &[bool]) -> Option<(&'a str, Row)> {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (label, rest) = line.split_at(colon);
        let mut rest = rest.get(1..)?;
        let mut counts = Vec::new();
        for keep in is_kept {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            let (count, after) = rest.split_at(end);
            let count = str::from_utf8(count).ok()?.parse().ok()?;
            if *keep {
                counts.push(count);
            }
            rest = after;
        }
        counts.shrink_to_fit();
        let rest = rest.trim_ascii();
        let description = String::from_utf8_lossy(&rest[..rest.len().min(MOST_DESCRIPTION)]);
        let label = str::from_utf8(label).ok()?.trim();
        Some((label, Row { counts, description: description.into_owned() }))
    }
}

/// What `/proc/PID/task/TID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat<'a> {
    name: &'a str,
    is_kernel: bool,
    ticks: u64,
    started: u64,
    last_cpu: usize,
}

impl Stat<'_> {
    fn parse(text: &str) -> Option<Stat<'_>> {
        // The name has any characters, also parentheses and newlines. Only numbers come behind it.
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the first field behind the name is number 3.
        let field = |number: usize| -> Option<u64> { fields.get(number - 3)?.parse().ok() };
        Some(Stat {
            name,
            is_kernel: field(9)? & PF_KTHREAD != 0,
            ticks: field(14)?.saturating_add(field(15)?),
            started: field(22)?,
            last_cpu: usize::try_from(field(39)?).ok()?,
        })
    }
}

/// What `/proc/PID/task/TID/status` says.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    allowed: CpuSet,
    voluntary: u64,
    involuntary: u64,
}

impl Status {
    fn parse(text: &str) -> Option<Status> {
        let mut allowed = None;
        let mut voluntary = None;
        let mut involuntary = None;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key {
                "Cpus_allowed_list" => allowed = value.parse().ok(),
                "voluntary_ctxt_switches" => voluntary = value.trim().parse().ok(),
                "nonvoluntary_ctxt_switches" => involuntary = value.trim().parse().ok(),
                _ => {}
            }
        }
        Some(Status { allowed: allowed?, voluntary: voluntary?, involuntary: involuntary? })
    }
}

fn read_table(kernel: &dyn Kernel, path: PathBuf, watched: &CpuSet) -> Result<Table, SampleError> {
    match kernel.read(&path).map(|bytes| Table::parse(&bytes, watched)) {
        Ok(Some(table)) if table.is_complete => Ok(table),
        Ok(Some(_)) => Err(SampleError::TooLarge { path }),
        Ok(None) => Err(SampleError::NoHeader { path }),
        Err(source) => Err(SampleError::Unreadable { path, source }),
    }
}

/// `None` for a file that cannot be read, as those of a thread that has ended.
fn read(kernel: &dyn Kernel, path: &Path) -> Option<String> {
    let bytes = kernel.read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first directories with a number as their name, `most` of them, and how many more there are; none if the
/// directory has vanished.
fn numbered(kernel: &dyn Kernel, directory: &Path, most: usize) -> (Vec<u32>, usize) {
    let entries = kernel.entries(directory).into_iter().flatten();
    let mut numbers =
        entries.filter_map(|(name, is_dir)| if is_dir { name.parse().ok() } else { None });
    let first = numbers.by_ref().take(most).collect();
    (first, numbers.count())
}

fn visibility(kernel: &dyn Kernel, root: &Path, processes: usize) -> Visibility {
    // Without the file there are no fields.
    let stat = |process: &str| read(kernel, &root.join(process).join("stat")).unwrap_or_default();
    if Stat::parse(&stat(KTHREADD)).is_some_and(|stat| stat.is_kernel) {
        return Visibility::Host;
    }
    // The first process of a container is the plugin, from which `kubectl exec` starts another.
    let own = stat(&kernel.own_process().to_string());
    let init = stat("1");
    let is_own_init = match (Stat::parse(&own), Stat::parse(&init)) {
        (Some(own), Some(init)) => own.name == init.name,
        _ => false,
    };
    if is_own_init || processes < FEW_PROCESSES {
        Visibility::InterruptsOnly
    } else {
        Visibility::Processes
    }
}

#[cfg(test)]
mod tests;
