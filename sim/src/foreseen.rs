//! [`Foreseen`]: what the plugin says that a configuration would change, to compare with what it then changes.

use cpuset::CpuSet;
use daemon::{Input, Owner};
use ledger::{ContainerView, Stance, View};
use status::outlook::{AssignmentEffect, Outlook};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Foreseen {
    before: Arc<View>,
    /// What was, if a plugin that observed showed something else.
    actually_before: Arc<View>,
    /// An error if the plugin would not use the configuration.
    outlook: Result<Outlook, String>,
}

/// A container, and its CPUs before and after a change; empty if it shares those of the node.
type Assignment = (String, CpuSet, CpuSet);

impl Foreseen {
    /// `None` if the input is no configuration.
    pub fn of(owner: &Owner, input: &Input) -> Option<Foreseen> {
        let Input::Config(reading) = input else { return None };
        let trial = owner.trial();
        let outlook = trial.reconfigure(reading.clone()).map_err(|mistake| mistake.why);
        Some(Foreseen { before: trial.view(), actually_before: trial.actual_view(), outlook })
    }

    /// Compares it with the plugin after the input.
    pub fn compare(&self, owner: &Owner) -> Result<(), String> {
        let after = owner.trial().view();
        let observes = after.figures.stance == Stance::Observe;
        let before = if observes { &self.before } else { &self.actually_before };
        let actual =
            (assignments(before, &after), after.figures.cpus.shared, after.figures.stance.name());
        let outlook = match &self.outlook {
            Ok(outlook) => outlook,
            Err(why) if after.settings == before.settings => {
                let same = assignments(before, before) == actual.0;
                return if same {
                    Ok(())
                } else {
                    Err(format!("a refused file changes CPUs: {why}"))
                };
            }
            Err(why) => return Err(format!("a file is used that was to be refused: {why}")),
        };
        let foreseen = (foreseen(outlook), outlook.shared_then, outlook.stance.as_str());
        if foreseen != actual {
            return Err(format!("foreseen: {foreseen:?}; it happened: {actual:?}"));
        }
        let shared = shared(before, &after);
        let foreseen = outlook.shared_containers;
        // The plugin also reads cgroups in the step of the change: what it finds there can change containers whose
        // pool stays.
        let may_be_cgroups =
            foreseen == 0 && before.figures.cpus.shared == after.figures.cpus.shared;
        if shared.len() != foreseen && !may_be_cgroups {
            return Err(format!("foreseen for {foreseen} shared containers: {shared:?}"));
        }
        Ok(())
    }
}

fn foreseen(outlook: &Outlook) -> Vec<Assignment> {
    let mut all = Vec::new();
    for one in &outlook.assignments {
        let name = format!("{}/{}/{}", one.namespace, one.pod, one.container);
        let (from, to) = match one.effect {
            AssignmentEffect::Stays => (one.cpus, one.cpus),
            AssignmentEffect::Moves { to, .. } => (one.cpus, to),
            AssignmentEffect::Pinned { to, .. } => (CpuSet::EMPTY, to),
            AssignmentEffect::Shares { .. } => (one.cpus, CpuSet::EMPTY),
            AssignmentEffect::Refused { .. } | AssignmentEffect::Unprotected { .. } => continue,
        };
        all.push((name, from, to));
    }
    all.sort_by(order);
    all
}

fn assignments(before: &View, after: &View) -> Vec<Assignment> {
    let owned = pairs(before, after).map(|(now, then)| assignment(now, own(now), own(then)));
    let mut all: Vec<Assignment> =
        owned.filter(|(_, from, to)| !from.is_empty() || !to.is_empty()).collect();
    all.sort_by(order);
    all
}

/// Containers that share CPUs before and after, and have others then.
fn shared(before: &View, after: &View) -> Vec<Assignment> {
    let moved = pairs(before, after).filter(|(now, then)| {
        own(now).is_empty() && own(then).is_empty() && now.runs_on != then.runs_on
    });
    moved.map(|(now, then)| assignment(now, *now.runs_on, *then.runs_on)).collect()
}

fn assignment(of: &ContainerView, from: CpuSet, to: CpuSet) -> Assignment {
    (format!("{}/{}/{}", of.pod.namespace, of.pod.name, of.name), from, to)
}

fn pairs<'a>(
    before: &'a View,
    after: &'a View,
) -> impl Iterator<Item = (&'a ContainerView, &'a ContainerView)> {
    let then: BTreeMap<_, _> = after.containers.iter().map(|one| (&one.id, one)).collect();
    before.containers.iter().filter_map(move |now| Some((now, *then.get(&now.id)?)))
}

fn own(container: &ContainerView) -> CpuSet {
    container.exclusive.unwrap_or(*container.own_pool)
}

fn order(a: &Assignment, b: &Assignment) -> std::cmp::Ordering {
    let key = |(name, from, to): &Assignment| (name.clone(), from.to_string(), to.to_string());
    key(a).cmp(&key(b))
}
