//! CPUs of ended init containers, and pods whose containers start over.

use super::resize::resize;
use super::*;
use machines::synthetic::{Machine, Numbering};
use placement::{EngineKind, TopologyManager, TopologyPolicy};

const ENGINES: [EngineKind; 2] = [EngineKind::Kubelet, EngineKind::Compact];

/// One CPU is reserved. Where CPU `c` is the first thread of a core, `c + 8` is its second one.
fn node_on(machine: Machine, engine: EngineKind, options: Options) -> Node {
    let policy = TopologyPolicy::BestEffort;
    let topology_manager = TopologyManager { policy, ..TopologyManager::default() };
    let reserved = cpus("0");
    let placement = placement::PlacementSettings {
        engine,
        options,
        reserved,
        topology_manager,
        ..placement::PlacementSettings::default()
    };
    let settings = Settings { placement, ..settings() };
    Node {
        ledger: Ledger::new(machine.topology().unwrap(), settings, Vec::new()),
        set: BTreeMap::new(),
    }
}

fn threads(engine: EngineKind) -> Node {
    let numbering = Numbering::Interleaved;
    let machine = Machine { cores: 8, threads: 2, numbering, ..Machine::default() };
    node_on(machine, engine, Options::default())
}

/// Runs an init container to its end, and then the app container. Returns the CPUs of both.
fn start(node: &mut Node, pod: &Pod, init: u64, app: u64) -> [CpuSet; 2] {
    let name = &pod.name;
    let id = format!("{name}-i");
    let init = node.create(pod, "i", &id, init).unwrap();
    node.stop(&id);
    let app = node.create(pod, "m", &format!("{name}-m"), app).unwrap();
    [cpus(&init), cpus(&app)]
}

/// The exclusive CPUs of all containers of a pod.
fn held(node: &Node, pod: &Pod) -> CpuSet {
    let claims = node.ledger.claims().filter(|claim| claim.pod_uid == pod.uid);
    claims.map(|claim| claim.cpus).collect()
}

#[test]
fn an_ended_init_container_splits_no_core_of_the_next_one() {
    for engine in ENGINES {
        let mut node = threads(engine);
        for (name, cpu) in [("one", "8"), ("two", "1")] {
            assert_eq!(node.create(&guaranteed(name, 1000), "c", name, 1000).unwrap(), cpu);
        }
        let mut whole = CpuSet::EMPTY;
        for (name, core) in [("a", "2,10"), ("b", "3,11"), ("c", "4,12")] {
            let pod = guaranteed(name, 2000);
            let [init, app] = start(&mut node, &pod, 1000, 2000);
            let found = (init.to_string(), app.to_string());
            assert_eq!(found, ("9".to_owned(), core.to_owned()), "{engine:?}");
            // Its budget covers nothing else.
            assert_eq!(held(&node, &pod), app, "{engine:?}");
            whole |= app;
        }
        assert_eq!(node.ledger.exclusive(), whole | cpus("1,8"));
    }
}

#[test]
fn an_ended_init_container_splits_no_numa_node() {
    for engine in ENGINES {
        let machine = Machine { sockets: 2, cores: 8, ..Machine::default() };
        let mut node = node_on(machine, engine, Options::default());
        assert_eq!(node.create(&guaranteed("one", 6000), "c", "one", 6000).unwrap(), "1-6");
        let a = guaranteed("a", 7000);
        let [init, app] = start(&mut node, &a, 1000, 7000);
        assert_eq!((init.to_string(), app.to_string()), ("7".into(), "8-14".into()), "{engine:?}");
        assert_eq!(held(&node, &a), app, "{engine:?}");
    }
}

#[test]
fn an_ended_init_container_splits_no_uncore_cache() {
    for engine in ENGINES {
        let machine = Machine { caches: 4, cores: 16, ..Machine::default() };
        let options = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
        let mut node = node_on(machine, engine, options);
        assert_eq!(node.create(&guaranteed("one", 2000), "c", "one", 2000).unwrap(), "1-2");
        let a = guaranteed("a", 4000);
        let [init, app] = start(&mut node, &a, 1000, 4000);
        assert_eq!((init.to_string(), app.to_string()), ("3".into(), "4-7".into()), "{engine:?}");
        assert_eq!(held(&node, &a), app, "{engine:?}");
    }
}

#[test]
fn cpus_of_an_ended_init_container_are_taken_where_others_are_no_better() {
    for engine in ENGINES {
        let mut node = threads(engine);
        node.create(&guaranteed("gone", 2000), "c", "gone", 2000).unwrap();
        let a = guaranteed("a", 2000);
        let init = node.create(&a, "i", "i", 2000).unwrap();
        node.stop("i");
        node.stop_pod(&guaranteed("gone", 2000));
        assert_eq!(node.create(&a, "m", "m", 2000).unwrap(), init, "{engine:?}");
    }
}

