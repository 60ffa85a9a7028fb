//! The output of `simulate`. `simulate_live.rs` compares its decisions with those of a daemon.

use crate::support::commands::{cpuctl, has};
use crate::support::json_names::{names, undocumented};
use config::Config;
use ledger::Ledger;
use machines::synthetic::Machine;
use serde_json::Value;
use simulate::{Happening, NoRoom, StepObserver, Time, Workload, manifests, run, table};
use std::fs;

/// Checks the ledger after every event.
struct Checked;

impl StepObserver for Checked {
    fn see(&mut self, _: Time, ledger: &Ledger, _: &Happening<'_>) {
        assert_eq!(ledger.check(), Ok(()));
    }
}

fn simulate(arguments: &[&str]) -> Result<(String, String), String> {
    cpuctl(&[&["simulate"], arguments].concat())
}

fn example(name: &str) -> String {
    format!("{}/examples/simulate/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The text of KEP-4800 has these CPUs, with its option and without.
#[test]
fn the_example_of_kep_4800_is_drawn_for_both_configurations() {
    let aligned = example("aligned.yaml");
    let packed = example("packed.yaml");
    let pods = example("pods.yaml");
    let (text, aside) = simulate(&[
        "--topology",
        "kep-4800",
        "--config",
        &aligned,
        "--config",
        &packed,
        "--workload",
        &pods,
        "--color",
        "never",
    ])
    .unwrap();
    println!("{text}");
    assert_eq!(aside, "");
    has(
        &text,
        &[
            "machine:   kep-4800, 32 CPUs, 4 uncore caches, 1 NUMA node\n",
            "exclusive containers",
            "│ - - A A A A A A │ │ B B B B B B B B │ │ B B · · · · · · │ │ C C C C C C C C │",
            "│ - - A A A A A A │ │ A A A A B B B B │ │ B B B B C C C C │ │ C C · · · · · · │",
            "default/cpus-10/main",
            "uncore caches 8 and 16",
        ],
    );
}

/// Without a node, overrides are ignored with a warning.
#[test]
fn overrides_apply_to_the_given_node() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml").display().to_string();
    std::fs::write(
        &file,
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nnamespaces: [{names: [a]}]\nnodes:\n\
         - names: [\"gpu-*\"]\n  reservedSystemCPUs: \"0-3\"\n\
         - labels: {pool: big}\n  cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n",
    )
    .unwrap();
    let pods = example("pods.yaml");
    let on = |more: &[&str]| {
        let machine = ["--topology", "kep-4800", "--color", "never"];
        simulate(&[&machine, ["--config", &file, "--workload", &pods].as_slice(), more].concat())
    };
    let (text, aside) = on(&[]).unwrap();
    has(&text, &["Policy static (no options)", "reserved CPUs 0-1,", "namespaces with 1 entry\n"]);
    assert_eq!(
        aside,
        format!(
            "warning: {file}: ignoring its overrides (nodes): neither --node-name nor --node-labels is given\n"
        )
    );
    let (text, aside) = on(&["--node-name", "gpu-1", "--node-labels", "pool=big"]).unwrap();
    has(
        &text,
        &[
            "full-pcpus-only",
            "reserved CPUs 0-3",
            ", with the overrides on lines 7, 5\n",
            "│ - - - - ",
        ],
    );
    assert_eq!(aside, "");
    let (text, _) = on(&["--node-name", "x", "--node-labels", "pool=small"]).unwrap();
    has(&text, &["reserved CPUs 0-1,", "namespaces with 1 entry\n"]);
    let error = on(&["--node-name", "gpu-1"]).unwrap_err();
    has(&error, &["line 7: labels: this node's labels are unknown", "--node-labels"]);
}

#[test]
fn the_readme_shows_the_picture_that_the_program_draws() {
    let config = example("aligned.yaml");
    let pods = example("pods.yaml");
    let (svg, _) = simulate(&[
        "--topology",
        "kep-4800",
        "--config",
        &config,
        "--workload",
        &pods,
        "--output",
        "svg",
    ])
    .unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/node.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &svg).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).unwrap() == svg,
        "UPDATE=1 cargo test --test it simulate draws it again"
    );
}

