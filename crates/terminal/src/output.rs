//! Output formats, colour, and tables.

use clap::ValueEnum;
use status::picture::text::{Style, WIDTH};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Columns by which the rest of a long line is indented further.
const HANGING: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs: one JSON document
    Json,
}

/// The output of commands that draw a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Drawing {
    /// For people
    Text,
    /// For programs: one JSON document
    Json,
    /// A picture
    Svg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless the variable NO_COLOR is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// The style for standard output.
    pub fn style(self) -> Style {
        let out = io::stdout();
        let colour = match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
                out.is_terminal() && !no_color && !dumb
            }
        };
        Style { width: columns(), colour }
    }
}

/// The width of the terminal.
fn columns() -> usize {
    terminal().unwrap_or(WIDTH)
}

/// The width of the terminal; `None` in a pipe or a file.
pub fn terminal() -> Option<usize> {
    let variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let real = size.ok().map(|size| usize::from(size.ws_col));
    real.filter(|&columns| columns > 0).or(variable)
}

/// A text with lines that fit into the terminal, and in [`WIDTH`] columns. Words are never cut.
pub fn wrapped(text: &str) -> String {
    wrapped_at(text, columns().min(WIDTH))
}

fn wrapped_at(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let parts = wording::fill(words.split(' '), " ", width.saturating_sub(indent + HANGING));
        for (at, part) in parts.iter().enumerate() {
            let indent = if at == 0 { indent } else { indent + HANGING };
            lines.push(format!("{:indent$}{part}", ""));
        }
    }
    lines.join("\n") + "\n"
}

/// A line that fits into `width` columns: it goes on in further lines, with this indent. It breaks after a space, a
/// comma or a slash, and a longer word anywhere.
pub fn fitted(line: &str, width: usize, indent: usize) -> String {
    let mut text = String::new();
    let mut rest: Vec<char> = line.trim_end().chars().collect();
    let width = width.max(indent + 8);
    let mut before = 0;
    while rest.len() + before > width {
        let room = width - before;
        let fits = rest.iter().take(room + 1).enumerate().rev();
        let breaks = fits.filter(|(_, c)| matches!(c, ' ' | ',' | '/'));
        // A space may stand behind the last column.
        let mut ends = breaks.map(|(at, c)| if *c == ' ' { at } else { at + 1 });
        let start = rest.iter().take_while(|c| **c == ' ').count();
        let end = ends.find(|end| *end <= room && *end > start).unwrap_or(room);
        let tail = rest.split_off(end);
        let part: String = rest.iter().collect();
        text.push_str(&format!("{:before$}{}\n", "", part.trim_end()));
        rest = tail.into_iter().skip_while(|c| *c == ' ').collect();
        before = indent;
    }
    let part: String = rest.iter().collect();
    text.push_str(&format!("{:before$}{part}\n", ""));
    text
}

/// Writes to `out`; a reader that goes away (`| head`) is no error.
pub fn show(out: &mut dyn Write, text: &str) -> Result<(), String> {
    offer(out, text).map(|_| ())
}

/// Writes to `out`, and says whether there is still a reader.
pub fn offer(out: &mut dyn Write, text: &str) -> Result<bool, String> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write the output: {error}")),
    }
}

/// Waits for SIGTERM or SIGINT, for a DaemonSet, whose pods must not end.
///
/// The message comes only after the signal handlers: without them, the first process of a container
/// ignores these signals.
pub fn stay(out: &mut dyn Write) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        writeln!(out, "done; waiting for SIGTERM")?;
        out.flush()?;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        Ok(())
    })
}

/// The error of a failed action on a file.
pub fn cannot<E: Display>(action: &str, path: &Path) -> impl Fn(E) -> String {
    move |error| format!("cannot {action} {}: {error}", path.display())
}

/// Lines of cells as a table, with columns as wide as their longest cell.
pub fn table(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitted_line_breaks_after_spaces_commas_and_slashes() {
        assert_eq!(fitted("one two", 10, 2), "one two\n");
        assert_eq!(fitted("one two three four", 13, 2), "one two three\n  four\n");
        assert_eq!(fitted("CPUs: 0,2,4,6,8,10,12", 15, 6), "CPUs: 0,2,4,6,\n      8,10,12\n");
        for width in 1..40 {
            let text = fitted(
                "  refused: 0123456789012345678901234567890123456789 namespace/pod/container",
                width,
                4,
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= width.max(12)),
                "{width}: {text}"
            );
            let joined: String = text.split_whitespace().collect();
            assert_eq!(
                joined,
                "refused:0123456789012345678901234567890123456789namespace/pod/container"
            );
        }
    }

    #[test]
    fn a_line_that_is_too_long_goes_on_further_right() {
        let text = "a: valid\n\n  one two three four, five\n    0123456789-0123456789 x\n";
        assert_eq!(
            wrapped_at(text, 16),
            "a: valid\n\n  one two\n    three four,\n    five\n    0123456789-0123456789\n      x\n"
        );
        assert_eq!(wrapped_at(text, 40), text);
    }
}
