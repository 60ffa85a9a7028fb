//! The log: on stderr, or where a plugin launched by the runtime (which has no stderr) is heard.

use env_logger::{Builder, Env, Target};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;

/// The socket of the system's log: journald, syslogd.
const SYSTEM_LOG: &str = "/dev/log";

/// Starts logging. `RUST_LOG` sets the level, `info` without it.
///
/// A plugin launched by the runtime logs to the system's log, as `nri-cpu-manager`: its stderr is `/dev/null`.
pub fn start() {
    let mut builder = Builder::from_env(Env::default().default_filter_or("info"));
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
                record.args()
            )
        });
        builder.target(Target::Pipe(Box::new(socket)));
    }
    // Fails only if a logger is there already, which is then good enough.
    let _ = builder.try_init();
}

/// One message a write, as the system's log wants them.
struct SystemLog(UnixDatagram);

impl SystemLog {
    fn connect() -> io::Result<SystemLog> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG)?;
        // A log that does not keep up must not hold up containers.
        socket.set_nonblocking(true)?;
        Ok(SystemLog(socket))
    }
}

impl Write for SystemLog {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        // A message that is lost is lost: there is nowhere to say so.
        let _ = self.0.send(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
