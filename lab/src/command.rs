//! Running other programs, and telling the person at the terminal what goes on.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result, bail};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints one line of progress with the seconds since the first one.
///
/// On standard error, so that results on standard output stay clean. A closed terminal is no reason
/// to fail.
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
    // Nothing the lab starts may wait for the person at the terminal.
    command.args(arguments).stdin(Stdio::null());
    command
}

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

/// The last `count` lines of a text.
#[must_use]
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
    fn last_lines_of_short_and_long_texts() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
        assert_eq!(last_lines("", 5), "");
    }
}
