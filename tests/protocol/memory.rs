//! How much memory the plugin's process takes for what pods' authors put into their pods.

use crate::fake_sysfs;
use crate::runtime::{Generation, Runtime, container, pod};
use nri_cpu_manager::edge::nri::wire;
use nri_cpu_manager::topology::synthetic::Machine;
use protobuf::{CodedOutputStream, Message as _};
use std::collections::HashMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use tokio::net::{UnixListener, UnixStream};

/// Kubernetes' limit on the size of a pod's annotations.
const ANNOTATIONS: usize = 256 << 10;
/// As many as the kubelet runs by default.
const PODS: usize = 110;
/// What containerd since NRI 0.7 puts into one message.
const PART: usize = 4 << 20;
/// What NRI 0.6 puts into one message.
const WHOLE: usize = 16 << 20;
/// Of the 64 MiB that the manifests allow.
const LIMIT_KIB: u64 = 40 << 10;

/// The shipped binary, connected to this test.
struct Plugin {
    child: Child,
    runtime: Runtime<UnixStream>,
    _dir: tempfile::TempDir,
}

impl Plugin {
    async fn start(generation: Generation) -> Plugin {
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
        Plugin { child, runtime, _dir: dir }
    }

    /// Lists pods, in messages of at most so many bytes.
    async fn list(&mut self, pods: &[Vec<u8>], longest: usize) {
        let mut parts = vec![Vec::new()];
        for pod in pods {
            if parts.last().unwrap().len() + pod.len() > longest - 4096 {
                parts.push(Vec::new());
            }
            parts.last_mut().unwrap().extend(pod);
        }
        let last = parts.len() - 1;
        for (at, mut part) in parts.into_iter().enumerate() {
            if at < last {
                CodedOutputStream::vec(&mut part).write_bool(3, true).unwrap();
            }
            let stream = self.runtime.send("Synchronize", &part).await;
            self.runtime.reply(stream).await.unwrap();
        }
    }

    fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Different texts of this length.
fn texts(length: usize) -> impl Iterator<Item = String> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    (0..LETTERS.len().pow(3)).map(move |mut number| {
        let mut letter = || {
            let letter = LETTERS[number % LETTERS.len()];
            number /= LETTERS.len();
            char::from(letter)
        };
        (0..length).map(|_| letter()).collect()
    })
}

/// As many entries as an author may have, with this value.
fn entries(names: impl Iterator<Item = String>, value: &str) -> HashMap<String, String> {
    let mut left = ANNOTATIONS;
    let fits = |name: &String| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    names.take_while(fits).map(|name| (name, value.to_owned())).collect()
}

/// Pods like this one in a list, in the wire format, as many as fit. All but their ids are encoded
/// once.
fn pods(pod: wire::PodSandbox, fit: usize) -> Vec<Vec<u8>> {
    let common = pod.write_to_bytes().unwrap();
    let listed = |at: usize| {
        let mut pod = common.clone();
        for number in [1, 2, 3] {
            CodedOutputStream::vec(&mut pod).write_string(number, &format!("pod-{at}")).unwrap();
        }
        let mut listed = Vec::new();
        CodedOutputStream::vec(&mut listed).write_bytes(1, &pod).unwrap();
        listed
    };
    (0..PODS.min(fit / (common.len() + 64))).map(listed).collect()
}

#[tokio::test]
async fn a_list_of_pods_with_all_that_authors_can_write_takes_little_memory() {
    let of_domain = |length| texts(length).map(|name| format!("cpus.cpu-manager.nri.io/{name}"));
    let three_letters = entries(texts(3), "");
    let annotated = |annotations| wire::PodSandbox { annotations, ..pod("", 100) };
    for (what, sent) in [
        ("three-letter annotations", annotated(three_letters.clone())),
        ("annotations of the plugin", annotated(entries(of_domain(3), "shared"))),
        ("64 wrong wishes", annotated(entries(of_domain(200).take(64), &"x".repeat(3800)))),
        ("labels", wire::PodSandbox { labels: three_letters, ..pod("", 100) }),
    ] {
        for (generation, longest, fit) in
            [(Generation::V0_12, PART, usize::MAX), (Generation::V0_6_1, WHOLE, WHOLE - 8192)]
        {
            let mut plugin = Plugin::start(generation).await;
            let pods = pods(sent.clone(), fit);
            plugin.list(&pods, longest).await;
            let peak = plugin.peak_kib();
            println!("{generation:?}, {} pods with {what}: {peak} KiB", pods.len());
            assert!(peak < LIMIT_KIB, "{generation:?}, {what}: {peak} KiB");
            let (pod, container) = (pod("new", 1000), container("new", "new", 1000));
            let created = plugin.runtime.create(&pod, &container).await.unwrap();
            assert_eq!(created.adjust.linux.resources.cpu.cpus, "2");
        }
    }
}
