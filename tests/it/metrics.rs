//! Metrics and health over a real connection, as a scraper and a probe get them.
//!
//! `lab/tests/metrics.rs` reads metrics with Prometheus' own parser.

use crate::support::events::{local, pod_and_container};
use crate::support::logged::{logged, warnings};
use crate::support::observed::{CONFIG, ObservedDaemon};
use edge::Message;
use ledger::{Event, Qos};
use log::Level;
use machines::synthetic::Machine;
use nri::Session;
use placement::Reason;
use serve::endpoint::{self, Address};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

async fn listen(daemon: &ObservedDaemon) -> SocketAddr {
    let anywhere: Address = "127.0.0.1:0".parse().unwrap();
    let listener = endpoint::listen(anywhere).await.unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(endpoint::serve(listener, daemon.observer.clone(), daemon.pages.clone()));
    address
}

/// Longer than clients share an answer.
const SHARED: Duration = Duration::from_millis(1100);

/// The status code, the media type and the body of an answer.
async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()));
    let media = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), media.to_owned(), body.to_owned())
}

/// A scrape: types by name, and values by name and labels.
struct Scrape {
    types: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    async fn of(address: SocketAddr) -> Scrape {
        let (status, media, body) = get(address, "/metrics").await;
        assert_eq!((status, &*media), (200, "text/plain; version=0.0.4"));
        Scrape::parse(&body)
    }

    fn parse(text: &str) -> Scrape {
        let mut types = BTreeMap::new();
        let mut values = BTreeMap::new();
        for line in text.lines() {
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').unwrap();
                assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{name} twice");
            } else if !line.starts_with('#') {
                let (key, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(values.insert(key.to_owned(), value.parse().unwrap()), None, "{key}");
            }
        }
        Scrape { types, values }
    }

    #[track_caller]
    fn check(&self, expect: &[(&str, f64)]) {
        for (key, value) in expect {
            assert_eq!(self.values.get(*key), Some(value), "{key} in {:#?}", self.values);
        }
    }

    /// The names of a metric's labels.
    fn labels(&self, name: &str) -> BTreeSet<&str> {
        let series = self.values.keys().filter_map(|key| key.strip_prefix(name)?.strip_prefix('{'));
        let labels = series.flat_map(|labels| labels.trim_end_matches('}').split("\","));
        labels.filter_map(|label| Some(label.split_once('=')?.0)).collect()
    }
}

/// Metrics on CPUs of Kubernetes 1.36's kubelet: name, type and labels.
const KUBELET: &[(&str, &str, &[&str])] = &[
    ("kubelet_cpu_manager_pinning_requests_total", "counter", &[]),
    ("kubelet_cpu_manager_pinning_errors_total", "counter", &[]),
    ("kubelet_cpu_manager_shared_pool_size_millicores", "gauge", &[]),
    ("kubelet_cpu_manager_exclusive_cpu_allocation_count", "gauge", &[]),
    ("kubelet_cpu_manager_allocation_per_numa", "gauge", &["numa_node"]),
    ("kubelet_container_aligned_compute_resources_count", "counter", &["boundary", "scope"]),
    (
        "kubelet_container_aligned_compute_resources_failure_count",
        "counter",
        &["boundary", "scope"],
    ),
    ("kubelet_topology_manager_admission_requests_total", "counter", &[]),
    ("kubelet_topology_manager_admission_errors_total", "counter", &[]),
    ("kubelet_topology_manager_admission_duration_ms", "histogram", &[]),
    ("resource_manager_allocations_total", "counter", &["resource_name", "source"]),
    ("resource_manager_allocation_errors_total", "counter", &["resource_name", "source"]),
    ("resource_manager_container_assignments", "counter", &["assignment_type", "resource_name"]),
];

#[tokio::test]
async fn the_kubelets_metrics_have_the_kubelets_names_types_and_labels() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let scrape = Scrape::of(listen(&daemon).await).await;
        for (name, kind, labels) in KUBELET {
            assert_eq!(scrape.types.get(*name).map(String::as_str), Some(*kind), "{name}");
            assert_eq!(scrape.labels(name), labels.iter().copied().collect(), "{name}");
        }
        let known: BTreeSet<&str> = KUBELET.iter().map(|(name, ..)| *name).collect();
        for name in scrape.types.keys().filter(|name| !name.starts_with("nri_cpu_manager_")) {
            assert!(known.contains(name.as_str()), "{name} is not the kubelet's");
        }
    })
    .await;
}

