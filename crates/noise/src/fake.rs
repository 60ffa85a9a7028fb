//! `/proc` as texts.

use cpuset::CpuSet;
use kernel::Kernel;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) own_process: u32,
}

/// A thread that runs on CPUs 0-7, in the root cgroup.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) name: &'static str,
    pub(crate) flags: u64,
    pub(crate) ticks: u64,
    pub(crate) started: u64,
    pub(crate) last_cpu: usize,
    pub(crate) allowed: &'static str,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    pub(crate) cgroup: &'static str,
}

impl Task {
    pub(crate) fn process(process: u32, name: &'static str, cgroup: &'static str) -> Task {
        Task {
            process,
            thread: process,
            name,
            flags: 0x0040_0100,
            ticks: 10,
            started: 100,
            last_cpu: 0,
            allowed: "0-7",
            voluntary: 5,
            involuntary: 5,
            cgroup,
        }
    }

    pub(crate) fn kernel(process: u32, name: &'static str, allowed: &'static str) -> Task {
        let last_cpu = allowed.parse::<CpuSet>().unwrap().first().unwrap();
        let flags = 0x0020_8040;
        Task { flags, allowed, last_cpu, ..Task::process(process, name, "/") }
    }
}

impl Files {
    pub(crate) fn with(mut self, path: &str, text: impl Into<Vec<u8>>) -> Files {
        self.files.insert(path.into(), text.into());
        self
    }

    /// A host: with kthreadd.
    pub(crate) fn host(interrupts: &str, softirqs: &str, tasks: &[Task]) -> Files {
        let files = Files { own_process: 4000, ..Files::default() }
            .with("/proc/interrupts", interrupts)
            .with("/proc/softirqs", softirqs)
            .with_task(&Task::kernel(2, "kthreadd", "0"));
        tasks.iter().fold(files, Files::with_task)
    }

    pub(crate) fn with_task(self, task: &Task) -> Files {
        let Task { process, thread, name, flags, ticks, started, last_cpu, allowed, .. } = task;
        let stat = format!(
            "{thread} ({name}) S 1 {process} {process} 0 -1 {flags} 9 0 1 0 {ticks} 0 0 0 20 0 1 0 {started} \
             4096000 77 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 {last_cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        let status = format!(
            "Name:\t{}\nState:\tS (sleeping)\nPid:\t{thread}\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n\
             Mems_allowed_list:\t0\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
            name.replace('\n', "\\n"),
            task.voluntary,
            task.involuntary
        );
        let threads = format!("/proc/{process}/task/{thread}");
        let files = self
            .with(&format!("{threads}/stat"), stat.clone())
            .with(&format!("{threads}/status"), status)
            .with(&format!("/proc/{process}/cgroup"), format!("0::{}\n", task.cgroup));
        if process == thread { files.with(&format!("/proc/{process}/stat"), stat) } else { files }
    }
}

impl Kernel for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, _: &Path, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn check_writable(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn entries(&self, path: &Path) -> io::Result<kernel::Entries> {
        let mut names = BTreeSet::new();
        for file in self.files.keys() {
            if let Ok(rest) = file.strip_prefix(path) {
                let mut parts = rest.iter();
                if let Some(name) = parts.next() {
                    names.insert((name.to_str().unwrap().to_owned(), parts.next().is_some()));
                }
            }
        }
        if names.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(names.into_iter()))
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
        self.own_process
    }
}
