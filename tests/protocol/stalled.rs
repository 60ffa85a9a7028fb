//! A disk that does not respond, simulated by stopping the only thread that writes.

use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use nri::wire::{self, Event};
use state::checkpoint;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// A thread that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn thread_of(process: u32, name: &str) -> Stopped {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let thread = tasks
            .map(|task| task.unwrap().path())
            .find(|task| fs::read_to_string(task.join("comm")).unwrap().trim() == name)
            .unwrap_or_else(|| panic!("no thread {name:?}"));
        let thread = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let thread = Pid::from_raw(thread);
        ptrace::seize(thread, Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Stopped(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).unwrap();
    }
}

fn health(state: &Path) -> String {
    let mut stream = UnixStream::connect(state.join("status.sock")).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn saved(state: &Path) -> Vec<String> {
    let claims = checkpoint::read(state).unwrap().unwrap();
    claims.cpus.into_iter().map(|claim| claim.pod).collect()
}

#[tokio::test]
async fn a_stalled_disk_refuses_only_new_exclusive_containers() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    assert!(plugin.runtime.synchronize(&[], &[], 1).await.is_empty());
    let state = plugin.state_dir();
    let cpus =
        |created: &wire::CreateContainerResponse| created.adjust.linux.resources.cpu.cpus.clone();
    let runtime = &mut plugin.runtime;
    let created = runtime.create(&pod("a", 2000), &container("a", "a", 2000)).await.unwrap();
    assert_eq!(cpus(&created), "2-3");
    assert!(!health(&state).contains("warning: /"), "{}", health(&state));

    let disk = Stopped::thread_of(plugin.child.id(), "disk");
    for _ in 0..2 {
        let refused = runtime.create(&pod("b", 2000), &container("b", "b", 2000)).await;
        let why = refused.unwrap_err().message;
        let expect = format!("{}: the disk has not finished a write for ", state.display());
        assert!(why.contains(&expect), "{why}");
    }
    let created = runtime.create(&pod("s", 500), &container("s", "s", 500)).await.unwrap();
    assert_eq!(cpus(&created), "0-1,4-15");
    // The CPUs of a container that ends are free at once.
    runtime.report(Event::STOP_POD_SANDBOX, &pod("a", 2000), None).await.unwrap();
    let created = runtime.create(&pod("t", 500), &container("t", "t", 500)).await.unwrap();
    assert_eq!(cpus(&created), "0-15");
    let health_now = health(&state);
    assert!(health_now.starts_with("HTTP/1.1 200 "), "{health_now}");
    assert!(health_now.contains("the disk has not finished a write for "), "{health_now}");
    assert_eq!(saved(&state), ["pod-a"]);

    drop(disk);
    // What has happened meanwhile is saved without a new event.
    while !saved(&state).is_empty() || health(&state).contains("has not finished") {
        sleep(Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
    let created = runtime.create(&pod("b", 2000), &container("b2", "b", 2000)).await.unwrap();
    assert_eq!(cpus(&created), "2-3");
    assert_eq!(saved(&state), ["pod-b"]);
}
