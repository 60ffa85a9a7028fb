//! The memory that the plugin's process uses for what authors can put into their pods.

use crate::kubelet::Kubelet;
use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};

use ledger::{Claim, ContainerId, CpuRequest, Margin, PodUid};
use nri::wire;
use protobuf::{CodedOutputStream, Message as _};
use state::checkpoint::{self, SavedClaims};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;

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

/// As entries of a list in the wire format: pods of a tenant, with as many containers each.
fn tenants(
    pods: usize,
    each: usize,
    pod: &wire::PodSandbox,
    container: &wire::Container,
) -> Vec<Vec<u8>> {
    let mut listed = Vec::new();
    let mut list = |number, message: Vec<u8>| {
        let mut entry = Vec::new();
        CodedOutputStream::vec(&mut entry).write_bytes(number, &message).unwrap();
        listed.push(entry);
    };
    for p in 0..pods {
        let sandbox = format!("sandbox-{p}");
        let pod = wire::PodSandbox { id: sandbox.clone(), uid: format!("uid-{p}"), ..pod.clone() };
        list(1, pod.write_to_bytes().unwrap());
        for c in 0..each {
            let (id, name) = (format!("{p}-{c}"), format!("c{c}"));
            let pod_sandbox_id = sandbox.clone();
            let container = wire::Container { id, name, pod_sandbox_id, ..container.clone() };
            list(2, container.write_to_bytes().unwrap());
        }
    }
    listed
}

#[tokio::test]
async fn nothing_that_a_tenant_writes_keeps_the_plugin_from_registering() {
    let longest = "\u{1F600}".repeat(256);
    let of_domain = |domain: &str| {
        let names =
            (0..64).map(|at| format!("{}{domain}/{at:02}{}", "k".repeat(200), "n".repeat(61)));
        names.map(|name| (name, longest.clone())).collect::<HashMap<_, _>>()
    };
    let gpus: Vec<String> = (0..620).map(|at| format!("GPU-{at:08}")).collect();
    let environment = |list: String| wire::Container {
        env: vec![format!("NVIDIA_VISIBLE_DEVICES={list}")],
        ..container("", "", 0)
    };
    let annotated =
        wire::PodSandbox { annotations: of_domain(".cpu-manager.nri.io"), ..pod("", 0) };
    let crio = (0..64).map(|at| (format!("cpu-quota.crio.io/c{at}"), longest.clone())).collect();
    let for_crio = wire::PodSandbox { annotations: crio, ..pod("", 0) };
    let workloads = wire::Container {
        annotations: of_domain("")
            .into_iter()
            .map(|(name, value)| (format!("target.workload.openshift.io/{name}"), value))
            .collect(),
        ..container("", "", 0)
    };
    for (what, pods) in [
        ("lists of GPUs", tenants(10, 104, &pod("", 0), &environment(gpus.join(",")))),
        ("annotations", tenants(100, 1, &annotated, &container("", "", 0))),
        ("annotations for CRI-O", tenants(200, 1, &for_crio, &container("", "", 0))),
        ("workloads", tenants(10, 50, &pod("", 0), &workloads)),
    ] {
        let mut plugin = PluginProcess::start(Generation::V0_12).await;
        list(&mut plugin, &pods, PART).await;
        println!("{what}: {} KiB", peak_kib(&plugin));
    }
}

/// The most that a container which shares CPUs may cost.
const CONTAINER_KIB: u64 = 4;

#[tokio::test]
async fn a_container_without_exclusive_cpus_takes_little_memory() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    list(&mut plugin, &[], PART).await;
    let base = peak_kib(&plugin);
    // As after a restart of the plugin: they have their CPUs.
    let mut shared = container("", "", 100);
    shared.linux.mut_or_insert_default().cgroups_path =
        format!("/kubepods/burstable/pod{0}/{0}{0}", "0123456789abcdef0123456789abcdef");
    shared
        .linux
        .mut_or_insert_default()
        .resources
        .mut_or_insert_default()
        .cpu
        .mut_or_insert_default()
        .cpus = "0-15".into();
    let mut of_class = pod("", 0);
    of_class.linux.mut_or_insert_default().cgroup_parent =
        "/kubepods/burstable/pod0123456789abcdef0123456789abcdef".into();
    for (pods, each) in [(100, 30), (110, 250)] {
        let mut plugin = PluginProcess::start(Generation::V0_12).await;
        list(&mut plugin, &tenants(pods, each, &of_class, &shared), PART).await;
        // The next answer shows that the list was recorded, even if its answer was late.
        let _ = plugin.runtime.stop(&pod("none", 0), &container("none", "none", 0)).await;
        let peak = peak_kib(&plugin);
        let count = (pods * each) as u64;
        println!(
            "{pods} pods x {each} containers: {} KiB, {} bytes a container",
            peak,
            (peak - base) * 1024 / count
        );
        assert!(
            peak - base < CONTAINER_KIB * count,
            "{pods} x {each}: {peak} KiB, without any {base}"
        );
    }
}

