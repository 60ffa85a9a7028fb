//! The log: stderr, or the system's log for a plugin that the runtime launched without a stderr.

use clap::ValueEnum;
use config::LogLevel;
use env_logger::{Builder, Env, Target};
use log::Record;
use nix::sys::stat::fstat;
use state::clock::stamp;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use wording::Stamp;
use wording::printable;

/// The socket of the system's log: journald, syslogd.
const SYSTEM_LOG: &str = "/dev/log";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object in a line, with time, level and message
    Json,
}

/// Starts logging. `RUST_LOG` sets the level; without it `info`, until a configuration is read.
///
/// A plugin launched by the runtime logs to the system's log, as `nri-cpu-manager`: its stderr is
/// `/dev/null`. It takes text, whatever the format. Lines carry their time where the log that takes them adds none.
pub(crate) fn start(format: LogFormat) {
    // This filter is permanent; `LogLevel::apply` restricts it further.
    let mut builder = Builder::from_env(Env::default().default_filter_or("debug"));
    if std::env::var_os("NRI_PLUGIN_SOCKET").is_some()
        && let Ok(socket) = SystemLog::connect()
    {
        builder.format(|out, record| {
            // Facility daemon (3) and the severities of RFC 5424.
            let severity = match record.level() {
                log::Level::Error => 3,
                log::Level::Warn => 4,
                log::Level::Info => 6,
                log::Level::Debug | log::Level::Trace => 7,
            };
            write!(
                out,
                "<{}>nri-cpu-manager[{}]: {}",
                3 * 8 + severity,
                std::process::id(),
                printable(&record.args().to_string())
            )
        });
        builder.target(Target::Pipe(Box::new(socket)));
    } else if format == LogFormat::Json {
        builder.format(|out, record| write_json(out, stamp(), record));
    } else if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), io::stderr()) {
        builder.format(|out, record| write_line(out, None, record));
    } else {
        builder.format(|out, record| write_line(out, Some(stamp()), record));
    }
    // Fails only if there is a logger already, which serves as well.
    let _ = builder.try_init();
    LogLevel::default().apply();
}

/// A line with a record as a JSON object.
fn write_json(out: &mut impl Write, at: Stamp, record: &Record<'_>) -> io::Result<()> {
    let object = serde_json::json!({
        "time": at.to_string(),
        "level": record.level().as_str().to_lowercase(),
        "message": printable(&record.args().to_string()),
    });
    writeln!(out, "{object}")
}

/// A line with the time to the millisecond, if at all, the level and the message. The module is not in it: messages begin
/// with their subject, and modules move.
fn write_line(out: &mut impl Write, at: Option<Stamp>, record: &Record<'_>) -> io::Result<()> {
    let at = at.map_or_else(String::new, |at| format!("{at} "));
    let level = record.level();
    // A name in a record could contain line ends: `printable` keeps it one line.
    writeln!(out, "{at}{level:<5} {}", printable(&record.args().to_string()))
}

/// Whether a file is systemd's journal. `JOURNAL_STREAM` names the journal by device and inode: a
/// process with another output may have inherited the variable.
fn is_journal(stream: Option<&str>, file: impl AsFd) -> bool {
    let (Some(stream), Ok(file)) = (stream, fstat(file)) else { return false };
    stream == format!("{}:{}", file.st_dev, file.st_ino)
}

/// Writes one message per datagram, as the system's log expects.
struct SystemLog(UnixDatagram);

impl SystemLog {
    fn connect() -> io::Result<SystemLog> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG)?;
        // A slow log must not delay containers.
        socket.set_nonblocking(true)?;
        Ok(SystemLog(socket))
    }
}

impl Write for SystemLog {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        // There is no place to report a lost message.
        let _ = self.0.send(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wording::Moment;

    #[test]
    fn a_record_is_one_line_with_its_time() {
        let mut line = Vec::new();
        let at = Stamp { moment: Moment(1_709_251_199), millis: 42 };
        let record = Record::builder()
            .level(log::Level::Warn)
            .args(format_args!("default/a\n[2024] ERROR \x1b[31m/c: moved"))
            .build();
        write_line(&mut line, Some(at), &record).unwrap();
        write_line(&mut line, None, &record).unwrap();
        let text = "default/a\u{fffd}[2024] ERROR \u{fffd}[31m/c: moved";
        let expect = format!(
            "2024-02-29T23:59:59.042Z WARN  {text}\n\
             WARN  {text}\n"
        );
        assert_eq!(String::from_utf8(line).unwrap(), expect);
        let mut line = Vec::new();
        write_json(&mut line, at, &record).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let expect = serde_json::json!({
            "time": "2024-02-29T23:59:59.042Z", "level": "warn", "message": text,
        });
        assert_eq!(object, expect);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
