//! The snapshot of a node: as JSON, in a terminal, and for a reader without rights.

use crate::status::shown;
use crate::support::commands::{busy, command, has};
use crate::support::events::{create, local, pod_and_container};
use crate::support::json_names::{names, undocumented};
use crate::support::observed::{CONFIG, ObservedDaemon};
use clap::Parser;
use ledger::model::ContainerId;
use ledger::{Admission, Container, CpuRequest, MilliCpu, Qos};
use machines::synthetic::Machine;
use nri_cpu_manager::status::{StatusArgs, text};
use nri_cpu_manager::{Cli, Command};
use serde_json::{Value, json};
use serve::page::{self, Reader};
use status::Snapshot;
use status::badge::Badge;
use status::outline::Outline;
use status::picture::Picture;
use status::picture::text::Style;
use std::time::Duration;

/// As on a terminal of the usual width, without colour.
const NARROW: Style = Style { width: 80, colour: false };

/// A node with containers of every kind: `own` with exclusive CPUs and `half` with the own pool of its pod, `db`
/// with exclusive and `web` with shared CPUs, `alone` that is left alone, and `big` that was refused.
async fn varied() -> Snapshot {
    let more = "topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\npodLevelResources: own-pool\n\
                rebalance: {movesPer100Starts: 10, minStay: 60s}\n\
                namespaces: [{names: [ns], allow: {smt: [full-cores]}}]\n";
    let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
    for (name, milli) in [("own", 2000), ("half", 500)] {
        let (pod, _) = pod_and_container("pod", Qos::Guaranteed, 6000);
        let amount = Some(MilliCpu(milli));
        let cpu = CpuRequest { request: amount, limit: amount };
        let id = ContainerId(format!("id-{name}").into());
        let container = Container::new(id, pod.sandbox.clone(), name, cpu);
        daemon.event(Admission::Create { pod, container }).await.unwrap();
    }
    daemon.create("db", Qos::Guaranteed, 4000).await.unwrap();
    daemon.create("web", Qos::Burstable, 500).await.unwrap();
    let (pod, mut container) = pod_and_container("alone", Qos::Guaranteed, 1000);
    container.cpus = "0".parse().ok();
    container.created_at = Some(1_764_000_000_000_000_000);
    daemon.event(Admission::Create { pod, container }).await.unwrap();
    daemon.create("big", Qos::Guaranteed, 7000).await.unwrap_err();
    daemon.status().await
}

