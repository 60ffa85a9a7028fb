//! `logLevel`: the least severe lines of the log.

use log::LevelFilter;

/// The variable that has precedence over the field.
const VARIABLE: &str = "RUST_LOG";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    pub const ALL: [LogLevel; 4] =
        [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// Makes it the level of this process, unless [`VARIABLE`] is set.
    pub fn apply(self) {
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        log::set_max_level(match self {
            LogLevel::Error => LevelFilter::Error,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
        });
    }
}
