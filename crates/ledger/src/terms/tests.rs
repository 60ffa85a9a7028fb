//! Tests: pod options within the bounds and defaults of a namespace.

use super::super::annotations::Annotations;
use super::*;

fn bounds(allow: &[(&str, &str)], defaults: &[(&str, &str)]) -> Bounds {
    let pod_option = |(key, value): &(&str, &str)| PodOption::parse(key, value).unwrap();
    Bounds {
        allow: allow.iter().map(pod_option).collect(),
        defaults: defaults.iter().map(pod_option).collect(),
        ..Bounds::default()
    }
}

fn everything() -> Bounds {
    Bounds { allow: PodOption::all().collect(), ..Bounds::default() }
}

/// The pod options of container `db` in a pod with these annotations, or the refusal.
fn resolved(annotations: &[(&str, &str)], bounds: Option<&Bounds>) -> String {
    let annotations: Annotations = annotations.iter().copied().collect();
    match resolve(&annotations.read("db", false), "hpc", bounds) {
        Ok(Terms { cpus, pod_options, interrupts, knobs, .. }) => {
            let all = cpus.map(PodOption::Cpus).into_iter().chain(PodOption::list(&pod_options));
            let all = all
                .chain(interrupts.map(PodOption::Interrupts))
                .map(|pod_option| pod_option.to_string());
            let knobs = knobs.words().into_iter().map(|(key, value)| format!("{key}: {value}"));
            all.chain(knobs).collect::<Vec<_>>().join(", ")
        }
        Err(rejection) => rejection.to_string(),
    }
}

#[track_caller]
fn check(annotations: &[(&str, &str)], expect: &str) {
    assert_eq!(resolved(annotations, Some(&everything())), expect, "{annotations:?}");
}

#[test]
fn a_containers_own_annotation_counts_before_the_pods() {
    let own = ("uncore.cpu-manager.nri.io/container.db", "require");
    let others = ("uncore.cpu-manager.nri.io/container.web", "ignore");
    let pods = ("uncore.cpu-manager.nri.io/pod", "prefer");
    let bare = ("uncore.cpu-manager.nri.io", "ignore");
    check(&[], "");
    check(&[own, others, pods, bare], "uncore: require");
    check(&[bare, pods, others], "uncore: prefer");
    check(&[others, bare], "uncore: ignore");
    check(&[others], "");
    let numa = ("numa.cpu-manager.nri.io/pod", "single");
    check(
        &[bare, numa, ("cpus.cpu-manager.nri.io", "exclusive")],
        "cpus: exclusive, uncore: ignore, numa: single",
    );
}

#[test]
fn unknown_keys_values_and_addressees_are_refused_with_the_expected_ones() {
    let unknown = "PodOptionUnknownError: annotation";
    for (name, value, why) in [
        (
            "uncor.cpu-manager.nri.io/container.db",
            "require",
            "\"uncor\" is unknown, expected cpus or uncore or numa or smt or placement or isolated-cpus or movable or interrupts or c-states or frequency-governor or min-frequency or max-frequency (did you mean uncore?)",
        ),
        (
            "uncore.cpu-manager.nri.io/pod",
            "requires",
            "\"requires\" is unknown, expected prefer or require or ignore or exclusive (did you mean require?)",
        ),
        ("smt.cpu-manager.nri.io", "", "\"\" is unknown, expected full-cores or isolate"),
        (
            "smt.cpu-manager.nri.io/pods",
            "isolate",
            "\"pods\" is unknown, expected pod or container.NAME (did you mean pod?)",
        ),
        (
            "a.smt.cpu-manager.nri.io",
            "isolate",
            "\"a.smt\" is unknown, expected cpus or uncore or numa or smt or placement or isolated-cpus or movable or interrupts or c-states or frequency-governor or min-frequency or max-frequency (did you mean smt?)",
        ),
    ] {
        check(&[(name, value)], &format!("{unknown} {name}: {why}"));
    }
    let long = "x".repeat(1 << 18);
    assert!(resolved(&[("smt.cpu-manager.nri.io", &long)], None).len() < 300);
}

#[test]
fn pod_options_that_are_not_allowed_are_refused() {
    let refused = "PodOptionNotAllowedError: pods of namespace \"hpc\" may not use the pod option uncore: require; the administrator of the \
                   node allows it in the plugin's configuration, in the entry for this namespace: \
                   namespaces: [{names: [hpc], allow: {uncore: [require]}}]";
    let require = [("uncore.cpu-manager.nri.io", "require")];
    assert_eq!(resolved(&require, None), refused);
    let some = bounds(&[("uncore", "prefer"), ("numa", "single")], &[]);
    assert_eq!(resolved(&require, Some(&some)), refused);
    // The container's own annotation replaces the pod's, which then need not be allowed.
    let own = ("uncore.cpu-manager.nri.io/container.db", "prefer");
    assert_eq!(resolved(&[require[0], own], Some(&some)), "uncore: prefer");
    let none = Bounds { policy: Some(Policy::None), ..everything() };
    assert_eq!(resolved(&require, Some(&none)), "cpus: shared");
}

