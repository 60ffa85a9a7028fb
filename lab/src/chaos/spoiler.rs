//! Another plugin, which the runtime calls after ours, and which refuses containers now and then: ours has decided by
//! then, and has told others to leave. The runtime undoes such a creation, or does not say a word about it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use nri_cpu_manager::ledger::{Decision, Event};
use nri_cpu_manager::nri::{self, Endpoint, Identity, Message, Refusal, Wishes};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{NUDGE, Storm};

/// One in so many creations is refused.
const ONE_IN: u32 = 12;

/// Goes on until the storm is over.
pub(super) fn run(storm: &Storm<'_>, socket: PathBuf) -> Result<()> {
    let identity = Identity::new("spoiler", "95")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the plugin that refuses")?;
    let (owner, inbox) = unbounded_channel();
    let over = async {
        while !storm.over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let plugin = nri::run(Endpoint::Socket(socket), &identity, owner, over);
    let (ended, ()) = runtime.block_on(async { tokio::join!(plugin, answer(storm, inbox)) });
    ended.context("the plugin that refuses ended")
}

/// Until there is nobody left who asks. Whoever does not wait for an answer any more gets none.
async fn answer(storm: &Storm<'_>, mut inbox: UnboundedReceiver<Message>) {
    let mut rng = Rng::with_seed(storm.settings.seed);
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Configure { reply, .. } => drop(reply.send(Ok(Wishes::default()))),
            Message::Validate { reply, .. } => drop(reply.send(Ok(()))),
            Message::WentOn { .. } | Message::Disconnected { .. } => {}
            Message::Event { event, reply, .. } => {
                let of_a_worker = matches!(&event, Event::Create { pod, .. } if pod.name != NUDGE);
                let spoils = of_a_worker && rng.u32(0..ONE_IN) == 0;
                if spoils {
                    Storm::count(&storm.spoiled);
                }
                let refusal = || Refusal("the storm's other plugin refuses".to_owned());
                let answer = if spoils { Err(refusal()) } else { Ok(Decision::default()) };
                drop(reply.send(answer));
            }
        }
    }
}
