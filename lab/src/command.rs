//! Running other programs, waiting, and progress on the terminal.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints a line with the seconds since the first one.
///
/// To standard error, so that standard output has only results. A closed terminal is not an error.
pub fn progress(what: impl AsRef<str>) {
    let elapsed = START.elapsed().as_secs_f64();
    let _ = writeln!(std::io::stderr(), "[{elapsed:6.1} s] {}", what.as_ref());
}

pub fn command<I, S>(program: impl AsRef<OsStr>, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    // No program may wait for terminal input.
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Returns standard output. The error of a failed command has the last lines of its output.
pub fn run(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output =
        command.output().with_context(|| format!("cannot start `{name}`: is it installed?"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{name}` failed ({}):\n{}",
            output.status,
            last_lines(&format!("{stdout}{stderr}"), 15)
        );
    }
    Ok(stdout)
}

/// Asks again and again until `condition` gives a value; None if it has not within `patience`.
pub(crate) fn poll<T>(
    patience: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(Some(value));
        }
        if start.elapsed() > patience {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_last_words() {
        let error = run(&mut command("sh", ["-c", "echo first; echo last >&2; exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("first\nlast"), "{error}");
    }

    #[test]
    fn the_last_lines_of_any_text_are_found() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
        assert_eq!(last_lines("", 5), "");
    }
}
