//! How far a long simulation is.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often it is told: on a terminal, where one line is written over again, and where every line
/// stays.
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(5);
/// How many pods come before the clock is looked at again.
const PODS: usize = 64;

/// Tells how far a simulation is; one that is soon over tells nothing.
pub(super) struct Progress<'a> {
    out: &'a mut dyn Write,
    name: &'a str,
    pods: usize,
    started: Instant,
    told: Instant,
    terminal: bool,
    /// Whether a line has been begun.
    open: bool,
}

impl<'a> Progress<'a> {
    /// For so many pods; standard error is what `out` is as a rule.
    pub(super) fn new(out: &'a mut dyn Write, name: &'a str, pods: usize) -> Progress<'a> {
        let (now, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        Progress { out, name, pods, started: now, told: now, terminal, open: false }
    }

    /// So many pods have come.
    pub(super) fn at(&mut self, pods: usize) {
        let pause = if self.terminal { OFTEN } else { SELDOM };
        if !pods.is_multiple_of(PODS) || self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        let percent = pods * 100 / self.pods.max(1);
        let seconds = self.started.elapsed().as_secs();
        let line = format!("{}: {percent} %, {pods} of {} pods, {seconds} s", self.name, self.pods);
        // If this fails there is no place to say so.
        let _ = match self.terminal {
            true => write!(self.out, "\r{line}\x1b[K").and_then(|()| self.out.flush()),
            false => writeln!(self.out, "{line}"),
        };
        self.open = self.terminal;
    }

    /// It is over.
    pub(super) fn done(self) {
        if self.open {
            let _ = write!(self.out, "\r\x1b[K").and_then(|()| self.out.flush());
        }
    }
}