const PAGES: [(&str, &str); 3] = [
    ("README.md", include_str!("../../README.md")),
    ("docs/placement.md", include_str!("../../docs/placement.md")),
    ("docs/status.md", include_str!("../../docs/status.md")),
];

#[test]
fn every_picture_on_the_pages_is_from_a_run() {
    let two_nodes = ["--topology", "numa:2 l3:2 core:8", "--until", "330", "--workload"];
    let kep = ["--topology", "kep-4800", "--workload"];
    let mut missing = PAGES.map(|(name, page)| (name, page.to_owned()));
    for (machine, workload, config) in [
        (&kep[..], "pods.yaml", "aligned.yaml"),
        (&kep, "pods.yaml", "packed.yaml"),
        (&two_nodes, "churn.csv", "aligned.yaml"),
        (&two_nodes, "churn.csv", "compact.yaml"),
        (&two_nodes, "churn.csv", "moves.yaml"),
    ] {
        let workload = example(workload);
        let config = example(config);
        let more = [&workload, "--config", &config, "--color", "never"];
        let (text, _) = simulate(&[machine, &more].concat()).unwrap();
        let boxes = text.lines().filter(|line| line.starts_with(' ') && line.contains('│'));
        let cpus = boxes.map(|line| format!("{}\n", line.trim_end()));
        for line in cpus {
            missing.iter_mut().for_each(|(_, page)| *page = page.replace(&line, ""));
        }
    }
    for (name, page) in missing {
        let other: Vec<&str> = page.lines().filter(|line| line.contains('│')).collect();
        assert!(other.is_empty(), "{name} has CPUs that no run draws:\n{}", other.join("\n"));
    }
}