#[test]
fn defaults_apply_to_keys_without_a_pod_option() {
    let bounds = bounds(
        &[("uncore", "ignore"), ("numa", "spread")],
        &[("uncore", "require"), ("smt", "isolate")],
    );
    for (annotations, expect) in [
        (&[][..], "uncore: require, smt: isolate"),
        (&[("uncore.cpu-manager.nri.io", "ignore")], "uncore: ignore, smt: isolate"),
        (&[("numa.cpu-manager.nri.io", "spread")], "numa: spread, smt: isolate"),
    ] {
        assert_eq!(resolved(annotations, Some(&bounds)), expect, "{annotations:?}");
    }
}

#[test]
fn contradicting_pod_options_are_refused_and_contradicting_defaults_give_way() {
    check(
        &[("uncore.cpu-manager.nri.io", "prefer"), ("numa.cpu-manager.nri.io", "spread")],
        "PodOptionUnmetError: uncore: prefer and numa: spread contradict each other",
    );
    check(
        &[("placement.cpu-manager.nri.io", "compact"), ("numa.cpu-manager.nri.io", "spread")],
        "PodOptionUnmetError: placement: compact and numa: spread contradict each other",
    );
    let bounds = bounds(&[("numa", "spread")], &[("placement", "compact")]);
    assert_eq!(resolved(&[], Some(&bounds)), "placement: compact");
    let spread = [("numa.cpu-manager.nri.io", "spread")];
    assert_eq!(resolved(&spread, Some(&bounds)), "numa: spread");
}

#[test]
fn only_whole_requests_of_guaranteed_or_asking_pods_are_exclusive() {
    let amounts = |request: u64, limit: u64| CpuRequest {
        request: (request > 0).then_some(super::super::MilliCpu(request)),
        limit: (limit > 0).then_some(super::super::MilliCpu(limit)),
    };
    for (cpus, qos, request, limit, expect) in [
        (None, Qos::Guaranteed, 2000, 2000, Some(2)),
        (None, Qos::Guaranteed, 1500, 1500, None),
        (None, Qos::Burstable, 2000, 2000, None),
        (Some(Cpus::Shared), Qos::Guaranteed, 2000, 2000, None),
        (Some(Cpus::Exclusive), Qos::Guaranteed, 2000, 2000, Some(2)),
        (Some(Cpus::Exclusive), Qos::Burstable, 2000, 4000, Some(2)),
        (Some(Cpus::Exclusive), Qos::Burstable, 2000, 0, Some(2)),
        (Some(Cpus::Exclusive), Qos::Burstable, 1500, 2000, None),
        (Some(Cpus::Exclusive), Qos::BestEffort, 0, 0, None),
    ] {
        let terms = Terms { cpus, insists: true, ..Terms::default() };
        let cpu = amounts(request, limit);
        assert_eq!(terms.exclusive_cpus(qos, &cpu), expect, "{cpus:?} {qos:?} {cpu:?}");
        if expect.is_none() {
            let refused = terms.missing_whole_cpus(qos, &cpu).is_some();
            assert_eq!(refused, cpus == Some(Cpus::Exclusive), "{cpus:?} {qos:?} {cpu:?}");
        }
    }
    let terms = Terms { cpus: Some(Cpus::Exclusive), insists: true, ..Terms::default() };
    let said = |request| terms.missing_whole_cpus(Qos::Burstable, &amounts(request, 0)).unwrap();
    let text = "PodOptionUnmetError: cpus: exclusive needs a request for whole CPUs, but";
    assert_eq!(said(1500).to_string(), format!("{text} 1500m CPUs are requested"));
    assert_eq!(said(0).to_string(), format!("{text} none is requested"));
}

/// Allows these values of latency knobs, and has these defaults.
fn knob_bounds(allow: &[(&str, &str)], defaults: &[(&str, &str)]) -> Bounds {
    let mut bounds = Bounds::default();
    for (key, value) in allow {
        bounds.allow(key, value).unwrap();
    }
    for (key, value) in defaults {
        bounds.default_knobs.set(key, value).unwrap();
    }
    bounds
}

