//! A second plugin, called after ours, which refuses some containers, often the same one several
//! times in a row. Ours has decided by then and has sent updates for other containers. The runtime
//! undoes such a creation, or reports nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use ledger::{Admission, Call};
use nri_cpu_manager::edge::nri::{self, Endpoint, Identity};
use nri_cpu_manager::edge::{Message, Refusal, Response, Subscriptions};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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
    let (owner, inbox) = unbounded_channel();
    let over = async {
        while !storm.is_over() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let plugin = nri::run(Endpoint::Socket(socket), &identity, owner, over);
    let (ended, ()) = runtime.block_on(async { tokio::join!(plugin, answer(storm, inbox)) });
    ended.context("the second plugin ended")
}

/// Until the runtime disconnects. A caller that has stopped waiting gets no answer.
async fn answer(storm: &Storm<'_>, mut inbox: UnboundedReceiver<Message>) {
    let mut plan = RefusalPlan { rng: Rng::with_seed(storm.settings.seed), due: BTreeMap::new() };
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Configure { reply, .. } => drop(reply.send(Ok(Subscriptions::default()))),
            Message::Validate { reply, .. } => drop(reply.send(Ok(()))),
            Message::WentOn { .. } | Message::Disconnected { .. } => {}
            Message::Call { call, reply, .. } => {
                let refuses = match &call {
                    // Only workers' pods: not those of the storm itself, nor the plugin's.
                    Call::Admission(Admission::Create { pod, container })
                        if pod.namespace == NAMESPACE =>
                    {
                        plan.refuses(&pod.name, &container.name)
                    }
                    _ => false,
                };
                if refuses {
                    storm.counts().spoiled += 1;
                }
                let answer = if refuses {
                    Err(Refusal("refused by the second plugin".to_owned()))
                } else {
                    Ok(Response::default())
                };
                drop(reply.send(answer));
            }
        }
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