#[test]
fn a_pod_that_does_not_fit_waits_for_a_departure_or_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("decisions.csv");
    let config = example("aligned.yaml");
    let day = example("day.csv");
    let arguments = |more: &[&str]| {
        let all =
            ["--topology", "kep-4800", "--config", &config, "--workload", &day, "--output", "json"];
        let (text, _) = simulate(&[&all, more].concat()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let json = arguments(&["--decisions", table.to_str().unwrap()]);
    let run = &json["runs"][0];
    assert_eq!(run["pods"]["arrived"], 7);
    assert_eq!(run["pods"]["complete"], 6, "{run:#}");
    assert_eq!(run["pods"]["waited"], 1, "{run:#}");
    assert_eq!(run["refused"]["OutOfcpu"], 2, "{run:#}");
    let decisions = std::fs::read_to_string(&table).unwrap();
    println!("{decisions}");
    has(
        &decisions,
        &[
            "time,namespace,pod,container,outcome,cpus,why\n",
            "0.000,prod,db,main,exclusive,",
            "0.000,prod,db,proxy,shared,,\n",
            "20.000,batch,job-3,,waits,,OutOfcpu\n",
            "40.000,batch,job-3,main,exclusive,",
        ],
    );
    let drop = ["--no-room", "drop", "--until", "30", "--decisions", table.to_str().unwrap()];
    let json = arguments(&drop);
    let decisions = std::fs::read_to_string(&table).unwrap();
    has(&decisions, &["20.000,batch,job-3,,turned away,,OutOfcpu\n"]);
    assert!(!decisions.contains("waits"), "{decisions}");
    let run = &json["runs"][0];
    assert_eq!(
        (&run["pods"]["arrived"], &run["pods"]["waited"]),
        (&5.into(), &0.into()),
        "{run:#}"
    );
}

/// From the given arrival on, admitted or not. Each of the two NUMA nodes has two uncore caches of
/// four CPUs.
#[test]
fn live_containers_are_scored_after_each_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = file("config.yaml", "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n");
    let workload = file(
        "pods.csv",
        "pod,cpu,arrive,depart\n\
         three,3,1,\none,1,2,9\nweb,500m,3,\nfour,4,4,\nbig,9,5,\nfive,5,10,\n",
    );
    let run = |more: &[&str]| {
        let arguments = [
            "--topology",
            "pack:2 l3:2 core:2 pu:2",
            "--config",
            &config,
            "--workload",
            &workload,
            "--output",
            "json",
        ];
        let (text, _) = simulate(&[&arguments, more].concat()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["runs"][0].clone()
    };
    // `three` gets 2-4 in two caches, `one` shares a core with it on 5, `four` gets 6-9 in two
    // nodes. There is no room for `big`. `five` gets 5,10-13 in three caches; two would be enough.
    let all = run(&["--no-room", "drop"]);
    println!("{all:#}");
    let score = |samples, containers, fit, one, caches, nodes, cores| {
        serde_json::json!({
            "samples": samples, "containers": containers, "fit_one_uncore_cache": fit,
            "in_one_uncore_cache": one, "excess_uncore_caches": caches, "excess_numa_nodes": nodes,
            "shared_cores": cores,
        })
    };
    assert_eq!(all["live"], score(6, 14, 13, 4, 10, 4, 10));
    assert_eq!(all["refused_by_free_cpus"], serde_json::json!({"enough": 0, "too_few": 1}));
    let late = run(&["--no-room", "drop", "--score-from", "5"]);
    assert_eq!(late["live"], score(2, 6, 5, 1, 5, 3, 4));
    assert_eq!(run(&["--score-from", "7"])["live"], score(0, 0, 0, 0, 0, 0, 0));
}

/// Another container of the pod was refused before.
#[test]
fn the_first_refusal_of_a_container_does_not_count_as_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = file(
        "config.yaml",
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\ntopologyManagerPolicy: single-numa-node\n",
    );
    let run = |more: &str| {
        // There is room for `first` in one socket from 20 s on, and none for `main`.
        let pods = format!(
            "pod,container,kind,cpu,arrive,depart\n\
             hog,main,app,2,0,10\nhog2,main,app,1,0,\nhog3,main,app,1,0,20\n{more}\
             x,first,init,3,1,\nx,main,app,4,1,\n"
        );
        let workload = file("pods.csv", &pods);
        let machine = ["--topology", "pack:2 core:4", "--config", &config, "--output", "json"];
        let (text, _) =
            simulate(&[machine.as_slice(), &["--workload", &workload, "--until", "30"]].concat())
                .unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let run = &json["runs"][0];
        let count = |value: &Value| value.as_u64().unwrap();
        let by_free = &run["refused_by_free_cpus"];
        assert_eq!((count(&by_free["enough"]), count(&by_free["too_few"])), (2, 1));
        (count(&run["refused"]["TopologyAffinityError"]), count(&run["refused_again"]))
    };
    assert_eq!(run(""), (2, 0));
    // Each departure lets all others try again.
    assert_eq!(run("idle,main,app,,0,15\n"), (2, 1));
}

#[test]
fn every_name_in_the_json_is_documented() {
    let config = example("packed.yaml");
    let day = example("day.csv");
    let (text, _) = simulate(&[
        "--topology",
        "kep-4800",
        "--config",
        &config,
        "--workload",
        &day,
        "--output",
        "json",
    ])
    .unwrap();
    let all = names(&serde_json::from_str(&text).unwrap());
    let missing = undocumented(&all, include_str!("../../docs/simulate.md"));
    assert!(all.len() > 30 && missing.is_empty(), "not in docs/simulate.md: {missing:?}");
}

