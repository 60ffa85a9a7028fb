//! Tests: wishes within the bounds and defaults of a namespace.

use super::super::annotations::Annotations;
use super::*;

fn bounds(allow: &[(&str, &str)], defaults: &[(&str, &str)]) -> Bounds {
    let wish = |(key, value): &(&str, &str)| Wish::parse(key, value).unwrap();
    Bounds {
        policy: None,
        allow: allow.iter().map(wish).collect(),
        defaults: defaults.iter().map(wish).collect(),
    }
}

fn everything() -> Bounds {
    Bounds { allow: Wish::all().collect(), ..Bounds::default() }
}

/// The wishes of container `db` in a pod with these annotations, or the refusal.
fn resolved(annotations: &[(&str, &str)], bounds: Option<&Bounds>) -> String {
    let annotations: Annotations = annotations.iter().copied().collect();
    match resolve(annotations.of("db"), "hpc", bounds) {
        Ok(Terms { cpus, wishes, .. }) => {
            let all = cpus.map(Wish::Cpus).into_iter().chain(Wish::list(&wishes));
            all.map(|wish| wish.to_string()).collect::<Vec<_>>().join(", ")
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
    let unknown = "WishUnknownError: annotation";
    for (name, value, why) in [
        (
            "uncor.cpu-manager.nri.io/container.db",
            "require",
            "\"uncor\" is unknown, expected cpus or uncore or numa or smt or placement or isolated-cpus or movable (did you mean uncore?)",
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
            "\"a.smt\" is unknown, expected cpus or uncore or numa or smt or placement or isolated-cpus or movable",
        ),
    ] {
        check(&[(name, value)], &format!("{unknown} {name}: {why}"));
    }
    let long = "x".repeat(1 << 18);
    assert!(resolved(&[("smt.cpu-manager.nri.io", &long)], None).len() < 300);
}

#[test]
fn wishes_that_are_not_allowed_are_refused() {
    let refused = "WishNotAllowedError: pods of namespace \"hpc\" may not wish for uncore: require; the administrator of the \
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
fn defaults_apply_to_keys_without_a_wish() {
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
fn contradicting_wishes_are_refused_and_contradicting_defaults_give_way() {
    check(
        &[("uncore.cpu-manager.nri.io", "prefer"), ("numa.cpu-manager.nri.io", "spread")],
        "WishUnmetError: uncore: prefer and numa: spread contradict each other",
    );
    check(
        &[("placement.cpu-manager.nri.io", "compact"), ("numa.cpu-manager.nri.io", "spread")],
        "WishUnmetError: placement: compact and numa: spread contradict each other",
    );
    let bounds = bounds(&[("numa", "spread")], &[("placement", "compact")]);
    assert_eq!(resolved(&[], Some(&bounds)), "placement: compact");
    let spread = [("numa.cpu-manager.nri.io", "spread")];
    assert_eq!(resolved(&spread, Some(&bounds)), "numa: spread");
}

#[test]
fn only_whole_requests_of_guaranteed_or_wishing_pods_are_exclusive() {
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
    let text = "WishUnmetError: cpus: exclusive needs a request for whole CPUs, but";
    assert_eq!(said(1500).to_string(), format!("{text} 1500m CPUs are requested"));
    assert_eq!(said(0).to_string(), format!("{text} none is requested"));
}
