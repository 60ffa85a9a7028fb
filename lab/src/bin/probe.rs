//! The program of the lab's containers: reports where it may run and where it ran.
//!
//! * `probe first FILE [PID..]`: as its first act, reads the time and its own `Cpus_allowed_list`, then
//!   those of every thread of the given processes (the pod shares the host's pids); writes them to
//!   FILE and sleeps.
//! * `probe spin FILE`: a busy thread per CPU, which writes when it last ran on each CPU.
//! * `probe spin FILE GO`: the same with one thread, which waits for a file GO.
//! * `probe follow`: busy threads that end the program as soon as one runs on a CPU which the file of
//!   `exposeCPUs: file` has named neither just before nor just after.
//! * `probe hold BYTES`: writes so much anonymous memory and keeps it.
//! * `probe hold-huge BYTES`: takes so many bytes of huge pages of 2 MiB and keeps them.
//! * `probe flood ADDRESS:PORT`: sends small packets there, some thousands a second.
//! * `probe sleep`: waits, as the first process of a container that is observed from outside.
//!
//! Times are of CLOCK_MONOTONIC, which all containers of a machine share. If the spinning process last
//! ran on a CPU before the start of the container to which the CPU is exclusive, they never met there.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sched::sched_getcpu;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    let start = monotonic();
    let own = allowed("/proc/self/status");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["first", file, pids @ ..] => first(start, &own, file, pids),
        ["spin", file] => {
            spin(file, std::thread::available_parallelism().map_or(1, usize::from), None)
        }
        ["spin", file, go] => spin(file, 1, Some((*go).to_owned())),
        ["follow"] => follow(),
        ["hold", bytes] => hold(bytes),
        ["hold-huge", bytes] => hold_huge(bytes),
        ["flood", address] => flood(address),
        ["sleep"] => Ok(()),
        _ => Err(std::io::Error::other(
            "usage: probe first FILE [PID..] | spin FILE [GO] | follow | hold BYTES | \
             hold-huge BYTES | flood ADDRESS:PORT | sleep",
        )),
    };
    if let Err(error) = result {
        eprintln!("probe: {error}");
        return ExitCode::FAILURE;
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Lines: `start_ns NUMBER`, `own LIST`, and `thread PID TID LIST` for each thread.
fn first(start: u64, own: &str, file: &str, pids: &[&str]) -> std::io::Result<()> {
    let mut report = format!("start_ns {start}\nown {own}\n");
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid = task?.file_name().to_string_lossy().into_owned();
            let list = allowed(&format!("/proc/{pid}/task/{tid}/status"));
            report.push_str(&format!("thread {pid} {tid} {list}\n"));
        }
    }
    // Atomically: readers must not get a part.
    let partial = format!("{file}.partial");
    fs::write(&partial, report)?;
    fs::rename(partial, file)
}

/// FILE is an array of native 64-bit times, indexed by CPU number.
fn spin(file: &str, threads: usize, go: Option<String>) -> std::io::Result<()> {
    let file = File::create(file)?;
    for _ in 0..threads {
        let (file, go) = (file.try_clone()?, go.clone());
        std::thread::spawn(move || {
            while go.as_ref().is_some_and(|go| !Path::new(go).exists()) {
                std::thread::sleep(Duration::from_millis(100));
            }
            loop {
                record(&file);
            }
        });
    }
    Ok(())
}

/// More than the container has CPUs at first, so that the kernel moves one to CPUs that come.
const FOLLOWERS: usize = 3;

/// Does not return.
fn follow() -> std::io::Result<()> {
    let (failed, failure) = std::sync::mpsc::channel();
    for _ in 0..FOLLOWERS {
        let failed = failed.clone();
        std::thread::spawn(move || failed.send(follow_with_one_thread()));
    }
    failure.recv().map_err(std::io::Error::other)?
}

fn follow_with_one_thread() -> std::io::Result<()> {
    let directory = std::env::var("NRI_CPU_MANAGER_DIR").map_err(std::io::Error::other)?;
    let file = Path::new(&directory).join("cpus");
    let mut before = fs::read_to_string(&file)?;
    loop {
        let cpu = sched_getcpu()?;
        let after = fs::read_to_string(&file)?;
        if !names(&before, cpu) && !names(&after, cpu) {
            let why = format!("runs on CPU {cpu}, but its file says {before:?}, then {after:?}");
            return Err(std::io::Error::other(why));
        }
        before = after;
    }
}

/// Whether a list like `2-5,8` has a CPU.
fn names(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = (first.parse::<usize>(), last.parse::<usize>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
    })
}

/// The kernel gives memory to a process when it writes to it, not before.
fn hold(bytes: &str) -> std::io::Result<()> {
    let bytes: usize = bytes.parse().map_err(std::io::Error::other)?;
    let memory = vec![1_u8; bytes].leak();
    std::hint::black_box(memory);
    Ok(())
}

/// Through a file without a name, because a mapping would need unsafe code.
fn hold_huge(bytes: &str) -> std::io::Result<()> {
    let bytes: i64 = bytes.parse().map_err(std::io::Error::other)?;
    let file = memfd_create("held", MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    // Closing the file would free its pages.
    std::mem::forget(file);
    Ok(())
}

/// Packets between two pauses.
const BURST: usize = 32;

/// Does not return.
fn flood(address: &str) -> std::io::Result<()> {
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    loop {
        for _ in 0..BURST {
            // A full queue is what a flood is for.
            let _ = socket.send_to(&[0; 32], address);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The time counts only if the thread was on the CPU both before and after reading the clock.
fn record(file: &File) {
    let before = sched_getcpu();
    let now = monotonic();
    let after = sched_getcpu();
    if let (Ok(before), Ok(after)) = (before, after)
        && before == after
    {
        // A failed write leaves an older time; there is no way to report it.
        let _ = file.write_at(&now.to_ne_bytes(), before as u64 * 8);
    }
}

fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| u64::try_from(t.tv_sec() * 1_000_000_000 + t.tv_nsec()).unwrap_or(0))
}

fn allowed(status: &str) -> String {
    let text = fs::read_to_string(status).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
}
