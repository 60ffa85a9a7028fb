//! The examples of the library for NRI plugins, with containerd: without the plugin, and together with it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use lab::binaries::Binaries;
use lab::cgroup;
use lab::command::command;
use lab::containerd::Version;
use lab::host::Host;
use lab::pod::{Container, Pod};
use lab::process;
use nix::sys::signal::Signal;

use crate::bench::{Bench, eventually, exclusive};

on_both!(
    the_logger_shows_a_pods_life,
    a_pods_annotation_is_in_its_containers_environment,
    plugins_that_add_devices_and_memory_change_no_cpus,
);

/// A running example.
struct Example {
    child: Child,
    output: PathBuf,
}

impl Example {
    /// With these arguments before the socket.
    fn start(name: &str, arguments: &[&str], host: &Host) -> Self {
        let program = Binaries::nri_example(name).unwrap();
        let log = format!("{name}{}.log", arguments.concat());
        let output = host.node.directory().join(log);
        let child = command(program, arguments)
            .arg(host.node.containerd().nri_socket())
            .stdin(Stdio::null())
            .stdout(File::create(&output).unwrap())
            .spawn()
            .unwrap();
        Self { child, output }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    fn wait_for(&self, text: &str, count: usize) {
        let is_there = || self.output().matches(text).count() >= count;
        assert!(eventually(is_there), "no {text:?} ({count} times) in\n{}", self.output());
    }

    fn stop(mut self) {
        let status = process::end(&mut self.child, Signal::SIGTERM, Duration::from_secs(5));
        let status = status.unwrap();
        assert!(status.success(), "{status}");
    }
}

/// A test that fails leaves none behind.
impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn host(version: Version) -> Host {
    Host::start(version, &Binaries::probe().unwrap()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn the_logger_shows_a_pods_life(version: Version) {
    let mut host = host(version);
    let logger = Example::start("logger", &[], &host);
    logger.wait_for("Synchronize", 1);
    let pod = Pod::new("web", [Container::burstable("main", 100)]);
    host.node.run(&pod).unwrap();
    host.node.remove("web").unwrap();
    logger.wait_for("RemovePodSandbox web", 1);
    print!("{}", logger.output());
    let expected = [
        "RunPodSandbox web ",
        "CreateContainer web main",
        "PostCreateContainer web main",
        "StartContainer web main",
        "PostStartContainer web main",
        "StopContainer web main",
        "StopPodSandbox web ",
        "RemoveContainer web main",
        "RemovePodSandbox web ",
    ];
    let output = logger.output();
    let mut lines = output.lines();
    for expected in expected {
        assert!(lines.any(|line| line == expected), "no {expected:?} in its place in\n{output}");
    }

    // It connects again, and gets a list of what runs.
    host.node.kill_runtime().unwrap();
    host.node.restart_runtime().unwrap();
    logger.wait_for("Synchronize", 2);
    logger.stop();
}

fn a_pods_annotation_is_in_its_containers_environment(version: Version) {
    let mut host = host(version);
    let annotate = Example::start("annotate", &[], &host);
    annotate.wait_for("ready", 1);
    let mut colored = Pod::new("colored", [Container::burstable("main", 100)]);
    colored.annotations.insert("annotate.nri.io/COLOR".to_owned(), "blue".to_owned());
    let colored = host.node.run(&colored).unwrap();
    let variables = process::environment(colored.containers[0].pid, "COLOR=").unwrap();
    println!("{variables:?}");
    assert_eq!(variables, ["COLOR=blue"]);
    let plain = host.node.run(&Pod::new("plain", [Container::burstable("main", 100)])).unwrap();
    assert!(process::environment(plain.containers[0].pid, "COLOR=").unwrap().is_empty());
    annotate.stop();
}

/// One is called before the plugin, one after it.
fn plugins_that_add_devices_and_memory_change_no_cpus(version: Version) {
    const LIMIT: &str = "67108864";
    let mut bench = Bench::new(version);
    let _plugin = bench.plugin();
    let first = Example::start("inject", &["05"], &bench.host);
    let last = Example::start("inject", &["95"], &bench.host);
    first.wait_for("ready", 1);
    last.wait_for("ready", 1);

    let mut db = exclusive("db");
    db.annotations.insert("inject.nri.io/05".to_owned(), LIMIT.to_owned());
    db.annotations.insert("inject.nri.io/95".to_owned(), String::new());
    let running = bench.run(&db);
    assert_eq!(bench.allowed("db"), bench.assignable());
    let pid = running.containers[0].pid;
    let variables = process::environment(pid, "INJECTED_").unwrap();
    assert_eq!(variables.len(), 2, "{variables:?}");
    for index in ["05", "95"] {
        for path in [format!("injected-{index}"), format!("dev/injected-{index}")] {
            assert!(PathBuf::from(format!("/proc/{pid}/root/{path}")).exists(), "no {path}");
        }
    }
    // In the order of their indexes, with the plugin at 90 between them.
    first.wait_for("main has []", 1);
    last.wait_for("main has [\"/dev/injected-05\"]", 1);
    let file = if cgroup::is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
    let limit = cgroup::of_process(pid, "memory").unwrap().join(file);
    assert_eq!(fs::read_to_string(limit).unwrap().trim(), LIMIT);

    bench.host.node.remove("db").unwrap();
    let mut contested = exclusive("contested");
    contested.annotations.insert("inject.nri.io/95".to_owned(), String::new());
    contested.annotations.insert("inject.nri.io/cpus".to_owned(), "0".to_owned());
    let error = format!("{:#}", bench.host.node.run(&contested).unwrap_err());
    println!("{error}");
    assert!(error.contains("both tried to set"), "{error}");
    bench.host.node.remove("contested").unwrap();
    // What was refused keeps no CPU.
    bench.run(&exclusive("next"));
    first.stop();
    last.stop();
}
