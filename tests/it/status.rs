//! `nri-cpu-manager status`, over the socket of a daemon with containers.

use crate::support::commands::{busy, command, has};
use crate::support::events::{local, pod_and_container};
use crate::support::observed::{CONFIG, ObservedDaemon};
use exclusivity::Isolation;
use ledger::model::SandboxId;
use ledger::{Admission, CpuFigures, Event, Mechanism, Qos};
use noise::{Advice, ContainerNoise, CpuNoise, Finding, Kind, NoiseReport, Verdict, Visibility};
use placement::memory_manager::{MemoryKind, NodeMemoryClaim};
use quiet::{BanState, InterruptMode, QuietContainer, RefusedInterrupt, Setting, StrayInterrupt};
use serde_json::Value;
use serve::page::{self, Reader};
use status::domains::Spread;
use status::memory::{JointMemoryStatus, MemoryStatus, MemoryTypeStatus, NodeMemoryStatus};
use status::outline::Outline;
use status::picture::text::Style;
use status::snapshot::{Container, Node, Snapshot};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

/// Wide enough for every line.
const WIDE: Style = Style { width: 400, colour: false };

fn text(snapshot: &Snapshot) -> String {
    nri_cpu_manager::status::text(snapshot, WIDE, true)
}

fn of_pod<'a>(node: &'a Node, pod: &str) -> &'a Container {
    node.containers.iter().find(|container| container.pod.name == pod).unwrap()
}

fn of_pod_mut<'a>(node: &'a mut Node, pod: &str) -> &'a mut Container {
    node.containers.iter_mut().find(|container| container.pod.name == pod).unwrap()
}

