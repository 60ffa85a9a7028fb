//! [`Outlook`]: what a change of the whole node would do to containers. docs/configuration.md has the names of its
//! JSON, which are a promise to scripts.

use cpuset::CpuSet;
use ledger::{ContainerView, MoveReason, Preview, Stance, View, What};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use wording::{agree, count, natural_order, or_none};

/// A change that a client asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The text of a configuration file.
    Configuration(String),
    Uninstall {
        /// With `--containers`.
        containers: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// The node's name, if the plugin knows it.
    pub node: Option<String>,
    /// The lines of the configuration's overrides that apply there, the most specific last.
    pub overrides: Vec<usize>,
    /// `assign`; `observe` with this mode, or `refuse` while the kubelet's CPU manager is active: no container changes then.
    pub stance: String,
    /// Containers that have CPUs of their own, would have some, or ask for them in vain.
    pub assignments: Vec<AssignmentReport>,
    pub shared_now: CpuSet,
    pub shared_then: CpuSet,
    /// How many containers on shared CPUs would get others.
    pub shared_containers: usize,
    /// Fields that would wait for a restart of the plugin.
    pub waiting: Vec<String>,
}

/// A container, and the effect on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssignmentReport {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// The CPUs now.
    pub cpus: CpuSet,
    #[serde(flatten)]
    pub effect: AssignmentEffect,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum AssignmentEffect {
    Stays,
    Moves {
        /// The new CPUs, if nothing else happens before.
        to: CpuSet,
        why: String,
    },
    /// It shares CPUs now and gets these of its own.
    Pinned {
        to: CpuSet,
        why: String,
    },
    /// It loses its CPUs and runs in the shared pool.
    Shares {
        why: String,
    },
    /// It asks for exclusive CPUs, gets none, and goes on sharing. A new container like it is refused.
    Refused {
        why: String,
    },
    /// Nothing keeps other containers off its CPUs any more, and it may use these.
    Unprotected {
        to: CpuSet,
    },
}

impl Outlook {
    /// What events would change.
    pub fn of(preview: &Preview) -> Outlook {
        let Preview { before, after, notes } = preview;
        let mut whys = BTreeMap::new();
        for note in notes {
            let why = match &note.what {
                What::Moved { why, .. } => why.to_string(),
                What::LeftShared(why) => why.clone(),
                _ => continue,
            };
            whys.insert(&note.subject.id, why);
        }
        let then: BTreeMap<_, _> = after.containers.iter().map(|one| (&one.id, one)).collect();
        let pairs: Vec<_> =
            before.containers.iter().filter_map(|now| Some((now, *then.get(&now.id)?))).collect();
        let assignments = pairs.iter().filter_map(|(now, then)| {
            let effect = effect(now, then, whys.remove(&now.id), after)?;
            Some(AssignmentReport::of(now, effect))
        });
        let assignments = assignments.collect();
        let moved = |(now, then): &&(&ContainerView, &ContainerView)| {
            own(now).is_empty() && own(then).is_empty() && now.runs_on != then.runs_on
        };
        let shared_containers = pairs.iter().filter(moved).count();
        Outlook::with(
            after,
            assignments,
            (before.figures.cpus.shared, after.figures.cpus.shared),
            shared_containers,
        )
    }

    /// What `uninstall` would change, with or without `--containers`. `bound` says whether cgroups keep containers off
    /// exclusive CPUs; otherwise containers have their own lists, which only `--containers` undoes.
    pub fn of_uninstall(view: &View, bound: bool, containers: bool) -> Outlook {
        let online = view.topology.online();
        let mut assignments = Vec::new();
        for one in &view.containers {
            let cpus = own(one);
            if !cpus.is_empty() {
                let to = if containers { online } else { cpus };
                assignments.push(AssignmentReport::of(one, AssignmentEffect::Unprotected { to }));
            }
        }
        let then = if bound || containers { online } else { view.figures.cpus.shared };
        let moved = |one: &&ContainerView| own(one).is_empty() && *one.runs_on != then;
        let shared_containers = view.containers.iter().filter(moved).count();
        Outlook::with(view, assignments, (view.figures.cpus.shared, then), shared_containers)
    }

