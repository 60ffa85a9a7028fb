//! Records what the runtime sends to the plugin: a proxy between their sockets, which passes on all
//! bytes unchanged. [`Calls`] has the format. On cgroup v2 it also records the cgroups of classes and
//! pods, by looking again and again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nri::frame::{PLUGIN_CONN, Unframer};
use sim::calls::{Calls, Group};
use ttrpc::proto::{
    Codec, MESSAGE_HEADER_LENGTH, MESSAGE_TYPE_REQUEST, MESSAGE_TYPE_RESPONSE, MessageHeader,
    Request, Response,
};

use crate::kernel::CGROUPS;
use crate::{cache, cgroup};

/// Between two readings of the cgroups.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Tap {
    socket: PathBuf,
    calls: Arc<Mutex<Calls>>,
}

impl Tap {
    /// Listens at `socket` for the plugin, and connects it with the runtime. Its threads end with the
    /// process.
    pub fn open(socket: PathBuf, runtime: PathBuf) -> Result<Self> {
        cache::remove(&socket)?;
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let calls = Arc::new(Mutex::new(Calls::default()));
        let recorded = Arc::clone(&calls);
        std::thread::spawn(move || {
            for plugin in listener.incoming().flatten() {
                // The plugin tries again.
                let Ok(runtime) = UnixStream::connect(&runtime) else { continue };
                connect(plugin, runtime, &recorded);
            }
        });
        if cgroup::is_v2() {
            let recorded = Arc::clone(&calls);
            std::thread::spawn(move || {
                loop {
                    lock(&recorded).record_groups(groups());
                    std::thread::sleep(PAUSE);
                }
            });
        }
        Ok(Self { socket, calls })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn recording(&self) -> String {
        lock(&self.calls).lines.join("\n") + "\n"
    }
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on bytes in both directions until one side ends the connection.
fn connect(plugin: UnixStream, runtime: UnixStream, calls: &Arc<Mutex<Calls>>) {
    let (Ok(to_plugin), Ok(to_runtime)) = (plugin.try_clone(), runtime.try_clone()) else { return };
    lock(calls).say("Connected");
    let (called, answered) = (Arc::clone(calls), Arc::clone(calls));
    std::thread::spawn(move || {
        pass(runtime, to_plugin, |kind, payload| {
            if let (MESSAGE_TYPE_REQUEST, Ok(request)) = (kind, Request::decode(payload)) {
                lock(&called).call(&request.method, &request.payload);
            }
        });
        lock(&called).say("Disconnected");
    });
    std::thread::spawn(move || {
        pass(plugin, to_runtime, |kind, payload| {
            if let (MESSAGE_TYPE_RESPONSE, Ok(response)) = (kind, Response::decode(payload))
                && response.status.code.value() != 0
            {
                lock(&answered).refused();
            }
        });
    });
}

/// `hear` gets the type and the payload of the runtime's calls or of their answers, before they are
/// passed on.
fn pass(mut from: UnixStream, mut to: UnixStream, mut hear: impl FnMut(u8, &[u8])) {
    let mut buffer = vec![0; 64 << 10];
    let mut unframer = Unframer::default();
    let mut messages = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut bytes = &buffer[..length];
        while let Ok(Some((connection, piece))) = unframer.next(&mut bytes) {
            if connection == PLUGIN_CONN {
                messages.extend_from_slice(piece);
            }
        }
        while let Some(header) = messages.first_chunk::<MESSAGE_HEADER_LENGTH>() {
            let header = MessageHeader::from(header);
            let end = MESSAGE_HEADER_LENGTH + header.length as usize;
            let Some(payload) = messages.get(MESSAGE_HEADER_LENGTH..end) else { break };
            hear(header.type_, payload);
            messages.drain(..end);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// The cgroups of the kubelet, its classes and their pods.
fn groups() -> BTreeMap<String, Group> {
    let mut found = BTreeMap::new();
    for root in ["kubepods.slice", "kubepods"] {
        read_groups(root, 2, &mut found);
    }
    found
}

fn read_groups(path: &str, depth: u32, found: &mut BTreeMap<String, Group>) {
    let directory = Path::new(CGROUPS).join(path);
    let read = |name: &str| fs::read_to_string(directory.join(name));
    let (Ok(cpus), Ok(events)) = (read("cpuset.cpus"), read("cgroup.events")) else { return };
    let set = !cpus.trim().is_empty();
    found.insert(path.to_owned(), Group { set, populated: events.contains("populated 1") });
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if depth > 0 && is_above_containers(&name) {
            read_groups(&format!("{path}/{name}"), depth - 1, found);
        }
    }
}

fn is_above_containers(name: &str) -> bool {
    name.starts_with("kubepods")
        || name.starts_with("pod")
        || ["burstable", "besteffort"].contains(&name)
}
