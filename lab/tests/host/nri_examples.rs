//! The examples of the library for NRI plugins, with containerd and without the plugin.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use lab::binaries::Binaries;
use lab::command::command;
use lab::containerd::Version;
use lab::host::Host;
use lab::pod::{Container, Pod};
use lab::process;
use nix::sys::signal::Signal;

use crate::bench::eventually;

on_both!(the_logger_shows_a_pods_life, a_pods_annotation_is_in_its_containers_environment);

/// A running example.
struct Example {
    child: Child,
    output: PathBuf,
}

impl Example {
    fn start(name: &str, host: &Host) -> Self {
        let program = Binaries::nri_example(name).unwrap();
        let output = host.node.directory().join(format!("{name}.log"));
        let child = command(program, Vec::<String>::new())
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
    let logger = Example::start("logger", &host);
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
    let annotate = Example::start("annotate", &host);
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
