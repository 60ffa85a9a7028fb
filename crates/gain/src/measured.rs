//! The measured program: a thread that wakes up at set times, then a small key-value server and its
//! client. Durations count from the time when something was due, so a stall counts for all that became
//! due in it, and not just once.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use cpuset::CpuSet;
use nix::sys::prctl;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::histogram::Histogram;

/// Between two wake-ups, as cyclictest's default.
const WAKE_UP_PERIOD: Duration = Duration::from_millis(1);
/// Between two requests.
const REQUEST_PERIOD: Duration = Duration::from_micros(250);
/// Not recorded, at the start: caches are cold, and memory is new.
const WARM_UP: Duration = Duration::from_millis(50);
/// Entries of the server.
const KEYS: u64 = 100_000;
const VALUE: usize = 48;
/// Of requests and answers: operation, key, value.
const MESSAGE: usize = 8 + 8 + VALUE;
/// One request in so many writes.
const WRITES: u64 = 10;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) wake_up: Histogram,
    pub(crate) round_trip: Histogram,
    /// CPU time of the program, in seconds.
    pub(crate) used: f64,
}

/// Each part takes `time`. Pinned, server and client have a CPU each: the first and the last of `cpus`.
pub(crate) fn run(time: Duration, cpus: CpuSet, pinned: bool) -> Result<Measured> {
    let (first, last) = if pinned {
        let first = cpus.iter().next().context("no CPUs")?;
        let last = cpus.iter().last().context("no CPUs")?;
        (CpuSet::of(first)?, CpuSet::of(last)?)
    } else {
        (cpus, cpus)
    };
    let wake_up = on(first, move || wake_up(time))?;
    let (client, server) = UnixStream::pair()?;
    let entries = (0..KEYS).map(|key| (key, [0; VALUE])).collect();
    let server = thread::spawn(move || -> Result<()> {
        affinity::set(first)?;
        serve(server, entries)
    });
    let round_trip = on(last, move || round_trip(time, client))?;
    server.join().map_err(|_| anyhow!("the server failed"))??;
    let used = clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.as_secs_f64();
    Ok(Measured { wake_up, round_trip, used })
}

/// Runs `measure` in a thread on these CPUs.
fn on(
    cpus: CpuSet,
    measure: impl FnOnce() -> Result<Histogram> + Send + 'static,
) -> Result<Histogram> {
    let thread = thread::spawn(move || {
        affinity::set(cpus)?;
        // Ordinary threads may be woken up to 50 µs late, to save power: not what is measured.
        prctl::set_timerslack(1)?;
        measure()
    });
    thread.join().map_err(|_| anyhow!("a measurement failed"))?
}

fn wake_up(time: Duration) -> Result<Histogram> {
    let mut histogram = Histogram::new();
    let start = now()?;
    let mut due = start;
    while due < start + WARM_UP + time {
        due += WAKE_UP_PERIOD;
        sleep_until(due)?;
        let late = now()?.saturating_sub(due);
        if start + WARM_UP < due {
            histogram.record(late.as_nanos() as u64);
        }
    }
    Ok(histogram)
}

fn round_trip(time: Duration, mut stream: UnixStream) -> Result<Histogram> {
    let mut histogram = Histogram::new();
    let mut random = fastrand::Rng::new();
    let mut message = [0; MESSAGE];
    let start = now()?;
    let end = start + WARM_UP + time;
    let mut due = start;
    while due < end {
        due += REQUEST_PERIOD;
        sleep_until(due)?;
        let late = now()?;
        // On a machine that cannot keep up, requests would wait for ever: those that are not sent by
        // now count with the time that they have waited.
        if late < end {
            let key = random.u64(0..KEYS);
            message[0] = u8::from(random.u64(0..WRITES) == 0);
            message[8..16].copy_from_slice(&key.to_le_bytes());
            message[16] = random.u8(..);
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            ensure!(message[8..16] == key.to_le_bytes(), "an answer to another request");
        }
        if start + WARM_UP < due {
            histogram.record(now()?.saturating_sub(due).as_nanos() as u64);
        }
    }
    Ok(histogram)
}

/// Until the client closes its end.
fn serve(mut stream: UnixStream, mut entries: HashMap<u64, [u8; VALUE]>) -> Result<()> {
    let mut message = [0; MESSAGE];
    while stream.read_exact(&mut message).is_ok() {
        let key = u64::from_le_bytes(message[8..16].try_into()?);
        let value = entries.entry(key).or_insert([0; VALUE]);
        if message[0] == 1 {
            value.copy_from_slice(&message[16..]);
        } else {
            message[16..].copy_from_slice(value);
        }
        stream.write_all(&message)?;
    }
    Ok(())
}

pub(crate) fn now() -> Result<Duration> {
    clock(ClockId::CLOCK_MONOTONIC)
}

fn clock(clock: ClockId) -> Result<Duration> {
    Ok(clock_gettime(clock)?.into())
}

fn sleep_until(time: Duration) -> Result<()> {
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &time.into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wake_up_and_each_request_is_a_sample() {
        let cpus = affinity::of(std::process::id()).unwrap();
        let measured = run(Duration::from_millis(100), cpus, false).unwrap();
        assert_eq!(measured.wake_up.samples(), 100);
        assert_eq!(measured.round_trip.samples(), 400);
        assert!(measured.used > 0.0);
    }

    #[test]
    fn the_server_remembers_what_was_written() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || serve(server, HashMap::new()));
        let mut message = [7; MESSAGE];
        message[0] = 1;
        client.write_all(&message).unwrap();
        client.read_exact(&mut message).unwrap();
        message[0] = 0;
        message[16..].fill(0);
        client.write_all(&message).unwrap();
        client.read_exact(&mut message).unwrap();
        assert_eq!(message[16..], [7; VALUE]);
        drop(client);
        server.join().unwrap().unwrap();
    }
}
