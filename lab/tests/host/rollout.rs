//! Roll-outs: an instance of the plugin takes over from the one before it, on real containerd.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::bench::{Bench, eventually};
use lab::command::command;
use lab::containerd::Version;
use lab::plugin::PluginSetup;
use lab::process;
use nix::sys::signal::Signal;

on_both!(a_roll_out_leaves_no_container_unpinned);

/// An instance without a port of its own, as each pod has its own address.
struct Instance {
    child: Child,
    log: PathBuf,
}

impl Instance {
    fn start(setup: &PluginSetup, number: usize) -> Self {
        let log = setup.directory.join(format!("instance-{number}.log"));
        let path = |name: &str| setup.directory.join(name).into_os_string();
        let child = command(&setup.program, ["run", "--metrics-address", "none"])
            .args([
                "--config".into(),
                path("config/config.yaml"),
                "--state-dir".into(),
                path("state"),
            ])
            .arg("--socket")
            .arg(&setup.socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn wait_for(&self, text: &str) {
        let log = || fs::read_to_string(&self.log).unwrap();
        assert!(eventually(|| log().contains(text)), "no {text:?} in\n{}", log());
    }

    /// Sends SIGTERM and returns at once.
    fn terminate(mut self) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let ended = process::end(&mut self.child, Signal::SIGTERM, Duration::from_secs(5));
            assert!(ended.unwrap().success());
        })
    }
}

/// A test that fails leaves none behind.
impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// While instances are replaced, exclusive containers start without a pause: each runs on its own
/// CPU from its first instruction.
fn a_roll_out_leaves_no_container_unpinned(version: Version) {
    let mut bench = Bench::new(version);
    let setup = bench.setup();
    setup.write_config().unwrap();
    fs::create_dir_all(setup.directory.join("state")).unwrap();
    let mut old = Instance::start(&setup, 0);
    old.wait_for("synchronised");
    let own = bench.assignable();
    let mut started = 0;
    for round in 1..=5 {
        let new = Instance::start(&setup, round);
        new.wait_for("waiting for its end");
        new.wait_for("runtime: ");
        // With both connected, with the old one ending, and with the new one alone.
        let mut before = Some(std::mem::replace(&mut old, new));
        let mut ending = None;
        for phase in ["both", "change", "new"] {
            if phase == "change" {
                ending = before.take().map(Instance::terminate);
            }
            let name = format!("db-{round}-{phase}");
            let report = bench.run_first(&name);
            assert_eq!(report.own, own, "{name}");
            bench.host.node.remove(&name).unwrap();
            started += 1;
        }
        ending.unwrap().join().unwrap();
        old.wait_for("taking the node over");
    }
    println!("roll-outs=5 started={started} unpinned=0");
}