#[test]
fn saved_machines_are_read_back_and_wrong_arguments_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.yaml").display().to_string();
    let topology = |arguments: &[&str]| cpuctl(&[&["topology"], arguments].concat()).unwrap().0;
    has(
        &topology(&["--from", "epyc-9654-nps2", "--save", &file]),
        &["192 cores, 24 uncore caches"],
    );
    assert_eq!(topology(&["--from", &file]), topology(&["--from", "epyc-9654-nps2"]));
    assert_eq!(
        topology(&["--from", &file, "--save", "-"]),
        std::fs::read_to_string(&file).unwrap()
    );
    has(
        &topology(&["--from", "list"]),
        &["kep-4800 ", "epyc-9654 ", "many-nodes", "variants -nosmt, -nps0, -nosmt-nps0\n"],
    );
    has(&topology(&["--from", "pack:2 core:4", "--output", "svg"]), &["<svg", "socket 1"]);
    let list = topology(&["--list"]);
    assert_eq!(list, topology(&["--from", "list"]));
    assert_eq!(simulate(&["--topology", "list"]).unwrap().0, list);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.is_sorted_by(|a, b| wording::natural_order(a, b).is_lt()), "{names:?}");

    let config = example("packed.yaml");
    let pods = example("pods.yaml");
    let error = |more: &[&str]| simulate(more).unwrap_err();
    has(&error(&["--topology", "kep-4800"]), &["--config and --workload are required"]);
    has(
        &error(&["--topology", "nothing", "--config", &config, "--workload", &pods]),
        &["unknown machine \"nothing\"", "topology --list"],
    );
    has(
        &error(&["--topology", "core:1", "--config", &config, "--workload", &pods]),
        &["packed.yaml", "CPU 1 does not exist"],
    );
    has(
        &error(&["--topology", "kep-4800", "--config", &config, "--workload", &config]),
        &["packed.yaml: no pods found"],
    );
    has(
        &error(&["--topology", &config, "--config", &config, "--workload", &pods]),
        &["is not a machine saved by `cpuctl topology --save`"],
    );
    has(
        &error(&[
            "--topology",
            "kep-4800",
            "--config",
            &config,
            "--workload",
            &pods,
            "--picture",
            "a",
            "--picture",
            "b",
        ]),
        &["once for each --config"],
    );
    has(&error(&["--topology", "kep-4800", "--until", "soon"]), &["expected seconds"]);
}

/// Only one of the two containers has a limit.
#[test]
fn containers_of_a_pod_can_get_more_cpus_than_the_sum_of_its_limits() {
    let pod = "kind: Pod\nmetadata: {name: a, annotations: {cpus.cpu-manager.nri.io/pod: exclusive}}\n\
               spec:\n  containers:\n\
               \x20 - {name: one, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}\n\
               \x20 - {name: two, resources: {requests: {cpu: 1}}}\n";
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n\
                  namespaces: [{names: [default], allow: {cpus: [exclusive]}}]\n";
    let topology = "core:8".parse::<Machine>().unwrap().topology().unwrap();
    let settings = Config::parse("test", config).unwrap().resolve(&topology).unwrap();
    let mut ledger = Ledger::new(topology, settings, Vec::new());
    let workload = manifests::parse(pod).unwrap();
    run(&mut ledger, &workload, NoRoom::Wait, None, &mut Checked);
    let claims: Vec<String> =
        ledger.claims().map(|claim| format!("{} {}", claim.container, claim.cpus)).collect();
    assert_eq!(claims, ["one 1-2", "two 3"]);
}

#[test]
fn a_pod_that_the_plugin_refuses_waits_for_a_departure_or_is_dropped() {
    let text = "pod,container,cpu,arrive,depart\n\
                a,main,6,0,10\n\
                b,main,6,0,\n\
                c,main,3,1,\n";
    let workload: Workload = table::parse(text).unwrap();
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ntopologyManagerPolicy: single-numa-node\n";
    let simulated = |waiting, end| {
        let topology = "pack:1 numa:2 core:8".parse::<Machine>().unwrap().topology().unwrap();
        let settings = Config::parse("test", config).unwrap().resolve(&topology).unwrap();
        let mut ledger = Ledger::new(topology, settings, Vec::new());
        run(&mut ledger, &workload, waiting, Some(end), &mut Checked);
        let claims: Vec<String> =
            ledger.claims().map(|claim| format!("{} {}", claim.pod, claim.cpus)).collect();
        (claims.join(", "), ledger.view().figures.pods)
    };
    // One CPU is left in the first node and two in the other: three, but not in one node.
    assert_eq!(simulated(NoRoom::Wait, 9_000), ("a 1-6, b 8-13".to_owned(), 3));
    assert_eq!(simulated(NoRoom::Wait, 10_000), ("b 8-13, c 1-3".to_owned(), 2));
    assert_eq!(simulated(NoRoom::Drop, 10_000), ("b 8-13".to_owned(), 1));
}