#[test]
fn knobs_are_allowed_by_value_or_within_a_bound() {
    let bounds = knob_bounds(
        &[
            ("c-states", "max-latency:10"),
            ("frequency-governor", "performance"),
            ("min-frequency", "1GHz-2.5GHz"),
            ("max-frequency", "3GHz"),
            ("max-frequency", "1500MHz"),
        ],
        &[],
    );
    for (key, value, is_allowed) in [
        ("c-states", "max-latency:10", true),
        ("c-states", "max-latency:200", true),
        ("c-states", "max-latency:9", false),
        ("c-states", "disable", false),
        ("frequency-governor", "performance", true),
        ("frequency-governor", "powersave", false),
        ("min-frequency", "1GHz", true),
        ("min-frequency", "2500MHz", true),
        ("min-frequency", "2500001", false),
        ("min-frequency", "999999", false),
        ("max-frequency", "3000MHz", true),
        ("max-frequency", "1.5GHz", true),
        ("max-frequency", "2GHz", false),
    ] {
        let name = format!("{key}.cpu-manager.nri.io");
        let found = resolved(&[(&name, value)], Some(&bounds));
        assert_eq!(found.starts_with("PodOptionNotAllowedError"), !is_allowed, "{value}: {found}");
        assert_eq!(found.starts_with(&format!("{key}: ")), is_allowed, "{value}: {found}");
        let nothing = resolved(&[(&name, value)], None);
        assert!(nothing.starts_with("PodOptionNotAllowedError"), "{nothing}");
    }
    let refused = resolved(&[("c-states.cpu-manager.nri.io", "max-latency:9")], Some(&bounds));
    assert_eq!(
        refused,
        "PodOptionNotAllowedError: pods of namespace \"hpc\" may not use the pod option c-states: max-latency:9; the administrator of \
         the node allows it in the plugin's configuration, in the entry for this namespace: \
         namespaces: [{names: [hpc], allow: {c-states: [max-latency:9]}}]"
    );
    let all: Vec<String> =
        bounds.knobs.words().iter().map(|(key, value)| format!("{key}: {value}")).collect();
    assert_eq!(
        all,
        [
            "c-states: max-latency:10",
            "frequency-governor: performance",
            "min-frequency: 1GHz-2500MHz",
            "max-frequency: 3GHz",
            "max-frequency: 1500MHz",
        ]
    );
    for (key, value) in [
        ("min-frequency", "2GHz-1GHz"),
        ("min-frequency", "-1GHz"),
        ("min-frequency", "1GHz-"),
        ("min-frequency", "1GHz-2GHz-3GHz"),
        ("c-states", "max-latency:5-10"),
        ("c-state", "disable"),
    ] {
        let mut bounds = Bounds::default();
        bounds.allow(key, value).unwrap_err();
        assert_eq!(bounds, Bounds::default(), "{key}: {value}");
    }
}

#[test]
fn knobs_have_defaults_and_contradictions() {
    let all =
        [("c-states", "disable"), ("min-frequency", "1GHz-4GHz"), ("max-frequency", "1GHz-4GHz")];
    let bounds = knob_bounds(&all, &[("c-states", "max-latency:50"), ("max-frequency", "2GHz")]);
    let min = "min-frequency.cpu-manager.nri.io";
    let max = "max-frequency.cpu-manager.nri.io";
    let own_min = "min-frequency.cpu-manager.nri.io/container.db";
    for (annotations, expect) in [
        (&[][..], "c-states: max-latency:50, max-frequency: 2GHz"),
        (&[("c-states.cpu-manager.nri.io", "disable")], "c-states: disable, max-frequency: 2GHz"),
        (&[(min, "1GHz")], "c-states: max-latency:50, min-frequency: 1GHz, max-frequency: 2GHz"),
        // The default for the highest frequency gives way.
        (&[(min, "3GHz")], "c-states: max-latency:50, min-frequency: 3GHz"),
        // Only the frequencies that count for the container are compared.
        (
            &[(min, "3GHz"), (max, "2GHz"), (own_min, "1GHz")],
            "c-states: max-latency:50, min-frequency: 1GHz, max-frequency: 2GHz",
        ),
        (
            &[(min, "3GHz"), (max, "2GHz")],
            "PodOptionUnmetError: min-frequency is 3000000 kHz, above max-frequency, which is 2000000 kHz",
        ),
        (
            &[(min, "fast")],
            "PodOptionUnknownError: annotation min-frequency.cpu-manager.nri.io: min-frequency \"fast\": expected kHz, \
             or a number with MHz or GHz, such as \"2.4GHz\"",
        ),
    ] {
        assert_eq!(resolved(annotations, Some(&bounds)), expect, "{annotations:?}");
    }
}

#[test]
fn interrupts_follow_the_most_specific_pod_option() {
    let pods = ("interrupts.cpu-manager.nri.io/pod", "away");
    check(&[], "");
    check(&[pods], "interrupts: away");
    check(&[pods, ("interrupts.cpu-manager.nri.io/container.db", "leave")], "interrupts: leave");
    check(
        &[("interrupts.cpu-manager.nri.io", "awya")],
        "PodOptionUnknownError: annotation interrupts.cpu-manager.nri.io: \"awya\" is unknown, expected leave or away or \
         housekeeping (did you mean away?)",
    );
    let bounds = bounds(&[("interrupts", "away")], &[("interrupts", "housekeeping")]);
    assert_eq!(resolved(&[], Some(&bounds)), "interrupts: housekeeping");
    assert_eq!(resolved(&[pods], Some(&bounds)), "interrupts: away");
}