#[tokio::test]
async fn the_text_shows_the_connection_the_cpus_and_the_containers() {
    local(async {
        let daemon = busy("").await;
        let text = command(&daemon.paths.state_dir, &["status"]).await.unwrap();
        println!("{text}");
        let order = ["refused (newest first)", "ns/db/c", "containers share", "\nruntime:"];
        assert!(order.map(|part| text.find(part)).is_sorted(), "{text}");
        has(
            &text,
            &[
                ": ready\n",
                "\nrefused (newest first):\n",
                " ago  ns/big/c: refused: UnexpectedAdmissionError: Allocate failed",
                "\nruntime:    containerd v2.1.9, connected (1 connection so far)\n",
                "cpuManagerPolicy static (no options), topologyManagerPolicy none",
                "online 0-15, reserved 0-1, exclusive 8-15, free 2-7, shared pool 0-7\n",
                "NUMA node 0       0-7   none       2-7\n  uncore cache 0  0-7   none       2-7\n",
                "NUMA node 1       8-15  8-15       none\n  uncore cache 8  8-15  8-15       none\n",
                "free CPUs (0 best, 1 worst): 0.00 by NUMA node, 0.00 by uncore cache\n",
                "8-15  exclusive  1     8       whole  runtime  created  ",
                "\n2 containers share 0-7\n",
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn the_json_has_what_the_text_shows() {
    local(async {
        let daemon = busy("").await;
        let text = command(&daemon.paths.state_dir, &["status", "--output", "json"]).await.unwrap();
        let status: Snapshot = serde_json::from_str(&text).unwrap();
        assert_eq!((status.version, status.health.is_ready()), (1, true));
        let node = status.node.unwrap();
        let CpuFigures { free, exclusive, shared, .. } = node.figures.cpus;
        assert_eq!([free, exclusive].map(|cpus| cpus.to_string()), ["2-7", "8-15"]);
        let db = of_pod(&node, "db");
        assert_eq!((db.exclusive, db.asks, *db.runs_on), (Some(exclusive), Some(8), exclusive));
        let Spread { numa_nodes, uncore_caches, .. } =
            Spread::of(&node.machine, &db.exclusive_cpus());
        assert_eq!((&*numa_nodes, &*uncore_caches), (&[1][..], &[8][..]));
        assert_eq!(db.enforced_by, Mechanism::Runtime);
        assert!(db.since.is_some());
        let half = of_pod(&node, "half");
        assert_eq!((half.exclusive, half.asks, *half.runs_on), (None, None, shared));
        assert_eq!(half.runs_on.to_string(), "0-7");
        assert_eq!(node.refusals.len(), 1);
        assert_eq!(node.refusals[0].kind, "refused");
        assert_eq!(node.parts.drift.drifting, 0);
        let mut status: Snapshot = serde_json::from_str(&text).unwrap();
        assert!(!self::text(&status).contains("drifting:"));
        status.node.as_mut().unwrap().parts.drift.drifting = 2;
        let drifting = "\nwarning: drifting: 2 containers not as decided, despite repairs\n";
        has(&self::text(&status), &[drifting]);
    })
    .await;
}

#[tokio::test]
async fn counted_memory_has_a_table_and_a_column() {
    local(async {
        let daemon = busy("").await;
        let mut status = daemon.status().await;
        let before = text(&status);
        assert!(!before.contains("allocatable") && !before.contains("MEMORY"), "{before}");
        let node = status.node.as_mut().unwrap();
        let kind = || "memory".to_owned();
        let free = 8 << 30;
        let on_node =
            |id| NodeMemoryStatus { id, kind: kind(), allocatable: 10 << 30, allocated: 0, free };
        let together =
            JointMemoryStatus { numa_nodes: vec![0, 1], kind: kind(), allocated: 12 << 30 };
        let all =
            MemoryTypeStatus { kind: kind(), free, free_in_one_node: free, fragmentation: 0.0 };
        node.memory = Some(MemoryStatus {
            numa_nodes: vec![on_node(0), on_node(1)],
            together: vec![together],
            types: vec![all],
        });
        let nodes = [0, 1].into_iter().collect();
        let amounts = [(MemoryKind::Memory, 12 << 30)].into();
        of_pod_mut(node, "db").view.memory = Some(NodeMemoryClaim { nodes, amounts });
        let text = text(&status);
        println!("{text}");
        has(
            &text,
            &[
                "\nNUMA node 1: memory 10Gi, 0 allocated, 8Gi free\nnodes 0,1 together: memory 12Gi allocated\n",
                "                    memory  allocatable  allocated  free\n",
                "\nNUMA node 1         memory  10Gi         0          8Gi\n",
                "\nnodes 0,1 together  memory               12Gi\n",
                "free memory (0 best, 1 worst): memory 8Gi, up to 8Gi in one NUMA node (0.00)\n",
                "CORES  MEMORY              KEPT BY",
                "8-15  exclusive  1     8       whole  memory 12Gi on 0,1  runtime  created",
                "0-7   shared     -     -       -      -                   -        created",
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn interrupts_on_exclusive_cpus_have_lines() {
    local(async {
        let daemon = busy("").await;
        let mut status = daemon.status().await;
        assert!(!text(&status).contains("interrupts"));
        let quiet = &mut status.node.as_mut().unwrap().parts.quiet;
        let interrupt = |number: u32| StrayInterrupt {
            number,
            names: vec![format!("nvme0q{number}")],
            chip: "PCI-MSI".to_owned(),
            cpus: "8".parse().unwrap(),
        };
        let mut container = QuietContainer {
            name: "ns/db/c".to_owned(),
            cpus: "8-15".parse().unwrap(),
            interrupts: InterruptMode::Away,
            ..QuietContainer::default()
        };
        container.knobs.set("c-states", "disable").unwrap();
        quiet.goal.containers.push(container);
        quiet.report.away = (1..=12).map(|number| (number, "9".parse().unwrap())).collect();
        let why = "Permission denied".to_owned();
        quiet.report.refused.push(RefusedInterrupt { interrupt: interrupt(30), why });
        quiet.report.pending.push(interrupt(42));
        quiet.report.irqbalance = BanState::Banned;
        quiet.report.refused_files.push((Setting::DefaultAffinity, "no".to_owned()));
        quiet.report.errors.push("cannot write".to_owned());
        quiet.isolation = Some(Isolation {
            isolated: "8-15".parse().ok(),
            follows_housekeeping: Some(true),
            ..Isolation::default()
        });
        let text = text(&status);
        println!("{text}");
        has(
            &text,
            &[
                "\ninterrupts: 12 kept off exclusive CPUs, 1 refused, 1 pending; irqbalance keeps off them\n",
                "\n            refused: 30 (nvme0q30, PCI-MSI) on CPU 8: Permission denied\n",
                "\n            until it fires: 42 (nvme0q42, PCI-MSI) on CPU 8\n",
                "\n            refused: default_smp_affinity: no\n",
                "\nwarning: interrupts: cannot write\n",
                "\n            ns/db/c: interrupts away: 12 kept away, 1 refused (30), 1 pending (42); c-states disable\n",
                "isolated partitions: ",
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn noise_on_exclusive_cpus_has_lines_with_advice() {
    local(async {
        let daemon = busy("").await;
        let mut status = daemon.status().await;
        assert!(!text(&status).contains("noise"));
        let finding = |kind, number, name: &str, milliseconds| Finding {
            kind,
            number: Some(number),
            name: name.to_owned(),
            detail: String::new(),
            count: 12,
            milliseconds,
            threads: milliseconds.map(|_| 1),
            advice: Some(Advice::InterruptsAway),
        };
        let device = |number| finding(Kind::DeviceInterrupt, number, "nvme0q3", None);
        let by_cpu = |cpu, verdict, findings| CpuNoise {
            cpu,
            verdict,
            findings,
            expected: Vec::new(),
            involuntary_context_switches: None,
        };
        let container = ContainerNoise {
            name: "default/db/main".to_owned(),
            cpus: "8-10".parse().unwrap(),
            by_cpu: vec![
                by_cpu(8, Verdict::QuietAsFarAsVisible, Vec::new()),
                by_cpu(9, Verdict::Noisy, vec![device(30), device(31), device(32)]),
                by_cpu(10, Verdict::Noisy, vec![finding(Kind::HostProcess, 801, "cron", Some(40))]),
            ],
        };
        let node = status.node.as_mut().unwrap();
        Arc::make_mut(&mut node.noise).recent = Some(NoiseReport {
            version: noise::VERSION,
            seconds: 60.2,
            samples: 7,
            visibility: Visibility::Processes,
            threads_read: 800,
            threads_unread: 0,
            sample_milliseconds: Some(8),
            interrupts_error: None,
            containers: vec![container],
        });
        let text = text(&status);
        println!("{text}");
        has(
            &text,
            &["\nnoise:      on exclusive CPUs in 60 s: 2 noisy (CPUs 9-10), 1 quiet as far as visible\n            \
               a sample reads 800 threads in 8 ms\n            \
               threads: no kernel threads visible, only processes of this pid namespace\n            \
               default/db/main, CPU 10: host process pid 801 cron: 12 times, 40 ms; interrupts: away moves them to other CPUs\n            \
               default/db/main, CPU 9: device interrupt IRQ 30 nvme0q3: 12 times; interrupts: away moves them to other CPUs\n            \
               default/db/main, CPU 9: device interrupt IRQ 31 nvme0q3: 12 times; interrupts: away moves them to other CPUs\n            \
               default/db/main, 1 more: nri-cpu-manager noise\n"],
        );
        has(
            &page::fragment(Reader::Entitled(&status)),
            &[
                "<dt>Noisy CPUs</dt><dd>2</dd>",
                "<dt>noise</dt><dd>on exclusive CPUs in 60 s: 2 noisy (CPUs 9-10), 1 quiet as far as visible</dd>",
                "<dd>threads: no kernel threads visible",
                "CPU 10: host process pid 801 cron: 12 times, 40 ms",
            ],
        );
        let mut other = status.clone();
        other.node.as_mut().unwrap().show_only(&["hpc".to_owned()]);
        assert_eq!(other.node.unwrap().noise.recent.as_ref().unwrap().containers, []);
        let hidden = page::fragment(Reader::Stranger(&Outline::of(&status)));
        has(&hidden, &["<dt>Noisy CPUs</dt><dd>2</dd>"]);
        assert!(!hidden.contains("cron") && !hidden.contains("default/db"), "{hidden}");

        let node = status.node.as_mut().unwrap();
        let noise = Arc::make_mut(&mut node.noise);
        noise.recent = None;
        noise.obstacle = Some("cannot read /proc/interrupts".to_owned());
        let error = "noise:      on exclusive CPUs: cannot read /proc/interrupts\n";
        has(&self::text(&status), &[error]);
        has(&page::fragment(Reader::Entitled(&status)), &["cannot read /proc/<wbr>interrupts"]);
    })
    .await;
}

const NAMESPACES: &str = "namespaces:\n- names: [hpc]\n  allow: {uncore: [prefer, require]}\n  \
                          defaults: {smt: full-cores}\n- names: [\"batch-*\"]\n  cpuManagerPolicy: none\n";

/// The text shows the plugin's own settings if they were changed, the JSON always.
#[tokio::test]
async fn status_has_the_configuration_in_force() {
    local(async {
        let config = async |more: &str| {
            let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
            let status = daemon.status().await;
            (text(&status), serde_json::to_value(status.node.unwrap().config).unwrap())
        };
        let (text, usual) = config("").await;
        for field in ["placement", "podLevelResources", "cpusetPartition", "exposeCPUs", "noticeSeconds", "exclusiveMemoryNodes", "names"] {
            assert!(!text.contains(field), "{field} in\n{text}");
        }
        assert_eq!((&usual["placement"], &usual["cpuset_partition"]), (&"kubelet".into(), &"root".into()));
        assert_eq!(usual["mode"], "enforce");
        assert_eq!((&usual["expose_cpus"], &usual["exclusive_memory_nodes"]), (&"none".into(), &"all".into()));
        assert_eq!(usual["namespaces"], Value::Array(Vec::new()));

        let own = "placement: compact\ncpusetPartition: isolated\nmode: observe\nexposeCPUs: environment\nexclusiveMemoryNodes: follow-cpus\nlogLevel: debug\n";
        let (text, changed) = config(&format!("{own}{NAMESPACES}")).await;
        has(
            &text,
            &[
                "strict false, placement compact, cpusetPartition isolated, mode observe, exposeCPUs environment, exclusiveMemoryNodes follow-cpus, logLevel debug\n",
                "\n            namespaces (the first match applies):\n",
                "              hpc: pods may use uncore: prefer, uncore: require; default smt: full-cores\n",
                "              batch-*: cpuManagerPolicy none, no exclusive CPUs\n",
                "              all others: no pod options allowed\n",
            ],
        );
        assert_eq!(changed["placement"], "compact");
        assert_eq!(changed["cpuset_partition"], "isolated");
        assert_eq!(changed["mode"], "observe");
        assert_eq!(changed["expose_cpus"], "environment");
        assert_eq!(changed["exclusive_memory_nodes"], "follow-cpus");
        assert_eq!(changed["namespaces"][0]["name"], "hpc");
        assert_eq!(changed["namespaces"][0]["allow"][1], "uncore: require");
        assert_eq!(changed["namespaces"][1]["cpu_manager_policy"], "none");
    })
    .await;
}

/// A plugin of another version may have other fields.
#[tokio::test]
async fn an_unknown_field_is_ignored_and_a_missing_one_is_named() {
    local(async {
        let daemon = busy("").await;
        let text = command(&daemon.paths.state_dir, &["status", "--output", "json"]).await.unwrap();
        let mut status: Value = serde_json::from_str(&text).unwrap();
        for place in ["", "/node", "/node/cpus", "/node/machine", "/node/machine/numa_nodes/0"] {
            status.pointer_mut(place).unwrap()["later"] = "x".into();
        }
        let shown = shown(&status, &[]).await.unwrap();
        has(&shown, &["runtime:    containerd v2.1.9", "uncore cache 8"]);
        for (place, field) in [
            ("/node/plugin", "drift"),
            ("/node/plugin/quiet", "goal"),
            ("/node", "machine"),
            ("/node/config", "placement"),
            ("/node/cpus", "shared"),
            ("/node/machine", "dies"),
            ("/node/machine/numa_nodes/0", "distances"),
            ("/node/containers/0", "idle"),
        ] {
            let mut other = status.clone();
            let object = other.pointer_mut(place).unwrap().as_object_mut().unwrap();
            object.remove(field).expect(field);
            let error = self::shown(&other, &[]).await.unwrap_err();
            let missing = format!("invalid answer from the plugin (missing field `{field}`)");
            has(
                &error,
                &[&missing, "another version than this program: run the one in the plugin's image"],
            );
        }
    })
    .await;
}

/// The output of `status` when the plugin's answer is this.
pub(crate) async fn shown(status: &Value, arguments: &[&str]) -> Result<String, String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::UnixListener::bind(dir.path().join("status.sock")).unwrap();
    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{status}");
    let plugin = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let text = command(dir.path(), &[&["status"], arguments].concat()).await;
    plugin.await.unwrap();
    text
}

const MOVES: &str = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n\
                     rebalance: {movesPer100Starts: 10, minStay: 60s}\n";

/// Both caches have free CPUs, but the container `eight` needs a whole cache.
async fn fragmented(more: &str) -> ObservedDaemon {
    let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
    for (name, milli) in [("six", 6000), ("two", 2000)] {
        let (pod, container) = pod_and_container(name, Qos::Guaranteed, milli);
        daemon.create(name, Qos::Guaranteed, milli).await.unwrap();
        daemon.event(Event::Started { pod, container }).await.unwrap();
    }
    daemon.event(Event::StopPod(SandboxId("sandbox-six".into()))).await.unwrap();
    let (pod, _) = pod_and_container("eight", Qos::Guaranteed, 8000);
    daemon.event(Event::RunPod(pod)).await.unwrap();
    daemon
}

#[tokio::test]
async fn status_explains_why_no_container_moves() {
    local(async {
        let text_of = async |daemon: &ObservedDaemon| {
            let text = text(&daemon.status().await);
            text.split_once("\nrebalance:  ").unwrap().1.to_owned()
        };
        let daemon = ObservedDaemon::connected(CONFIG).await;
        has(&text_of(&daemon).await, &["off, running containers keep their CPUs\n"]);

        let daemon = fragmented(MOVES).await;
        daemon.create("eight", Qos::Guaranteed, 8000).await.unwrap();
        let text = text_of(&daemon).await;
        println!("{text}");
        has(
            &text,
            &[
                "0 moved for a container that started, 0 after one had ended\n",
                "            budget: 2 of 2 moves left, 2 of them without a container that starts; 100 starts add 10\n",
                "            last plan after an end or minStay: no container may move (20",
                "            containers move only when another one is created",
                "            stays: 60 s of minStay left: ns/two/c\n",
                "            stays: it is starting, ending or changing its CPUs: ns/eight/c\n",
            ],
        );
        let status = daemon.status().await;
        let node = status.node.as_ref().unwrap();
        let stays = serde_json::to_value(of_pod(node, "two").stays).unwrap();
        assert_eq!(stays["reason"], "min_stay");
        let left = stays["seconds_left"].as_f64().unwrap();
        assert!(left > 55.0 && left < 60.0, "{stays:?}");
        let moves = node.figures.rebalance.clone().unwrap();
        assert_eq!((moves.moves_left, moves.moves_at_most, moves.min_stay_seconds), (2, 2, 60));
        let plans = &node.parts.plans.last;
        assert!(!plans.is_empty() && plans.values().all(|plan| plan.why.is_some()), "{plans:?}");

        // A container moves, and the budget is used up.
        let one = MOVES.replace("60s", "0s").replace("Starts: 10", "Starts: 1");
        let daemon = fragmented(&one).await;
        daemon.create("eight", Qos::Guaranteed, 8000).await.unwrap();
        let text = text_of(&daemon).await;
        has(&text, &["1 moved for a container that started", "            budget: 0 of 1 moves left, 0 of"]);
        has(&text, &["for a container that started: 1 moved (20"]);
        daemon.create("one", Qos::Guaranteed, 1000).await.unwrap();
        has(&text_of(&daemon).await, &["the budget is used up until more containers start (20"]);

        let daemon = fragmented(&MOVES.replace("60s", "0s, mode: suggest")).await;
        daemon.create("eight", Qos::Guaranteed, 8000).await.unwrap();
        let text = text_of(&daemon).await;
        has(&text, &["dry run (mode: suggest), 1 container would have moved\n"]);
        has(&text, &["mode: suggest, would have moved 1 container (20"]);

        let daemon = fragmented(&format!("{}exposeCPUs: environment\n", MOVES.replace("60s", "0s"))).await;
        let text = text_of(&daemon).await;
        has(&text, &["            stays: its environment lists its CPUs (exposeCPUs: environment): ns/two/c\n"]);
    })
    .await;
}

#[tokio::test]
async fn the_socket_belongs_to_its_user_alone_and_replaces_an_old_one() {
    local(async {
        let daemon = busy("").await;
        let socket = daemon.paths.state_dir.join("status.sock");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!((mode(&socket), mode(&daemon.paths.state_dir)), (0o600, 0o700));

        let other = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(other.path().join("status.sock")).unwrap());
        drop(UnixListener::bind(other.path().join("status.sock.new")).unwrap());
        let error = command(other.path(), &["status"]).await.unwrap_err();
        has(&error, &["status.sock", "Is the plugin running", "--state-dir"]);
        use serve::endpoint;
        let listener = endpoint::listen_locally(other.path()).unwrap();
        tokio::spawn(endpoint::serve_locally(
            listener,
            daemon.observer.clone(),
            daemon.pages.clone(),
        ));
        command(other.path(), &["status"]).await.unwrap();
        assert_eq!(mode(&other.path().join("status.sock")), 0o600);
        assert!(!other.path().join("status.sock.new").exists());
    })
    .await;
}

async fn get(address: SocketAddr, path: &str, host: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The socket has everything; pages have names of pods for clients on the same machine.
#[tokio::test]
async fn names_of_pods_are_served_to_local_clients_only() {
    local(async {
        use serve::endpoint;
        let daemon = busy("").await;
        let listener = endpoint::listen("[::]:0".parse().unwrap()).await.unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let nearby = SocketAddr::from(([127, 0, 0, 1], port));
        tokio::spawn(endpoint::serve(listener, daemon.observer.clone(), daemon.pages.clone()));
        for path in ["/status", "/explain?db", "/metrics", "/readyz"] {
            let answer = get(nearby, path, "localhost").await;
            let code = if path == "/status" || path == "/explain?db" { "404" } else { "200" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {answer}");
            assert!(!answer.contains("db"), "{path}: {answer}");
        }
        let pages = ["/", "/fragment", "/picture.svg"];
        for host in ["localhost", "localhost:9479", "127.0.0.1:9479", "[::1]:9479", "[::1]", ""] {
            for path in pages {
                let answer = get(nearby, path, host).await;
                has(&answer, &["HTTP/1.1 200", "ns/db/c", "default-src 'none'", "nosniff"]);
            }
        }
        // Web sites whose names resolve to this address, and a client that is not on the loopback.
        let mut others = vec![(nearby, "rebound.example:9479"), (nearby, "localhost.example")];
        let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        });
        match own.map(|own| own.ip()) {
            Ok(ip) if !ip.is_loopback() => others.push((SocketAddr::from((ip, port)), "localhost")),
            _ => {
                println!("skipped: a client that is not nearby: this machine has no other address")
            }
        }
        for (address, host) in others {
            for path in pages {
                let answer = get(address, path, host).await;
                has(&answer, &["HTTP/1.1 200", ">A<"]);
                let names = answer.contains("ns/") || answer.contains("/c<");
                assert!(!names, "{address} as {host}, {path}: {answer}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_picture_is_drawn_as_text_and_as_svg() {
    local(async {
        let daemon = busy("").await;
        let status = async |more: &[&str]| {
            command(&daemon.paths.state_dir, &[&["status"], more].concat()).await.unwrap()
        };
        let plain = status(&["--color", "never"]).await;
        has(
            &plain,
            &[
                "│ - - · · · · · ·",
                "│ A A A A A A A A",
                "· shared   - reserved: never exclusive\n",
                "\nA  ns/db/c  ",
            ],
        );
        assert!(!plain.contains('\x1b'), "{plain}");
        assert!(status(&["--color", "always"]).await.contains("\x1b["));
        let svg = status(&["--output", "svg"]).await;
        has(&svg, &["<svg xmlns=", "<title>CPU 8: A ns/db/c</title>", "uncore cache 8", "</svg>"]);
        let facts =
            ">exclusivity runtime · placement kubelet · reserved CPUs 0-1 · rebalance: off<";
        has(&svg, &[facts, ">settings since 20", ">CPUs of node node, 20"]);
    })
    .await;
}

#[tokio::test]
async fn status_and_explain_are_limited_to_namespaces() {
    local(async {
        let daemon = busy("").await;
        // Its letter is A, whoever else asks for a view.
        assert_eq!(daemon.status().await.node.unwrap().containers.len(), 3);
        for (name, namespace, milli) in [("theirs", "b", 2000), ("small", "b", 500)] {
            let (mut pod, container) = pod_and_container(name, Qos::Guaranteed, milli);
            pod.namespace = namespace.to_owned();
            daemon.event(Admission::Create { pod, container }).await.unwrap();
        }
        let run = async |arguments: &[&str]| command(&daemon.paths.state_dir, arguments).await;
        let all = run(&["status"]).await.unwrap();
        has(&all, &["ns/db/c", "b/theirs/c", "ns/big/c: refused"]);
        assert!(!all.contains("shown:"), "{all}");

        let theirs = run(&["status", "-n", "b"]).await.unwrap();
        has(
            &theirs,
            &[
                "b/theirs/c",
                "\n1 container shares 0-1,4-7\n",
                "shown: containers and records in b; ",
            ],
        );
        has(
            &run(&["status", "-n", "b", "-o", "wide"]).await.unwrap(),
            &["b/theirs/c", "b/small/c"],
        );
        has(
            &theirs,
            &["│ - - B B · · · ·", "│ o o o o o o o o", "o other: exclusive, of namespaces"],
        );
        assert!(!theirs.contains("ns/"), "{theirs}");
        let svg = run(&["status", "-n", "b", "-o", "svg"]).await.unwrap();
        assert!(svg.contains("b/theirs/c") && !svg.contains("ns/"), "{svg}");
        let svg = run(&["status", "-n", "a,ns", "--namespace", "b", "-o", "svg"]).await.unwrap();
        has(&svg, &["b/theirs/c", "ns/db/c"]);

        let json = run(&["status", "-n", "ns", "-o", "json"]).await.unwrap();
        let node = serde_json::from_str::<Snapshot>(&json).unwrap().node.unwrap();
        let pods: Vec<&str> = node.containers.iter().map(|one| &*one.pod.name).collect();
        assert_eq!((pods, node.refusals.len()), (vec!["db", "half", "web"], 1));
        let json = run(&["status", "-n", "b", "-o", "json"]).await.unwrap();
        let node = serde_json::from_str::<Snapshot>(&json).unwrap().node.unwrap();
        assert!(node.refusals.is_empty() && node.containers.len() == 2, "{json}");

        has(&run(&["explain", "db", "-n", "ns"]).await.unwrap(), &["ns/db/c: exclusive"]);
        let json = run(&["explain", "db", "-n", "ns,b", "-o", "json"]).await.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()[0]["pod"], "db");
        let error = run(&["explain", "db", "-n", "b"]).await.unwrap_err();
        has(&error, &["no record of db in namespace b: "]);
    })
    .await;
}

#[tokio::test]
async fn names_are_in_natural_order_and_the_node_is_named() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        for name in ["small-10", "small-2", "big"] {
            daemon.create(name, Qos::Burstable, 500).await.unwrap();
        }
        let text = command(&daemon.paths.state_dir, &["status", "-o", "wide"]).await.unwrap();
        let places = ["ns/big/c", "ns/small-2/c", "ns/small-10/c"].map(|name| text.find(name));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?}\n{text}");
        assert!(text.lines().next().unwrap().contains(" on node node at 20"), "{text}");
        let status = daemon.status().await;
        assert_eq!(status.node_name.as_deref(), Some("node"));
        let pods = status.node.unwrap().containers.into_iter().map(|one| one.view.pod.name.clone());
        assert_eq!(pods.collect::<Vec<_>>(), ["big", "small-2", "small-10"]);
    })
    .await;
}

#[tokio::test]
async fn a_container_keeps_its_letter_while_others_start_and_end() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let badges = async || {
            let status = daemon.status().await;
            let containers = status.node.unwrap().containers;
            let badge = |one: &Container| format!("{}={}", one.pod.name, one.badge.unwrap());
            containers.iter().map(badge).collect::<Vec<_>>().join(" ")
        };
        for pod in ["a", "b", "c"] {
            daemon.create(pod, Qos::Guaranteed, 2000).await.unwrap();
        }
        assert_eq!(badges().await, "a=A b=B c=C");
        daemon.event(Event::StopPod(SandboxId("sandbox-b".into()))).await.unwrap();
        assert_eq!(badges().await, "a=A c=C");
        daemon.create("d", Qos::Guaranteed, 4000).await.unwrap();
        daemon.create("e", Qos::Guaranteed, 1000).await.unwrap();
        assert_eq!(badges().await, "a=A c=C d=B e=D");
    })
    .await;
}

/// Repeated questions make no new view, and an answer always has what has just happened.
#[tokio::test]
async fn a_view_stays_the_same_until_something_happens() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let ask = async || daemon.observer.view().await.unwrap();
        let mut same = 0;
        for serial in 0..10 {
            let before = ask().await;
            // The owner may have checked the machine in between, which makes a new view.
            same += usize::from(Arc::ptr_eq(&before, &ask().await));
            daemon.create(&format!("pod-{serial}"), Qos::Guaranteed, 1000).await.unwrap();
            let after = daemon.status().await.node.unwrap();
            assert_eq!(after.containers.len(), serial + 1);
        }
        assert!(same > 5, "{same}");
    })
    .await;
}