/// The document of [`varied`], with everything in it that this node lacks.
async fn full() -> Value {
    let mut document = serde_json::to_value(varied().await).unwrap();
    let interrupt = |number: u32| json!({"number": number, "names": ["nvme0q3"], "chip": "PCI-MSI", "cpus": "8"});
    let mut refused = interrupt(30);
    refused["why"] = "managed".into();
    let finding = json!({
        "kind": "host_process", "number": 801, "name": "cron", "detail": "system.slice", "count": 12,
        "milliseconds": 40, "threads": 1, "advice": "boot_isolation",
    });
    let record = json!({
        "at": "2026-05-01T00:00:00Z", "namespace": "ns", "pod": "db", "container": "c", "kind": "drifted",
        "text": "should have CPUs 2-5", "settled": false,
    });
    let more = json!({
        "health": [{"level": "warning", "label": "config", "value": "rejected", "advice": "mend it"}],
        "node": {
            "plugin": {
            "config_source": {
                "overrides": [5],
                "fault": {"line": 3, "why": "no such field"},
                "nothing_to_assign": "all CPUs are reserved",
                "waiting": ["strict"],
            },
            "exclusivity": {
                "because": "cgroup v1",
                "cannot_write": "read-only",
                "distrusted_cgroups": {"kubepods/burstable": "cleared"},
                "unbound_pods": {"uid-web": "no cgroup"},
                "cgroup_bounds": [{
                    "cgroup": "kubepods/pod1", "cpus": "4-7", "since": "2026-05-01T00:00:00Z",
                    "remove_with": "systemctl revert kubepods",
                }],
                "foreign_partitions": {"system.slice/rt.service": "15"},
            },
            "checkpoint": {"error": "disk full", "stalled": "/state for 7 s"},
            "drift": {"drifting": 1, "late": 1, "change_seconds": 0.25},
            "plans": {
                "last": {"arrival": {"at": "2026-05-01T00:00:00Z", "moved": 1, "why": "no container may move"}},
                "threads_unseen": true,
            },
            "quiet": {
                "goal": {"containers": [{
                    "name": "ns/db/c", "cpus": "8", "interrupts": "away",
                    "knobs": {
                        "c_states": {"max_latency": 20}, "governor": "performance",
                        "min_frequency_khz": 800_000, "max_frequency_khz": 900_000,
                    },
                }]},
                "report": {
                    "away": {"29": "9"},
                    "refused": [refused],
                    "pending": [interrupt(31)],
                    "nowhere": [interrupt(32)],
                    "refused_files": [[{"knob": "cpufreq/governor"}, "no such governor"]],
                    "denied": [{"container": "ns/db/c", "why": "no such file"}],
                    "irqbalance": {"failed": "no answer"},
                    "errors": ["cannot write"],
                },
                "obstacle": "not mounted",
                "stalled_seconds": 9,
                "isolation": {"isolated": "8", "workqueues": "0-7", "workqueues_isolated": "8", "follows_housekeeping": true},
            },
            "kubelet_devices": {"fails": "no answer"},
            },
            "memory": {
                "numa_nodes": [{"id": 0, "type": "memory", "allocatable": 8, "allocated": 4, "free": 4}],
                "together": [{"numa_nodes": [0, 1], "type": "memory", "allocated": 4}],
                "types": [{"type": "memory", "free": 4, "free_in_one_node": 4, "fragmentation": 0.5}],
            },
            "troubles": [record],
            "noise": {
                "obstacle": "cannot read /proc/interrupts",
                "recent": {
                    "version": 1, "seconds": 60.5, "samples": 7, "visibility": "processes", "threads_read": 800,
                    "threads_unread": 1, "sample_milliseconds": 8, "interrupts_error": "not mounted",
                    "containers": [{
                        "name": "ns/db/c", "cpus": "8",
                        "by_cpu": [{
                            "cpu": 8, "verdict": "noisy", "findings": [finding], "expected": [finding],
                            "involuntary_context_switches": 3,
                        }],
                    }],
                },
            },
        },
    });
    merge(&mut document, more);
    for container in document["node"]["containers"].as_array_mut().unwrap() {
        let claim = json!({"numa_nodes": [0, 1], "amounts": {"memory": 4}});
        merge(container, json!({"cgroup": "kubepods/pod1/c", "memory": claim}));
    }
    document
}

/// Puts the fields of one document into another.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn read(document: &Value) -> Result<Snapshot, serde_json::Error> {
    serde_json::from_value(document.clone())
}