/// The most that a list of the kubelet may take, which is up to 4 MiB long.
const DEVICES_KIB: u64 = 16 << 10;

#[tokio::test]
async fn a_list_of_devices_takes_little_memory_and_delays_no_container() {
    const LONGEST: usize = (4 << 20) - 64;
    let field = |number, content: &[u8]| {
        let mut field = Vec::new();
        CodedOutputStream::vec(&mut field).write_bytes(number, content).unwrap();
        field
    };
    let fill = |part: Vec<u8>| part.repeat(LONGEST / part.len());
    let devices = [field(1, &[b'r'; 8000]), field(2, b"").repeat(500)].concat();
    for (what, list) in [
        ("pods", fill(field(1, b""))),
        ("containers", field(1, &fill(field(3, b"")))),
        ("containers with claims", field(1, &fill(field(3, &field(5, b""))))),
        ("devices with a long name", field(1, &fill(field(3, &field(2, &devices))))),
        ("nodes", field(1, &field(3, &field(2, &fill(field(3, &field(1, b""))))))),
    ] {
        let mut plugin = PluginProcess::start(Generation::V0_12).await;
        self::list(&mut plugin, &[], PART).await;
        let base = peak_kib(&plugin);
        let answers = [("/v1.PodResourcesLister/List", Ok(list))];
        let _kubelet = Kubelet::start(&plugin.kubelet(), answers.into());
        let mut slowest = Duration::ZERO;
        for at in 0..20 {
            let id = format!("new-{at}");
            let pod = pod(&id, 100);
            plugin.runtime.report(wire::Event::RUN_POD_SANDBOX, &pod, None).await.unwrap();
            let started = Instant::now();
            plugin.runtime.create(&pod, &container(&id, &id, 100)).await.unwrap();
            slowest = slowest.max(started.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
        let peak = peak_kib(&plugin) - base;
        println!("{what}: {peak} KiB, a creation took {slowest:?}");
        assert!(peak < DEVICES_KIB, "{what}: {peak} KiB");
        assert!(slowest < Duration::from_millis(500), "{what}: a creation took {slowest:?}");
    }
}
/// A configuration with as many values as it may have.
fn full_config(dir: &Path) {
    let mut config = fs::read_to_string(dir.join("config.yaml")).unwrap();
    config += "namespaces:\n";
    config.extend((0..12_400).map(|at| format!("- {{names: [namespace-{at}]}}\n")));
    fs::write(dir.join("config.yaml"), config).unwrap();
}

/// A state file with as many claims as fit.
fn full_state(dir: &Path) {
    let claim = |at: usize| Claim {
        pod_uid: PodUid(format!("0123456789abcdef-{at:06}").into()),
        namespace: "default".into(),
        pod: format!("pod-{at:06}"),
        container: "main".into(),
        id: ContainerId(format!("{at:064}").into()),
        cpus: "2-3".parse().unwrap(),
        margin: Margin::default(),
        mixed: false,
        lent: false,
        cpu: CpuRequest::default(),
    };
    let of = |count: usize| {
        let cpus = (0..count).map(claim).collect();
        checkpoint::encode(&SavedClaims { cpus, ..SavedClaims::default() }).unwrap()
    };
    let each = (of(1001).len() - of(1).len()) / 1000;
    let bytes = of((2 << 20) / each - 10);
    assert!((1 << 20..=2 << 20).contains(&bytes.len()), "{} bytes", bytes.len());
    fs::write(dir.join("state/checkpoint.json"), bytes).unwrap();
}

/// A state file of the kubelet with as many containers as fit.
fn full_kubelet(dir: &Path) {
    let config = fs::read_to_string(dir.join("config.yaml")).unwrap();
    let kubelet = dir.join("kubelet");
    fs::create_dir(&kubelet).unwrap();
    let config = config.replace("\"\"", kubelet.to_str().unwrap());
    fs::write(dir.join("config.yaml"), config).unwrap();
    let entries: Vec<String> =
        (0..27_500).map(|at| format!("\"{at:05}\":{{\"c\":\"2\"}}")).collect();
    let entries = entries.join(",");
    let state = format!(
        "{{\"policyName\":\"none\",\"defaultCpuSet\":\"\",\"entries\":{{{entries}}},\"checksum\":1}}"
    );
    assert!((450 << 10..=512 << 10).contains(&state.len()), "{} bytes", state.len());
    fs::write(kubelet.join("cpu_manager_state"), state).unwrap();
}

/// What interrupts were before, of as many as fit.
fn full_originals(dir: &Path) {
    let record = |at: usize| {
        format!(
            "[{{\"interrupt\":{at}}},{{\"names\":[],\"before\":{{\"cpus\":\"1\"}},\"ours\":[],\"confirmed\":true}}]"
        )
    };
    let records: Vec<String> = (0..50_000).map(record).collect();
    let records = records.join(",");
    let file = format!("{{\"version\":1,\"boot\":\"\",\"records\":[{records}],\"banned\":null}}");
    assert!((3 << 20..=4 << 20).contains(&file.len()), "{} bytes", file.len());
    fs::write(dir.join("state/quiet.json"), file).unwrap();
}

/// The figures are those of docs/security.md.
#[tokio::test]
async fn files_at_their_bounds_take_the_memory_that_the_page_names() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    list(&mut plugin, &[], PART).await;
    let base = peak_kib(&plugin);
    for (what, prepare, most_mib) in [
        ("configuration", full_config as fn(&Path), 24),
        ("state file", full_state, 40),
        ("originals", full_originals, 40),
        ("kubelet's state file", full_kubelet, 28),
    ] {
        let mut plugin = PluginProcess::prepared(Generation::V0_12, prepare).await;
        list(&mut plugin, &[], PART).await;
        let more = peak_kib(&plugin).saturating_sub(base);
        println!("{what}: {more} KiB more than the {base} KiB without");
        assert!(more < most_mib << 10, "{what}: {more} KiB more than {base} KiB");
    }
}

pub(crate) fn get(socket: &Path, path: &str) -> String {
    request(socket, &format!("GET {path} HTTP/1.1\r\n\r\n"))
}

fn request(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The figure is that of docs/security.md.
#[tokio::test]
async fn answers_of_the_status_socket_take_at_most_12_kib_a_container() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    let shared = container("", "", 100);
    list(&mut plugin, &tenants(30, 100, &pod("", 0), &shared), PART).await;
    // The next answer shows that the list was recorded.
    let _ = plugin.runtime.stop(&pod("none", 0), &container("none", "none", 0)).await;
    let before = peak_kib(&plugin);
    let mut answers = Vec::new();
    for path in ["/status", "/", "/metrics"] {
        // Until the plugin has done what follows from the list.
        let answer = loop {
            let answer = get(&plugin.state_dir().join("status.sock"), path);
            if !answer.starts_with("HTTP/1.1 503 ") {
                break answer;
            }
            sleep(Duration::from_millis(200)).await;
        };
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        answers.push(answer.len());
    }
    let more = peak_kib(&plugin) - before;
    println!("answers of {answers:?} bytes: {more} KiB");
    assert!(more < 12 * 3000, "{more} KiB");
}

/// The figure is that of docs/security.md.
#[tokio::test]
async fn questions_about_full_configurations_take_bounded_memory() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    let shared = container("", "", 100);
    list(&mut plugin, &tenants(30, 100, &pod("", 0), &shared), PART).await;
    // The next answer shows that the list was recorded.
    let _ = plugin.runtime.stop(&pod("none", 0), &container("none", "none", 0)).await;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.yaml"), "cpuManagerPolicy: none\n").unwrap();
    full_config(dir.path());
    let mut text = fs::read_to_string(dir.path().join("config.yaml")).unwrap();
    text += &"#".repeat((1 << 20) - text.len());
    let question = format!("POST /try HTTP/1.1\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    let socket = plugin.state_dir().join("status.sock");
    let before = peak_kib(&plugin);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let answer = request(&socket, &question);
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            });
        }
    });
    let more = peak_kib(&plugin) - before;
    println!("eight questions: {more} KiB");
    let most = (32 << 10) + 8 * 3000;
    assert!(more < most, "{more} KiB");
}
