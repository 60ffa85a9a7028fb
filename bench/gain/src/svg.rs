//! The distributions as a picture: for each measurement a panel alone and one next to neighbours, on the
//! same scales. A line shows which part of the samples took longer than a time, so each percentile can be
//! read from it. Lines differ in their dashes and have their names next to them: no colours are needed.

use std::fmt::{Display, Write};

use crate::experiment::Cell;
use crate::histogram::Histogram;
use crate::report::{Measure, Report};
use crate::tree::Mode;

/// A panel's area for lines, in pixels.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 220.0;
/// Space for the labels of the vertical axis, and between panels.
const LEFT: f64 = 70.0;
const GAP: f64 = 30.0;
/// Above the first row, above each row for its titles, and below each row for the labels of its axis.
const HEADLINE: f64 = 62.0;
const TITLE: f64 = 34.0;
const BELOW: f64 = 52.0;
const LINE: f64 = 16.0;
/// The width of a letter at most.
const LETTER: f64 = 6.6;
/// The smallest part that has a place: one sample in 100,000.
const SMALLEST_LOG10: f64 = -5.0;

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
    let width = LEFT + 2.0 * WIDTH + GAP + 20.0;
    let row = TITLE + HEIGHT + BELOW;
    let height = HEADLINE + 2.0 * row;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\"><title>What pinning gains on one machine</title>\
         <style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    text(&mut svg, "headline", (12.0, 24.0), "start", "Part of the samples that took longer");
    for (at, line) in report.headline().lines().enumerate() {
        text(&mut svg, "soft", (12.0, 42.0 + at as f64 * LINE), "start", line);
    }
    for (at, measure) in Measure::ALL.into_iter().enumerate() {
        let top = HEADLINE + at as f64 * row + TITLE;
        let range = Range::of(report, measure);
        for (at, neighbours) in [false, true].into_iter().enumerate() {
            let left = LEFT + at as f64 * (WIDTH + GAP);
            let panel = Panel { left, top, range };
            let beside = if neighbours { "next to neighbours" } else { "alone" };
            let title = format!("{}, {beside}", measure.label());
            text(&mut svg, "name", (left, top - 10.0), "start", &title);
            panel.grid(&mut svg, at == 0);
            let lines = report
                .modes()
                .into_iter()
                .map(|mode| (mode, report.histogram(measure, Cell { mode, neighbours })));
            panel.lines(&mut svg, &lines.collect::<Vec<_>>());
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Whole powers of ten of nanoseconds, for both panels of a measurement.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: i32,
    last: i32,
}

impl Range {
    fn of(report: &Report, measure: Measure) -> Range {
        let mut least = u64::MAX;
        let mut most = 1;
        for run in &report.runs {
            let all = report.histogram(measure, run.cell);
            least = least.min(all.percentile(0.1));
            most = most.max(all.max_ns());
        }
        let first = (least.min(most).max(1) as f64).log10().floor() as i32;
        let last = (most as f64).log10().ceil() as i32;
        Range { first, last: last.max(first + 1) }
    }
}

struct Panel {
    left: f64,
    top: f64,
    range: Range,
}

impl Panel {
    fn x(&self, ns: u64) -> f64 {
        let Range { first, last } = self.range;
        let part = ((ns.max(1) as f64).log10() - f64::from(first)) / f64::from(last - first);
        self.left + part.clamp(0.0, 1.0) * WIDTH
    }

    fn y(&self, share: f64) -> f64 {
        self.top + (share.log10() / SMALLEST_LOG10).clamp(0.0, 1.0) * HEIGHT
    }

    fn grid(&self, svg: &mut String, with_labels: bool) {
        let (right, bottom) = (self.left + WIDTH, self.top + HEIGHT);
        for power in self.range.first..=self.range.last {
            let ns = 10_u64.pow(power.unsigned_abs());
            let x = self.x(ns);
            path(svg, "grid", "none", &format!("M{x:.1} {:.1}V{bottom:.1}", self.top));
            text(svg, "soft", (x, bottom + LINE), "middle", &time(ns));
        }
        for (share, label) in [
            (1.0, "all"),
            (0.5, "p50"),
            (0.1, "10 %"),
            (0.01, "1 % (p99)"),
            (0.001, "p99.9"),
            (0.0001, "p99.99"),
        ] {
            let y = self.y(share);
            path(svg, "grid", "none", &format!("M{:.1} {y:.1}H{right:.1}", self.left));
            if with_labels {
                text(svg, "soft", (self.left - 6.0, y + 4.0), "end", label);
            }
        }
        let (left, top) = (self.left, self.top);
        let frame = format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z");
        path(svg, "frame", "none", &frame);
    }

    /// The names stand in steps above the lines' ends, where no line of a slower mode is: the fastest highest.
    fn lines(&self, svg: &mut String, lines: &[(Mode, Histogram)]) {
        let mut ends = Vec::new();
        for (mode, histogram) in lines {
            let samples = histogram.samples();
            if samples == 0 {
                continue;
            }
            let mut longer = samples;
            let mut line = format!("M{:.1} {:.1}", self.left, self.y(1.0));
            // Writing to a string cannot fail.
            for (longest, count) in histogram.buckets() {
                let at = longest.min(histogram.max_ns());
                let _ = write!(
                    line,
                    "L{:.1} {:.1}",
                    self.x(at),
                    self.y(longer as f64 / samples as f64)
                );
                longer -= count;
            }
            // The maximum: one sample.
            let end = (self.x(histogram.max_ns()), self.y(1.0 / samples as f64));
            let _ = write!(line, "L{:.1} {:.1}", end.0, end.1);
            path(svg, "line", dashes(*mode), &line);
            ends.push((*mode, end));
        }
        ends.sort_by(|(_, first), (_, second)| second.0.total_cmp(&first.0));
        for (at, (mode, (x, y))) in ends.into_iter().enumerate() {
            let name = mode.label();
            let level = self.top + HEIGHT - 10.0 - at as f64 * (LINE + 2.0);
            let (level, y) = (level.min(y - 6.0), y);
            path(svg, "leader", "none", &format!("M{x:.1} {y:.1}V{:.1}", level - 4.0));
            let fits = x + 6.0 + name.len() as f64 * LETTER < self.left + WIDTH;
            let (x, anchor) = if fits { (x + 4.0, "start") } else { (x - 4.0, "end") };
            text(svg, "name", (x, level), anchor, name);
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

    #[test]
    fn modes_have_different_dashes() {
        let mut dashes = Mode::ALL.map(dashes).to_vec();
        dashes.sort_unstable();
        dashes.dedup();
        assert_eq!(dashes.len(), Mode::ALL.len());
    }
}