    fn with(
        view: &View,
        mut assignments: Vec<AssignmentReport>,
        (shared_now, shared_then): (CpuSet, CpuSet),
        shared_containers: usize,
    ) -> Outlook {
        assignments.sort_by(|a, b| natural_order(&a.full_name(), &b.full_name()));
        Outlook {
            node: None,
            overrides: Vec::new(),
            stance: view.figures.stance.name().to_owned(),
            assignments,
            shared_now,
            shared_then,
            shared_containers,
            waiting: Vec::new(),
        }
    }
}

/// The exclusive CPUs of a container, or those of its pod that it shares; empty if it shares the node's.
fn own(container: &ContainerView) -> CpuSet {
    container.exclusive.unwrap_or(*container.own_pool)
}

/// `None` for a container that shares CPUs before and after, and asks for no others.
fn effect(
    now: &ContainerView,
    then: &ContainerView,
    noted: Option<String>,
    after: &View,
) -> Option<AssignmentEffect> {
    let (before, to) = (own(now), own(then));
    let why = || {
        let illegal = if before.is_subset(&after.topology.online()) {
            MoveReason::Reserved
        } else {
            MoveReason::Offline
        };
        noted.clone().unwrap_or_else(|| illegal.to_string())
    };
    Some(match (before.is_empty(), to.is_empty()) {
        (true, true) => {
            let asks = then.asks.is_some_and(|cpus| cpus > 0);
            AssignmentEffect::Refused { why: noted.filter(|_| asks)? }
        }
        (true, false) => {
            let why = noted.unwrap_or_else(|| MoveReason::NotExclusive.to_string());
            AssignmentEffect::Pinned { to, why }
        }
        (false, true) => AssignmentEffect::Shares { why: why() },
        (false, false) if before == to => AssignmentEffect::Stays,
        (false, false) => AssignmentEffect::Moves { to, why: why() },
    })
}

impl AssignmentReport {
    fn of(container: &ContainerView, effect: AssignmentEffect) -> AssignmentReport {
        let own = own(container);
        AssignmentReport {
            namespace: container.pod.namespace.clone(),
            pod: container.pod.name.clone(),
            container: container.name.clone(),
            cpus: if own.is_empty() { *container.runs_on } else { own },
            effect,
        }
    }

    fn full_name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

impl Display for AssignmentReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cpus = self.cpus;
        write!(f, "{}: ", self.full_name())?;
        let listed = wording::cpus(cpus);
        match &self.effect {
            AssignmentEffect::Stays => write!(f, "{listed} {}", agree(cpus, "stays", "stay")),
            AssignmentEffect::Moves { to, why } => write!(f, "{listed} would become {to}: {why}"),
            AssignmentEffect::Pinned { to, why } => {
                write!(f, "would get {} and leave {cpus}: {why}", wording::cpus(*to))
            }
            AssignmentEffect::Shares { why } => {
                write!(f, "{listed} would be lost, and it would run in the shared pool: {why}")
            }
            AssignmentEffect::Refused { why } => write!(
                f,
                "would go on in the shared pool, and a new one like it would be refused: {why}"
            ),
            AssignmentEffect::Unprotected { to } if *to == cpus => {
                write!(f, "{listed} would stay set, and others may run there")
            }
            AssignmentEffect::Unprotected { to } => {
                write!(f, "{listed} would become {to}, shared with all others")
            }
        }
    }
}