/// This call waits for no disk, but reading and writing cgroups takes time.
#[tokio::test]
async fn the_duration_of_a_call_includes_its_work() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let address = listen(&daemon).await;
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        let scrape = Scrape::of(address).await;
        let sum = scrape.values["nri_cpu_manager_handler_duration_seconds_sum{event=\"create\"}"];
        assert!(sum > 0.0, "{sum}");
    })
    .await;
}

/// On 16 CPUs, 2 reserved, in two NUMA nodes with a cache each.
#[tokio::test]
async fn decisions_and_assigned_cpus_are_counted() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let address = listen(&daemon).await;
        daemon.create("s", Qos::Burstable, 500).await.unwrap();
        // The rest of the first cache, and four CPUs of the second.
        assert_eq!(daemon.create("a", Qos::Guaranteed, 10_000).await.unwrap(), "2-3,8-15");
        assert_eq!(daemon.create("b", Qos::Guaranteed, 2000).await.unwrap(), "4-5");
        daemon.create("c", Qos::Guaranteed, 3000).await.unwrap_err();
        let scrape = Scrape::of(address).await;
        scrape.check(&[
            ("kubelet_cpu_manager_pinning_requests_total", 3.0),
            ("kubelet_cpu_manager_pinning_errors_total", 1.0),
            ("kubelet_cpu_manager_shared_pool_size_millicores", 2000.0),
            ("kubelet_cpu_manager_exclusive_cpu_allocation_count", 12.0),
            ("kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"}", 4.0),
            ("kubelet_cpu_manager_allocation_per_numa{numa_node=\"1\"}", 8.0),
            ("kubelet_topology_manager_admission_requests_total", 4.0),
            ("kubelet_topology_manager_admission_errors_total", 1.0),
            ("kubelet_topology_manager_admission_duration_ms_count", 4.0),
            (
                "kubelet_container_aligned_compute_resources_count{boundary=\"uncore_cache\",scope=\"container\"}",
                1.0,
            ),
            ("resource_manager_allocations_total{resource_name=\"cpu\",source=\"node\"}", 2.0),
            ("nri_cpu_manager_decisions_total{outcome=\"exclusive\"}", 2.0),
            ("nri_cpu_manager_decisions_total{outcome=\"shared\"}", 1.0),
            ("nri_cpu_manager_decisions_total{outcome=\"refused\"}", 1.0),
            ("nri_cpu_manager_rejections_total{reason=\"UnexpectedAdmissionError\"}", 1.0),
            ("nri_cpu_manager_rejections_total{reason=\"TopologyAffinityError\"}", 0.0),
            // The shared container, twice.
            ("nri_cpu_manager_container_updates_total", 2.0),
            ("nri_cpu_manager_handler_duration_seconds_count{event=\"create\"}", 4.0),
            ("nri_cpu_manager_handler_duration_seconds_count{event=\"synchronize\"}", 1.0),
            ("nri_cpu_manager_cpus{state=\"free\"}", 2.0),
            ("nri_cpu_manager_cpus{state=\"exclusive\"}", 12.0),
            ("nri_cpu_manager_cpus{state=\"reserved\"}", 2.0),
            ("nri_cpu_manager_uncore_cache_free_cpus{uncore_cache=\"0\"}", 2.0),
            ("nri_cpu_manager_uncore_cache_exclusive_cpus{uncore_cache=\"8\"}", 8.0),
            ("nri_cpu_manager_numa_node_free_cpus{numa_node=\"1\"}", 0.0),
            ("nri_cpu_manager_fragmentation{boundary=\"uncore_cache\"}", 0.0),
            ("nri_cpu_manager_containers{state=\"exclusive\"}", 2.0),
            ("nri_cpu_manager_containers{state=\"shared\"}", 1.0),
            ("nri_cpu_manager_moves_total{reason=\"conflict\"}", 0.0),
            ("nri_cpu_manager_drifts_total{kind=\"cpuset\"}", 0.0),
            ("nri_cpu_manager_partition_refusals_total", 0.0),
            ("nri_cpu_manager_connected", 1.0),
            ("nri_cpu_manager_synchronized", 1.0),
            ("nri_cpu_manager_reconnects_total", 0.0),
            ("nri_cpu_manager_runtime_info{name=\"containerd\",nri=\"\",version=\"v2.1.9\"}", 1.0),
            ("nri_cpu_manager_stance{stance=\"assign\"}", 1.0),
            ("nri_cpu_manager_checkpoint_current", 1.0),
        ]);
        assert!(!scrape.values.keys().any(|key| key.contains("no options\" ")));
    })
    .await;
}

