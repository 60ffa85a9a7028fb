//! The distributions as a picture: for each measurement a panel alone and one next to neighbours, on the
//! same scales. A line shows which part of the samples took longer than a time, so each percentile can be
//! read from it. Lines differ in their dashes and have their names next to them: no colours are needed.

use std::fmt::{Display, Write};

use crate::experiment::Cell;
use crate::histogram::Histogram;
use crate::report::{Measure, Report};
use crate::tree::Mode;

/// A panel's area for lines, in pixels.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
/// Space to its right for the name of a line that ends there.
const NAMES: f64 = 84.0;
/// Space for the labels of the vertical axis, and between panels.
const LEFT: f64 = 72.0;
const GAP: f64 = 24.0;
const MARGIN: f64 = 12.0;
/// Above the first row without the lines below the headline, above each row for its titles, and below
/// each row for the labels of its axis.
const HEADLINE: f64 = 30.0;
const TITLE: f64 = 34.0;
const BELOW: f64 = 40.0;
const LINE: f64 = 16.0;
/// The width of a letter at most.
const LETTER: f64 = 7.5;

const STYLE: &str = "text{font:12px sans-serif;fill:#1b1d1f}.headline{font-size:16px;font-weight:bold}\
.soft{fill:#54595f}.grid{stroke:#d5d8db;fill:none}.frame{stroke:#868c93;fill:none}\
.line{stroke:#1b1d1f;stroke-width:1.8;fill:none;stroke-linejoin:round}.leader{stroke:#868c93;fill:none}\
.name{font-weight:bold;stroke:#ffffff;stroke-width:4px;paint-order:stroke;stroke-linejoin:round}";

fn dashes(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "none",
        Mode::Runtime => "2 3",
        Mode::Groups => "9 4",
        Mode::Kernel => "5 2 1 2",
        Mode::Isolated => "1 2",
    }
}

/// A well-formed document without references.
pub(crate) fn picture(report: &Report) -> String {
    let modes = report.modes();
    let width = LEFT + 2.0 * (WIDTH + NAMES) + GAP + MARGIN;
    let words = report.headline();
    let line = ((width - 2.0 * MARGIN) / LETTER) as usize;
    // Lists of CPUs have no blanks.
    let parts = |words: &str| wording::fill(words.split_inclusive([' ', ',']), "", line);
    let facts: Vec<String> = words.lines().flat_map(parts).collect();
    // Names have space below the lines.
    let names = LINE * (modes.len() as f64 + 0.5);
    let row = TITLE + HEIGHT + names + BELOW;
    let headline = HEADLINE + facts.len() as f64 * LINE;
    let height = headline + 2.0 * row;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\"><title>What pinning gains on one machine</title>\
         <style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    text(&mut svg, "headline", (MARGIN, 24.0), "start", "Part of the samples that took longer");
    for (at, line) in facts.iter().enumerate() {
        text(&mut svg, "soft", (MARGIN, 42.0 + at as f64 * LINE), "start", line);
    }
    for (at, measure) in Measure::ALL.into_iter().enumerate() {
        let top = headline + at as f64 * row + TITLE;
        let scale = Scale::of(report, measure);
        for (at, neighbours) in [false, true].into_iter().enumerate() {
            let left = LEFT + at as f64 * (WIDTH + NAMES + GAP);
            let panel = Panel { left, top, height: HEIGHT + names, scale };
            let beside = if neighbours { "next to neighbours" } else { "alone" };
            let title = format!("{}, {beside}", measure.label());
            text(&mut svg, "name", (left, top - 10.0), "start", &title);
            panel.grid(&mut svg, at == 0);
            let cells = modes.iter().map(|mode| Cell { mode: *mode, neighbours });
            let lines = cells.map(|cell| (cell.mode, report.histogram(measure, cell)));
            panel.lines(&mut svg, &lines.collect::<Vec<_>>());
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The scales of both panels of a measurement, in whole powers of ten.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Of nanoseconds.
    first: u32,
    last: u32,
    /// Of the smallest part, one sample of all, as a positive number.
    parts: u32,
}

impl Scale {
    fn of(report: &Report, measure: Measure) -> Scale {
        let mut least = u64::MAX;
        let mut most = 1;
        let mut samples = 10;
        for run in &report.runs {
            let all = report.histogram(measure, run.cell);
            least = least.min(all.percentile(0.1));
            most = most.max(all.max_ns());
            samples = samples.max(all.samples());
        }
        let first = least.clamp(1, most).ilog10();
        let last = (most - 1).max(1).ilog10() + 1;
        Scale { first, last: last.max(first + 1), parts: (samples - 1).ilog10() + 1 }
    }
}

struct Panel {
    left: f64,
    top: f64,
    /// With the space for names.
    height: f64,
    scale: Scale,
}

impl Panel {
    fn x(&self, ns: u64) -> f64 {
        let Scale { first, last, .. } = self.scale;
        let part = ((ns.max(1) as f64).log10() - f64::from(first)) / f64::from(last - first);
        self.left + part.clamp(0.0, 1.0) * WIDTH
    }

    fn y(&self, share: f64) -> f64 {
        self.top + (-share.log10() / f64::from(self.scale.parts)).clamp(0.0, 1.0) * HEIGHT
    }

    fn grid(&self, svg: &mut String, with_labels: bool) {
        let (left, top) = (self.left, self.top);
        let (right, bottom) = (left + WIDTH + NAMES, top + self.height);
        for power in self.scale.first..=self.scale.last {
            let ns = 10_u64.pow(power);
            let x = self.x(ns);
            path(svg, "grid", "none", &format!("M{x:.1} {top:.1}V{bottom:.1}"));
            text(svg, "soft", (x, bottom + LINE), "middle", &time(ns));
        }
        let parts = [("all", 1.0), ("p50", 0.5), ("p90", 0.1), ("p99", 1e-2), ("p99.9", 1e-3)];
        for (label, share) in parts.into_iter().chain([("p99.99", 1e-4), ("p99.999", 1e-5)]) {
            let y = self.y(share);
            path(svg, "grid", "none", &format!("M{left:.1} {y:.1}H{right:.1}"));
            if with_labels && -f64::from(self.scale.parts) <= share.log10() {
                // The first two are close to each other.
                let y = if share == 1.0 { y + 1.0 } else { y + 5.0 };
                text(svg, "soft", (left - 6.0, y), "end", label);
            }
        }
        let frame = format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z");
        path(svg, "frame", "none", &frame);
    }

    fn lines(&self, svg: &mut String, lines: &[(Mode, Histogram)]) {
        let mut ends = Vec::new();
        for (mode, histogram) in lines {
            let samples = histogram.samples();
            if samples == 0 {
                continue;
            }
            let mut longer = samples;
            let mut line = format!("M{:.1} {:.1}", self.left, self.y(1.0));
            for (longest, count) in histogram.buckets() {
                let x = self.x(longest.min(histogram.max_ns()));
                let y = self.y(longer as f64 / samples as f64);
                // Writing to a string cannot fail.
                let _ = write!(line, "L{x:.1} {y:.1}");
                longer -= count;
            }
            // The maximum: one sample.
            let end = (self.x(histogram.max_ns()), self.y(1.0 / samples as f64));
            let _ = write!(line, "L{:.1} {:.1}", end.0, end.1);
            path(svg, "line", dashes(*mode), &line);
            ends.push((*mode, end));
        }
        self.names(svg, ends);
    }

    /// The names stand below the lines' ends and to the right, in steps. No name is crossed by the leader
    /// of another.
    fn names(&self, svg: &mut String, mut ends: Vec<(Mode, (f64, f64))>) {
        ends.sort_by(|(_, first), (_, second)| second.0.total_cmp(&first.0));
        for (step, (mode, (x, y))) in ends.into_iter().enumerate() {
            let level = self.top + HEIGHT + LINE * (step as f64 + 1.0);
            path(svg, "leader", "none", &format!("M{x:.1} {y:.1}V{level:.1}"));
            text(svg, "name", (x + 4.0, level), "start", mode.label());
        }
    }
}

/// A power of ten of nanoseconds.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    element(
        svg,
        format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
        ),
    );
}

