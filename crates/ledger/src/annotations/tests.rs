//! Tests: the pod options for each container of a pod.

use super::super::pod_option::ALL;
use super::*;
use proptest::prelude::*;

const KEYS: [&str; 7] = ["cpus", "uncore", "numa", "smt", "placement", "movable", "interrupts"];

#[test]
fn only_annotations_with_the_domain_count() {
    for (name, ours) in [
        ("smt.cpu-manager.nri.io", true),
        ("smt.cpu-manager.nri.io/pod", true),
        (".cpu-manager.nri.io", true),
        ("smt.cpu-manager.nri.io.example.org/pod", false),
        ("example.org/smt.cpu-manager.nri.io", false),
        ("cpu-manager.nri.io", false),
    ] {
        assert_eq!(is_pod_option(name), ours, "{name}");
        let annotations: Annotations = [(name, "isolate")].into_iter().collect();
        assert_eq!(annotations.is_empty(), !ours, "{name}");
    }
}

#[test]
fn no_valid_value_is_cut() {
    let longest = ALL.iter().map(|(_, value, _)| value.len()).max();
    let limit = "max-latency:4294967295".len();
    assert!(longest.max(Some(limit)) < Some(MAX_VALUE));
    let governor = "x".repeat(MAX_VALUE);
    assert!(Knobs::NONE.clone().set("frequency-governor", &governor).is_err());
}

fn named(count: usize) -> impl Iterator<Item = (String, &'static str)> {
    (0..count).map(|at| (format!("cpus.cpu-manager.nri.io/container.c{at}"), "exclusive"))
}

#[test]
fn more_annotations_than_the_limit_refuse_every_container_without_repeating_them() {
    let most: Annotations = named(MAX_ANNOTATIONS).chain([("example.org/a".into(), "")]).collect();
    assert_eq!(most.read("c0", false).cpus, Some(Cpus::Exclusive));
    assert_eq!(
        (most.read("c0", false).error.as_ref(), &*most.read("other", false)),
        (None, &Asked::default())
    );
    for count in [MAX_ANNOTATIONS + 1, 6096] {
        let annotations: Annotations = named(count).collect();
        assert!(!annotations.is_empty() && annotations.own.named.is_empty());
        for container in ["c0", "other"] {
            let asked = annotations.read(container, false);
            assert_eq!(
                asked.error.as_ref().unwrap().to_string(),
                "PodOptionNotAllowedError: the pod has more than 64 annotations KEY.cpu-manager.nri.io; \
                 use KEY.cpu-manager.nri.io/pod for what applies to all of its containers"
            );
            assert_eq!(asked.cpus, Some(Cpus::Shared), "no CPUs are kept free for it");
        }
    }
}

/// What container `db` asks for in annotations for CRI-O; the second value says whether they count.
fn crio(annotations: &[(&str, &str)], counts: bool) -> (Option<InterruptMode>, Knobs, String) {
    let annotations: Annotations = annotations.iter().copied().collect();
    let Asked { interrupts, knobs, error, .. } = annotations.read("db", counts).into_owned();
    (interrupts, knobs, error.map(|error| error.to_string()).unwrap_or_default())
}

#[test]
fn annotations_for_crio_count_only_if_the_settings_say_so() {
    let mut disable = Knobs::NONE;
    disable.set("c-states", "disable").unwrap();
    let mut slow = Knobs::NONE;
    slow.set("c-states", "max-latency:10").unwrap();
    slow.set("frequency-governor", "performance").unwrap();
    let away = Some(InterruptMode::Away);
    for (annotations, interrupts, knobs) in [
        (&[("irq-load-balancing.crio.io", "disable")][..], away, &Knobs::NONE),
        (&[("irq-load-balancing.crio.io", "true")], away, &Knobs::NONE),
        (&[("irq-load-balancing.crio.io", "enable")], Some(InterruptMode::Leave), &Knobs::NONE),
        (
            &[
                ("irq-load-balancing.crio.io", "disable"),
                ("irq-load-balancing.crio.io/db", "housekeeping"),
            ],
            Some(InterruptMode::Housekeeping),
            &Knobs::NONE,
        ),
        (&[("irq-load-balancing.crio.io/web", "disable")], None, &Knobs::NONE),
        // The plugin's own annotations come before.
        (
            &[
                ("irq-load-balancing.crio.io/db", "housekeeping"),
                ("interrupts.cpu-manager.nri.io", "away"),
            ],
            away,
            &Knobs::NONE,
        ),
        (&[("cpu-c-states.crio.io", "disable")], None, &disable),
        (
            &[
                ("cpu-c-states.crio.io", "max_latency:10"),
                ("cpu-freq-governor.crio.io", "performance"),
            ],
            None,
            &slow,
        ),
        (
            &[("cpu-c-states.crio.io", "disable"), ("cpu-c-states.crio.io/db", "enable")],
            None,
            &Knobs::NONE,
        ),
        (
            &[("cpu-quota.crio.io", "disable"), ("cpu-load-balancing.crio.io", "true")],
            None,
            &Knobs::NONE,
        ),
    ] {
        let expect = (interrupts, knobs.clone(), String::new());
        assert_eq!(crio(annotations, true), expect, "{annotations:?}");
        let own = annotations.iter().copied().filter(|(name, _)| is_pod_option(name));
        let own = crio(&own.collect::<Vec<_>>(), true);
        assert_eq!(crio(annotations, false), own, "{annotations:?}");
    }
}

