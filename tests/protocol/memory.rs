//! How much memory the plugin's process takes for what pods' authors put into their pods.

use crate::process::Plugin;
use crate::runtime::{Generation, container, pod};
use nri::wire;
use protobuf::{CodedOutputStream, Message as _};
use std::collections::HashMap;
use std::fs;

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

/// Lists pods, in messages of at most so many bytes.
async fn list(plugin: &mut Plugin, pods: &[Vec<u8>], longest: usize) {
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

fn peak_kib(plugin: &Plugin) -> u64 {
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
            list(&mut plugin, &pods, longest).await;
            let peak = peak_kib(&plugin);
            println!("{generation:?}, {} pods with {what}: {peak} KiB", pods.len());
            assert!(peak < LIMIT_KIB, "{generation:?}, {what}: {peak} KiB");
            let (pod, container) = (pod("new", 1000), container("new", "new", 1000));
            let created = plugin.runtime.create(&pod, &container).await.unwrap();
            assert_eq!(created.adjust.linux.resources.cpu.cpus, "2");
        }
    }
}
