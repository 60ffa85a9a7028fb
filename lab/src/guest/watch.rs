//! What a slow step waits for: a guest that hangs is switched off, and its logs are lost.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::command::last_lines;
use crate::process;

/// Does the work. If it takes longer than `long`, `report` receives once what all threads wait for.
pub(super) fn watched<T>(
    long: Duration,
    logs: &[PathBuf],
    report: impl FnOnce(String) + Send,
    work: impl FnOnce() -> T,
) -> T {
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        scope.spawn(move || {
            if is_done.recv_timeout(long) == Err(RecvTimeoutError::Timeout) {
                report(activity(logs));
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn activity(logs: &[PathBuf]) -> String {
    let mut text = "slow step; threads and the kernel functions in which they wait:".to_owned();
    // Writing to a string cannot fail.
    for (thread, count) in threads() {
        let _ = write!(text, "\n  {count} x {thread}");
    }
    for log in logs {
        let bytes = fs::read(log).unwrap_or_default();
        let end = last_lines(&String::from_utf8_lossy(&bytes), 15);
        let _ = write!(text, "\n{} ends with:\n{end}", log.display());
    }
    text
}

/// User space threads, grouped by name, state and kernel function.
fn threads() -> BTreeMap<String, usize> {
    let mut threads = BTreeMap::new();
    // Kernel threads have no executable.
    let pids =
        process::all().into_iter().filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok());
    let tasks = pids
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten());
    for task in tasks {
        let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread may end meanwhile: its fields are empty then.
        let field = |name| process::status_field(id, name).unwrap_or_default();
        let place = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        let thread = format!("{} {:.1} {place}", field("Name"), field("State"));
        *threads.entry(thread).or_default() += 1;
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_steps_are_reported() {
        let log = tempfile::NamedTempFile::new().unwrap();
        fs::write(log.path(), "first\nlast\n").unwrap();
        let watch = |long, time| {
            let mut reported = None;
            let worked = watched(
                Duration::from_millis(long),
                &[log.path().to_owned()],
                |text| reported = Some(text),
                || {
                    thread::sleep(Duration::from_millis(time));
                    "done"
                },
            );
            assert_eq!(worked, "done");
            reported
        };
        assert_eq!(watch(60_000, 0), None);
        let reported = watch(1, 500).unwrap();
        assert!(reported.ends_with("ends with:\nfirst\nlast"), "{reported}");
        // This very thread, asleep.
        let own = fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(reported.contains(&format!("x {} S ", own.trim())), "{reported}");
    }
}