#[test]
fn hostile_annotations_for_crio_refuse_only_where_they_count() {
    let long = "x".repeat(1 << 16);
    for (name, value, why) in [
        (
            "irq-load-balancing.crio.io",
            "disabled",
            "\"disabled\" is unknown, expected disable or enable or housekeeping (did you mean disable?)",
        ),
        ("cpu-quota.crio.io/db", "", "\"\" is unknown, expected disable or enable"),
        (
            "cpu-c-states.crio.io",
            "max_latency:0",
            "\"max_latency:0\": expected \"disable\", \"enable\" or \"max_latency:US\"",
        ),
        (
            "cpu-freq-governor.crio.io",
            "../../etc",
            "frequency-governor \"../../etc\": expected a governor's name, such as \"performance\"",
        ),
    ] {
        let annotations = [(name, value)];
        let expect = format!("PodOptionUnknownError: annotation {name}: {why}");
        assert_eq!(crio(&annotations, true), (None, Knobs::NONE, expect));
        assert_eq!(crio(&annotations, false), (None, Knobs::NONE, String::new()));
        let (.., error) = crio(&[(name, &long)], true);
        assert!(error.len() < 300, "{error}");
    }
    for not_read in ["cpu-shared.crio.io/db", "irq-load-balancing.crio.io.example.org", "crio.io"] {
        assert!(!is_pod_option(not_read) && !is_for_crio(not_read), "{not_read}");
    }
}

#[test]
fn more_annotations_for_crio_than_the_limit_refuse_where_they_count() {
    let many = |count: usize| (0..count).map(|at| (format!("cpu-quota.crio.io/c{at}"), "disable"));
    let most: Annotations = many(MAX_ANNOTATIONS).chain(named(MAX_ANNOTATIONS)).collect();
    assert_eq!(most.read("c0", true).error, None);
    assert_eq!(most.read("c0", false).cpus, Some(Cpus::Exclusive));
    // They never push out the plugin's own.
    let more: Annotations = many(6000).chain(named(1)).collect();
    assert_eq!(more.read("c0", false).cpus, Some(Cpus::Exclusive));
    assert_eq!(
        more.read("c0", true).error.as_ref().unwrap().to_string(),
        "PodOptionNotAllowedError: the pod has more than 64 annotations KEY.crio.io; use KEY.crio.io without a name for \
         what applies to all of its containers"
    );
}

#[test]
fn a_pod_that_is_left_to_the_runtime_asks_for_nothing_of_crio() {
    let mut annotations: Annotations =
        [("irq-load-balancing.crio.io", "disable")].into_iter().collect();
    annotations.leave_to_runtime();
    assert_eq!(*annotations.read("db", true), Asked::default());
}

/// A second implementation: the pod options for a container, and whether an annotation for it is wrong.
fn expected(annotations: &BTreeMap<String, String>, container: &str) -> (Vec<PodOption>, bool) {
    let own = format!("/container.{container}");
    let mut pod_options = Vec::new();
    let mut is_wrong = false;
    for (name, value) in annotations {
        let (key, addressee) = name.split_once(DOMAIN).unwrap();
        let applies = addressee == own || !addressee.starts_with("/container.");
        let known = addressee.is_empty() || addressee == "/pod" || addressee == own;
        is_wrong |= applies && (!known || PodOption::parse(key, value).is_err());
    }
    for (key, value, pod_option) in ALL {
        let says = |addressee: &str| annotations.get(&format!("{key}{DOMAIN}{addressee}"));
        let valid = |said: &&String| PodOption::parse(key, said).is_ok();
        let of_all = says("/pod").filter(valid).or(says("").filter(valid));
        if says(&own).filter(valid).or(of_all).is_some_and(|said| said == value) {
            pod_options.push(pod_option);
        }
    }
    (pod_options, is_wrong)
}

proptest! {
    #[test]
    fn the_most_specific_annotation_counts_for_each_container(
        said in prop::collection::btree_map(
            (
                prop::sample::select(&KEYS[..]),
                prop::sample::select(&["", "/pod", "/container.a", "/container.b", "/pods"][..]),
            ),
            (0..ALL.len() + 1, any::<bool>()),
            0..20,
        ),
    ) {
        let said: BTreeMap<String, String> = said
            .into_iter()
            .map(|((key, addressee), (at, fits))| {
                let of_key: Vec<_> = ALL.iter().filter(|(known, ..)| !fits || *known == key).collect();
                let value = of_key.get(at % (of_key.len() + 1)).map_or("wrong", |(_, value, _)| value);
                (format!("{key}{DOMAIN}{addressee}"), value.to_owned())
            })
            .collect();
        let annotations: Annotations = said.iter().collect();
        prop_assert_eq!(annotations.is_empty(), said.is_empty());
        for container in ["a", "b", "c", ""] {
            let asked = annotations.read(container, false);
            let mut pod_options: Vec<PodOption> = asked.list().collect();
            let (mut expected, is_wrong) = expected(&said, container);
            pod_options.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&pod_options, &expected, "{}", container);
            prop_assert_eq!(asked.error.is_some(), is_wrong, "{}", container);
        }
    }
}
