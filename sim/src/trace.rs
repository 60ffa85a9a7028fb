//! [`Trace`]: a line for each event and each log record of the plugin, and their hash.

use crate::calls::Calls;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Trace {
    /// `None` if only the hash is needed.
    pub lines: Option<Vec<String>>,
    pub hash: u64,
    /// `None` if calls are not recorded.
    pub calls: Option<Calls>,
    /// When cgroups are recorded next.
    pub next_recording: Duration,
}

impl Trace {
    pub fn new(keeps: bool) -> Trace {
        let lines = if keeps { Some(Vec::new()) } else { None };
        Trace { lines, hash: 0xcbf2_9ce4_8422_2325, calls: None, next_recording: Duration::ZERO }
    }

    pub fn record(&mut self, record: impl FnOnce(&mut Calls)) {
        if let Some(calls) = &mut self.calls {
            record(calls);
        }
    }

    pub fn say(&mut self, now: Duration, line: String) {
        self.mix(&now.as_nanos().to_le_bytes());
        self.mix(line.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>11.6} {line}", now.as_secs_f64()));
        }
    }

    /// FNV-1a.
    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

thread_local! {
    static RECORDS: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = (record.level(), record.args().to_string());
        RECORDS.with_borrow_mut(|records| records.push(line));
    }

    fn flush(&self) {}
}

/// Stores this thread's log records for [`take_records`], and messages of its panics for [`take_panic`].
pub fn record_logs() {
    static RECORDER: Recorder = Recorder;
    // Fails if another test of this process has set the logger.
    let _ = log::set_logger(&RECORDER);
    log::set_max_level(LevelFilter::Info);
    std::panic::set_hook(Box::new(|panic| PANIC.set(panic.to_string())));
}

pub fn take_panic() -> String {
    PANIC.take()
}

pub fn take_records() -> Vec<(Level, String)> {
    RECORDS.with_borrow_mut(std::mem::take)
}