/// The series of alignments to a boundary.
fn aligned(kind: &str, scope: &str, boundary: &str) -> String {
    format!(
        "kubelet_container_aligned_compute_resources_{kind}{{boundary=\"{boundary}\",scope=\"{scope}\"}}"
    )
}

/// A cache has eight CPUs.
#[tokio::test]
async fn a_container_larger_than_one_uncore_cache_does_not_count_as_aligned() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let address = listen(&daemon).await;
        let uncore = aligned("count", "container", "uncore_cache");
        for (pod, milli, counted) in
            [("larger", 9000, 0.0), ("smaller", 2000, 1.0), ("smallest", 1000, 2.0)]
        {
            sleep(SHARED).await;
            daemon.create(pod, Qos::Guaranteed, milli).await.unwrap();
            Scrape::of(address).await.check(&[(&uncore, counted)]);
        }
        let all = ("kubelet_cpu_manager_pinning_requests_total", 3.0);
        Scrape::of(address).await.check(&[all]);
    })
    .await;
}

/// As in the kubelet, whose CPU manager counts by container in any scope.
#[tokio::test]
async fn in_pod_scope_only_alignment_to_numa_nodes_is_counted_by_pod() {
    local(async {
        let more = "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n\
                    cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
        let address = listen(&daemon).await;
        daemon.create("a", Qos::Guaranteed, 8000).await.unwrap();
        let refused = daemon.create("b", Qos::Guaranteed, 7000).await.unwrap_err();
        assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
        Scrape::of(address).await.check(&[
            (&aligned("count", "pod", "numa_node"), 1.0),
            (&aligned("count", "container", "numa_node"), 0.0),
            (&aligned("count", "container", "physical_cpu"), 1.0),
            (&aligned("count", "container", "uncore_cache"), 1.0),
            (&aligned("failure_count", "pod", "numa_node"), 1.0),
            (&aligned("failure_count", "container", "numa_node"), 0.0),
        ]);
    })
    .await;
}

#[tokio::test]
async fn alignment_is_counted_as_in_the_kubelet() {
    local(async {
        let more = "topologyManagerPolicy: single-numa-node\n\
                    cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
        let address = listen(&daemon).await;
        daemon.create("a", Qos::Guaranteed, 8000).await.unwrap();
        let refused = daemon.create("b", Qos::Guaranteed, 7000).await.unwrap_err();
        assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
        let series = |kind: &str, boundary: &str| aligned(kind, "container", boundary);
        let scrape = Scrape::of(address).await;
        scrape.check(&[
            (&series("count", "numa_node"), 1.0),
            (&series("count", "physical_cpu"), 1.0),
            (&series("count", "uncore_cache"), 1.0),
            (&series("failure_count", "numa_node"), 1.0),
            (&series("failure_count", "physical_cpu"), 0.0),
            // The CPU manager is not asked for CPUs that the topology manager refuses.
            ("kubelet_cpu_manager_pinning_requests_total", 1.0),
            ("kubelet_cpu_manager_pinning_errors_total", 0.0),
            ("nri_cpu_manager_rejections_total{reason=\"TopologyAffinityError\"}", 1.0),
        ]);
    })
    .await;
}

#[tokio::test]
async fn readiness_follows_the_connection() {
    local(async {
        let daemon = ObservedDaemon::start(CONFIG);
        let address = listen(&daemon).await;
        let ready = async || {
            let (status, _, body) = get(address, "/readyz").await;
            (status, body)
        };
        let (status, body) = ready().await;
        assert_eq!((status, body.contains("no runtime has connected yet")), (503, true), "{body}");
        daemon.connect_runtime(1).await;
        let (status, body) = ready().await;
        assert_eq!((status, body.contains("has not listed")), (503, true), "{body}");
        daemon.synchronize().await;
        assert_eq!(ready().await, (200, "ok\n".to_owned()));
        daemon.messages.send(Message::Disconnected { session: Session(1) }).unwrap();
        let (status, body) = ready().await;
        assert_eq!((status, body.contains("containerd v2.1.9")), (503, true), "{body}");
        assert_eq!(get(address, "/healthz").await.0, 200, "it waits, and is well");
        daemon.connect_runtime(2).await;
        let scrape = Scrape::of(address).await;
        scrape.check(&[
            ("nri_cpu_manager_reconnects_total", 1.0),
            ("nri_cpu_manager_connected", 1.0),
            ("nri_cpu_manager_synchronized", 0.0),
        ]);
    })
    .await;
}