/// The pod keeps what its budget covers: here for the second app container.
#[test]
fn a_pod_keeps_ended_cpus_within_its_budget() {
    for engine in ENGINES {
        let mut node = threads(engine);
        let a = guaranteed("a", 4000);
        let [init, app] = start(&mut node, &a, 4000, 2000);
        assert!(app.is_subset(&init), "{engine:?}");
        assert_eq!(held(&node, &a), init, "{engine:?}");
        let other = node.create(&a, "n", "n", 2000).unwrap();
        assert_eq!(cpus(&other) | app, init, "{engine:?}");
    }
}

/// KEP-5532: all containers are killed and removed, the sandbox stays, init containers run again.
#[test]
fn a_pod_that_starts_over_stays_within_its_budget_and_its_app_gets_its_cpus_again() {
    for engine in ENGINES {
        let mut node = threads(engine);
        node.create(&guaranteed("one", 1000), "c", "one", 1000).unwrap();
        let a = guaranteed("a", 2000);
        let [_, first] = start(&mut node, &a, 1000, 2000);
        node.create(&guaranteed("rest", 12_000), "c", "rest", 12_000).unwrap();
        node.stop_pod(&guaranteed("rest", 12_000));
        for _ in 0..3 {
            for id in ["a-i", "a-m"] {
                node.stop(id);
                node.remove(id);
            }
            node.create(&a, "i", "a-i", 1000).unwrap();
            assert_eq!(held(&node, &a).len(), 2, "{engine:?}");
            node.stop("a-i");
            let app = node.create(&a, "m", "a-m", 2000).unwrap();
            assert_eq!(cpus(&app), first, "{engine:?}");
            assert_eq!(held(&node, &a), first, "{engine:?}");
        }
    }
}

#[test]
fn an_init_container_that_starts_over_waits_for_cpus_that_its_pod_gave_up() {
    for engine in ENGINES {
        let mut node = threads(engine);
        let a = guaranteed("a", 3000);
        start(&mut node, &a, 3000, 3000);
        resize(&mut node, &a, "m", "a-m", 3000, 1000).unwrap();
        let b = guaranteed("b", 14_000);
        node.create(&b, "c", "b", 14_000).unwrap();
        for id in ["a-i", "a-m"] {
            node.stop(id);
            node.remove(id);
        }
        let refused = node.create(&a, "i", "a-i", 3000).unwrap_err();
        assert!(refused.contains("not enough cpus available"), "{refused}");
        assert_eq!(held(&node, &a).len(), 1, "{engine:?}");
        node.stop("b");
        node.stop_pod(&b);
        node.create(&a, "i", "a-i", 3000).unwrap();
        assert_eq!(held(&node, &a).len(), 3, "{engine:?}");
    }
}

/// An init container that has ended keeps a CPU that the budget covers, and lends it. The state file
/// says so: otherwise the pool would lack the CPU for a minute after each restart of the plugin or of
/// the node.
#[test]
fn after_a_reboot_an_ended_init_container_goes_on_lending_its_cpu() {
    let mut node = Node::new();
    let (a, s) = (guaranteed("a", 3500), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "i", "i", 1000).unwrap();
    node.stop("i");
    node.create(&a, "m", "m", 2000).unwrap();
    node.create(&a, "side", "side", 1500).unwrap();
    let [of_init, of_app] = ["i", "m"].map(|name| {
        let mut claims = node.ledger.claims();
        claims.find(|claim| claim.container == name).unwrap().cpus
    });
    let pool = cpus("0-15") - of_app;
    assert_eq!(node.ledger.pool(), pool);
    // The containers of this boot have run before the plugin, and are not pinned.
    let saved: Vec<Claim> = node.ledger.claims().collect();
    for ids in [["m", "side"], ["m2", "side2"]] {
        let mut next = Node::with(settings(), saved.clone());
        let [app, side] = ids;
        let listed = [(&a, "m", app, 2000), (&a, "side", side, 1500), (&s, "c", "s", 100)];
        next.event(next.running(&listed)).unwrap();
        next.check(app, &of_app.to_string());
        assert_eq!(next.ledger.pool(), pool);
        // They are still its own if it runs again.
        assert_eq!(next.create(&a, "i", "i2", 1000).unwrap(), of_init.to_string());
        assert_eq!(next.ledger.pool(), pool - of_init);
    }
}
