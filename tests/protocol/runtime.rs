//! The runtime's side of a connection, played step by step.

use crate::go::{Reader, TtrpcMessage};
use nri::wire;
use protobuf::Message as _;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use ttrpc::proto::{Code, Request, Response, Status};
use wire::Event;

pub(crate) const PLUGIN: u32 = 1;
pub(crate) const RUNTIME: u32 = 2;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

/// The generation of the protocol that the runtime speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// containerd 1.7.24: a list of any size in one message, no time limits in `Configure`, few
    /// calls.
    V0_6_1,
    /// containerd 2.1.
    V0_8,
    /// containerd 2.2.0.
    V0_10,
    /// A release after 2.3: a separate call for every event, `StateChange` only if that is not
    /// implemented.
    V0_12,
}

pub(crate) const ALL: [Generation; 4] =
    [Generation::V0_6_1, Generation::V0_8, Generation::V0_10, Generation::V0_12];

impl Generation {
    /// The event bits that this generation knows: with any other, a plugin is disconnected.
    pub(crate) fn known_events(self) -> i32 {
        match self {
            Generation::V0_6_1 | Generation::V0_8 => 0x7ff,
            Generation::V0_10 | Generation::V0_12 => 0x3fff,
        }
    }

    pub(crate) fn configure(self) -> wire::ConfigureRequest {
        let (runtime_version, nri, timeout) = match self {
            Generation::V0_6_1 => ("v1.7.24", "", 0),
            Generation::V0_8 => ("v2.1.9", "", 2000),
            Generation::V0_10 => ("v2.2.0", "", 2000),
            Generation::V0_12 => ("v2.4.0", "v0.12.3", 2000),
        };
        wire::ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: runtime_version.into(),
            NRI_version: nri.into(),
            registration_timeout: timeout * 5 / 2,
            request_timeout: timeout,
            ..Default::default()
        }
    }
}

/// How messages to the plugin are put into frames; each is legal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    /// One frame for each message.
    Whole,
    /// Frames of at most this many bytes.
    Pieces(usize),
}

/// A runtime at the other end of `trunk`.
pub(crate) struct Runtime<T> {
    pub(crate) trunk: T,
    pub(crate) generation: Generation,
    pub(crate) framing: Framing,
    pub(crate) readers: HashMap<u32, Reader>,
    /// Messages that have arrived and that the test has not read yet.
    arrived: VecDeque<(u32, TtrpcMessage)>,
    next_stream: u32,
    /// How often the plugin did not implement a call, so that `StateChange` was used.
    pub(crate) fallbacks: usize,
    /// Updates that the plugin made without an event.
    pub(crate) unsolicited: Vec<wire::UpdateContainersRequest>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Runtime<T> {
    pub(crate) fn new(trunk: T, generation: Generation) -> Runtime<T> {
        Runtime {
            trunk,
            generation,
            framing: Framing::Whole,
            readers: HashMap::from([(PLUGIN, Reader::default()), (RUNTIME, Reader::default())]),
            arrived: VecDeque::new(),
            next_stream: 1,
            fallbacks: 0,
            unsolicited: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.trunk.write_all(bytes).await.unwrap();
        self.trunk.flush().await.unwrap();
    }

    /// Sends bytes of a connection, in frames.
    pub(crate) async fn stream(&mut self, conn: u32, bytes: &[u8]) {
        let size = match self.framing {
            Framing::Whole => bytes.len(),
            Framing::Pieces(size) => size,
        };
        let frames: Vec<u8> =
            bytes.chunks(size.max(1)).flat_map(|payload| frame(conn, payload)).collect();
        self.raw(&frames).await;
    }

    /// The next message on any connection; `None` at the end of the trunk.
    pub(crate) async fn message(&mut self) -> Option<(u32, TtrpcMessage)> {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return Some(message);
            }
            let mut header = [0; 8];
            self.trunk.read_exact(&mut header).await.ok()?;
            let conn = u32::from_be_bytes(header[..4].try_into().unwrap());
            let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            assert!(length <= (4 << 20) + 10, "a frame of {length} bytes");
            let mut payload = vec![0; length];
            self.trunk.read_exact(&mut payload).await.expect("a frame that is not cut short");
            let reader = self.readers.get_mut(&conn).expect("connection 1 or 2");
            self.arrived.extend(reader.frame(&payload).into_iter().map(|message| (conn, message)));
        }
    }

    /// Waits until the plugin has closed the connection, between two messages.
    pub(crate) async fn closed(&mut self) -> bool {
        while let Some((conn, message)) = self.message().await {
            if conn == RUNTIME {
                self.answer(&message).await;
            }
        }
        self.readers.values().all(Reader::between_messages)
    }

    /// The plugin's next call, which is not answered.
    pub(crate) async fn called(&mut self) -> Option<(u32, Request)> {
        let (conn, message) = self.message().await?;
        assert_eq!((conn, message.kind), (RUNTIME, REQUEST));
        Some((message.stream, Request::parse_from_bytes(&message.payload).unwrap()))
    }

