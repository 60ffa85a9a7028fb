//! [`Health`]: whether the plugin can do its work, and why not.

use super::config_state::{ConfigState, cannot_be_used, needs_restart};
use super::node::Link;
use cpuset::CgroupPath;
use ledger::{Policy, Stance};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Everything that keeps the plugin from placing containers as configured, a sentence each. A
    /// ledger's owner that does not answer is not among them: it would not have made this.
    pub obstacles: Vec<String>,
    /// Everything that needs attention although the plugin places containers, a sentence each. None of
    /// it makes the plugin unhealthy, as a restart would not help: with an invalid configuration the
    /// plugin would not even start.
    pub warnings: Vec<String>,
}

/// What the health of a plugin with a configuration depends on. The owner makes it after every event, so it has
/// nothing that grows with the number of containers.
#[derive(Debug)]
pub(crate) struct Condition<'a> {
    pub(crate) policy: Policy,
    pub(crate) stance: Stance,
    pub(crate) config: &'a ConfigState,
    /// As in the node's figures, like the next three.
    pub(crate) checkpoint_error: Option<String>,
    pub(crate) stalled_disk: Option<String>,
    pub(crate) cannot_write_groups: Option<String>,
    pub(crate) distrusted_cgroups: &'a BTreeMap<CgroupPath, String>,
    /// Why exclusive CPUs are not as quiet as containers ask for.
    pub(crate) not_quiet: Vec<String>,
}

impl Health {
    /// `node` is why there is no configuration if there is none.
    pub(crate) fn of(standby: bool, link: &Link, node: Result<Condition<'_>, String>) -> Health {
        let mut obstacles = Vec::new();
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
        let warnings = match node {
            // A rolling update ends the other instance only once this one is ready: being on standby
            // must not count as not ready.
            Err(why) if standby => vec![why],
            Err(why) => {
                obstacles.push(why);
                Vec::new()
            }
            Ok(node) => {
                if node.policy == Policy::Static && node.stance == Stance::Refuse {
                    obstacles.push(
                        "the kubelet's own CPU manager is active: new exclusive containers are refused"
                            .to_owned(),
                    );
                }
                if let Some(error) = &node.checkpoint_error {
                    obstacles.push(format!("new exclusive containers are refused: {error}"));
                }
                node.warnings()
            }
        };
        Health { obstacles, warnings }
    }
}

impl Condition<'_> {
    fn warnings(self) -> Vec<String> {
        let mut warnings: Vec<String> = self.config.fault.iter().map(cannot_be_used).collect();
        if !self.config.waiting.is_empty() {
            warnings.push(needs_restart(&self.config.waiting));
        }
        warnings.extend(self.config.nothing_to_assign.clone());
        warnings.extend(self.stalled_disk.map(|stalled| {
            format!("{stalled}: until it has, exclusive CPUs are given to no new container")
        }));
        warnings.extend(self.cannot_write_groups);
        warnings.extend(self.distrusted_cgroups.iter().map(|(group, why)| {
            format!("cgroup {group}: setting each cgroup below it individually: {why}")
        }));
        warnings.extend(self.not_quiet);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::super::config_state::Fault;
    use super::*;
    use crate::clock::Moment;
    use nri::Runtime;

    fn config() -> ConfigState {
        ConfigState::new("config.yaml", Vec::new(), Moment(0))
    }

    fn condition<'a>(
        config: &'a ConfigState,
        distrusted_cgroups: &'a BTreeMap<CgroupPath, String>,
    ) -> Condition<'a> {
        Condition {
            policy: Policy::Static,
            stance: Stance::Assign,
            config,
            checkpoint_error: None,
            stalled_disk: None,
            cannot_write_groups: None,
            distrusted_cgroups,
            not_quiet: Vec::new(),
        }
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
    fn check(found: &[String], expect: &[&str]) {
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    }

    #[test]
    fn obstacles_name_what_the_connection_lacks() {
        let obstacles = |link: &Link, why: Option<&str>| {
            let (config, distrusted) = (config(), BTreeMap::new());
            let node =
                why.map_or_else(|| Ok(condition(&config, &distrusted)), |why| Err(why.into()));
            Health::of(false, link, node).obstacles
        };
        check(&obstacles(&linked(2), None), &[]);
        check(&obstacles(&linked(1), None), &["has not listed"]);
        check(&obstacles(&linked(0), None), &["no runtime has connected yet"]);
        let mut gone = linked(2);
        gone.ended(0);
        check(&obstacles(&gone, None), &[]);
        gone.ended(1);
        check(&obstacles(&gone, None), &["last one: containerd v2.1.9"]);
        let why = Some("no configuration");
        check(&obstacles(&linked(0), why), &["no runtime has", "no config"]);
    }

    #[test]
    fn obstacles_name_what_the_node_lacks() {
        let (config, distrusted) = (config(), BTreeMap::new());
        let obstacles = |node| Health::of(false, &linked(2), Ok(node)).obstacles;
        let full = Condition {
            checkpoint_error: Some("disk full".into()),
            ..condition(&config, &distrusted)
        };
        check(&obstacles(full), &["disk full"]);
        let with_a_kubelet =
            |policy, stance| Condition { policy, stance, ..condition(&config, &distrusted) };
        let refusing = with_a_kubelet(Policy::Static, Stance::Refuse);
        check(&obstacles(refusing), &["the kubelet's own CPU manager"]);
        check(&obstacles(with_a_kubelet(Policy::None, Stance::Refuse)), &[]);
        check(&obstacles(with_a_kubelet(Policy::Static, Stance::Observe)), &[]);
    }

    #[test]
    fn an_instance_on_standby_is_ready_and_says_so() {
        let health = Health::of(true, &linked(2), Err("another instance decides".into()));
        check(&health.obstacles, &[]);
        check(&health.warnings, &["another instance decides"]);
    }

    #[test]
    fn what_does_not_keep_containers_out_is_a_warning() {
        let mut config = config();
        let mut distrusted = BTreeMap::new();
        let health = Health::of(false, &linked(2), Ok(condition(&config, &distrusted)));
        check(&health.warnings, &[]);
        config.rejected(Fault { line: Some(3), why: "config.yaml, line 3: no".into() });
        config.waiting = vec!["strict"];
        distrusted.insert(CgroupPath::new("kubepods/burstable").unwrap(), "cleared".to_owned());
        let stalled = "/state: the disk has not finished a write for 7.1 s";
        let node = Condition {
            stalled_disk: Some(stalled.to_owned()),
            cannot_write_groups: Some("cgroups cannot be written".to_owned()),
            not_quiet: vec!["interrupts stay as they are".to_owned()],
            ..condition(&config, &distrusted)
        };
        let Health { obstacles, warnings } = Health::of(false, &linked(2), Ok(node));
        check(&obstacles, &[]);
        check(
            &warnings,
            &[
                "stays in force: config.yaml, line 3: no",
                "to apply strict",
                "/state: the disk has not finished a write for 7.1 s: ",
                "cgroups cannot be written",
                "cgroup kubepods/burstable: ",
                "interrupts stay as they are",
            ],
        );
        assert!(warnings[4].ends_with(": cleared"), "{warnings:?}");
    }
}
