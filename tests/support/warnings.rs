//! Collects the warnings that this process logs.

use std::sync::Mutex;

struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The warnings about a container since the first call.
pub(crate) fn warnings(container: &str) -> Vec<String> {
    // Fails from the second call on: the logger is set already.
    let _ = log::set_logger(&WARNINGS);
    log::set_max_level(log::LevelFilter::Warn);
    let all = WARNINGS.0.lock().unwrap();
    all.iter().filter(|warning| warning.starts_with(container)).cloned().collect()
}
