//! Handles the runtime's calls on one connection, and answers each in time.

use crate::CallError;
use crate::capabilities::{Capabilities, Runtime};
use crate::events::Events;
use crate::exchange::{AnswerKind, Call, Decoded, Exchange, encode};
use crate::plugin::{Configuration, Plugin};
use crate::rpc::{Handled, Reply, RpcRequest};
use crate::updater::Updater;
use crate::wire::{self, Event};
use log::Level;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use wording::shortened;

const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The runtime's default time limit for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The part of the runtime's time limit after which the library answers without the plugin: after the
/// limit the runtime disconnects the plugin and continues without it.
const REPLY_PART: f64 = 0.6;
/// The most characters of a runtime's name and of its versions, which are in the log and in status.
const MAX_NAME: usize = 128;
/// The subscription of a plugin that wants no events, because runtimes read an empty one as all events.
const LEAST: Events = Events::of(&[Event::REMOVE_POD_SANDBOX]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Handshake {
    Connected,
    Configured,
    Synchronized,
}

pub(crate) struct Service<'p, P> {
    plugin: &'p P,
    progress: watch::Sender<Handshake>,
    updater: Updater,
    timeout: Duration,
    exchange: Exchange,
}

impl<'p, P: Plugin> Service<'p, P> {
    pub(crate) fn new(
        plugin: &'p P,
        progress: watch::Sender<Handshake>,
        updater: Updater,
    ) -> Service<'p, P> {
        let exchange = Exchange::default();
        Service { plugin, progress, updater, timeout: REQUEST_TIMEOUT, exchange }
    }

    pub(crate) fn call(&mut self, request: &RpcRequest<'_>, arrived: Instant) -> Handled<'p> {
        if request.service != SERVICE {
            let error = CallError::Unknown(format!("service {:?}", request.service));
            return Handled::Now(Err(error).into());
        }
        let limit = match u64::try_from(request.timeout_nano) {
            Ok(nanos @ 1..) => self.timeout.min(Duration::from_nanos(nanos)),
            _ => self.timeout,
        };
        let deadline = arrived + limit.mul_f64(REPLY_PART);
        match request.method {
            "Configure" => match self.plugin.reads().parse(request.payload) {
                Ok(configuration) => self.configure(configuration, deadline),
                Err(error) => Handled::Now(Err(error).into()),
            },
            "Shutdown" => {
                let done = self.plugin.shutdown();
                Handled::Later(Box::pin(async move {
                    // The answer is empty either way, so a plugin that is late changes nothing.
                    let _ = timeout_at(deadline, done).await;
                    let line = "the runtime is shutting down".to_owned();
                    Reply {
                        content: encode(&wire::Empty::new()),
                        remark: Some((Level::Info, line)),
                    }
                }))
            }
            method => match self.exchange.decode(self.plugin.reads(), method, request.payload) {
                Ok(Decoded::Call(call, kind)) => self.ask(call, kind, deadline),
                Ok(Decoded::Answered(answer)) => self.now(Ok(answer)),
                Err(error) => self.now(Err(error)),
            },
        }
    }

    fn now(&mut self, content: Result<Vec<u8>, CallError>) -> Handled<'p> {
        Handled::Now(Reply { content, remark: self.exchange.remark.take() })
    }

    fn configure(&mut self, request: wire::ConfigureRequest, deadline: Instant) -> Handled<'p> {
        self.exchange = Exchange::default();
        if let Ok(millis @ 1..) = u64::try_from(request.request_timeout) {
            self.timeout = Duration::from_millis(millis).min(MAX_REQUEST_TIMEOUT);
        }
        let runtime = Runtime {
            name: shortened(&request.runtime_name, MAX_NAME),
            version: shortened(&request.runtime_version, MAX_NAME),
            nri_version: shortened(&request.NRI_version, MAX_NAME),
        };
        let capabilities = Capabilities::of(&runtime);
        let known = capabilities.events;
        let updater =
            if capabilities.unsolicited_updates { Some(self.updater.clone()) } else { None };
        let requested = self.plugin.configure(Configuration {
            runtime,
            capabilities,
            config: request.config,
            answer_within: self.timeout,
            updater,
        });
        let progress = self.progress.clone();
        Handled::Later(Box::pin(async move {
            let requested = timeout_at(deadline, requested).await;
            let requested = match requested.unwrap_or_else(|_| Err(late::<P>(""))) {
                Ok(requested) => requested.common(known),
                Err(error) => return Err(error).into(),
            };
            progress.send_replace(Handshake::Configured);
            let events = if requested.is_empty() { LEAST.mask() } else { requested.mask() };
            encode(&wire::ConfigureResponse { events, ..Default::default() }).into()
        }))
    }

    fn ask(&mut self, call: Call, kind: AnswerKind, deadline: Instant) -> Handled<'p> {
        if matches!(call, Call::Synchronize { .. }) {
            self.progress.send_replace(Handshake::Synchronized);
        }
        let answer = self.plugin.call(call);
        let remark = self.exchange.remark.take();
        Handled::Later(Box::pin(async move {
            let answer = timeout_at(deadline, answer).await;
            let answer = answer.unwrap_or_else(|_| Err(late::<P>(kind.after_failure())));
            let warning = match &answer {
                Ok(answer) => answer.warning.clone(),
                Err(error) => kind.warning(error),
            };
            let content = match answer {
                Ok(answer) => kind.encode(answer),
                Err(error) => kind.refused(error),
            };
            Reply { content, remark: warning.map(|line| (Level::Warn, line)).or(remark) }
        }))
    }
}