#[tokio::test]
async fn an_unwritable_checkpoint_shows_in_readiness_and_metrics() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let address = listen(&daemon).await;
        let obstacle = daemon.paths.state_dir.join("checkpoint.json.new");
        fs::create_dir(&obstacle).unwrap();
        daemon.create("a", Qos::Guaranteed, 4000).await.unwrap_err();
        let (status, _, body) = get(address, "/readyz").await;
        assert_eq!((status, body.contains("checkpoint.json.new")), (503, true), "{body}");
        let scrape = Scrape::of(address).await;
        // Once, or again if the answer took longer than a pause between attempts.
        assert!(scrape.values["nri_cpu_manager_checkpoint_errors_total"] >= 1.0);
        scrape.check(&[
            ("nri_cpu_manager_checkpoint_current", 0.0),
            ("nri_cpu_manager_rejections_total{reason=\"UnexpectedAdmissionError\"}", 1.0),
            ("kubelet_cpu_manager_pinning_requests_total", 1.0),
            ("kubelet_cpu_manager_pinning_errors_total", 1.0),
        ]);
        fs::remove_dir(&obstacle).unwrap();
        daemon.create("a", Qos::Guaranteed, 4000).await.unwrap();
        assert_eq!(get(address, "/readyz").await.0, 200);
        sleep(SHARED).await;
        Scrape::of(address).await.check(&[("nri_cpu_manager_checkpoint_current", 1.0)]);
    })
    .await;
}

/// The runtime lists two containers with the same CPUs: the plugin moves one.
#[tokio::test]
async fn a_move_is_counted() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let mut pods = Vec::new();
        let mut containers = Vec::new();
        for name in ["a", "b"] {
            let (pod, mut container) = pod_and_container(name, Qos::Guaranteed, 4000);
            container.cpus = Some("4-7".parse().unwrap());
            pods.push(pod);
            containers.push(container);
        }
        daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        let scrape = Scrape::of(listen(&daemon).await).await;
        scrape.check(&[("nri_cpu_manager_moves_total{reason=\"conflict\"}", 1.0)]);
    })
    .await;
}

/// The runtime's list of containers on these CPUs.
fn list(names: &[(&str, Qos, u64, Option<&str>)]) -> Event {
    let all = names.iter().map(|&(name, qos, milli, set)| {
        let (pod, mut container) = pod_and_container(name, qos, milli);
        container.cpus = set.map(|set| set.parse().unwrap());
        (pod, container)
    });
    let (pods, containers) = all.unzip();
    Event::Synchronize { pods, containers }
}

