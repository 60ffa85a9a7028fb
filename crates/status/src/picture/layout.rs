//! The places of frames and cores in a picture of pixels.

use super::{CORES_IN_LINE, Core, Frame, Inside};

/// Space between a frame and what is in it.
const PADDING: f64 = 10.0;
/// Space between frames.
const GAP: f64 = 8.0;
/// The height of a frame's title.
pub(super) const TITLE: f64 = 24.0;
/// The width of a character of a title, on average.
pub(super) const CHARACTER: f64 = 6.5;
/// The most characters of a list of CPUs that are shown after a title.
pub(super) const LIST: usize = 30;

/// A frame with its upper left corner, within the frame around it, and its size.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    pub(super) frame: &'a Frame,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) inner: Vec<Placed<'a>>,
    /// Each core with its upper left corner within the frame.
    pub(super) cores: Vec<(f64, f64, &'a Core)>,
}

/// The side of a cell on a machine with this number of CPUs.
pub(super) fn side(cpus: usize) -> f64 {
    match cpus {
        0..=64 => 34.0,
        65..=256 => 24.0,
        // Two letters of 12 px fit.
        _ => 22.0,
    }
}

/// Space between cores.
fn core_gap(side: f64) -> f64 {
    if side < 24.0 { 3.0 } else { 4.0 }
}

/// The widths that a picture may have, without margins, and up to which height it takes each rather
/// than the next. A picture of the second width that shrinks to a screen of 1,024 pixels is legible.
const SIZES: [(f64, f64); 2] = [(720.0, 400.0), (1060.0, 570.0)];
/// The last width, and that of a file that has more to show than its machine takes.
pub(super) const WIDEST: f64 = 1400.0;
/// No frame is narrower: its title has a name and a number.
const NARROWEST_FRAME: f64 = 100.0;

/// Puts the frames of a machine side by side and below each other. Returns them with their total
/// width and height.
pub(super) fn machine(frames: &[Frame], side: f64) -> (Vec<Placed<'_>>, f64, f64) {
    let fitting = SIZES.iter().find(|(width, high)| arrange(frames, side, *width).height <= *high);
    flow(frames, side, fitting.map_or(WIDEST, |(width, _)| *width))
}

/// How many frames are in a line, and what that takes.
struct Arrangement {
    in_line: usize,
    widest: f64,
    width: f64,
    height: f64,
    /// The limit of what is within a frame.
    share: f64,
}

/// The lines of frames that take the least height in this width: many narrow frames side by side, or
/// few wide ones, whose own frames are side by side.
fn arrange(frames: &[Frame], side: f64, limit: f64) -> Arrangement {
    let count = frames.len().max(1);
    let mut best: Option<Arrangement> = None;
    let mut before = 0;
    for lines in 1..=count {
        // As many in each line, except for the last.
        let in_line = count.div_ceil(lines);
        let share = (limit + GAP) / in_line as f64 - GAP;
        if in_line == before || (in_line > 1 && share < NARROWEST_FRAME) {
            continue;
        }
        before = in_line;
        let sizes: Vec<(f64, f64)> = frames.iter().map(|frame| size(frame, side, share)).collect();
        let widest = sizes.iter().map(|size| size.0).fold(0.0, f64::max);
        let width = in_line as f64 * (widest + GAP) - GAP;
        if in_line > 1 && width > limit {
            continue;
        }
        let heights = sizes.chunks(in_line).map(|line| line.iter().map(|size| size.1));
        let height: f64 = heights.map(|line| line.fold(0.0, f64::max) + GAP).sum();
        let height = (height - GAP).max(0.0);
        if best.as_ref().is_none_or(|best| height < best.height) {
            best = Some(Arrangement { in_line, widest, width, height, share });
        }
    }
    best.unwrap_or(Arrangement { in_line: 1, widest: 0.0, width: 0.0, height: 0.0, share: limit })
}

fn flow(frames: &[Frame], side: f64, limit: f64) -> (Vec<Placed<'_>>, f64, f64) {
    let Arrangement { in_line, widest, width, height, share } = arrange(frames, side, limit);
    let mut placed: Vec<Placed<'_>> =
        frames.iter().map(|frame| place(frame, side, share)).collect();
    let mut y = 0.0;
    for line in placed.chunks_mut(in_line) {
        let height = line.iter().map(|one| one.height).fold(0.0, f64::max);
        for (at, one) in line.iter_mut().enumerate() {
            one.x = at as f64 * (widest + GAP);
            one.y = y;
            one.width = widest;
            one.height = height;
        }
        y += height + GAP;
    }
    (placed, width, height)
}

/// The size of a frame whose own frames are within `limit`.
fn size(frame: &Frame, side: f64, limit: f64) -> (f64, f64) {
    let (width, height) = match &frame.inside {
        Inside::Frames(frames) => {
            let inner = arrange(frames, side, limit - 2.0 * PADDING);
            (inner.width, inner.height)
        }
        Inside::Cores(cores) => size_of_rows(cores, side),
    };
    let list = frame.cpus.to_string().len().min(LIST);
    let title = (frame.title.chars().count() + 2 + list) as f64 * CHARACTER + 2.0 * PADDING;
    let below = if height > 0.0 { PADDING } else { 2.0 };
    (title.ceil().max(width + 2.0 * PADDING), TITLE + height + below)
}

/// A frame at the origin.
fn place(frame: &Frame, side: f64, limit: f64) -> Placed<'_> {
    let (width, height) = size(frame, side, limit);
    let mut inner = Vec::new();
    let mut cores = Vec::new();
    match &frame.inside {
        Inside::Frames(frames) => {
            (inner, ..) = flow(frames, side, limit - 2.0 * PADDING);
            for one in &mut inner {
                one.x += PADDING;
                one.y += TITLE;
            }
        }
        Inside::Cores(all) => cores = rows(all, side),
    }
    Placed { frame, x: 0.0, y: 0.0, width, height, inner, cores }
}

/// Cores in lines within a frame.
fn rows(cores: &[Core], side: f64) -> Vec<(f64, f64, &Core)> {
    let step = side + core_gap(side);
    let mut placed = Vec::new();
    let mut y = TITLE;
    for line in cores.chunks(CORES_IN_LINE) {
        for (at, core) in line.iter().enumerate() {
            placed.push((PADDING + at as f64 * step, y, core));
        }
        y += threads(line) as f64 * side + core_gap(side);
    }
    placed
}

/// The width and height of [`rows`].
fn size_of_rows(cores: &[Core], side: f64) -> (f64, f64) {
    let gap = core_gap(side);
    let lines = cores.chunks(CORES_IN_LINE);
    let height: f64 = lines.map(|line| threads(line) as f64 * side + gap).sum();
    let width = cores.len().min(CORES_IN_LINE) as f64 * (side + gap);
    ((width - gap).max(0.0), (height - gap).max(0.0))
}

/// The most threads that a core of this line has.
fn threads(line: &[Core]) -> usize {
    line.iter().map(|core| core.cells.len()).max().unwrap_or(0)
}