fn late<P: Plugin>(consequence: &str) -> CallError {
    CallError::Unavailable(format!("{}{consequence}", P::LATE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange;
    use crate::wire::{Container, PodSandbox, RuntimeClient};
    use protobuf::Message;
    use std::future::pending;
    use ttrpc::r#async::transport::Socket;

    /// The replies to these calls, one after the other.
    async fn answers<P: Plugin>(
        plugin: &P,
        calls: &[(&str, Vec<u8>)],
    ) -> Vec<Result<Vec<u8>, CallError>> {
        let (ours, _theirs) = tokio::io::duplex(4096);
        let client = RuntimeClient::new(ttrpc::r#async::Client::new(Socket::new(ours)));
        let (progress, _) = watch::channel(Handshake::Connected);
        let mut service = Service::new(plugin, progress, Updater::new(client));
        let mut answers = Vec::new();
        for (method, payload) in calls {
            let request = RpcRequest { service: SERVICE, method, payload, ..Default::default() };
            let answer = match service.call(&request, Instant::now()) {
                Handled::Now(answer) => answer,
                Handled::Later(answer) => answer.await,
            };
            answers.push(answer.content);
        }
        answers
    }

    fn about_a_container() -> Vec<u8> {
        let request = wire::ContainerRequest {
            pod: Some(PodSandbox { id: "p".into(), ..Default::default() }).into(),
            container: Some(Container { id: "c".into(), ..Default::default() }).into(),
            ..Default::default()
        };
        request.write_to_bytes().unwrap()
    }

    fn configure(version: &str) -> Vec<u8> {
        let request = wire::ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: version.into(),
            ..Default::default()
        };
        request.write_to_bytes().unwrap()
    }

    struct Defaults;

    impl Plugin for Defaults {}

    #[tokio::test(start_paused = true)]
    async fn a_plugin_without_methods_changes_nothing() {
        let methods = [
            "Synchronize",
            "RunPodSandbox",
            "UpdatePodSandbox",
            "PostUpdatePodSandbox",
            "StopPodSandbox",
            "RemovePodSandbox",
            "CreateContainer",
            "PostCreateContainer",
            "StartContainer",
            "PostStartContainer",
            "UpdateContainer",
            "PostUpdateContainer",
            "StopContainer",
            "RemoveContainer",
            "Shutdown",
        ];
        let calls = methods.map(|method| {
            // The fields of these two differ, and they are valid without any.
            let is_other = ["Synchronize", "UpdatePodSandbox"].contains(&method);
            (method, if is_other { Vec::new() } else { about_a_container() })
        });
        // An absent field of a message is its default, so an empty answer changes nothing.
        for ((method, _), answer) in calls.iter().zip(answers(&Defaults, &calls).await) {
            assert_eq!(answer, Ok(Vec::new()), "{method}");
        }
        let unknown = answers(&Defaults, &[("Frobnicate", Vec::new())]).await;
        assert_eq!(unknown, [Err(CallError::Unknown("call \"Frobnicate\"".into()))]);
    }

    struct Wants(Events);

    impl Plugin for Wants {
        const LATE: &'static str = "late";

        async fn configure(&self, _: Configuration) -> Result<Events, CallError> {
            Ok(self.0)
        }

        async fn create_container(
            &self,
            _: PodSandbox,
            _: Container,
        ) -> Result<exchange::Answer, CallError> {
            pending().await
        }

        async fn stop_container(
            &self,
            _: PodSandbox,
            _: Container,
        ) -> Result<Vec<exchange::Update>, CallError> {
            Err(CallError::Refused("no".into()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_events_that_the_runtime_knows_are_subscribed_to() {
        let validation = Events::of(&[Event::VALIDATE_CONTAINER_ADJUSTMENT]);
        for (version, requested, expected) in [
            ("v2.2.0", Events::ALL, 0x3fff),
            ("v1.7.24", Events::ALL, 0x7ff),
            ("v2.2.0", validation, 0x2000),
            // No event would mean all events.
            ("v1.7.24", validation, LEAST.mask()),
            ("v1.7.24", Events::default(), LEAST.mask()),
        ] {
            let answer = answers(&Wants(requested), &[("Configure", configure(version))]).await;
            let answer = answer[0].as_ref().unwrap();
            let events = wire::ConfigureResponse::parse_from_bytes(answer).unwrap().events;
            assert_eq!(events, expected, "{version} {requested:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_takes_too_long_is_refused_and_a_stop_never_fails() {
        let calls =
            [("CreateContainer", about_a_container()), ("StopContainer", about_a_container())];
        let asked = Instant::now();
        let answers = answers(&Wants(Events::ALL), &calls).await;
        assert_eq!(asked.elapsed(), REQUEST_TIMEOUT.mul_f64(REPLY_PART));
        assert_eq!(
            answers,
            [Err(CallError::Unavailable("late; trying again is safe".into())), Ok(Vec::new())]
        );
    }
}
