//! Histories draw every field and value of a configuration and every pod option. A new one that no
//! history draws fails here.

#![allow(clippy::expect_used, reason = "a test that cannot run fails")]

#[path = "../../tests/support/expected.rs"]
mod expected;

use cpuset::CpuSet;
use expected::{fields, values};
use ledger::annotations::DOMAIN;
use ledger::pod_option::PodOption;
use placement::{Options, TopologyManager};
use sim::configuration::FAULTY;
use sim::dice::Dice;
use sim::history::History;
use sim::pods::Pod;
use std::collections::BTreeSet;

/// The configurations of many histories, and the faulty ones that replace them while histories run.
fn drawn() -> String {
    let rolled = (0..600).map(|seed| History::roll(seed).settings.configuration.text());
    let texts: BTreeSet<String> = rolled.chain(FAULTY.map(str::to_owned)).collect();
    texts.into_iter().collect()
}

#[test]
fn histories_draw_every_field_and_value() {
    let drawn = drawn();
    let has = |name: &str| drawn.contains(&format!("{name}: "));
    for text in [
        "xyzzy: 1\n",
        "rebalance: {xyzzy: 1}\n",
        "podResources: {xyzzy: 1}\n",
        "namespaces: [{xyzzy: 1}]\n",
        "reservedMemory: [{xyzzy: 1}]\n",
    ] {
        for field in fields(text) {
            assert!(has(&field), "no history draws the field {field}");
        }
    }
    for field in ["kind", "logging"] {
        assert!(has(field), "no history draws the field {field} of a kubelet");
    }
    for option in Options::NAMES.iter().chain(TopologyManager::OPTIONS) {
        assert!(has(option), "no history draws the option {option}");
    }
    let mut number = 0;
    for field in fields("xyzzy: 1\n") {
        for value in values(&field) {
            let forms = [format!("{field}: {value}"), format!("{field}: \"{value}\"")];
            assert!(forms.iter().any(|form| drawn.contains(form)), "no history draws {forms:?}");
            number += 1;
        }
    }
    assert!(number > 20, "only {number} values found");
}

#[test]
fn pods_draw_every_pod_option_in_every_form() {
    let settings = (0..).map(|seed| History::roll(seed).settings);
    let settings = settings.into_iter().find(|settings| settings.configuration.has("namespaces"));
    let settings = settings.expect("a configuration that allows pod options");
    let pods = (0..2000).map(|seed| Pod::roll(1, &settings, Dice::new(seed)));
    let drawn: BTreeSet<(String, String)> = pods.flat_map(|pod| pod.annotations).collect();
    for pod_option in PodOption::all() {
        let pod_option = pod_option.to_string();
        let (key, value) = pod_option.split_once(": ").expect("key and value");
        for scope in ["", "/pod", "/container.app0"] {
            let annotation = (format!("{key}{DOMAIN}{scope}"), value.to_owned());
            assert!(drawn.contains(&annotation), "no pod draws {annotation:?}");
        }
    }
    let keys: BTreeSet<&str> = drawn.iter().map(|(_, value)| value.as_str()).collect();
    assert!(keys.contains("perhaps"), "no pod draws a value that there is not");
}

#[test]
fn histories_draw_machines_with_unequal_cores_and_caches() {
    let mut of_cores = BTreeSet::new();
    let mut of_caches = BTreeSet::new();
    let mut has_hybrid = false;
    for seed in 0..600 {
        let machine = History::roll(seed).settings.machine;
        let topology = machine.topology().expect("a machine that exists");
        of_cores.insert(sizes(topology.cores().iter().map(|core| core.cpus)));
        of_caches.insert(sizes(topology.uncores().iter().map(|cache| cache.cpus)));
        has_hybrid |= machine.efficient > 0 && machine.threads == 2;
    }
    for expect in [&[2][..], &[1, 2], &[4], &[2, 3, 4], &[8]] {
        let expect = expect.iter().copied().collect();
        assert!(of_cores.contains(&expect), "no machine has cores of {expect:?} CPUs");
    }
    assert!(has_hybrid, "no history draws a hybrid machine");
    assert!(of_caches.iter().any(|sizes| sizes.len() > 1), "no machine has unequal caches");
}

/// The sizes of these sets, each once.
fn sizes(sets: impl Iterator<Item = CpuSet>) -> BTreeSet<usize> {
    sets.map(|cpus| cpus.len()).collect()
}
