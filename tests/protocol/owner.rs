//! The ledger's owner, played by a script; and a session to play with.

use crate::runtime::{Generation, Runtime};
use ledger::{Call, ContainerId, CpuSetting, Update};
use nri::{Ended, Identity, SessionError};
use nri::{Session, Updater};
use nri_cpu_manager::edge::nri::run_session;
use nri_cpu_manager::edge::{DaemonSender, Message, Refusal, Response, Subscriptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// With the name and index of the command line's defaults.
pub(crate) fn identity() -> Identity {
    Identity::new("cpu-manager", "90").unwrap()
}

/// The owner's messages, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    Configure { session: Session, runtime: String, config: String, updater: bool },
    Call { session: Session, call: Call, in_time: bool },
    WentOn(Session),
    Disconnected(Session),
}

/// A test's access to the owner's messages.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Told>>>, Arc<Mutex<Option<Updater>>>);

impl Log {
    pub(crate) fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn updater(&self) -> Option<Updater> {
        self.1.lock().unwrap().clone()
    }

    /// The events only.
    pub(crate) fn events(&self) -> Vec<Call> {
        let event = |told| match told {
            Told::Call { call, .. } => Some(call),
            _ => None,
        };
        self.told().into_iter().filter_map(event).collect()
    }

    /// Whether each event was answered in time.
    pub(crate) fn in_time(&self) -> Vec<bool> {
        let in_time = |told| match told {
            Told::Call { in_time, .. } => Some(in_time),
            _ => None,
        };
        self.told().into_iter().filter_map(in_time).collect()
    }

    fn push(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }
}

/// What the owner does about an event: its answer, after so long.
pub(crate) type Answer = (Duration, Result<Response, Refusal>);

/// Starts an owner that follows `script`.
pub(crate) fn owner(
    mut script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (DaemonSender, Log) {
    let (owner, mut messages) = mpsc::unbounded_channel();
    let log = Log::default();
    let seen = log.clone();
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            match message {
                Message::Configure { session, runtime, config, updater, reply, .. } => {
                    seen.push(Told::Configure {
                        session,
                        runtime: runtime.to_string(),
                        config: config.clone(),
                        updater: updater.is_some(),
                    });
                    *seen.1.lock().unwrap() = updater;
                    let refused = config.contains("refuse me");
                    let answer = if refused {
                        Err(Refusal("bad configuration".into()))
                    } else {
                        Ok(Subscriptions::default())
                    };
                    let _ = reply.send(answer);
                }
                Message::Call { session, call, reply } => {
                    let (after, answer) = script(&call);
                    tokio::time::sleep(after).await;
                    let in_time = reply.send(answer).is_ok();
                    seen.push(Told::Call { session, call, in_time });
                }
                Message::Validate { reply, .. } => drop(reply.send(Ok(()))),
                Message::WentOn { session } => seen.push(Told::WentOn(session)),
                Message::Disconnected { session } => seen.push(Told::Disconnected(session)),
            }
        }
    });
    (owner, log)
}

/// Has nothing to say about anything.
pub(crate) fn content(_: &Call) -> Answer {
    at_once(Response::default())
}

pub(crate) fn at_once(decision: Response) -> Answer {
    (Duration::ZERO, Ok(decision))
}

pub(crate) fn refuse(why: &str) -> Answer {
    (Duration::ZERO, Err(Refusal(why.into())))
}

pub(crate) fn shared(id: &str, cpus: &str) -> Update {
    let setting = CpuSetting::shared(cpus.parse().unwrap()).unwrap();
    Update { container: ContainerId(id.into()), setting }
}

/// A plugin that runs, and the way to tell it to stop.
pub(crate) struct Plugin {
    pub(crate) log: Log,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<Result<Ended, SessionError>>,
}

/// A plugin connected to a runtime through a pipe that holds `pipe` bytes.
pub(crate) fn connect_through(
    pipe: usize,
    generation: Generation,
    script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (Runtime<DuplexStream>, Plugin) {
    let (ours, theirs) = tokio::io::duplex(pipe);
    let (owner, log) = owner(script);
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(async move {
        // A test that drops its end does not mean to stop the plugin.
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        run_session(ours, Session(7), &identity(), &owner, stopped).await
    });
    (Runtime::new(theirs, generation), Plugin { log, stop, ended })
}

/// The same through a pipe as wide as a socket.
pub(crate) fn connect(
    generation: Generation,
    script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (Runtime<DuplexStream>, Plugin) {
    connect_through(200 << 10, generation, script)
}

impl Plugin {
    /// How it ended; fails when it does not end.
    pub(crate) async fn ended(self) -> (Log, Result<Ended, SessionError>) {
        let ended = tokio::time::timeout(Duration::from_secs(3600), self.ended).await;
        // The last message has been sent; let the owner read.
        tokio::time::sleep(Duration::from_secs(60)).await;
        (self.log, ended.expect("an end").expect("no panic"))
    }

    /// The same where time is real.
    pub(crate) async fn ended_now(self) -> (Log, Result<Ended, SessionError>) {
        let ended = tokio::time::timeout(Duration::from_secs(5), self.ended).await;
        (self.log, ended.expect("an end").expect("no panic"))
    }
}
