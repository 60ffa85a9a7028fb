//! The picture in a terminal: boxes of letters, one column per core, one line per thread.

use super::super::badge;
use super::{CORES_IN_LINE, Core, Frame, Inside, Picture, Usage, cut};
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
/// Between entries of the legend.
const GAP: &str = "   ";
/// Background and foreground, of the 256 colours that terminals know, by colour of a badge.
const COLOURS: [(u8, u8); badge::COLOURS as usize] =
    [(214, 16), (75, 16), (36, 16), (227, 16), (25, 231), (166, 16), (175, 16)];
/// Weight and style of the letters, by texture of a badge.
const WEIGHTS: [&str; badge::TEXTURES as usize] = ["", "1;", "4;", "1;4;", "3;"];

/// Draws; the text ends in a new line.
pub fn draw(picture: &Picture, style: Style) -> String {
    let terminal = Terminal {
        colour: style.colour,
        width: style.width.max(NARROWEST),
        cell: picture.tenants.iter().map(|one| one.badge.to_string().len()).max().unwrap_or(1),
    };
    let mut text = String::new();
    terminal.frames(&mut text, &picture.frames, 0);
    for line in &picture.memory {
        let _ = writeln!(text, "{}", cut(line, terminal.width));
    }
    terminal.legend(&mut text, &picture.legend());
    text
}

fn paint(usage: Usage, text: &str, colour: bool) -> String {
    match usage {
        _ if !colour => text.to_owned(),
        // Most CPUs are shared, and need no emphasis.
        Usage::Shared => text.to_owned(),
        Usage::Held(badge) => {
            let (back, front) = COLOURS[usize::from(badge.colour())];
            let weight = WEIGHTS[usize::from(badge.texture())];
            format!("\x1b[{weight}38;5;{front};48;5;{back}m{text}\x1b[0m")
        }
        _ => format!("\x1b[2m{text}\x1b[0m"),
    }
}

struct Terminal {
    colour: bool,
    width: usize,
    /// Columns of a cell.
    cell: usize,
}

impl Terminal {
    /// Only the innermost frames are boxes; an indent shows the others.
    fn frames(&self, text: &mut String, frames: &[Frame], indent: usize) {
        for run in frames.chunk_by(|a, b| a.is_innermost() && b.is_innermost()) {
            match run {
                [Frame { title, inside: Inside::Frames(inner), .. }] => {
                    let _ = writeln!(text, "{:indent$}{title}", "");
                    self.frames(text, inner, indent + 1);
                }
                innermost => self.flow(text, innermost, indent),
            }
        }
    }

    /// Boxes side by side, as many as fit, then the frames that have no CPUs.
    fn flow(&self, text: &mut String, frames: &[Frame], indent: usize) {
        let width = self.width.saturating_sub(indent).max(NARROWEST);
        let boxes: Vec<(&Frame, &[Core])> = frames
            .iter()
            .filter_map(|frame| match &frame.inside {
                Inside::Cores(cores) if !cores.is_empty() => Some((frame, &cores[..])),
                _ => None,
            })
            .collect();
        let inner = boxes
            .iter()
            .map(|(frame, cores)| self.inner_width(frame, cores, width))
            .max()
            .unwrap_or(0);
        let blocks: Vec<Vec<String>> =
            boxes.iter().map(|(frame, cores)| self.block(frame, cores, inner, width)).collect();
        let blank = " ".repeat(inner + 2);
        for row in blocks.chunks(((width + 1) / (inner + 3)).max(1)) {
            let height = row.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                // A block that is not as high as others of its row ends in blanks.
                let lines: Vec<&str> =
                    row.iter().map(|block| block.get(at).unwrap_or(&blank).as_str()).collect();
                let line = format!("{:indent$}{}", "", lines.join(" "));
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        for frame in frames.iter().filter(|frame| frame.cpus.is_empty()) {
            let _ = writeln!(text, "{:indent$}{}", "", frame.title);
        }
    }

    /// The cores in a line of a box that is at most `width` wide.
    fn in_line(&self, cores: &[Core], width: usize) -> usize {
        let most = (width.saturating_sub(3) / (self.cell + 1)).clamp(1, CORES_IN_LINE);
        // Lines of a multiple of eight cores, so that all but the last are equal.
        if cores.len() <= most {
            cores.len()
        } else if most >= 8 {
            most / 8 * 8
        } else {
            most
        }
    }

    fn inner_width(&self, frame: &Frame, cores: &[Core], width: usize) -> usize {
        let cells = self.in_line(cores, width) * (self.cell + 1) + 1;
        let title = columns(&frame.title) + 2;
        // A longer list of CPUs does not widen the box: `edge` cuts it.
        let list = (frame.cpus.to_string().len() + 2).min(32);
        cells.max(title).max(list).min(width.saturating_sub(2))
    }

    /// A box around cores, in lines of the same width: two columns more than `inner`.
    fn block(&self, frame: &Frame, cores: &[Core], inner: usize, width: usize) -> Vec<String> {
        let mut lines = vec![edge('┌', &frame.title, '┐', inner)];
        let threads = cores.iter().map(|core| core.cells.len()).max().unwrap_or(1);
        for (number, row) in cores.chunks(self.in_line(cores, width)).enumerate() {
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
        match core.cells.get(thread) {
            Some(cell) => {
                paint(cell.usage, &format!(" {:>width$}", cell.usage.sign()), self.colour)
            }
            None => " ".repeat(width + 1),
        }
    }

    /// What signs mean, as many in a line as fit.
    fn legend(&self, text: &mut String, signs: &[Usage]) {
        let entries = signs.iter().map(|usage| format!("{} {}", usage.sign(), usage.meaning()));
        for line in wording::fill(entries, GAP, self.width) {
            let _ = writeln!(text, "{line}");
        }
    }
}

fn edge(left: char, label: &str, right: char, inner: usize) -> String {
    let label = format!(" {} ", cut(label, inner.saturating_sub(2)));
    let rest = inner.saturating_sub(columns(&label));
    format!("{left}{label}{}{right}", "─".repeat(rest))
}

/// All characters in pictures are one column wide.
fn columns(text: &str) -> usize {
    text.chars().count()
}
