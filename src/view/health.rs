//! Whether the plugin can do its work, and why not.

use super::config_state::{cannot_be_used, needs_restart};
use super::node::NodeView;
use ledger::{Policy, Stance};

/// Everything that keeps the plugin from placing containers as configured, a sentence each. A
/// ledger's owner that does not answer is not among them: without its view this is not called.
pub(crate) fn obstacles(view: &NodeView) -> Vec<String> {
    let mut obstacles = Vec::new();
    let link = &view.link;
    if !link.connected {
        obstacles.push(match &link.runtime {
            Some(runtime) => format!("the runtime is not connected (last one: {runtime})"),
            None => "no runtime has connected yet".to_owned(),
        });
    } else if !link.synchronized {
        obstacles.push(
            "the runtime has not listed its containers yet; it may be waiting for one to stop"
                .to_owned(),
        );
    }
    match &view.node {
        // A rolling update ends the other instance only once this one is ready: being on standby
        // must not count as not ready.
        Err(_) if view.standby => {}
        Err(why) => obstacles.push(why.clone()),
        Ok(node) => {
            if node.view.settings.policy == Policy::Static && node.view.stance == Stance::Refuse {
                obstacles.push(
                    "the kubelet's own CPU manager is active: new exclusive containers are refused"
                        .to_owned(),
                );
            }
            if let Some(error) = &node.own.checkpoint_error {
                obstacles.push(format!("new exclusive containers are refused: {error}"));
            }
        }
    }
    obstacles
}

