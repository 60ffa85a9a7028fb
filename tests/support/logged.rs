//! Collects what this process logs.

use log::Level;
use std::sync::Mutex;

struct Lines(Mutex<Vec<(Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// The warnings about a container since the first call.
pub(crate) fn warnings(container: &str) -> Vec<String> {
    logged(Level::Warn, container)
}

/// The lines of this level, or a more severe one, about a subject since the first call.
pub(crate) fn logged(least: Level, subject: &str) -> Vec<String> {
    // Fails from the second call on: the logger is set already.
    let _ = log::set_logger(&LINES);
    log::set_max_level(log::LevelFilter::Info);
    let all = LINES.0.lock().unwrap();
    let about = all.iter().filter(|(level, line)| *level <= least && line.starts_with(subject));
    about.map(|(_, line)| line.clone()).collect()
}
