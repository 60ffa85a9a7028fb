//! What a slow step waits for: a guest that hangs is switched off, and its logs are lost.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::command::last_lines;
use crate::process;

/// Logs that are shown, those that were written last.
const LOGS: usize = 3;

/// The threads, what they wait for, and the ends of the logs below a directory.
pub(super) fn activity(directory: &Path) -> String {
    let mut text = "slow step; threads and the kernel functions in which they wait:".to_owned();
    // Writing to a string cannot fail.
    for (thread, count) in threads() {
        let _ = write!(text, "\n  {count} x {thread}");
    }
    let mut logs = Vec::new();
    find_logs(directory, &mut logs);
    logs.sort();
    for (_, log) in logs.iter().rev().take(LOGS) {
        let bytes = fs::read(log).unwrap_or_default();
        let end = last_lines(&String::from_utf8_lossy(&bytes), 15);
        let _ = write!(text, "\n{} ends with:\n{end}", log.display());
    }
    text
}

fn find_logs(directory: &Path, logs: &mut Vec<(SystemTime, PathBuf)>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
        if about.is_dir() {
            find_logs(&path, logs);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.extend(about.modified().ok().map(|time| (time, path)));
        }
    }
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
