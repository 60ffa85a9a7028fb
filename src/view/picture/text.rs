//! The picture in a terminal: boxes of letters, one column per core, one line per thread.

use super::super::badge::{self, Badge};
use super::names::cut;
use super::{Cell, Core, Frame, Inside, Picture, Usage};
use std::fmt::Write as _;

#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// In columns.
    pub width: usize,
    pub colour: bool,
}

/// The width of a terminal that does not report it, in columns.
pub const WIDTH: usize = 100;
/// The least width; a narrower one counts as this.
const NARROWEST: usize = 20;
/// The most cores in a line.
const CORES_IN_LINE: usize = 16;
/// Background and foreground, of the 256 colours that terminals know, by colour of a badge.
const COLOURS: [(u8, u8); badge::COLOURS as usize] =
    [(214, 16), (75, 16), (36, 16), (227, 16), (25, 231), (166, 16), (175, 16)];
/// Weight and style of the letters, by texture of a badge.
const WEIGHTS: [&str; badge::TEXTURES as usize] = ["", "1;", "4;", "1;4;", "3;"];

/// Draws; the text ends in a new line.
pub fn draw(picture: &Picture, style: Style) -> String {
    let terminal = Terminal {
        picture,
        colour: style.colour,
        width: style.width.max(NARROWEST),
        cell: picture.tenants.iter().map(|one| one.badge.to_string().len()).max().unwrap_or(1),
    };
    let mut text = String::new();
    terminal.frames(&mut text, &picture.frames, 0);
    let signs: Vec<String> = picture
        .signs()
        .into_iter()
        .map(|usage| format!("{} {}", usage.sign(), usage.meaning()))
        .collect();
    let _ = writeln!(text, "{}", signs.join("   "));
    text
}

/// A badge as it stands in the picture.
pub fn painted(badge: Badge, colour: bool) -> String {
    paint(badge, &badge.to_string(), colour)
}

fn paint(badge: Badge, text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let (back, front) = COLOURS[usize::from(badge.colour())];
    let weight = WEIGHTS[usize::from(badge.texture())];
    format!("\x1b[{weight}38;5;{front};48;5;{back}m{text}\x1b[0m")
}

struct Terminal<'a> {
    picture: &'a Picture,
    colour: bool,
    width: usize,
    /// Columns of a cell.
    cell: usize,
}

impl Terminal<'_> {
    fn frames(&self, text: &mut String, frames: &[Frame], indent: usize) {
        let leaf = |frame: &Frame| matches!(frame.inside, Inside::Cores(_));
        for run in frames.chunk_by(|a, b| leaf(a) && leaf(b)) {
            match run {
                [Frame { title, inside: Inside::Frames(inner), .. }] => {
                    let _ = writeln!(text, "{:indent$}{title}", "");
                    // Only the innermost frames are boxes; an indent shows the others.
                    self.frames(text, inner, indent + 1);
                }
                leaves => self.flow(text, leaves, indent),
            }
        }
    }

    /// Boxes side by side, as many as fit.
    fn flow(&self, text: &mut String, leaves: &[Frame], indent: usize) {
        let room = self.width.saturating_sub(indent).max(NARROWEST);
        let boxes = leaves.iter().filter_map(|frame| match &frame.inside {
            Inside::Cores(cores) if !cores.is_empty() => Some((frame, &cores[..])),
            _ => None,
        });
        let boxes: Vec<(&Frame, &[Core])> = boxes.collect();
        let widths = boxes.iter().map(|(frame, cores)| self.inner_width(frame, cores, room));
        let inner = widths.max().unwrap_or(0);
        let blocks = boxes.iter().map(|(frame, cores)| self.block(frame, cores, inner, room));
        let blocks: Vec<Vec<String>> = blocks.collect();
        let blank = " ".repeat(inner + 2);
        for row in blocks.chunks(((room + 1) / (inner + 3)).max(1)) {
            let height = row.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                // A block that is not as high as others of its row ends in blanks.
                let lines: Vec<&str> =
                    row.iter().map(|block| block.get(at).unwrap_or(&blank).as_str()).collect();
                let _ =
                    writeln!(text, "{}", format!("{:indent$}{}", "", lines.join(" ")).trim_end());
            }
        }
        for frame in leaves.iter().filter(|frame| frame.cpus.is_empty()) {
            let _ = writeln!(text, "{:indent$}{}", "", frame.title);
        }
    }

    fn in_line(&self, cores: &[Core], room: usize) -> usize {
        let most = (room.saturating_sub(3) / (self.cell + 1)).clamp(1, CORES_IN_LINE);
        // Lines of a multiple of eight cores, so that all but the last are equal.
        if cores.len() <= most {
            cores.len()
        } else if most >= 8 {
            most / 8 * 8
        } else {
            most
        }
    }

    fn inner_width(&self, frame: &Frame, cores: &[Core], room: usize) -> usize {
        let cells = self.in_line(cores, room) * (self.cell + 1) + 1;
        let title = frame.title.chars().count() + 2;
        cells.max(title).max((frame.cpus.to_string().len() + 2).min(32)).min(room.saturating_sub(2))
    }

    /// A box around cores, in lines of the same width: two columns more than `inner`.
    fn block(&self, frame: &Frame, cores: &[Core], inner: usize, room: usize) -> Vec<String> {
        let mut lines = vec![edge('┌', &frame.title, '┐', inner)];
        let threads = cores.iter().map(|core| core.cells.len()).max().unwrap_or(1);
        for (number, row) in cores.chunks(self.in_line(cores, room)).enumerate() {
            if number > 0 && threads > 1 {
                lines.push(format!("│{}│", " ".repeat(inner)));
            }
            for thread in 0..threads {
                let cells: String = row.iter().map(|core| self.cell(core, thread)).collect();
                let drawn = row.len() * (self.cell + 1);
                lines.push(format!("│{cells}{}│", " ".repeat(inner.saturating_sub(drawn))));
            }
        }
        lines.push(edge('└', &frame.cpus.to_string(), '┘', inner));
        lines
    }

    /// A blank and the sign of this thread of the core; blanks if the core has fewer threads.
    fn cell(&self, core: &Core, thread: usize) -> String {
        let width = self.cell;
        let Some(Cell { usage, .. }) = core.cells.get(thread) else { return " ".repeat(width + 1) };
        match usage {
            Usage::Held(at) => {
                let badge = self.picture.tenants[*at].badge;
                paint(badge, &format!(" {badge:>width$}"), self.colour)
            }
            other => {
                let sign = format!(" {:>width$}", other.sign());
                let dim = self.colour && *other != Usage::Shared;
                if dim { format!("\x1b[2m{sign}\x1b[0m") } else { sign }
            }
        }
    }
}

fn edge(left: char, label: &str, right: char, inner: usize) -> String {
    let label = format!(" {} ", cut(label, inner.saturating_sub(2)));
    let rest = inner.saturating_sub(label.chars().count());
    format!("{left}{label}{}{right}", "─".repeat(rest))
}
