//! The engine follows from the settings, so a configuration change can replace it.

use super::pod_options;
use super::resize::resize;
use super::*;
use crate::pod_option::PodOption;
use placement::{EngineKind, explain};

fn set_engine(node: &mut Node, engine: EngineKind) {
    let mut settings = settings();
    settings.placement.engine = engine;
    node.event(Event::Settings(settings)).unwrap();
}

/// The reasons for the last placement of a new container.
fn reasons(node: &mut Node) -> Vec<String> {
    let notes = node.ledger.take_notes();
    let last = notes.into_iter().rev().find_map(|note| match note.what {
        What::Assigned { placement, request } => Some((placement, request)),
        _ => None,
    });
    let (placement, request) = last.unwrap();
    explain(node.ledger.topology(), &request, Some(&placement)).reasons
}

#[test]
fn a_change_of_the_engine_moves_no_running_container() {
    // The kubelet's engine stays within one of the two caches.
    let mut node = Node::new();
    assert_eq!(node.create(&guaranteed("a", 4000), "c", "a", 4000).unwrap(), "2-5");

    set_engine(&mut node, EngineKind::Compact);
    node.check("a", "2-5");
    let b = guaranteed("b", 4000);
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "8-11");
    resize(&mut node, &b, "c", "b", 4000, 5000).unwrap();
    node.check("b", "8-12");
    assert!(
        node.create(&guaranteed("c", 6000), "c", "c", 6000).unwrap_err().contains("not enough")
    );

    set_engine(&mut node, EngineKind::Kubelet);
    node.check("a", "2-5");
    node.check("b", "8-12");
    let by_compact = |reasons: &[String]| reasons[0].starts_with("placement compact:");
    assert!(by_compact(&reasons(&mut node)), "the engine that decided explains");
    node.stop("a");
    node.stop_pod(&guaranteed("a", 4000));
    assert_eq!(node.create(&guaranteed("d", 5000), "c", "d", 5000).unwrap(), "2-6");
    assert!(!by_compact(&reasons(&mut node)));
    assert_eq!(node.ledger.view().figures.moves.values().sum::<u64>(), 0);
}

/// Two caches of eight CPUs, two of them reserved. The kubelet's engine fills the rest of the first
/// cache; `compact` uses the second one if the container fits into it.
#[test]
fn a_pod_may_ask_for_another_engine_than_the_nodes() {
    let allowed = |engine| {
        let mut settings = pod_options::allowing(&[]);
        settings.placement.engine = engine;
        let bounds = Bounds {
            allow: [EngineKind::Kubelet, EngineKind::Compact].map(PodOption::Placement).into(),
            ..Bounds::default()
        };
        settings.namespaces = Namespaces::new(vec![(vec!["*".to_owned()], bounds)]).unwrap();
        pod_options::node_with(settings, Vec::new())
    };
    let plain = || guaranteed("a", 8000);
    let pod_option = |value| pod_options::asking(plain(), &[("placement", value)]);
    for (node, pod, expect) in [
        (EngineKind::Kubelet, plain(), "2-9"),
        (EngineKind::Kubelet, pod_option("compact"), "8-15"),
        (EngineKind::Compact, plain(), "8-15"),
        (EngineKind::Compact, pod_option("kubelet"), "2-9"),
    ] {
        let mut node = allowed(node);
        assert_eq!(node.create(&pod, "c", "a", 8000).unwrap(), expect);
    }
}
