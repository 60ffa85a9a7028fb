//! A neighbour: 5 ms of work on a CPU, about 5 ms of sleep, and so on. The work walks through memory,
//! which also takes space in caches from others.

use std::io::{Read, Write};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// Walked through, in bytes.
const MEMORY: usize = 4 << 20;
/// Bytes between the words that are changed: a cache line.
const LINE: usize = 64;
/// Lines between two readings of the clock.
const BATCH: usize = 256;
/// CPU time of a burst: on a full CPU it takes longer.
const BURST: Duration = Duration::from_millis(5);
/// Varies between half of it and one and a half, so that neighbours do not stay in step.
const SLEEP: Duration = Duration::from_millis(5);

/// The part of a CPU that a neighbour uses where no other needs it.
pub(crate) const USE: f64 = 0.5;

/// Reports that it is ready, works until standard input ends, and then ends the process: a neighbour never
/// outlives the program that started it.
pub(crate) fn run() -> Result<()> {
    thread::spawn(|| {
        let mut end = Vec::new();
        // An error is an end, too.
        let _ = std::io::stdin().read_to_end(&mut end);
        process::exit(0);
    });
    let mut memory = vec![1_u64; MEMORY / size_of::<u64>()];
    let mut at = 0;
    std::io::stdout().write_all(b"r")?;
    std::io::stdout().flush()?;
    sleep_about(SLEEP);
    loop {
        let end = used()? + BURST;
        while used()? < end {
            for _ in 0..BATCH {
                memory[at] = memory[at].wrapping_mul(3);
                at = (at + LINE / size_of::<u64>()) % memory.len();
            }
        }
        sleep_about(SLEEP);
    }
}

/// CPU time of this thread.
fn used() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

fn sleep_about(time: Duration) {
    thread::sleep(time.mul_f64(0.5 + fastrand::f64()));
}
