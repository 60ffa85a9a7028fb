//! Whether the plugin can do its work, and why not.

use super::config_state::{cannot_be_used, needs_restart};
use super::figures::Figures;
use crate::ledger::{Policy, Stance};

/// Everything that keeps the plugin from placing containers as configured, a sentence each. Without
/// an answer of the ledger's owner there are no figures to call this with.
pub(crate) fn obstacles(figures: &Figures) -> Vec<String> {
    let mut obstacles = Vec::new();
    let link = &figures.link;
    if !link.is_connected() {
        let before = match link.runtime() {
            Some(runtime) => format!("the last one was {runtime}"),
            None => "there has been none yet".to_owned(),
        };
        obstacles.push(format!("the runtime is not connected; {before}"));
    } else if !link.is_synchronized() {
        obstacles.push(
            "the runtime has not listed its containers yet; it may be waiting for one to stop"
                .to_owned(),
        );
    }
    match &figures.node {
        Err(why) => obstacles.push(why.clone()),
        Ok(node) => {
            if node.settings.policy == Policy::Static && node.stance == Stance::Refuse {
                obstacles.push(
                    "the kubelet's own CPU manager is active: new exclusive containers are refused"
                        .to_owned(),
                );
            }
            if let Some(error) = &node.checkpoint_error {
                obstacles.push(format!("new exclusive containers are refused: {error}"));
            }
        }
    }
    obstacles
}

/// What needs attention although the plugin places containers, a sentence each. A restart would not
/// help: with a configuration that it cannot use the plugin does not even start.
pub(crate) fn warnings(figures: &Figures) -> Vec<String> {
    let Ok(node) = &figures.node else { return Vec::new() };
    let fault = node.config.fault.as_ref().map(cannot_be_used);
    let waiting = &node.config.waiting;
    let restart = (!waiting.is_empty()).then(|| needs_restart(waiting));
    let groups = node.cannot_write_groups.clone();
    [fault, restart, groups].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::config_state::Fault;
    use super::super::figures::{Link, NodeFigures};
    use super::*;
    use crate::edge::Runtime;
    use crate::ledger::{Ledger, Settings};
    use crate::placement;
    use crate::topology::synthetic::Machine;

    fn node(policy: Policy) -> NodeFigures {
        let reserved = "0".parse().unwrap();
        let placement = placement::Settings { reserved, ..placement::Settings::default() };
        let settings = Settings { policy, placement, ..Settings::default() };
        NodeFigures::of(
            &Ledger::new(Machine::default().topology().unwrap(), settings, Vec::new()).view(),
        )
    }

    fn linked(far: usize) -> Link {
        let mut link = Link::default();
        let runtime = Runtime {
            name: "containerd".into(),
            version: "v2.1.9".into(),
            nri_version: String::new(),
        };
        if far > 0 {
            link.introduced(1, runtime);
        }
        if far > 1 {
            link.synchronized();
        }
        link
    }

    #[track_caller]
    fn check(link: Link, node: Result<NodeFigures, String>, expect: &[&str]) {
        let found = obstacles(&Figures { link, node });
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let fine = || Ok(node(Policy::Static));
        check(linked(2), fine(), &[]);
        check(linked(1), fine(), &["has not listed"]);
        check(linked(0), fine(), &["there has been none yet"]);
        let mut gone = linked(2);
        gone.ended(0);
        check(gone.clone(), fine(), &[]);
        gone.ended(1);
        check(gone, fine(), &["the last one was containerd v2.1.9"]);
        check(linked(0), Err("no configuration".into()), &["there has been none", "no config"]);
    }

    #[test]
    fn what_does_not_keep_containers_out_is_a_warning() {
        let mut node = node(Policy::Static);
        assert_eq!(warnings(&Figures { link: linked(2), node: Ok(node.clone()) }), [""; 0]);
        let fault = Fault { line: Some(3), why: "config.yaml, line 3: no".into() };
        node.config.rejected(fault);
        node.config.waiting = vec!["strict"];
        let figures = Figures { link: linked(2), node: Ok(node) };
        assert_eq!(obstacles(&figures), [""; 0]);
        let found = warnings(&figures);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("stays in force: config.yaml, line 3: no"), "{found:?}");
        assert!(found[1].ends_with("follow it in strict"), "{found:?}");
    }

    #[test]
    fn groups_that_cannot_be_written_are_a_warning() {
        let why = Some("control groups cannot be written".to_owned());
        let node = NodeFigures { cannot_write_groups: why, ..node(Policy::Static) };
        let figures = Figures { link: linked(2), node: Ok(node) };
        assert_eq!(obstacles(&figures), [""; 0]);
        assert_eq!(warnings(&figures), ["control groups cannot be written"]);
    }

    #[test]
    fn what_the_node_lacks_is_said() {
        let full =
            NodeFigures { checkpoint_error: Some("disk full".into()), ..node(Policy::Static) };
        check(linked(2), Ok(full), &["disk full"]);
        let beside = |policy| NodeFigures { stance: Stance::Refuse, ..node(policy) };
        check(linked(2), Ok(beside(Policy::Static)), &["the kubelet's own CPU manager"]);
        check(linked(2), Ok(beside(Policy::None)), &[]);
        let observing = NodeFigures { stance: Stance::Observe, ..node(Policy::Static) };
        check(linked(2), Ok(observing), &[]);
    }
}
