//! Sets environment variables from annotations of pods: `annotate [SOCKET]`.
//!
//! `annotate.nri.io/COLOR: blue` on a pod sets the environment variable `COLOR` to `blue` in each of
//! its new containers, and the runtime adds the annotation to the container.

use nri::wire::{Container, ContainerAdjustment, Event, KeyValue, PodSandbox};
use nri::{Answer, CallError, Configuration, Endpoint, Events, Identity, Plugin, Update};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

const PREFIX: &str = "annotate.nri.io/";

struct Annotate;

impl Plugin for Annotate {
    async fn configure(&self, _: Configuration) -> Result<Events, CallError> {
        Ok(Events::of(&[Event::CREATE_CONTAINER]))
    }

    async fn synchronize(
        &self,
        _: Vec<PodSandbox>,
        running: Vec<Container>,
    ) -> Result<Vec<Update>, CallError> {
        println!("ready; {} containers exist and keep their environment", running.len());
        Ok(Vec::new())
    }

    async fn create_container(&self, pod: PodSandbox, _: Container) -> Result<Answer, CallError> {
        let mut adjust = ContainerAdjustment::new();
        for (key, value) in pod.annotations {
            if let Some(name) = key.strip_prefix(PREFIX) {
                let name = name.to_owned();
                let text = value.clone();
                adjust.env.push(KeyValue { key: name, value: text, ..Default::default() });
                adjust.annotations.insert(key, value);
            }
        }
        Ok(Answer { adjust: Some(adjust), ..Answer::default() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| nri::DEFAULT_SOCKET.to_owned());
    let mut term = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! { _ = term.recv() => {}, _ = ctrl_c() => {} }
    };
    let identity = Identity::new("annotate", "10")?;
    nri::run(Endpoint::Socket(socket.into()), &identity, |_| Annotate, stop).await?;
    Ok(())
}