/// One line sums up what the first list of a node without a state file changes. Later lists warn and count.
#[tokio::test]
async fn an_installation_neither_warns_nor_counts_its_moves() {
    local(async {
        logged(Level::Info, "");
        let daemon = ObservedDaemon::start(CONFIG);
        daemon.connect_runtime(1).await;
        let unpinned = ("installed-a", Qos::Guaranteed, 2000, None);
        let shared = ("installed-b", Qos::Burstable, 500, None);
        // On a shared CPU, and two on the same CPUs.
        let common = ("installed-c", Qos::Guaranteed, 2000, Some("0-15"));
        let first = ("installed-d", Qos::Guaranteed, 4000, Some("4-7"));
        let second = ("installed-e", Qos::Guaranteed, 4000, Some("4-7"));
        daemon.event(list(&[unpinned, shared, common, first, second])).await.unwrap();
        // Other tests of the process log as well.
        let summary = "synchronised with 5 pods: exclusive CPUs 2-13, shared pool 0-1,14-15, first time on this node: 1 container pinned, 2 moved, 1 shared pod narrowed";
        let lines = logged(Level::Info, "synchronised with 5 pods");
        assert_eq!(lines.iter().filter(|line| *line == summary).count(), 1, "{lines:#?}");
        assert_eq!(warnings("ns/installed"), <[String; 0]>::default());
        let address = listen(&daemon).await;
        for reason in ["unpinned", "not_exclusive", "conflict"] {
            let name = format!("nri_cpu_manager_moves_total{{reason=\"{reason}\"}}");
            Scrape::of(address).await.check(&[(&name, 0.0)]);
        }
        // The runtime connects again.
        let (a, d) = (("later-a", Qos::Guaranteed, 2000, None), first);
        let b = ("later-b", Qos::Guaranteed, 4000, Some("4-7"));
        daemon.event(list(&[a, d, b])).await.unwrap();
        let changed = logged(Level::Info, "synchronised with 3 pods: ");
        assert!(changed.iter().any(|line| line.ends_with(" changed")), "{changed:?}");
        assert_eq!(warnings("ns/later-b").len() + warnings("ns/installed-d").len(), 1);
        sleep(SHARED).await;
        Scrape::of(address).await.check(&[
            ("nri_cpu_manager_moves_total{reason=\"unpinned\"}", 1.0),
            ("nri_cpu_manager_moves_total{reason=\"conflict\"}", 1.0),
        ]);
    })
    .await;
}

