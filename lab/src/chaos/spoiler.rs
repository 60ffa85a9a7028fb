//! A second plugin, called after ours, which refuses some containers, often the same one several
//! times in a row. Ours has decided by then and has sent updates for other containers. The runtime
//! undoes such a creation, or reports nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use nri::wire::{Container, Event, PodSandbox};
use nri::{Answer, CallError, Configuration, Endpoint, Events, Identity, Plugin};

use super::storm::Storm;
use super::summary::NAMESPACE;

/// One creation in so many is refused.
const ONE_IN: u32 = 12;
/// Most refusals of one container in a row.
const IN_A_ROW: u32 = 4;

/// Runs until the storm is over.
pub(super) fn run(storm: &Storm<'_>, socket: PathBuf) -> Result<()> {
    let identity = Identity::new("spoiler", "95")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the second plugin")?;
    let plan = RefusalPlan { rng: Rng::with_seed(storm.settings.seed), due: BTreeMap::new() };
    let plan = Mutex::new(plan);
    let over = async {
        while !storm.is_over() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let connect = |_| Spoiler { storm, plan: &plan };
    let plugin = nri::run(Endpoint::Socket(socket), &identity, connect, over);
    runtime.block_on(plugin).context("the second plugin ended")
}

struct Spoiler<'a> {
    storm: &'a Storm<'a>,
    plan: &'a Mutex<RefusalPlan>,
}

impl Plugin for Spoiler<'_> {
    async fn configure(&self, _: Configuration) -> Result<Events, CallError> {
        Ok(Events::of(&[Event::CREATE_CONTAINER]))
    }

    async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Answer, CallError> {
        // Only workers' pods: not those of the storm itself, nor the plugin's.
        if pod.namespace != NAMESPACE {
            return Ok(Answer::default());
        }
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if !plan.refuses(&pod.name, &container.name) {
            return Ok(Answer::default());
        }
        self.storm.counts().spoiled += 1;
        Err(CallError::Refused("refused by the second plugin".to_owned()))
    }
}

struct RefusalPlan {
    rng: Rng,
    /// Refusals to come, by pod and container.
    due: BTreeMap<(String, String), u32>,
}

impl RefusalPlan {
    /// Whether the next creation of this container is refused.
    fn refuses(&mut self, pod: &str, container: &str) -> bool {
        let name = (pod.to_owned(), container.to_owned());
        let due = match self.due.remove(&name) {
            Some(due) => due,
            None if self.rng.u32(0..ONE_IN) == 0 => self.rng.u32(1..=IN_A_ROW),
            None => return false,
        };
        if due > 1 {
            self.due.insert(name, due - 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_container_is_refused_several_times_in_a_row() {
        let mut plan = RefusalPlan { rng: Rng::with_seed(1), due: BTreeMap::new() };
        let mut rows = BTreeMap::new();
        for number in 0..1000 {
            let pod = format!("pod-{number}");
            let mut row = 0;
            while plan.refuses(&pod, "c0") {
                row += 1;
                // Others between two of its creations change nothing.
                plan.refuses(&pod, "c1");
            }
            *rows.entry(row).or_insert(0) += 1;
        }
        // Of a thousand a twelfth, each number as often as the others.
        for row in 1..=IN_A_ROW {
            let times = rows[&row];
            assert!((10..40).contains(&times), "{rows:?}");
        }
    }
}
