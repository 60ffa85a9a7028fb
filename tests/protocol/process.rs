//! The shipped binary, connected to a test.

use crate::fake_sysfs;
use crate::runtime::{Generation, Runtime};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tokio::net::{UnixListener, UnixStream};
use topology::synthetic::Machine;

pub(crate) struct Plugin {
    pub(crate) child: Child,
    pub(crate) runtime: Runtime<UnixStream>,
    dir: tempfile::TempDir,
}

impl Plugin {
    pub(crate) async fn start(generation: Generation) -> Plugin {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        fake_sysfs::write(&path("sys"), &fake_sysfs::files(&machine.facts().unwrap()));
        let config =
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"\"\n";
        fs::write(path("config.yaml"), config).unwrap();
        let listener = UnixListener::bind(path("nri.sock")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
            .arg("run")
            .args(["--config".into(), path("config.yaml")])
            .args(["--state-dir".into(), path("state")])
            .args(["--socket".into(), path("nri.sock")])
            .args(["--sysfs-root".into(), path("sys")])
            .args(["--cgroup-root".into(), path("no-cgroups")])
            .args(["--proc-root".into(), path("no-proc")])
            .args(["--metrics-address", "none"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (trunk, _) = listener.accept().await.unwrap();
        let mut runtime = Runtime::new(trunk, generation);
        runtime.registration().await;
        runtime.configure().await;
        Plugin { child, runtime, dir }
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