/// The installation is when CPUs are first assigned, however often the plugin has started and observed before.
#[tokio::test]
async fn a_node_that_has_observed_is_installed_when_it_enforces() {
    local(async {
        logged(Level::Info, "");
        let observe = format!("{CONFIG}mode: observe\n");
        let containers = [
            ("observed-a", Qos::Guaranteed, 2000, None),
            ("observed-b", Qos::Burstable, 500, None),
            ("observed-c", Qos::Guaranteed, 3000, Some("4-6")),
            ("observed-d", Qos::Guaranteed, 3000, Some("4-6")),
        ];
        let before = ObservedDaemon::connected(&observe).await;
        before.event(list(&containers)).await.unwrap();
        let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
        let daemon = ObservedDaemon::following_on(&machine, &observe, |paths| {
            fs::create_dir(&paths.state_dir).unwrap();
            let name = "checkpoint.json";
            fs::copy(before.paths.state_dir.join(name), paths.state_dir.join(name)).unwrap();
        })
        .await;
        daemon.event(list(&containers)).await.unwrap();
        let changes = "exclusive CPUs 2-9, shared pool 0-1,10-15, first time on this node: 1 container pinned, 1 moved, 1 shared pod narrowed";
        let observed = format!("synchronised with 4 pods: observing, not done: {changes}");
        let lines = logged(Level::Info, "synchronised with 4 pods");
        assert_eq!(lines.iter().filter(|line| **line == observed).count(), 2, "{lines:#?}");
        daemon.swap_config(CONFIG);
        while daemon.status().await.node.unwrap().figures.stance != ledger::Stance::Assign {
            sleep(Duration::from_millis(20)).await;
        }
        let lines = logged(Level::Info, "assigning CPUs from now on: ");
        assert!(lines.iter().any(|line| line.ends_with(changes)), "{lines:#?}");
        assert_eq!(warnings("ns/observed"), <[String; 0]>::default());
        let scrape = Scrape::of(listen(&daemon).await).await;
        for reason in ["unpinned", "conflict"] {
            scrape.check(&[(&format!("nri_cpu_manager_moves_total{{reason=\"{reason}\"}}"), 0.0)]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn health_fails_if_the_owner_does_not_answer() {
    let (observer, questions) = serve::questions();
    let error = observer.view().await.unwrap_err();
    assert!(error.to_string().contains("2 s"), "{error}");
    drop(questions);
    let error = observer.view().await.unwrap_err();
    assert!(error.to_string().contains("stopping"), "{error}");
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let address = listen(&daemon).await;
        let (status, _, body) = get(address, "/metricsx").await;
        assert_eq!((status, body.contains("/metrics ")), (404, true), "{body}");
        assert_eq!(get(address, "/metrics?name[]=x").await.0, 200);
        assert_eq!(get(address, "/").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = taken.local_addr().unwrap().to_string().parse().unwrap();
    let error = endpoint::listen(address).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("--metrics-address"), "{error}");
    let every = endpoint::listen("[::]:0".parse().unwrap()).await.unwrap().unwrap();
    let port = every.local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(endpoint::listen("none".parse().unwrap()).await.unwrap().is_none());
    for bad in ["", "9479", "localhost:9479", "127.0.0.1"] {
        assert!(bad.parse::<Address>().unwrap_err().contains("127.0.0.1:9479"), "{bad}");
    }
}

/// With its type and labels; and docs/metrics.md names no other metric.
#[tokio::test]
async fn every_metric_is_documented() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let scrape = Scrape::of(listen(&daemon).await).await;
        let text = include_str!("../../docs/metrics.md");
        let mut named = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, name, kind, labels, ..] = cells.as_slice() else { continue };
            let name = name.trim_matches('`');
            let Some(served_kind) = scrape.types.get(name) else {
                // No drift has been repaired yet, memory is not counted, and no CPU is exclusive.
                let absent = name == "nri_cpu_manager_drift_repairs_total"
                    || name.contains("_noise_")
                    || name == "nri_cpu_manager_involuntary_context_switches_total"
                    || name.contains("_memory_")
                    || name.starts_with('/');
                assert!(absent, "{name} is documented and does not exist");
                continue;
            };
            named.insert(name);
            assert_eq!(kind, served_kind, "{name}");
            let labels: BTreeSet<&str> =
                labels.split(", ").map(|label| label.trim_matches('`')).collect();
            let labels = labels.into_iter().filter(|label| !label.is_empty()).collect();
            let mut served = scrape.labels(name);
            served.extend(scrape.labels(&format!("{name}_bucket")).iter().filter(|l| **l != "le"));
            assert_eq!(served, labels, "{name}");
        }
        let missing: Vec<&String> =
            scrape.types.keys().filter(|name| !named.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
    })
    .await;
}

#[tokio::test]
async fn dashboard_and_alerts_use_only_existing_metrics() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let scrape = Scrape::of(listen(&daemon).await).await;
        for (file, text) in [
            ("dashboard.json", include_str!("../../manifests/grafana/dashboard.json")),
            ("rules.yaml", include_str!("../../manifests/prometheus/rules.yaml")),
        ] {
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names = words.filter(|word| {
                word.starts_with("nri_cpu_manager_") || word.starts_with("kubelet_")
            });
            let names: BTreeSet<&str> = names.collect();
            assert!(names.len() > 5, "{file} asks for {names:?}");
            for name in names {
                let of_histogram = ["_bucket", "_count", "_sum"]
                    .iter()
                    .find_map(|end| scrape.types.get(name.strip_suffix(end)?))
                    .is_some_and(|kind| kind == "histogram");
                let later = name == "nri_cpu_manager_drift_repairs_total"
                    || name == "nri_cpu_manager_noise_events_total";
                assert!(scrape.types.contains_key(name) || of_histogram || later, "{file}: {name}");
            }
        }
        let dashboard = include_str!("../../manifests/grafana/dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let mut labels = 0;
        for query in targets.map(|target| target["expr"].as_str().unwrap()) {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words: Vec<&str> = query.split(|c| !is_word(c)).collect();
            let of_metric: BTreeSet<&str> =
                words.iter().flat_map(|word| scrape.labels(word)).collect();
            let grouped = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
            for label in grouped.flat_map(|list| list.split(", ")) {
                let later = query.contains("nri_cpu_manager_drift_repairs_total")
                    || query.contains("nri_cpu_manager_noise_events_total");
                let known = of_metric.contains(label) || label == "instance" || later;
                assert!(known, "no label {label}: {query}");
                labels += 1;
            }
        }
        assert!(labels > 10, "only {labels} labels found");
    })
    .await;
}

#[test]
fn every_alert_has_a_section_in_operations() {
    let rules = include_str!("../../manifests/prometheus/rules.yaml");
    let text = include_str!("../../docs/operations.md");
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5);
    for alert in alerts {
        assert!(text.contains(&format!("### {alert}\n")), "{alert}");
    }
    let sections = text.lines().filter(|line| line.starts_with("### Nri")).count();
    assert_eq!(sections, rules.matches("- alert: ").count());
}

#[test]
fn every_reason_for_a_refusal_is_in_troubleshooting() {
    let text = include_str!("../../docs/troubleshooting.md");
    let missing: Vec<Reason> =
        Reason::ALL.into_iter().filter(|reason| !text.contains(&format!("| `{reason}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