impl Display for Outlook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.stance == Stance::Observe.name() {
            writeln!(
                f,
                "mode: observe: no container would change; this is what the plugin would decide"
            )?;
        } else if self.stance == Stance::Refuse.name() {
            writeln!(f, "the kubelet's own CPU manager is active: no container would change")?;
        }
        if self.assignments.is_empty() {
            writeln!(f, "no container has exclusive CPUs, or would get any")?;
        }
        for assignment in &self.assignments {
            writeln!(f, "{assignment}")?;
        }
        let (now, then) = (self.shared_now, self.shared_then);
        write!(f, "shared pool: {} -> {}", or_none(now), or_none(then))?;
        let (more, less) = (then - now, now - then);
        if !more.is_empty() {
            write!(f, "; {more} {} shared", agree(more, "becomes", "become"))?;
        }
        if !less.is_empty() {
            write!(f, "; {less} {} no longer shared", agree(less, "is", "are"))?;
        }
        writeln!(f)?;
        if self.shared_containers > 0 {
            let containers = count(self.shared_containers, "container");
            writeln!(f, "{containers} on shared CPUs would follow")?;
        }
        if !self.waiting.is_empty() {
            writeln!(f, "after a restart of the plugin only: {}", self.waiting.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use ledger::{
        Admission, Container, ContainerId, CpuRequest, Event, Ledger, MilliCpu, Pod, PodUid,
        Policy, Qos, SandboxId, Settings,
    };
    use machines::synthetic::Machine;

    /// On 8 CPUs: `a` has two of them, and `b` shares the others.
    fn ledger() -> Ledger {
        let machine = Machine { cores: 8, ..Machine::default() };
        let settings = Settings { policy: Policy::Static, ..Settings::default() };
        let mut ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
        for (name, qos, milli) in [("a", Qos::Guaranteed, 2000), ("b", Qos::Burstable, 500)] {
            let sandbox = SandboxId(name.into());
            let pod = Pod {
                sandbox: sandbox.clone(),
                uid: PodUid(name.into()),
                namespace: "ns".to_owned(),
                name: name.to_owned(),
                qos,
                pool: Default::default(),
                budget: None,
                limits: Default::default(),
                own_resources: None,
                annotations: Default::default(),
                cgroup: None,
            };
            let cpu = CpuRequest { request: Some(MilliCpu(milli)), limit: Some(MilliCpu(milli)) };
            let container = Container::new(ContainerId(name.into()), sandbox, "c", cpu);
            let decision = ledger.admit(Admission::Create { pod, container }).unwrap();
            ledger.apply(Event::Answered(decision));
        }
        ledger
    }

    #[test]
    fn without_cgroups_shared_containers_keep_their_cpus_after_uninstall() {
        let view = ledger().view();
        let unprotected = "ns/a/c: CPUs 0-1 would stay set, and others may run there\n";
        for (bound, containers, expect) in [
            (false, false, format!("{unprotected}shared pool: 2-7 -> 2-7\n")),
            (
                true,
                false,
                format!(
                    "{unprotected}shared pool: 2-7 -> 0-7; 0-1 become shared\n\
                     1 container on shared CPUs would follow\n"
                ),
            ),
            (
                false,
                true,
                "ns/a/c: CPUs 0-1 would become 0-7, shared with all others\n\
                 shared pool: 2-7 -> 0-7; 0-1 become shared\n\
                 1 container on shared CPUs would follow\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(Outlook::of_uninstall(&view, bound, containers).to_string(), expect);
        }
    }

    #[test]
    fn a_preview_changes_a_copy_of_the_ledger() {
        let ledger = ledger();
        let offline = ledger.topology().without(&"0".parse().unwrap()).unwrap();
        let outlook = Outlook::of(&ledger.preview([Event::Machine(offline)]));
        assert_eq!(
            outlook.to_string(),
            "ns/a/c: CPUs 0-1 would become 1-2: some of its CPUs are now offline or another program's\n\
             shared pool: 2-7 -> 3-7; 2 is no longer shared\n\
             1 container on shared CPUs would follow\n"
        );
        assert_eq!(ledger.pool().to_string(), "2-7");
        let nothing = Outlook::of(&ledger.preview([]));
        assert_eq!(nothing.to_string(), "ns/a/c: CPUs 0-1 stay\nshared pool: 2-7 -> 2-7\n");
    }
}
