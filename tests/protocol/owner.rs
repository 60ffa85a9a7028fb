//! The ledger's owner, played by a script, and sessions that are connected to it.

use crate::runtime::{Generation, Runtime};
use edge::nri::run_session;
use edge::{DaemonSender, Message, Refusal, Response, Subscriptions};
use ledger::{Call, ContainerId, CpuSetting, Update};
use nri::{Ended, Identity, SessionError};
use nri::{Session, Updater};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The default name and index of the command line.
pub(crate) fn identity() -> Identity {
    Identity::new("cpu-manager", "90").unwrap()
}

/// A message that the owner has received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Received {
    Configure { session: Session, runtime: String, config: String, updater: bool },
    Call { session: Session, call: Call, in_time: bool },
    WentOn(Session),
    Disconnected(Session),
}

/// The messages that the owner has received, in order, and the runtime's updater.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Received>>>, Arc<Mutex<Option<Updater>>>);

impl Log {
    pub(crate) fn received(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn updater(&self) -> Option<Updater> {
        self.1.lock().unwrap().clone()
    }

    /// The events only.
    pub(crate) fn events(&self) -> Vec<Call> {
        let event = |message| match message {
            Received::Call { call, .. } => Some(call),
            _ => None,
        };
        self.received().into_iter().filter_map(event).collect()
    }

    /// Whether each event was answered in time.
    pub(crate) fn in_time(&self) -> Vec<bool> {
        let in_time = |message| match message {
            Received::Call { in_time, .. } => Some(in_time),
            _ => None,
        };
        self.received().into_iter().filter_map(in_time).collect()
    }

    fn push(&self, message: Received) {
        self.0.lock().unwrap().push(message);
    }
}

/// The owner's answer to an event, and how long it takes.
pub(crate) type Answer = (Duration, Result<Response, Refusal>);

/// Starts an owner that follows `script`.
pub(crate) fn owner(
    mut script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (DaemonSender, Log) {
    let (owner, mut messages) = mpsc::unbounded_channel();
    let log = Log::default();
    let record = log.clone();
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            match message {
                Message::Configure { session, runtime, config, updater, reply, .. } => {
                    record.push(Received::Configure {
                        session,
                        runtime: runtime.to_string(),
                        config: config.clone(),
                        updater: updater.is_some(),
                    });
                    *record.1.lock().unwrap() = updater;
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
                    record.push(Received::Call { session, call, in_time });
                }
                Message::Validate { reply, .. } => drop(reply.send(Ok(()))),
                Message::WentOn { session } => record.push(Received::WentOn(session)),
                Message::Disconnected { session } => record.push(Received::Disconnected(session)),
            }
        }
    });
    (owner, log)
}

/// Accepts every event and changes nothing.
pub(crate) fn no_change(_: &Call) -> Answer {
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

/// A running plugin, with a sender that stops it.
pub(crate) struct ScriptedPlugin {
    pub(crate) log: Log,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<Result<Ended, SessionError>>,
}

/// A plugin connected to a runtime through a pipe that holds `pipe` bytes.
pub(crate) fn connect_through(
    pipe: usize,
    generation: Generation,
    script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (Runtime<DuplexStream>, ScriptedPlugin) {
    let (ours, theirs) = tokio::io::duplex(pipe);
    let (owner, log) = owner(script);
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(async move {
        // A test that drops the sender does not stop the plugin.
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        run_session(ours, Session(7), &identity(), &owner, stopped).await
    });
    (Runtime::new(theirs, generation), ScriptedPlugin { log, stop, ended })
}

/// Like [`connect_through`], with a pipe as wide as a socket.
pub(crate) fn connect(
    generation: Generation,
    script: impl FnMut(&Call) -> Answer + Send + 'static,
) -> (Runtime<DuplexStream>, ScriptedPlugin) {
    connect_through(200 << 10, generation, script)
}

impl ScriptedPlugin {
    /// Waits until the plugin ends; fails if it does not.
    pub(crate) async fn ended(self) -> (Log, Result<Ended, SessionError>) {
        let ended = tokio::time::timeout(Duration::from_secs(3600), self.ended).await;
        // The last message has been sent; let the owner read.
        tokio::time::sleep(Duration::from_secs(60)).await;
        (self.log, ended.expect("an end").expect("no panic"))
    }

    /// Like [`ScriptedPlugin::ended`], for tests without a paused clock.
    pub(crate) async fn ended_now(self) -> (Log, Result<Ended, SessionError>) {
        let ended = tokio::time::timeout(Duration::from_secs(5), self.ended).await;
        (self.log, ended.expect("an end").expect("no panic"))
    }
}
