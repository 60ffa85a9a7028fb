//! Reads the plugin's snapshot as a user would, from its JSON, and compares it with the kernel.

use crate::pods::{State, id};
use crate::world::World;
use ledger::{Phase, Stance};
use serve::page::{Reader, fragment};
use status::outline::Outline;
use status::{Health, Link, NodeView, Snapshot};
use std::sync::Arc;
use wording::Moment;

impl World {
    /// What a reader would be told wrongly, long after the last operation and fault.
    pub(crate) fn wrong_snapshot(&mut self) -> Option<String> {
        let now = self.base + self.now;
        let owner = self.plugin.running.owner.as_mut()?;
        let view = NodeView {
            node_name: None,
            link: Link::default(),
            health: Arc::new(Health::default()),
            node: Ok(owner.view(now)),
            noise: Arc::default(),
        };
        let json = serde_json::to_string(&view.snapshot(Moment(0))).ok()?;
        let snapshot: Snapshot = match serde_json::from_str(&json) {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(format!("the snapshot cannot be read: {error}")),
        };
        let again = serde_json::to_string(&snapshot).ok()?;
        if again != json {
            let same = json.bytes().zip(again.bytes()).take_while(|(one, other)| one == other);
            let at = same.count().saturating_sub(40);
            let part = |text: &str| text.chars().skip(at).take(100).collect::<String>();
            let (before, after) = (part(&json), part(&again));
            return Some(format!(
                "the snapshot is another one when it has been read: {before:?}, and then {after:?}"
            ));
        }
        let node = snapshot.node.as_ref()?;
        let page = fragment(Reader::Stranger(&Outline::of(&snapshot)));
        let named = node.containers.iter().find(|one| page.contains(&one.full_name()));
        if let Some(named) = named {
            return Some(format!("a stranger's page has the name {}", named.full_name()));
        }
        if node.figures.stance != Stance::Assign {
            return None;
        }
        let running = self.processes().filter(|(_, one)| one.state == State::Running);
        running.filter(|(_, one)| !one.is_uncertain).find_map(|(pid, container)| {
            let id = id(container.serial);
            let Some(shown) = node.containers.iter().find(|one| *one.id.0 == *id) else {
                return Some(format!("the snapshot lacks the running container {id}"));
            };
            let allowed = self.kernel.lock().allowed(pid);
            let is_alone = shown.exclusive.is_some() && shown.shared.is_empty();
            let differs = is_alone && shown.phase == Phase::Running && allowed != *shown.runs_on;
            differs.then(|| {
                format!("the snapshot shows {id} on {}, and it may run on {allowed}", shown.runs_on)
            })
        })
    }
}