/// The second container of `c` is refused: the first one's CPU goes to `d`, and the third one never
/// starts.
#[test]
fn a_pod_that_is_turned_away_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name).display().to_string();
        fs::write(&path, text).unwrap();
        path
    };
    let config = file(
        "config.yaml",
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ntopologyManagerPolicy: single-numa-node\n",
    );
    let workload = file(
        "pods.csv",
        "pod,container,cpu,arrive\na,main,6,0\nb,main,7,0\n\
         c,first,1,1\nc,main,4,1\nc,last,1,1\nd,main,1,2\n",
    );
    let decisions = file("decisions.csv", "");
    let machine = ["--topology", "pack:1 numa:2 core:10", "--config", &config, "--output", "json"];
    let more = ["--workload", &workload, "--no-room", "drop", "--decisions", &decisions];
    let (text, _) = simulate(&[machine, more].concat()).unwrap();
    let table = fs::read_to_string(&decisions).unwrap();
    let rows = table.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        cells[2..6].join(" ")
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "a main exclusive 1-6",
            "b main exclusive 10-16",
            "c first exclusive 7",
            "c main refused ",
            "c  turned away ",
            "d main exclusive 7",
        ]
    );
    let report: Value = serde_json::from_str(&text).unwrap();
    let run = &report["runs"][0];
    assert_eq!(run["exclusive"]["containers"], 3);
    assert_eq!(run["pods"]["complete"], 3);
    assert_eq!(run["exclusive_cpus"]["last"], 14.0);
}

/// A mixed container is shown with its exclusive CPUs only, and CPUs that an init container has
/// left over only in the shared pool.
#[test]
fn each_cpu_is_shown_once() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mixed = "kind: Pod\nmetadata: {name: mix, annotations: {cpus.cpu-manager.nri.io: exclusive+shared}}\n\
                 spec:\n  containers:\n  - {name: a, resources: {limits: {cpu: 4, memory: 1Gi}}}\n---\n";
    let init = "kind: Pod\nmetadata: {name: init}\nspec:\n\
                \x20 initContainers:\n  - {name: i, resources: {limits: {cpu: 6, memory: 1Gi}}}\n\
                \x20 containers:\n  - {name: m, resources: {limits: {cpu: 3, memory: 1Gi}}}\n";
    let workload = write("workload.yaml", &format!("{mixed}{init}"));
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n\
                  namespaces: [{names: [\"*\"], allow: {cpus: [\"exclusive+shared\"]}}]\n";
    let config = write("config.yaml", config);
    let arguments = ["--topology", "l3:4 core:4", "--workload", &workload, "--config", &config];
    let (text, _) = simulate(&[&arguments[..], &["--output", "json"]].concat()).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let placements = report["runs"][0]["placements"].as_array().unwrap();
    let held = placements.iter().filter(|one| one["exclusive"] == true);
    let held: Vec<String> = held
        .map(|one| {
            format!("{} {}", one["container"].as_str().unwrap(), one["cpus"].as_str().unwrap())
        })
        .collect();
    println!("{text}");
    assert_eq!(held, ["m 6-8", "a 2-5"], "{held:?}");
    assert_eq!(report["runs"][0]["exclusive"]["containers"], 3);
    assert_eq!(report["runs"][0]["exclusive_cpus"]["last"], 7.0);
}

/// A container moves from two caches into one as soon as `minStay` is over, without another event.
#[test]
fn moves_wait_for_min_stay_and_for_nothing_else() {
    let text = "pod,container,cpu,arrive,depart\n\
                four,main,4,0,\n\
                six,main,6,0,20\n\
                split,main,4,5,\n";
    let workload: Workload = table::parse(text).unwrap();
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n\
                  cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: true}\n\
                  rebalance: {movesPer100Starts: 10, minStay: 60s}\n";
    let simulated = |end| {
        let topology = "l3:2 core:8".parse::<Machine>().unwrap().topology().unwrap();
        let settings = Config::parse("test", config).unwrap().resolve(&topology).unwrap();
        let mut ledger = Ledger::new(topology, settings, Vec::new());
        run(&mut ledger, &workload, NoRoom::Wait, Some(end), &mut Checked);
        let split = ledger.claims().find(|claim| claim.pod == "split").unwrap();
        split.cpus.to_string()
    };
    assert_eq!(simulated(64_999), "6-7,14-15");
    assert_eq!(simulated(65_000), "8-11");
}

const MESH: &str = "kind: Pod
metadata: {name: mesh}
spec:
  containers:
  - {name: app, resources: {limits: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 1}}}
  - {name: istio-proxy, resources: {requests: {cpu: 100m}}}