fn path(svg: &mut String, class: &str, dashes: &str, data: &str) {
    element(
        svg,
        format_args!("<path class=\"{class}\" stroke-dasharray=\"{dashes}\" d=\"{data}\"/>"),
    );
}

fn element(svg: &mut String, element: impl Display) {
    svg.push('\n');
    // Writing to a string cannot fail.
    let _ = write!(svg, "{element}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    /// Tags are closed in their order, and text and attributes have no bare signs of XML.
    fn check_well_formed(xml: &str) {
        let mut open: Vec<&str> = Vec::new();
        for part in xml.split('<').skip(1) {
            let (tag, content) = part.split_once('>').expect("a tag without an end");
            let entities = content.matches('&').count();
            let known = ["&amp;", "&lt;", "&gt;"].map(|one| content.matches(one).count());
            assert_eq!(entities, known.iter().sum::<usize>(), "{content:?}");
            assert!(!content.contains('>'), "{content:?}");
            assert!(tag.matches('"').count().is_multiple_of(2), "{tag:?}");
            let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a tag's name");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn the_picture_is_well_formed_and_names_each_line() {
        let svg = picture(&example());
        check_well_formed(&svg);
        assert!(svg.contains("A &lt;processor&gt; &amp; more"));
        assert_eq!(svg.matches(">no pinning</text>").count(), 4);
        assert_eq!(svg.matches(">kernel</text>").count(), 4);
        assert_eq!(svg.matches("class=\"line\"").count(), 8);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    /// Every text is within the picture, however long the names of the machine are, and wherever lines end.
    #[test]
    fn no_text_is_clipped() {
        let mut report = example();
        report.machine.model = "A processor of a very long name ".repeat(8);
        report.cpus.exclusive =
            (0..64).map(|core| 2 * core + 1).flat_map(cpuset::CpuSet::of).collect();
        let svg = picture(&report);
        let (_, size) = svg.split_once("width=\"").unwrap();
        let width: f64 = size.split('"').next().unwrap().parse().unwrap();
        for text in svg.split("<text ").skip(1) {
            let (_, x) = text.split_once(" x=\"").unwrap();
            let x: f64 = x.split('"').next().unwrap().parse().unwrap();
            let (attributes, content) = text.split_once('>').unwrap();
            let content = content.split("</text>").next().unwrap();
            let long = content.chars().count() as f64 * LETTER;
            let (left, right) = if attributes.contains("\"start\"") {
                (x, x + long)
            } else if attributes.contains("\"end\"") {
                (x - long, x)
            } else {
                (x - long / 2.0, x + long / 2.0)
            };
            assert!(left >= 0.0 && right <= width, "{content:?} from {left} to {right} of {width}");
        }
    }

    #[test]
    fn modes_have_different_dashes() {
        let mut dashes = Mode::ALL.map(dashes).to_vec();
        dashes.sort_unstable();
        dashes.dedup();
        assert_eq!(dashes.len(), Mode::ALL.len());
    }
}
