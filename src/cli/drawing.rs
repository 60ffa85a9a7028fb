//! The options of commands that draw a node.

use crate::view::picture::text::{Style, WIDTH};
use clap::ValueEnum;
use std::io::IsTerminal;

/// How to write a node down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Drawing {
    /// For people at a terminal, with a picture of letters
    Text,
    /// For programs: one JSON object
    Json,
    /// For people elsewhere: a picture
    Svg,
}

/// Whether to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless the variable NO_COLOR is set (<https://no-color.org>)
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// The style for standard output: in colour or not, and the terminal's width.
    pub fn style(self) -> Style {
        let out = std::io::stdout();
        let colour = match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
                out.is_terminal() && !unwanted && !dumb
            }
        };
        let variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let real = rustix::termios::tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
        let width = real.filter(|&columns| columns > 0).or(variable).unwrap_or(WIDTH);
        Style { width, colour }
    }
}