/// Everything that needs attention although the plugin places containers, a sentence each. None of it
/// makes the plugin unhealthy, as a restart would not help: with an invalid configuration the plugin
/// would not even start.
pub(crate) fn warnings(view: &NodeView) -> Vec<String> {
    let Ok(node) = &view.node else {
        let waits = view.node.as_ref().err().filter(|_| view.standby);
        return waits.cloned().into_iter().collect();
    };
    let mut warnings: Vec<String> = node.own.config.fault.iter().map(cannot_be_used).collect();
    if !node.own.config.waiting.is_empty() {
        warnings.push(needs_restart(&node.own.config.waiting));
    }
    warnings.extend(node.own.stalled_disk.iter().map(|stalled| {
        format!("{stalled}: until it has, exclusive CPUs are given to no new container")
    }));
    warnings.extend(node.own.cannot_write_groups.clone());
    let distrusted = node.own.distrusted_cgroups.iter();
    warnings.extend(distrusted.map(|(group, why)| {
        format!("cgroup {group}: setting each cgroup below it individually: {why}")
    }));
    warnings.extend(node.own.quiet.troubles());
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::config_state::{ConfigState, Fault};
    use super::super::node::{KubeletDevices, Link, NodeFigures, OwnFigures};
    use super::super::quiet::QuietFigures;
    use super::super::{Counters, History};
    use super::*;
    use crate::clock::Moment;
    use crate::config::LogLevel;
    use cpuset::PartitionType;
    use ledger::{Ledger, Settings};
    use nri::Runtime;
    use placement;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use topology::synthetic::Machine;

    fn node(policy: Policy) -> NodeFigures {
        let reserved = "0".parse().unwrap();
        let placement =
            placement::PlacementSettings { reserved, ..placement::PlacementSettings::default() };
        let settings = Settings { policy, placement, ..Settings::default() };
        let own = OwnFigures {
            config: ConfigState::new("config.yaml", Vec::new(), Moment(0)),
            strict: false,
            partition: PartitionType::default(),
            on_active_kubelet: Stance::Refuse,
            log_level: LogLevel::default(),
            counters: Counters::default(),
            drifts: BTreeMap::new(),
            repairs: BTreeMap::new(),
            pod_quotas_lifted_again: 0,
            drifting: 0,
            late: 0,
            times_late: 0,
            change_takes: None,
            partition_refusals: 0,
            cannot_write_groups: None,
            exclusivity_because: None,
            distrusted_cgroups: Vec::new(),
            unbound_pods: Vec::new(),
            cgroup_bounds: Vec::new(),
            foreign_partitions: Vec::new(),
            kubelet_devices: KubeletDevices::default(),
            pool_writes: 0,
            group_write_errors: 0,
            checkpoint_error: None,
            stalled_disk: None,
            last_plans: Vec::new(),
            moves_only_at_creations: false,
            threads_unseen: false,
            quiet: QuietFigures::default(),
        };
        let ledger = Ledger::new(Machine::default().topology().unwrap(), settings, Vec::new());
        NodeFigures { view: ledger.view(), history: Arc::new(History::default()), own }
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
        let found = obstacles(&NodeView {
            standby: false,
            node_name: None,
            link,
            node,
            noise: Arc::default(),
        });
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    }

    #[test]
    fn obstacles_name_what_the_connection_lacks() {
        let fine = || Ok(node(Policy::Static));
        check(linked(2), fine(), &[]);
        check(linked(1), fine(), &["has not listed"]);
        check(linked(0), fine(), &["no runtime has connected yet"]);
        let mut gone = linked(2);
        gone.ended(0);
        check(gone.clone(), fine(), &[]);
        gone.ended(1);
        check(gone, fine(), &["last one: containerd v2.1.9"]);
        check(linked(0), Err("no configuration".into()), &["no runtime has", "no config"]);
    }

    #[test]
    fn obstacles_name_what_the_node_lacks() {
        let mut full = node(Policy::Static);
        full.own.checkpoint_error = Some("disk full".into());
        check(linked(2), Ok(full), &["disk full"]);
        let with_a_kubelet = |policy, stance| {
            let mut node = node(policy);
            Arc::make_mut(&mut node.view).stance = stance;
            Ok(node)
        };
        let refusing = with_a_kubelet(Policy::Static, Stance::Refuse);
        check(linked(2), refusing, &["the kubelet's own CPU manager"]);
        check(linked(2), with_a_kubelet(Policy::None, Stance::Refuse), &[]);
        check(linked(2), with_a_kubelet(Policy::Static, Stance::Observe), &[]);
    }

    #[test]
    fn what_does_not_keep_containers_out_is_a_warning() {
        let mut view = NodeView {
            standby: false,
            node_name: None,
            link: linked(2),
            node: Ok(node(Policy::Static)),
            noise: Arc::default(),
        };
        assert_eq!(warnings(&view), [""; 0]);
        let own = &mut view.node.as_mut().unwrap().own;
        own.config.rejected(Fault { line: Some(3), why: "config.yaml, line 3: no".into() });
        own.config.waiting = vec!["strict"];
        own.stalled_disk = Some("/state: the disk has not finished a write for 7.1 s".to_owned());
        own.cannot_write_groups = Some("cgroups cannot be written".to_owned());
        own.distrusted_cgroups = vec![("kubepods/burstable".to_owned(), "cleared".to_owned())];
        own.quiet.obstacle = Some("interrupts stay as they are".to_owned());
        own.quiet.stalled = Some(std::time::Duration::from_secs(12));
        assert_eq!(obstacles(&view), [""; 0]);
        let found = warnings(&view);
        assert_eq!(found.len(), 7, "{found:?}");
        assert!(found[0].contains("stays in force: config.yaml, line 3: no"), "{found:?}");
        assert!(found[1].ends_with("to apply strict"), "{found:?}");
        assert!(found[2].starts_with("/state: the disk has not finished a write for 7.1 s: "));
        assert_eq!(found[3], "cgroups cannot be written");
        assert!(
            found[4].contains("kubepods/burstable") && found[4].ends_with(": cleared"),
            "{found:?}"
        );
        assert_eq!(found[5], "interrupts stay as they are");
        assert!(found[6].contains("for 12 s"), "{found:?}");
    }
}