---
kind: Pod
metadata: {name: large}
spec: {containers: [{name: app, resources: {limits: {cpu: 9, memory: 1Gi}}}]}
";

/// Simulates [`MESH`] on a machine of two NUMA nodes with 8 CPUs each.
fn simulated_mesh(more: &[&str]) -> Result<(String, String), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ntopologyManagerPolicy: single-numa-node\n";
    let (config, pods) = (file("config.yaml", config), file("pods.yaml", MESH));
    let fixed = ["--topology", "pack:1 numa:2 core:8", "--config", &config, "--workload", &pods];
    simulate(&[&fixed, more].concat())
}

#[test]
fn shared_and_refused_containers_have_their_reasons() {
    let (text, aside) = simulated_mesh(&["--color", "never"]).unwrap();
    println!("{text}");
    let expected = [
        "on shared CPUs:\n  default/mesh/app: Its pod is Burstable: container istio-proxy has no CPU limit, \
         container istio-proxy has no memory limit. Only",
        "refused at first:\n  default/large/app: at 0 s: TopologyAffinityError: ",
    ];
    has(&text, &expected);
    has(&aside, &["\nignored: extended resources (nvidia.com/gpu): the NUMA nodes of devices\n"]);
}

#[test]
fn files_can_go_to_standard_output() {
    let (table, _) = simulated_mesh(&["--decisions", "-"]).unwrap();
    let expected =
        "time,namespace,pod,container,outcome,cpus,why\n0.000,default,mesh,app,shared,,\n";
    assert!(table.starts_with(expected) && !table.contains("machine:"), "{table}");
    let (picture, _) = simulated_mesh(&["--picture", "-"]).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    let error = simulated_mesh(&["--picture", "-", "--decisions", "-"]).unwrap_err();
    has(&error, &["only one of --picture and --decisions can be -"]);
}

/// Cgroups keep shared containers off exclusive CPUs without an update of each.
#[test]
fn updates_are_those_of_the_configured_exclusivity() {
    let dir = tempfile::tempdir().unwrap();
    let updates = |exclusivity: &str| {
        let file = dir.path().join("config.yaml");
        let config = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nexclusivity: {exclusivity}\n"
        );
        fs::write(&file, config).unwrap();
        let day = example("day.csv");
        let (text, _) = simulate(&[
            "--topology",
            "kep-4800",
            "--config",
            file.to_str().unwrap(),
            "--workload",
            &day,
            "--output",
            "json",
        ])
        .unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        json["runs"][0]["updates"].as_u64().unwrap()
    };
    let by_runtime = updates("runtime");
    for exclusivity in ["auto", "groups", "kernel"] {
        let by_cgroups = updates(exclusivity);
        assert!(by_cgroups * 5 < by_runtime, "{exclusivity}: {by_cgroups}, runtime: {by_runtime}");
    }
}
