//! The engine follows from the settings, so a configuration change can replace it.

use super::resize::resize;
use super::*;
use crate::placement::{EngineKind, explain};

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

    set_engine(&mut node, EngineKind::FirstFree);
    node.check("a", "2-5");
    let b = guaranteed("b", 4000);
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "6-9");
    resize(&mut node, &b, "c", "b", 4000, 5000).unwrap();
    node.check("b", "6-10");
    assert!(
        node.create(&guaranteed("c", 6000), "c", "c", 6000).unwrap_err().contains("not enough")
    );

    set_engine(&mut node, EngineKind::Kubelet);
    node.check("a", "2-5");
    node.check("b", "6-10");
    assert_eq!(reasons(&mut node), ["The first free CPUs."], "the engine that decided explains");
    node.stop("a");
    node.stop_pod(&guaranteed("a", 4000));
    // The other engine would take 2-5 and 11.
    assert_eq!(node.create(&guaranteed("d", 5000), "c", "d", 5000).unwrap(), "11-15");
    assert_ne!(reasons(&mut node), ["The first free CPUs."]);
    assert_eq!(node.ledger.view().moves.values().sum::<u64>(), 0);
}
