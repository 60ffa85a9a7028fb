//! The shipped binary, connected to a test.

use crate::fake_sysfs;
use crate::runtime::{Generation, Runtime};
use machines::synthetic::Machine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use tokio::net::{UnixListener, UnixStream};

pub(crate) struct PluginProcess {
    pub(crate) child: Child,
    pub(crate) runtime: Runtime<UnixStream>,
    dir: Rc<tempfile::TempDir>,
}

impl PluginProcess {
    pub(crate) async fn start(generation: Generation) -> PluginProcess {
        PluginProcess::prepared(generation, |_| ()).await
    }

    /// Starts after `prepare` has changed its directory, with the configuration and the state directory.
    pub(crate) async fn prepared(
        generation: Generation,
        prepare: impl FnOnce(&Path),
    ) -> PluginProcess {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine { caches: 2, cores: 16, ..Machine::default() };
        let sysfs = dir.path().join("sys");
        fake_sysfs::write(&sysfs, &fake_sysfs::files(&machine.facts().unwrap()));
        let kubelet = dir.path().join("kubelet.sock");
        let config = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"\"\npodResources: {{kubelet: {}}}\n",
            kubelet.display()
        );
        fs::write(dir.path().join("config.yaml"), config).unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        prepare(dir.path());
        PluginProcess::launch(Rc::new(dir), generation, "nri.sock").await
    }

    /// Another instance for the same node, as in a roll-out.
    pub(crate) async fn successor(&self, socket: &str) -> PluginProcess {
        PluginProcess::launch(Rc::clone(&self.dir), self.runtime.generation, socket).await
    }

    async fn launch(
        dir: Rc<tempfile::TempDir>,
        generation: Generation,
        socket: &str,
    ) -> PluginProcess {
        let path = |name: &str| dir.path().join(name);
        let listener = UnixListener::bind(path(socket)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
            .arg("run")
            .args(["--config".into(), path("config.yaml")])
            .args(["--state-dir".into(), path("state")])
            .args(["--socket".into(), path(socket)])
            .args(["--sysfs-root".into(), path("sys")])
            .args(["--cgroup-root".into(), path("no-cgroups")])
            .args(["--proc-root".into(), path("no-proc")])
            .args(["--metrics-address", "none"])
            // As in the image.
            .env("MALLOC_ARENA_MAX", "1")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (trunk, _) = listener.accept().await.unwrap();
        let mut runtime = Runtime::new(trunk, generation);
        runtime.registration().await;
        runtime.configure().await;
        PluginProcess { child, runtime, dir }
    }

    /// Sends SIGTERM, as a kubelet does to end a container.
    pub(crate) fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Where the plugin asks the kubelet for devices.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.dir.path().join("kubelet.sock")
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}
