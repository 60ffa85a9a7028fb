//! [`Irqbalance`]: tells a running irqbalance which CPUs it must not use. Otherwise it would move
//! interrupts back to them.
//!
//! The daemon's socket takes one message a connection, from user 0 only (irqbalance's `sock_handle`).
//! `settings cpus LIST` replaces its banned CPUs at its next scan, ten seconds later by default; `setup`
//! reads them. It ends with the daemon: nothing is written into its configuration. The kernel adds the
//! sender's credentials to each message (`SO_PASSCRED` in unix(7)), so there is no need to send them.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a client, with a time limit"
)]

use crate::originals::{Banned, Originals};
use cpuset::CpuSet;
use kernel::Kernel;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where versions of irqbalance have their sockets.
pub const DIRECTORIES: [&str; 3] = ["/run/irqbalance", "/var/run/irqbalance", "/run"];

/// How long all messages of a pass may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// In bytes: `setup` has a short text for each banned interrupt.
const LONGEST_REPLY: u64 = 1 << 20;

/// After how many passes without an effect a list is sent again.
const RESEND: u32 = 6;

/// What irqbalance does with avoided CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BanState {
    /// No CPU is avoided, so it was not asked.
    #[default]
    Unasked,
    /// It does not run, or its socket is not mounted.
    Absent,
    /// It uses none of them.
    Banned,
    /// It was sent the list, and takes it over at its next scan.
    Pending,
    Failed(String),
}

#[derive(Debug)]
pub struct Irqbalance {
    directories: Vec<PathBuf>,
    /// Passes since the last list was sent.
    waited: u32,
}

impl Irqbalance {
    /// `directories` are those in which its socket can be, usually [`DIRECTORIES`].
    pub fn new(directories: Vec<PathBuf>) -> Irqbalance {
        Irqbalance { directories, waited: 0 }
    }

    /// Makes irqbalance avoid these CPUs in addition to those that it avoided before. Blocks for a second
    /// at most.
    pub(crate) fn follow(
        &mut self,
        kernel: &dyn Kernel,
        originals: &mut Originals,
        avoided: CpuSet,
    ) -> BanState {
        if avoided.is_empty() && originals.banned().is_none() {
            return BanState::Unasked;
        }
        let until = Instant::now() + PATIENCE;
        match self.try_follow(kernel, originals, avoided, until) {
            Ok(state) => state,
            Err(error) => BanState::Failed(error.to_string()),
        }
    }

    fn try_follow(
        &mut self,
        kernel: &dyn Kernel,
        originals: &mut Originals,
        avoided: CpuSet,
        until: Instant,
    ) -> io::Result<BanState> {
        let Some((path, banned)) = self.find(kernel, until)? else {
            originals.set_banned(None);
            return Ok(BanState::Absent);
        };
        let socket = path.to_string_lossy().into_owned();
        let record = originals.banned().filter(|record| record.socket == socket).cloned();
        let before = record.as_ref().map_or(banned, |record| record.before);
        let target = before | avoided;
        let is_sent = match &record {
            Some(record) => record.sent == target,
            None => target == banned,
        };
        if is_sent && target.is_subset(&banned) {
            // irqbalance adds hot CPUs.
            if target == before && banned == before {
                originals.set_banned(None);
            }
            return Ok(BanState::Banned);
        }
        self.waited += 1;
        if !is_sent || self.waited >= RESEND {
            originals.set_banned(Some(Banned { socket, before, sent: target }));
            originals.save()?;
            self.waited = 0;
            ban(&path, target, until)?;
        }
        Ok(BanState::Pending)
    }

    /// Sends the list from before the first pass. Returns whether there was one to send.
    pub(crate) fn restore(
        &mut self,
        kernel: &dyn Kernel,
        originals: &mut Originals,
    ) -> io::Result<bool> {
        let Some(record) = originals.banned().cloned() else { return Ok(false) };
        let until = Instant::now() + PATIENCE;
        let running = self.find(kernel, until)?;
        let same = running.filter(|(path, _)| path.to_string_lossy() == record.socket);
        if let Some((path, _)) = &same {
            ban(path, record.before, until)?;
        }
        originals.set_banned(None);
        Ok(same.is_some())
    }

    /// The socket of the running irqbalance, and its banned CPUs. Sockets of ended ones refuse the
    /// connection.
    fn find(&self, kernel: &dyn Kernel, until: Instant) -> io::Result<Option<(PathBuf, CpuSet)>> {
        let mut failure = None;
        for socket in self.sockets(kernel) {
            match banned(&socket, until) {
                Ok(cpus) => return Ok(Some((socket, cpus))),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    failure = Some(io::Error::new(
                        error.kind(),
                        format!("{}: {error}", socket.display()),
                    ));
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    fn sockets(&self, kernel: &dyn Kernel) -> BTreeSet<PathBuf> {
        // /var/run is usually a link to /run.
        let directories = self.directories.iter().filter_map(|path| kernel.resolve(path).ok());
        let mut sockets = BTreeSet::new();
        for directory in directories {
            for (name, is_directory) in kernel.entries(&directory).into_iter().flatten() {
                if !is_directory && name.starts_with("irqbalance") && name.ends_with(".sock") {
                    sockets.insert(directory.join(name));
                }
            }
        }
        sockets
    }
}

/// Replaces the banned CPUs. irqbalance goes back to its configuration where there are none.
fn ban(socket: &Path, cpus: CpuSet, until: Instant) -> io::Result<()> {
    let list = if cpus.is_empty() { "NULL".to_owned() } else { cpus.to_string() };
    exchange(socket, &format!("settings cpus {list}"), until).map(drop)
}

fn banned(socket: &Path, until: Instant) -> io::Result<CpuSet> {
    let reply = exchange(socket, "setup", until)?;
    parse_setup(&String::from_utf8_lossy(&reply))
}

/// `SLEEP 10 IRQ 4 LOAD 0 DIFF 0 CLASS 5 BANNED 00000000,000000f0`
fn parse_setup(reply: &str) -> io::Result<CpuSet> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mask = reply.rsplit_once("BANNED ").map(|(_, mask)| mask.trim_matches(['\0', ' ', '\n']));
    let mask = mask.ok_or_else(|| {
        let reply = wording::printable(&wording::shortened(reply, 64));
        invalid(format!("reply {reply:?} to \"setup\" has no banned CPUs; it answers user 0 only"))
    })?;
    CpuSet::from_mask(mask).map_err(|error| invalid(error.to_string()))
}

/// Sends a message on a connection of its own, and reads until irqbalance closes it.
fn exchange(path: &Path, message: &str, until: Instant) -> io::Result<Vec<u8>> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It also limits connect(2), which waits while others wait for irqbalance.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(until)?))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(message.as_bytes())?;
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let length = stream.read(&mut buffer)?;
        reply.extend_from_slice(&buffer[..length]);
        if length == 0 {
            return Ok(reply);
        }
        if LONGEST_REPLY < reply.len() as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests;