    pub(crate) async fn respond(&mut self, stream: u32, reply: Result<Vec<u8>, Status>) {
        let mut response = Response::new();
        match reply {
            Ok(payload) => response.payload = payload,
            Err(status) => response.set_status(status),
        }
        let payload = response.write_to_bytes().unwrap();
        self.stream(RUNTIME, &TtrpcMessage { stream, kind: RESPONSE, payload }.bytes()).await;
    }

    /// Answers the plugin's own calls until there are no more of them.
    pub(crate) async fn idle(&mut self) {
        while let Ok(message) = timeout(Duration::from_millis(1), self.message()).await {
            let (conn, message) = message.expect("silence, not the end");
            assert_eq!(conn, RUNTIME, "an answer to nothing");
            self.answer(&message).await;
        }
    }

    /// Answers a call of the plugin, and records it.
    async fn answer(&mut self, message: &TtrpcMessage) {
        let request = Request::parse_from_bytes(&message.payload).unwrap();
        assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
        match request.method.as_str() {
            "UpdateContainers" => self
                .unsolicited
                .push(wire::UpdateContainersRequest::parse_from_bytes(&request.payload).unwrap()),
            method => panic!("an unexpected call of {method}"),
        }
        self.respond(message.stream, Ok(Vec::new())).await;
    }

    /// Waits for the plugin's registration, and accepts it.
    pub(crate) async fn registration(&mut self) -> wire::RegisterPluginRequest {
        let (stream, request) = self.called().await.expect("a registration");
        assert_eq!(request.method, "RegisterPlugin");
        self.respond(stream, Ok(Vec::new())).await;
        wire::RegisterPluginRequest::parse_from_bytes(&request.payload).unwrap()
    }

    /// Sends a call; returns the number of its stream.
    pub(crate) async fn send(&mut self, method: &str, payload: &[u8]) -> u32 {
        let mut request = Request::new();
        request.service = "nri.pkg.api.v1alpha1.Plugin".into();
        request.method = method.into();
        request.payload = payload.to_vec();
        request.timeout_nano = 1_990_000_000;
        self.send_request(&request).await
    }

    pub(crate) async fn send_request(&mut self, request: &Request) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let payload = request.write_to_bytes().unwrap();
        self.stream(PLUGIN, &TtrpcMessage { stream, kind: REQUEST, payload }.bytes()).await;
        stream
    }

    /// Waits for the answer to a call, and answers the plugin's own calls meanwhile.
    pub(crate) async fn reply(&mut self, stream: u32) -> Result<Vec<u8>, Status> {
        loop {
            let (conn, message) = self.message().await.expect("an answer, not the end");
            if conn == RUNTIME {
                self.answer(&message).await;
                continue;
            }
            assert_eq!(message.kind, RESPONSE);
            assert_eq!(message.stream, stream, "the answer to another call");
            let response = Response::parse_from_bytes(&message.payload).unwrap();
            return match response.status().code.enum_value_or_default() {
                Code::OK => Ok(response.payload),
                _ => Err(response.status().clone()),
            };
        }
    }

    /// Makes a call.
    pub(crate) async fn call<R: protobuf::Message>(
        &mut self,
        method: &str,
        request: &impl protobuf::Message,
    ) -> Result<R, Status> {
        let stream = self.send(method, &request.write_to_bytes().unwrap()).await;
        Ok(R::parse_from_bytes(&self.reply(stream).await?).expect("an answer of the right type"))
    }

    /// Configures the plugin as this generation does; checks and returns its event mask.
    pub(crate) async fn configure(&mut self) -> i32 {
        let answer: wire::ConfigureResponse =
            self.call("Configure", &self.generation.configure()).await.unwrap();
        assert_ne!(answer.events, 0);
        let known = self.generation.known_events();
        assert_eq!(answer.events & !known, 0, "invalid plugin events {:#x}", answer.events);
        answer.events
    }

    /// Lists pods and containers, in parts of `at_once` if this generation can, else in one.
    pub(crate) async fn synchronize(
        &mut self,
        pods: &[wire::PodSandbox],
        containers: &[wire::Container],
        at_once: usize,
    ) -> Vec<wire::ContainerUpdate> {
        let parts = match self.generation {
            Generation::V0_6_1 => 1,
            _ => pods.len().max(containers.len()).div_ceil(at_once).max(1),
        };
        let at_once = if parts == 1 { usize::MAX } else { at_once };
        let part = |part: usize| part.saturating_mul(at_once);
        for index in 0..parts {
            let more = index + 1 < parts;
            let request = wire::SynchronizeRequest {
                pods: slice(pods, part(index), at_once),
                containers: slice(containers, part(index), at_once),
                more,
                ..Default::default()
            };
            let answer: wire::SynchronizeResponse =
                self.call("Synchronize", &request).await.unwrap();
            assert_eq!(answer.more, more, "the plugin does not handle split sync requests");
            if !more {
                return answer.update;
            }
            assert!(answer.update.is_empty(), "updates before the list is complete");
        }
        unreachable!()
    }

    /// The whole handshake, on an empty node.
    pub(crate) async fn handshake(&mut self) {
        self.registration().await;
        self.configure().await;
        assert!(self.synchronize(&[], &[], 1).await.is_empty());
    }

    /// Reports an event with an empty answer, as this generation does.
    pub(crate) async fn report(
        &mut self,
        event: Event,
        pod: &wire::PodSandbox,
        container: Option<&wire::Container>,
    ) -> Result<(), Status> {
        let container: protobuf::MessageField<_> = container.cloned().into();
        let pod: protobuf::MessageField<_> = Some(pod.clone()).into();
        if self.generation == Generation::V0_12 {
            let own: Result<wire::Empty, Status> = if container.is_some() {
                let request = wire::ContainerRequest {
                    pod: pod.clone(),
                    container: container.clone(),
                    ..Default::default()
                };
                self.call(call_name(event), &request).await
            } else {
                let request = wire::PodRequest { pod: pod.clone(), ..Default::default() };
                self.call(call_name(event), &request).await
            };
            match own {
                Err(status) if status.code.enum_value_or_default() == Code::UNIMPLEMENTED => {
                    self.fallbacks += 1;
                }
                own => return own.map(|_| ()),
            }
        }
        let change =
            wire::StateChangeEvent { event: event.into(), pod, container, ..Default::default() };
        self.call::<wire::Empty>("StateChange", &change).await.map(|_| ())
    }

    pub(crate) async fn create(
        &mut self,
        pod: &wire::PodSandbox,
        container: &wire::Container,
    ) -> Result<wire::CreateContainerResponse, Status> {
        self.call("CreateContainer", &of(pod, container)).await
    }

    pub(crate) async fn stop(
        &mut self,
        pod: &wire::PodSandbox,
        container: &wire::Container,
    ) -> Result<wire::StopContainerResponse, Status> {
        self.call("StopContainer", &of(pod, container)).await
    }
}

