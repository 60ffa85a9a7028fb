//! The places of frames and cores in a picture of pixels.

use super::{CORES_IN_LINE, Core, Frame, Inside};

/// Space between a frame and what is in it.
const PADDING: f64 = 10.0;
/// Space between frames, and between cores.
const GAP: f64 = 8.0;
const CORE_GAP: f64 = 4.0;
/// The height of a frame's title.
pub(super) const TITLE: f64 = 24.0;
/// The width of a character of a title, on average.
const CHARACTER: f64 = 6.5;
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
        65..=256 => 26.0,
        _ => 21.0,
    }
}

/// Puts frames side by side and below each other, in lines of about the same length and at most
/// `limit` wide. Returns them with their total width and height.
pub(super) fn flow(frames: &[Frame], side: f64, limit: f64) -> (Vec<Placed<'_>>, f64, f64) {
    let mut placed: Vec<Placed<'_>> =
        frames.iter().map(|frame| place(frame, side, limit)).collect();
    let widest = placed.iter().map(|one| one.width).fold(0.0, f64::max);
    let most =
        (1..=frames.len()).rev().find(|&n| n as f64 * (widest + GAP) - GAP <= limit).unwrap_or(1);
    let lines = frames.len().div_ceil(most).max(1);
    let in_line = frames.len().div_ceil(lines).max(1);
    let mut y = 0.0;
    let mut width = 0.0f64;
    for line in placed.chunks_mut(in_line) {
        let height = line.iter().map(|one| one.height).fold(0.0, f64::max);
        for (at, one) in line.iter_mut().enumerate() {
            one.x = at as f64 * (widest + GAP);
            one.y = y;
            one.width = widest;
            one.height = height;
            width = width.max(one.x + widest);
        }
        y += height + GAP;
    }
    (placed, width, (y - GAP).max(0.0))
}

/// A frame at the origin.
fn place(frame: &Frame, side: f64, limit: f64) -> Placed<'_> {
    let list = frame.cpus.to_string().len().min(LIST);
    let title = (frame.title.chars().count() + 2 + list) as f64 * CHARACTER + 2.0 * PADDING;
    let mut inner = Vec::new();
    let mut cores = Vec::new();
    let width;
    let height;
    match &frame.inside {
        Inside::Frames(frames) => {
            (inner, width, height) = flow(frames, side, limit - 2.0 * PADDING);
            for one in &mut inner {
                one.x += PADDING;
                one.y += TITLE;
            }
        }
        Inside::Cores(all) => (cores, width, height) = rows(all, side, limit - 2.0 * PADDING),
    }
    Placed {
        frame,
        x: 0.0,
        y: 0.0,
        width: title.ceil().max(width + 2.0 * PADDING),
        height: TITLE + height + if height > 0.0 { PADDING } else { 2.0 },
        inner,
        cores,
    }
}

/// Cores in lines within a frame, with their total width and height.
fn rows(cores: &[Core], side: f64, limit: f64) -> (Vec<(f64, f64, &Core)>, f64, f64) {
    let step = side + CORE_GAP;
    let most = ((limit + CORE_GAP) / step).floor().max(1.0) as usize;
    let in_line = cores.len().min(most).clamp(1, CORES_IN_LINE);
    let mut placed = Vec::new();
    let mut y = 0.0;
    let mut width = 0.0;
    for line in cores.chunks(in_line) {
        let threads = line.iter().map(|core| core.cells.len()).max().unwrap_or(0);
        for (at, core) in line.iter().enumerate() {
            placed.push((PADDING + at as f64 * step, TITLE + y, core));
        }
        width = f64::max(width, line.len() as f64 * step - CORE_GAP);
        y += threads as f64 * side + CORE_GAP;
    }
    (placed, width, (y - CORE_GAP).max(0.0))
}
