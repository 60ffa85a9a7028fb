//! The memory that the plugin's process uses for what authors can put into their pods.

use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};
use nri::wire;
use protobuf::{CodedOutputStream, Message as _};
use std::collections::HashMap;
use std::fs;

/// Kubernetes' limit on the size of a pod's annotations.
const ANNOTATIONS: usize = 256 << 10;
/// The kubelet's default limit.
const PODS: usize = 110;
/// The longest message of containerd since NRI 0.7.
const PART: usize = 4 << 20;
/// The longest message of NRI 0.6.
const WHOLE: usize = 16 << 20;
/// The manifests allow 64 MiB.
const LIMIT_KIB: u64 = 40 << 10;

/// Lists pods, in messages of at most this many bytes.
async fn list(plugin: &mut PluginProcess, pods: &[Vec<u8>], longest: usize) {
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
        let stream = plugin.runtime.send("Synchronize", &part).await;
        plugin.runtime.reply(stream).await.unwrap();
    }
}

fn peak_kib(plugin: &PluginProcess) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", plugin.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
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

/// As many entries as an author may write, with this value.
fn entries(names: impl Iterator<Item = String>, value: &str) -> HashMap<String, String> {
    let mut left = ANNOTATIONS;
    let fits = |name: &String| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    names.take_while(fits).map(|name| (name, value.to_owned())).collect()
}

/// As many pods like this one as fit, as entries of a list in the wire format. Everything but their
/// ids is encoded once.
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
async fn pods_with_the_largest_annotations_take_little_memory() {
    let of_domain = |length| texts(length).map(|name| format!("cpus.cpu-manager.nri.io/{name}"));
    let three_letters = entries(texts(3), "");
    let annotated = |annotations| wire::PodSandbox { annotations, ..pod("", 100) };
    for (what, sent) in [
        ("three-letter annotations", annotated(three_letters.clone())),
        ("annotations of the plugin", annotated(entries(of_domain(3), "shared"))),
        ("64 wrong pod options", annotated(entries(of_domain(200).take(64), &"x".repeat(3800)))),
        ("labels", wire::PodSandbox { labels: three_letters, ..pod("", 100) }),
    ] {
        for (generation, longest, fit) in
            [(Generation::V0_12, PART, usize::MAX), (Generation::V0_6_1, WHOLE, WHOLE - 8192)]
        {
            let mut plugin = PluginProcess::start(generation).await;
            let pods = pods(sent.clone(), fit);
            list(&mut plugin, &pods, longest).await;
            let peak = peak_kib(&plugin);
            println!("{generation:?}, {} pods with {what}: {peak} KiB", pods.len());
            assert!(peak < LIMIT_KIB, "{generation:?}, {what}: {peak} KiB");
            let pod = pod("new", 1000);
            let container = container("new", "new", 1000);
            let created = plugin.runtime.create(&pod, &container).await.unwrap();
            assert_eq!(created.adjust.linux.resources.cpu.cpus, "2");
        }
    }
}