pub(crate) fn of(pod: &wire::PodSandbox, container: &wire::Container) -> wire::ContainerRequest {
    wire::ContainerRequest {
        pod: Some(pod.clone()).into(),
        container: Some(container.clone()).into(),
        ..Default::default()
    }
}

pub(crate) fn frame(conn: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = conn.to_be_bytes().to_vec();
    frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend(payload);
    frame
}

fn slice<T: Clone>(all: &[T], from: usize, at_most: usize) -> Vec<T> {
    all.iter().skip(from).take(at_most).cloned().collect()
}

pub(crate) fn call_name(event: Event) -> &'static str {
    match event {
        Event::RUN_POD_SANDBOX => "RunPodSandbox",
        Event::STOP_POD_SANDBOX => "StopPodSandbox",
        Event::REMOVE_POD_SANDBOX => "RemovePodSandbox",
        Event::POST_UPDATE_POD_SANDBOX => "PostUpdatePodSandbox",
        Event::POST_CREATE_CONTAINER => "PostCreateContainer",
        Event::START_CONTAINER => "StartContainer",
        Event::POST_START_CONTAINER => "PostStartContainer",
        Event::POST_UPDATE_CONTAINER => "PostUpdateContainer",
        Event::REMOVE_CONTAINER => "RemoveContainer",
        event => panic!("the answer to {event:?} is not empty"),
    }
}

/// A pod as a kubelet makes it, with this uid and CPU limit in thousandths.
pub(crate) fn pod(uid: &str, milli: i64) -> wire::PodSandbox {
    wire::PodSandbox {
        id: format!("sandbox-{uid}"),
        name: format!("pod-{uid}"),
        uid: uid.into(),
        namespace: "default".into(),
        linux: Some(wire::LinuxPodSandbox {
            cgroup_parent: format!("/kubepods/pod{uid}"),
            pod_resources: Some(cpu(milli)).into(),
            ..Default::default()
        })
        .into(),
        ..Default::default()
    }
}

/// A container of that pod.
pub(crate) fn container(id: &str, pod_uid: &str, milli: i64) -> wire::Container {
    wire::Container {
        id: id.into(),
        pod_sandbox_id: format!("sandbox-{pod_uid}"),
        name: format!("name-{id}"),
        linux: Some(wire::LinuxContainer {
            resources: Some(cpu(milli)).into(),
            ..Default::default()
        })
        .into(),
        ..Default::default()
    }
}

/// Shares and quota for this request and limit, in thousandths of a CPU.
pub(crate) fn cpu(milli: i64) -> wire::LinuxResources {
    let shares = u64::try_from(milli * 1024 / 1000).unwrap();
    let cpu = wire::LinuxCPU {
        shares: Some(wire::OptionalUInt64 { value: shares, ..Default::default() }).into(),
        quota: Some(wire::OptionalInt64 { value: milli * 100, ..Default::default() }).into(),
        period: Some(wire::OptionalUInt64 { value: 100_000, ..Default::default() }).into(),
        ..Default::default()
    };
    wire::LinuxResources { cpu: Some(cpu).into(), ..Default::default() }
}
