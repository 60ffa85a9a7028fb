//! [`Health`]: whether the plugin can do its work, and why not.

use super::config_state::{ConfigState, cannot_be_used, needs_restart};
use super::facts::{Fact, Level};
use super::node::Link;
use cpuset::CgroupPath;
use ledger::{Policy, Stance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Facts of the levels obstacle and warning, those of one level together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Health(pub Vec<Fact>);

/// What the health of a plugin with a configuration depends on. The owner makes it after every event, so it has
/// nothing that grows with the number of containers.
#[derive(Debug)]
pub struct Condition<'a> {
    pub policy: Policy,
    pub stance: Stance,
    pub config: &'a ConfigState,
    /// As in the node's figures, like the next three.
    pub checkpoint_error: Option<String>,
    pub stalled_disk: Option<String>,
    pub cannot_write_groups: Option<String>,
    pub distrusted_cgroups: &'a BTreeMap<CgroupPath, String>,
    /// Why exclusive CPUs are not as quiet as containers ask for.
    pub not_quiet: Vec<String>,
}

impl Health {
    /// Of a plugin that does not know its node yet.
    pub fn starting() -> Health {
        Health(vec![Fact::obstacle("plugin", "the plugin is starting")])
    }

    /// `node` is why there is no configuration if there is none.
    pub fn of(standby: bool, link: &Link, node: Result<Condition<'_>, String>) -> Health {
        let mut facts = Vec::new();
        if !link.connected {
            let why = match &link.runtime {
                Some(runtime) => format!("the runtime is not connected (last one: {runtime})"),
                None => "no runtime has connected yet".to_owned(),
            };
            facts.push(Fact::obstacle("runtime", why));
        } else if !link.synchronized {
            let why =
                "the runtime has not listed its containers yet; it may be waiting for one to stop";
            facts.push(Fact::obstacle("runtime", why));
        }
        match node {
            // A rolling update ends the other instance only once this one is ready: being on standby
            // must not count as not ready.
            Err(why) if standby => facts.push(Fact::warning("standby", why)),
            Err(why) => facts.push(Fact::obstacle("config", why)),
            Ok(node) => node.add_to(&mut facts),
        }
        Health(facts)
    }

    /// Everything that keeps the plugin from placing containers as configured, a sentence each. A
    /// ledger's owner that does not answer is not among them: it would not have made this.
    pub fn obstacles(&self) -> impl Iterator<Item = &str> {
        self.of_level(Level::Obstacle)
    }

    /// Everything that needs attention although the plugin places containers, a sentence each. None of
    /// it makes the plugin unhealthy, as a restart would not help: with an invalid configuration the
    /// plugin would not even start.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.of_level(Level::Warning)
    }

    fn of_level(&self, level: Level) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |fact| fact.level == level).map(|fact| fact.value.as_str())
    }

    pub fn is_ready(&self) -> bool {
        self.obstacles().next().is_none()
    }
}

