//! A node without room for another thread: all that the plugin needs exist from its start.

use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};
use nri::wire::Event;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tokio::time::sleep;

/// The names of a process's threads by their ids.
fn threads(process: u32) -> BTreeMap<u32, String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .map(|task| {
            let task = task.unwrap().path();
            let name = fs::read_to_string(task.join("comm")).unwrap().trim().to_owned();
            (task.file_name().unwrap().to_str().unwrap().parse().unwrap(), name)
        })
        .collect()
}

#[tokio::test]
async fn the_threads_of_the_start_do_everything() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    let first = threads(plugin.child.id());
    let runtime = &mut plugin.runtime;
    assert!(runtime.synchronize(&[], &[], 1).await.is_empty());
    for name in ["a", "b", "c"] {
        runtime.create(&pod(name, 2000), &container(name, name, 2000)).await.unwrap();
    }
    // Files are read every second.
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(threads(plugin.child.id()), first);
    let mut names: Vec<&str> = first.values().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let expected =
        ["blocking", "clients", "disk", "gpus", "interrupts", "noise", "nri-cpu-manager", "pages"];
    assert_eq!(names, expected);
}

/// How long a thread has run.
fn run_time(process: u32, thread: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn read_page(state: &Path) {
    let mut stream = UnixStream::connect(state.join("status.sock")).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("</html>\n"), "{page}");
}

#[tokio::test]
async fn pages_are_made_by_a_thread_that_decides_nothing() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    let runtime = &mut plugin.runtime;
    assert!(runtime.synchronize(&[], &[], 1).await.is_empty());
    for number in 0..40 {
        let name = &format!("{number}");
        runtime.create(&pod(name, 100), &container(name, name, 100)).await.unwrap();
    }
    let process = plugin.child.id();
    let all = || -> Duration {
        threads(process).into_keys().map(|thread| run_time(process, thread)).sum()
    };
    let (all_before, main_before) = (all(), run_time(process, process));
    // So many that what the main thread does now and then, a check of a few milliseconds, does not count.
    (0..300).for_each(|_| read_page(&plugin.state_dir()));
    let main = run_time(process, process) - main_before;
    let all = all() - all_before;
    assert!(main < all / 5, "{main:?} of {all:?} is the time of the thread that decides");
}

/// Sends HTTP/2's pings to everyone who connects, as fast as they are read.
fn flood(listener: UnixListener) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut reader = stream.try_clone().unwrap();
        thread::spawn(move || while reader.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {});
        let mut sent = stream.write_all(&SETTINGS);
        while sent.is_ok() {
            sent = stream.write_all(&PING.repeat(4096));
        }
    }
}

#[tokio::test]
async fn a_flood_of_the_kubelet_takes_nothing_of_the_thread_that_decides() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    assert!(plugin.runtime.synchronize(&[], &[], 1).await.is_empty());
    let listener = UnixListener::bind(plugin.kubelet()).unwrap();
    thread::spawn(move || flood(listener));
    let process = plugin.child.id();
    let all = || -> Duration {
        threads(process).into_keys().map(|thread| run_time(process, thread)).sum()
    };
    let (all_before, main_before) = (all(), run_time(process, process));
    plugin.runtime.report(Event::RUN_POD_SANDBOX, &pod("a", 100), None).await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    let main = run_time(process, process) - main_before;
    let all = all() - all_before;
    assert!(all > Duration::from_millis(100), "the flood was not read: {all:?}");
    assert!(main < all / 5, "{main:?} of {all:?} is the time of the thread that decides");
}

/// A failed allocation ends a process, so limits that make one likely are refused while nothing depends on the plugin.
#[test]
fn a_limit_of_addresses_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (limit, name, kib) in
        [("-v", "addresses", 200 << 10), ("-v", "addresses", 1 << 20), ("-d", "data", 100 << 10)]
    {
        let command = format!(
            "ulimit {limit} {kib}; exec \"$0\" run --config \"$1\"/none --state-dir \"$1\"/state"
        );
        let run = Command::new("sh")
            .args(["-c", &command, env!("CARGO_BIN_EXE_nri-cpu-manager")])
            .arg(dir.path())
            .output()
            .unwrap();
        let error = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{error}");
        let expected = format!("the limit of {name} (ulimit {limit};");
        assert!(error.contains(&expected), "{error}");
        assert!(
            error.contains(&format!(" is {} MiB, and the plugin may reserve 2048 MiB", kib >> 10)),
            "{error}"
        );
    }
    assert!(!dir.path().join("state").exists());
}
