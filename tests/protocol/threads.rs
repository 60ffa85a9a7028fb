//! A node without room for another thread: all that the plugin needs exist from its start.

use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};
use std::collections::BTreeMap;
use std::fs;
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
    assert_eq!(names, ["blocking", "disk", "gpus", "interrupts", "noise", "nri-cpu-manager"]);
}