impl Condition<'_> {
    fn add_to(self, facts: &mut Vec<Fact>) {
        if self.policy == Policy::Static && self.stance == Stance::Refuse {
            let why =
                "the kubelet's own CPU manager is active: new exclusive containers are refused";
            facts.push(Fact::obstacle("kubelet", why));
        }
        facts.extend(self.checkpoint_error.map(|error| {
            Fact::obstacle("state", format!("new exclusive containers are refused: {error}"))
        }));
        let mut warn = |label, texts: Vec<String>| {
            facts.extend(texts.into_iter().map(|text| Fact::warning(label, text)));
        };
        warn("config", self.config.fault.iter().map(cannot_be_used).collect());
        if !self.config.waiting.is_empty() {
            warn("config", vec![needs_restart(&self.config.waiting)]);
        }
        warn("config", self.config.nothing_to_assign.iter().cloned().collect());
        let stalled = self.stalled_disk.map(|stalled| {
            format!("{stalled}: until it has, exclusive CPUs are given to no new container")
        });
        warn("state", stalled.into_iter().collect());
        warn("cgroups", self.cannot_write_groups.into_iter().collect());
        let distrusted = self.distrusted_cgroups.iter().map(|(group, why)| {
            format!("cgroup {group}: setting each cgroup below it individually: {why}")
        });
        warn("cgroups", distrusted.collect());
        warn("interrupts", self.not_quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::config_state::Fault;
    use super::*;
    use nri::Runtime;
    use wording::Moment;

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
    fn check<'a>(found: impl Iterator<Item = &'a str>, expect: &[&str]) {
        let found: Vec<&str> = found.collect();
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
            Health::of(false, link, node)
        };
        check(obstacles(&linked(2), None).obstacles(), &[]);
        check(obstacles(&linked(1), None).obstacles(), &["has not listed"]);
        check(obstacles(&linked(0), None).obstacles(), &["no runtime has connected yet"]);
        let mut gone = linked(2);
        gone.ended(0);
        check(obstacles(&gone, None).obstacles(), &[]);
        gone.ended(1);
        check(obstacles(&gone, None).obstacles(), &["last one: containerd v2.1.9"]);
        let why = Some("no configuration");
        check(obstacles(&linked(0), why).obstacles(), &["no runtime has", "no config"]);
    }

    #[test]
    fn obstacles_name_what_the_node_lacks() {
        let (config, distrusted) = (config(), BTreeMap::new());
        let obstacles = |node| Health::of(false, &linked(2), Ok(node));
        let full = Condition {
            checkpoint_error: Some("disk full".into()),
            ..condition(&config, &distrusted)
        };
        check(obstacles(full).obstacles(), &["disk full"]);
        let with_a_kubelet =
            |policy, stance| Condition { policy, stance, ..condition(&config, &distrusted) };
        let refusing = with_a_kubelet(Policy::Static, Stance::Refuse);
        check(obstacles(refusing).obstacles(), &["the kubelet's own CPU manager"]);
        check(obstacles(with_a_kubelet(Policy::None, Stance::Refuse)).obstacles(), &[]);
        check(obstacles(with_a_kubelet(Policy::Static, Stance::Observe)).obstacles(), &[]);
    }

    #[test]
    fn an_instance_on_standby_is_ready_and_says_so() {
        let health = Health::of(true, &linked(2), Err("another instance decides".into()));
        check(health.obstacles(), &[]);
        check(health.warnings(), &["another instance decides"]);
    }

    #[test]
    fn what_does_not_keep_containers_out_is_a_warning() {
        let mut config = config();
        let mut distrusted = BTreeMap::new();
        let health = Health::of(false, &linked(2), Ok(condition(&config, &distrusted)));
        check(health.warnings(), &[]);
        config.rejected(Fault { line: Some(3), why: "config.yaml, line 3: no".into() });
        config.waiting = vec!["strict".to_owned()];
        distrusted.insert(CgroupPath::new("kubepods/burstable").unwrap(), "cleared".to_owned());
        let stalled = "/state: the disk has not finished a write for 7.1 s";
        let node = Condition {
            stalled_disk: Some(stalled.to_owned()),
            cannot_write_groups: Some("cgroups cannot be written".to_owned()),
            not_quiet: vec!["interrupts stay as they are".to_owned()],
            ..condition(&config, &distrusted)
        };
        let health = Health::of(false, &linked(2), Ok(node));
        check(health.obstacles(), &[]);
        check(
            health.warnings(),
            &[
                "stays in force: config.yaml, line 3: no",
                "to apply strict",
                "/state: the disk has not finished a write for 7.1 s: ",
                "cgroups cannot be written",
                "cgroup kubepods/burstable: ",
                "interrupts stay as they are",
            ],
        );
        let distrusted = health.warnings().nth(4).unwrap();
        assert!(distrusted.ends_with(": cleared"), "{distrusted}");
    }
}