/// All values of a document, with pointers to them.
fn values(document: &Value) -> Vec<(String, Value)> {
    let children: Vec<(String, &Value)> = match document {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(values) => {
            values.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let mut all = vec![(String::new(), document.clone())];
    for (name, child) in children {
        all.extend(values(child).into_iter().map(|(at, value)| (format!("/{name}{at}"), value)));
    }
    all
}

#[tokio::test]
async fn a_snapshot_survives_its_json() {
    local(async {
        for document in [serde_json::to_value(varied().await).unwrap(), full().await] {
            // As text, in which keys of maps are strings.
            let again: Snapshot = serde_json::from_str(&document.to_string()).unwrap();
            let written = serde_json::to_value(&again).unwrap();
            let mut differing = values(&document);
            differing.retain(|(at, value)| written.pointer(at) != Some(value));
            let differing: Vec<String> = differing.into_iter().map(|(at, _)| at).collect();
            assert_eq!(differing, [""; 0]);
            assert_eq!(written, document);
            let style = Style { width: 400, ..NARROW };
            assert_eq!(
                text(&again, style, true),
                text(&read(&document).unwrap(), style, true),
                "the text is made of what JSON has"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn moments_are_in_rfc_3339_and_containers_in_natural_order() {
    local(async {
        let daemon = busy("").await;
        for name in ["small-10", "small-2"] {
            daemon.create(name, Qos::Burstable, 500).await.unwrap();
        }
        let list = command(&daemon.paths.state_dir, &["status", "-o", "json"]).await.unwrap();
        let document: Value = serde_json::from_str(&list).unwrap();
        let containers = document["node"]["containers"].as_array().unwrap().iter();
        let pods: Vec<&str> = containers.map(|one| one["pod"]["name"].as_str().unwrap()).collect();
        assert_eq!(pods, ["db", "half", "small-2", "small-10", "web"]);

        let document = full().await;
        let mut moments = 0;
        for (at, value) in values(&document) {
            let name = at.rsplit('/').next().unwrap_or_default();
            if ["at", "since", "loaded", "created"].contains(&name) && !value.is_null() {
                let text = value.as_str().unwrap_or_else(|| panic!("{at}: {value}"));
                let form: String =
                    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
                assert_eq!(form, "0000-00-00T00:00:00Z", "{at}");
                moments += 1;
            }
        }
        assert!(moments >= 8, "{moments}");
    })
    .await;
}

#[tokio::test]
async fn every_name_in_the_json_is_documented() {
    local(async {
        let mut document = full().await;
        // Keys of these maps are cgroups, pods and numbers.
        for map in [
            "/node/plugin/exclusivity/distrusted_cgroups",
            "/node/plugin/exclusivity/unbound_pods",
            "/node/plugin/exclusivity/foreign_partitions",
            "/node/plugin/quiet/report/away",
            "/node/core_sizes",
        ] {
            *document.pointer_mut(map).expect(map) = Value::Null;
        }
        let mut all = names(&document);
        let daemon = busy("").await;
        let text = command(&daemon.paths.state_dir, &["explain", "db", "-o", "json"]).await;
        all.extend(names(&serde_json::from_str(&text.unwrap()).unwrap()));
        assert!(all.len() > 150, "{all:?}");
        let pages = concat!(
            include_str!("../../docs/status-reference.md"),
            include_str!("../../docs/quiet.md")
        );
        let missing = undocumented(&all, pages);
        assert!(missing.is_empty(), "not documented: {missing:?}");
    })
    .await;
}

const MARKER: &str = "name-of-a-team";

/// A snapshot in which every text that a pod, the runtime or another program may have chosen is [`MARKER`]: a string
/// that the snapshot can be read with in its place.
fn with_marker(document: &Value) -> (Snapshot, Vec<String>) {
    let mut document = document.clone();
    let mut replaced = Vec::new();
    // What is in a map before its keys.
    for (at, _) in values(&document).into_iter().rev() {
        let mut other = document.clone();
        let place = other.pointer_mut(&at).unwrap();
        let value = place.clone();
        match &value {
            // The name of the node is from the plugin's own command line.
            Value::String(_) if at != "/node_name" => *place = MARKER.into(),
            // The key of a map, but for the names of fields and what else may not be any text.
            Value::Object(map) if map.len() == 1 => {
                *place = map.values().map(|value| (MARKER.to_owned(), value.clone())).collect();
            }
            _ => continue,
        }
        let is_read = read(&other).is_ok_and(|snapshot| {
            value.is_string() || serde_json::to_value(&snapshot).unwrap() == other
        });
        if is_read {
            document = other;
            replaced.push(at);
        }
    }
    (read(&document).unwrap(), replaced)
}

/// Whoever asks from elsewhere learns where CPUs are exclusive, and not to whom.
#[tokio::test]
async fn a_reader_without_rights_sees_no_name() {
    local(async {
        let (snapshot, replaced) = with_marker(&full().await);
        println!("{replaced:#?}");
        for place in [
            "/health/0/label",
            "/health/0/value",
            "/health/0/advice",
            "/runtime/program/name",
            "/runtime/program/version",
            "/node/config/reserved_namespaces",
            "/node/config/namespaces/0/name",
            "/node/plugin/config_source/source",
            "/node/plugin/config_source/fault/why",
            "/node/plugin/config_source/nothing_to_assign",
            "/node/plugin/config_source/waiting/0",
            "/node/containers/0/pod/namespace",
            "/node/containers/0/pod/name",
            "/node/containers/0/pod/uid",
            "/node/containers/0/name",
            "/node/containers/0/id",
            "/node/containers/0/cgroup",
            "/node/plugin/exclusivity/because",
            "/node/plugin/exclusivity/cannot_write",
            "/node/plugin/exclusivity/distrusted_cgroups",
            "/node/plugin/exclusivity/unbound_pods",
            "/node/plugin/exclusivity/foreign_partitions",
            "/node/plugin/exclusivity/cgroup_bounds/0/cgroup",
            "/node/plugin/exclusivity/cgroup_bounds/0/remove_with",
            "/node/plugin/checkpoint/error",
            "/node/plugin/checkpoint/stalled",
            "/node/plugin/plans/last/arrival/why",
            "/node/plugin/quiet/goal/containers/0/name",
            "/node/plugin/quiet/report/refused/0/names/0",
            "/node/plugin/quiet/report/refused/0/why",
            "/node/plugin/quiet/report/denied/0/container",
            "/node/plugin/quiet/report/errors/0",
            "/node/plugin/quiet/obstacle",
            "/node/plugin/kubelet_devices/fails",
            "/node/noise/obstacle",
            "/node/noise/recent/interrupts_error",
            "/node/noise/recent/containers/0/name",
            "/node/noise/recent/containers/0/by_cpu/0/findings/0/name",
            "/node/refusals/0/pod",
            "/node/refusals/0/text",
            "/node/troubles/0/text",
        ] {
            assert!(replaced.iter().any(|at| at == place), "{place} is not a text");
        }
        let outline = Outline::of(&snapshot);
        let [stranger, entitled] =
            [Reader::Stranger(&outline), Reader::Entitled(&snapshot)].map(|reader| {
                [page::page(reader), page::fragment(reader), page::picture(reader).unwrap()]
            });
        for seen in stranger {
            assert!(!seen.contains(MARKER), "{seen}");
            has(&seen, &[">A<", ">B<"]);
        }
        // Names break after hyphens in a page.
        for seen in entitled {
            assert!(seen.replace("<wbr>", "").contains(MARKER), "{seen}");
        }
    })
    .await;
}

#[tokio::test]
async fn no_line_is_wider_than_the_terminal() {
    local(async {
        let machine = Machine {
            sockets: 2,
            nodes: 2,
            caches: 4,
            cores: 32,
            threads: 2,
            ..Machine::default()
        };
        let daemon = ObservedDaemon::connected_on(&machine, CONFIG).await;
        for (name, milli) in [("first", 7000), ("second", 20_000), ("third", 500)] {
            let (mut pod, mut container) = pod_and_container(name, Qos::Guaranteed, milli);
            let long = |what: &str| format!("{name}-{what}-").repeat(4);
            pod.namespace = long("namespace");
            pod.name = long("pod");
            container.name = long("container");
            daemon.event(Admission::Create { pod, container }).await.unwrap();
        }
        daemon.create("big", Qos::Guaranteed, 126_000).await.unwrap_err();
        let mut snapshots = vec![daemon.status().await, read(&full().await).unwrap()];
        let mut one_namespace = varied().await;
        one_namespace.node.as_mut().unwrap().show_only(&["none".repeat(30)]);
        snapshots.push(one_namespace);
        for snapshot in snapshots {
            for (width, each) in [(80, false), (80, true), (60, true), (132, true)] {
                let shown = text(&snapshot, Style { width, colour: false }, each);
                println!("{shown}");
                for line in shown.lines() {
                    assert!(line.chars().count() <= width, "{line:?} in\n{shown}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn containers_on_shared_cpus_are_folded() {
    local(async {
        let snapshot = varied().await;
        let folded = text(&snapshot, NARROW, false);
        has(
            &folded,
            &[
                "ns/pod/own",
                "ns/pod/half",
                "own pool",
                "ns/db/c",
                "left alone",
                "\n1 container shares ",
            ],
        );
        assert!(!folded.contains("ns/web/c"), "{folded}");
        let wide = text(&snapshot, NARROW, true);
        assert!(wide.contains("ns/web/c") && !wide.contains(" container shares "), "{wide}");

        let daemon = busy("").await;
        let show = async |arguments: &[&str]| {
            command(&daemon.paths.state_dir, &[&["status"], arguments].concat()).await.unwrap()
        };
        has(&show(&[]).await, &["ns/db/c", "\n2 containers share 0-7\n"]);
        has(&show(&["-o", "wide"]).await, &["ns/db/c", "ns/half/c", "ns/web/c"]);
        has(&show(&["-n", "none"]).await, &["\nno containers in none\n", "shown: "]);
        assert_eq!(show(&["-A", "-o", "json"]).await.matches("\"cgroup\"").count(), 3);
    })
    .await;
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        has(&text(&daemon.status().await, NARROW, false), &["\nno containers on this node\n"]);
        daemon.event(create("web", Qos::Burstable, 500)).await.unwrap();
        has(&text(&daemon.status().await, NARROW, false), &["\n1 container shares 0-15\n"]);
    })
    .await;
}

#[tokio::test]
async fn a_filter_leaves_out_other_namespaces_in_every_format() {
    local(async {
        let document = full().await;
        for format in ["wide", "json"] {
            let all = shown(&document, &["-o", format]).await.unwrap();
            assert!(all.matches("ns/").count() >= 2, "{all}");
            let filtered = shown(&document, &["-o", format, "-n", "other"]).await.unwrap();
            for part in ["ns/", "\"namespace\": \"ns\""] {
                assert!(!filtered.contains(part), "{part} is in\n{filtered}");
            }
            // Counts are of the node.
            let interrupts = ["interrupts: 1 kept off exclusive CPUs", "\"29\": \"9\""];
            assert!(interrupts.iter().any(|part| filtered.contains(part)), "{filtered}");
        }
    })
    .await;
}

/// No noise where nobody looked is not silence.
#[tokio::test]
async fn noise_is_unknown_until_all_cpus_are_observed() {
    local(async {
        let mut document = full().await;
        let verdict = "/node/noise/recent/containers/0/by_cpu/0/verdict";
        for (word, is_shown) in [("noisy", true), ("quiet", true), ("unobserved", false)] {
            *document.pointer_mut(verdict).unwrap() = word.into();
            let page = page::page(Reader::Entitled(&read(&document).unwrap()));
            assert_eq!(page.contains("Noisy CPUs"), is_shown, "{word}");
        }
    })
    .await;
}

/// A rollout that does not fit must not push the node off the screen.
#[tokio::test]
async fn the_last_refusals_are_a_few_lines() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        for number in 0..7 {
            let _ = daemon.event(create(&format!("big-{number}"), Qos::Guaranteed, 99_000)).await;
        }
        let snapshot = daemon.status().await;
        let short = text(&snapshot, NARROW, false);
        has(&short, &["ns/big-6/c: ", "ns/big-2/c: ", "  and 2 more: --output wide\n"]);
        assert!(!short.contains("ns/big-1/c"), "{short}");
        let wide = text(&snapshot, NARROW, true);
        has(&wide, &["ns/big-6/c: ", "ns/big-0/c: "]);
        assert!(!wide.contains(" more: "), "{wide}");
    })
    .await;
}

#[test]
fn options_are_those_that_users_know_from_kubectl() {
    let parse = |arguments: &[&str]| -> Result<StatusArgs, String> {
        let line = [&["nri-cpu-manager", "status"], arguments].concat();
        match Cli::try_parse_from(line).map_err(|error| error.to_string())?.command {
            Command::Status(args) => Ok(args),
            other => unreachable!("{other:?}"),
        }
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (arguments, expect) in [
        (&[][..], None),
        (&["-w"], seconds(2)),
        (&["--watch"], seconds(2)),
        (&["--watch", "1"], seconds(1)),
        (&["--watch=5"], seconds(5)),
        (&["-w", "1", "-A"], seconds(1)),
        (&["-w", "-n", "ns"], seconds(2)),
    ] {
        assert_eq!(parse(arguments).unwrap().watch, expect, "{arguments:?}");
    }
    assert_eq!(parse(&["-n", "a,b"]).unwrap().namespaces.namespaces, ["a", "b"]);
    for arguments in [&["-A"][..], &["--all-namespaces"], &[]] {
        assert_eq!(parse(arguments).unwrap().namespaces.namespaces, [""; 0], "{arguments:?}");
    }
    for (arguments, part) in [
        (&["-w", "0"][..], "at least 0.1"),
        (&["-A", "-n", "a"], "cannot be used"),
        (&["-n", ""], "'--namespace"),
        (&["-n", "a,"], "'--namespace"),
    ] {
        let error = parse(arguments).unwrap_err();
        has(&error, &[part]);
    }
}

/// A container with exclusive CPUs that shares the own pool of its pod.
#[tokio::test]
async fn a_container_with_exclusive_cpus_may_share_an_own_pool() {
    local(async {
        let mut snapshot = varied().await;
        let node = snapshot.node.as_mut().unwrap();
        let half = node.containers.iter_mut().find(|one| one.name == "half").unwrap();
        let pool = *half.own_pool;
        let exclusive = node.figures.cpus.shared.lowest(1);
        node.figures.cpus.shared -= exclusive;
        half.badge = Some(Badge(9));
        half.view.exclusive = Some(exclusive);
        half.view.runs_on = (pool | exclusive).into();
        let (name, runs_on) = (half.full_name(), half.runs_on.to_string());
        let shared_with = node.containers.iter().filter(|one| one.pool_badge.is_some());
        assert_eq!(shared_with.count(), 1);
        let picture = Picture::of_node(node);
        let of_pod = picture.tenants.iter().find(|one| one.is_pod).unwrap();
        assert_eq!((of_pod.cpus, name.starts_with(&of_pod.name)), (pool, true));
        assert!(picture.tenants.iter().any(|one| one.name == name && one.badge == Badge(9)));
        let page = page::fragment(Reader::Entitled(&snapshot));
        has(&page, &[&format!("<td class=\"cpus\">{}</td>", runs_on.replace(',', ",<wbr>"))]);
    })
    .await;
}
