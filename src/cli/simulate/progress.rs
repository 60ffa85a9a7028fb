//! The progress of a long simulation.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The pause between two reports: on a terminal, which keeps one line only, and elsewhere.
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(5);
/// The number of pods between two looks at the clock.
const PODS: usize = 64;

/// Reports the progress of a simulation; a short one reports nothing.
pub(super) struct Progress<'a> {
    out: &'a mut dyn Write,
    name: &'a str,
    pods: usize,
    started: Instant,
    reported: Instant,
    terminal: bool,
    /// Whether the terminal shows a line.
    open: bool,
}

impl<'a> Progress<'a> {
    /// For a simulation of `pods` pods. `out` is standard error as a rule.
    pub(super) fn new(out: &'a mut dyn Write, name: &'a str, pods: usize) -> Progress<'a> {
        let (now, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        Progress { out, name, pods, started: now, reported: now, terminal, open: false }
    }

    /// `pods` pods have come.
    pub(super) fn at(&mut self, pods: usize) {
        let pause = if self.terminal { OFTEN } else { SELDOM };
        if !pods.is_multiple_of(PODS) || self.reported.elapsed() < pause {
            return;
        }
        self.reported = Instant::now();
        let percent = pods * 100 / self.pods.max(1);
        let seconds = self.started.elapsed().as_secs();
        let line = format!("{}: {percent} %, {pods} of {} pods, {seconds} s", self.name, self.pods);
        // There is no place to report a failure.
        let _ = match self.terminal {
            true => write!(self.out, "\r{line}\x1b[K").and_then(|()| self.out.flush()),
            false => writeln!(self.out, "{line}"),
        };
        self.open = self.terminal;
    }

    /// Removes the line from the terminal.
    pub(super) fn done(self) {
        if self.open {
            let _ = write!(self.out, "\r\x1b[K").and_then(|()| self.out.flush());
        }
    }
}
