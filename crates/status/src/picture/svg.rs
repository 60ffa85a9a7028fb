//! The picture as SVG: one document without references, light or dark as the reader prefers, and
//! light in programs that are no browsers.

use super::layout::{self, CHARACTER, LIST, Placed, TITLE, WIDEST};
use super::xml::Xml;
use super::{Cell, Core, Picture, Usage, cut};
use topology::CoreKind;

/// The margin of a file. A page has its own margins: there it is half the width of a frame's line.
const MARGIN: f64 = 12.0;
const NO_MARGIN: f64 = 1.0;
/// The base line of a file's headline, and the space for it below the margin.
const HEADLINE: f64 = 30.0;
/// The height of a line of facts below the headline.
const FACT: f64 = 16.0;
/// The greatest width of a column of the legend, and the height of its lines.
const COLUMN: f64 = 384.0;
const LINE: f64 = 40.0;
/// The least width of a file, without its margins.
const NARROWEST: f64 = COLUMN * 1.5;
/// The size of the smallest text that people read without effort.
const SMALLEST: f64 = 12.0;
/// The side of a sign in a legend.
const SWATCH: f64 = 26.0;
/// The most characters of a name and of a container's facts that fit in a column.
const NAME: usize = 48;
const FACTS: usize = 52;

/// The rules of pictures, one a line, with a variable for each of [`COLOURS`].
const RULES: &str = include_str!("style.css");

/// The colours that depend on what the reader prefers: variable, light, dark.
const COLOURS: [(&str, &str, &str); 8] = [
    ("--paper", "#ffffff", "#14171a"),
    ("--card", "#f6f7f8", "#1c2024"),
    ("--ink", "#1b1d1f", "#eceff1"),
    ("--soft", "#54595f", "#a9b1b8"),
    ("--line", "#868c93", "#6f767d"),
    ("--shared", "#e4e7ea", "#2d3339"),
    ("--reserved", "#b9bfc6", "#505860"),
    ("--core", "#6b7178", "#848c94"),
];

const DARK: &str = "@media (prefers-color-scheme: dark)";

/// The style sheet of a page, once for its picture and its swatches. The page's own rules may use
/// the variables.
pub fn page_style() -> String {
    let declared = COLOURS.map(|(variable, light, _)| format!("{variable}: {light};")).join(" ");
    let dark = COLOURS.map(|(variable, _, dark)| format!("{variable}: {dark};")).join(" ");
    format!(
        ":root {{ color-scheme: light dark; {declared} }}\n{DARK} {{ :root {{ {dark} }} }}\n{RULES}"
    )
}

/// The style sheet of a file, which programs other than browsers read, too. They do not know
/// variables, not even after a plain value: librsvg leaves that declaration out, resvg paints
/// black, and Inkscape drops the whole sheet. So all values are plain; these programs skip media
/// queries.
fn file_style() -> String {
    let mut light = RULES.to_owned();
    let mut dark: String =
        RULES.split_inclusive('\n').filter(|rule| rule.contains("var(")).collect();
    for (variable, on_light, on_dark) in COLOURS {
        let variable = format!("var({variable})");
        light = light.replace(&variable, on_light);
        dark = dark.replace(&variable, on_dark);
    }
    format!("{light}{DARK} {{\n{dark}}}\n")
}

/// A separate file: the picture between its title and its legend.
pub fn file(picture: &Picture, title: &str) -> String {
    let painter = Painter::of(picture);
    let (placed, width, height) = layout::machine(&picture.frames, painter.side);
    let legend = Legend::of(picture, width.max(NARROWEST), height);
    let width = width.max(NARROWEST).max(legend.width()).max(memory_width(picture));
    let facts = wrapped(&picture.facts, width);
    let top = MARGIN + HEADLINE + facts.len() as f64 * FACT;
    let memory = top + height;
    let below = memory + memory_height(picture) + 14.0;
    let size = (width + 2.0 * MARGIN, below + legend.height() + MARGIN);
    document(picture, title, size, |xml| {
        xml.element("style", &[], |xml| xml.raw(&file_style()));
        xml.empty("rect", &[("class", &"paper"), ("width", &"100%"), ("height", &"100%")]);
        xml.text("text", &[("class", &"headline"), ("x", &MARGIN), ("y", &HEADLINE)], title);
        lines(xml, &facts, (MARGIN, HEADLINE));
        group(xml, (MARGIN, top), |xml| painter.frames(xml, &placed));
        lines(xml, &picture.memory, (MARGIN, memory));
        group(xml, (MARGIN, below), |xml| legend.draw(xml));
    })
}

/// A part of a page that has [`page_style`] and its own legend.
pub fn part(picture: &Picture) -> String {
    let painter = Painter::of(picture);
    let (placed, width, height) = layout::machine(&picture.frames, painter.side);
    let width = width.max(memory_width(picture));
    let size = (width + 2.0 * NO_MARGIN, height + memory_height(picture) + 2.0 * NO_MARGIN);
    document(picture, "CPUs and their containers", size, |xml| {
        group(xml, (NO_MARGIN, NO_MARGIN), |xml| painter.frames(xml, &placed));
        lines(xml, &picture.memory, (NO_MARGIN, NO_MARGIN + height));
    })
}

/// The width of the lines about memory; no more than the widest picture has.
fn memory_width(picture: &Picture) -> f64 {
    let longest = picture.memory.iter().map(|line| line.chars().count()).max();
    longest.map_or(0.0, |characters| ((characters + 1) as f64 * CHARACTER).min(WIDEST))
}

/// The height of the lines about memory below the frames.
fn memory_height(picture: &Picture) -> f64 {
    if picture.memory.is_empty() { 0.0 } else { picture.memory.len() as f64 * FACT + 6.0 }
}

/// Lines of text below this point; none is longer than the widest picture.
fn lines(xml: &mut Xml, lines: &[String], (x, top): (f64, f64)) {
    for (at, line) in lines.iter().enumerate() {
        let y = top + 4.0 + (at + 1) as f64 * FACT;
        let line = cut(line, (WIDEST / CHARACTER) as usize);
        xml.text("text", &[("class", &"label soft"), ("x", &x), ("y", &y)], &line);
    }
}

fn document(
    picture: &Picture,
    title: &str,
    (width, height): (f64, f64),
    inside: impl FnOnce(&mut Xml),
) -> String {
    let mut xml = Xml::default();
    xml.element(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("class", &"picture"),
            ("viewBox", &format!("0 0 {width} {height}")),
            ("width", &width),
            ("height", &height),
            // It shrinks with the screen, down to letters of 10 pixels.
            ("style", &format!("min-width: {}px", (width / SMALLEST * 10.0).round())),
            ("role", &"img"),
            ("aria-labelledby", &"picture-title picture-desc"),
        ],
        |xml| {
            xml.text("title", &[("id", &"picture-title")], title);
            xml.text("desc", &[("id", &"picture-desc")], &picture.sentence());
            xml.raw(TEXTURE_DEFINITIONS);
            inside(xml);
        },
    );
    xml.finish()
}

fn group(xml: &mut Xml, (x, y): (f64, f64), inside: impl FnOnce(&mut Xml)) {
    xml.element("g", &[("transform", &format!("translate({x} {y})"))], inside);
}

/// The sign of a CPU on its colour and texture, for a legend in a page.
pub fn swatch(usage: Usage) -> String {
    let mut xml = Xml::default();
    xml.element(
        "svg",
        &[
            ("class", &"swatch"),
            ("viewBox", &format!("0 0 {SWATCH} {SWATCH}")),
            ("width", &SWATCH),
            ("height", &SWATCH),
            ("aria-hidden", &"true"),
        ],
        |xml| fill(xml, usage, (0.0, 0.0), SWATCH),
    );
    xml.finish()
}

/// Patterns over a colour, by texture; texture 0 has none.
const TEXTURE_DEFINITIONS: &str = concat!(
    r#"<defs>"#,
    r#"<pattern id="texture1" width="6" height="6" patternUnits="userSpaceOnUse"><path class="ink" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern>"#,
    r#"<pattern id="texture2" width="6" height="6" patternUnits="userSpaceOnUse"><circle class="dot" cx="3" cy="3" r="1.2"/></pattern>"#,
    r#"<pattern id="texture3" width="5" height="5" patternUnits="userSpaceOnUse"><path class="ink" d="M0 2.5h5"/></pattern>"#,
    r#"<pattern id="texture4" width="6" height="6" patternUnits="userSpaceOnUse"><path class="ink" d="M0 0l6 6M6 0l-6 6"/></pattern>"#,
    r#"</defs>"#,
);

struct Painter<'a> {
    picture: &'a Picture,
    side: f64,
}

impl<'a> Painter<'a> {
    fn of(picture: &'a Picture) -> Painter<'a> {
        Painter { picture, side: layout::side(picture.cells().len()) }
    }

    fn frames(&self, xml: &mut Xml, frames: &[Placed<'_>]) {
        frames.iter().for_each(|one| self.frame(xml, one));
    }

    fn frame(&self, xml: &mut Xml, placed: &Placed<'_>) {
        let Placed { frame, x, y, width, height, .. } = placed;
        group(xml, (*x, *y), |xml| {
            let class = if placed.inner.is_empty() { "frame inner" } else { "frame" };
            xml.empty(
                "rect",
                &[("class", &class), ("width", width), ("height", height), ("rx", &6)],
            );
            xml.element("text", &[("class", &"label"), ("x", &10), ("y", &(TITLE - 8.0))], |xml| {
                xml.text("tspan", &[], &frame.title);
                if !frame.cpus.is_empty() {
                    let list = cut(&frame.cpus.to_string(), LIST);
                    xml.text("tspan", &[("class", &"soft"), ("dx", &8)], &list);
                }
            });
            for (x, y, core) in &placed.cores {
                self.core(xml, (*x, *y), core);
            }
            self.frames(xml, &placed.inner);
        });
    }

    fn core(&self, xml: &mut Xml, (x, y): (f64, f64), core: &Core) {
        for (at, cell) in core.cells.iter().enumerate() {
            let at = (x, y + at as f64 * self.side);
            xml.element("g", &[], |xml| {
                xml.text("title", &[], &self.picture.describe(core, *cell));
                self.cell(xml, at, *cell);
            });
        }
        let height = core.cells.len() as f64 * self.side;
        let class = if core.kind == Some(CoreKind::Efficient) { "core efficient" } else { "core" };
        xml.empty(
            "rect",
            &[
                ("class", &class),
                ("x", &x),
                ("y", &y),
                ("width", &self.side),
                ("height", &height),
                ("rx", &3),
            ],
        );
    }

    /// A cell, with the CPU's number if it is legible or there is no sign.
    fn cell(&self, xml: &mut Xml, at: (f64, f64), Cell { cpu, usage }: Cell) {
        fill(xml, usage, at, self.side);
        let below = match usage {
            Usage::Unknown => (self.side / 2.0).round() + 4.0,
            _ if has_number(self.side) => self.side - 3.0,
            _ => return,
        };
        let class = match usage {
            Usage::Held(badge) => format!("number on{}", badge.colour()),
            _ => "number".to_owned(),
        };
        let (x, y) = (at.0 + self.side / 2.0, at.1 + below);
        xml.text("text", &[("class", &class), ("x", &x), ("y", &y)], &cpu.to_string());
    }
}

fn has_number(side: f64) -> bool {
    side > 30.0
}

/// A square with colour, texture and sign.
fn fill(xml: &mut Xml, usage: Usage, at: (f64, f64), side: f64) {
    let class = match usage {
        Usage::Held(badge) => {
            let colour = badge.colour();
            square(xml, &format!("c{colour}"), at, side);
            if badge.texture() > 0 {
                square(xml, &format!("x{}", badge.texture()), at, side);
            }
            format!("letter c{colour} on{colour}")
        }
        other => {
            let class = match other {
                Usage::Reserved => "reserved",
                Usage::Offline => "offline",
                _ => "shared",
            };
            square(xml, class, at, side);
            "sign".to_owned()
        }
    };
    let text = usage.sign();
    // The sign is smaller and higher where the CPU's number is below it.
    let (part, middle) = if has_number(side) { (0.47, 0.47) } else { (0.56, 0.7) };
    let size = match text.chars().count() {
        0 => return,
        1 => side * part,
        2 => (side * part.min(0.5)).max(SMALLEST),
        _ => side * 0.36,
    };
    let (x, y) = (at.0 + side / 2.0, (at.1 + side * middle).round());
    let font = size.round();
    xml.text("text", &[("class", &class), ("x", &x), ("y", &y), ("font-size", &font)], &text);
}

fn square(xml: &mut Xml, class: &str, (x, y): (f64, f64), side: f64) {
    xml.empty(
        "rect",
        &[("class", &class), ("x", &x), ("y", &y), ("width", &side), ("height", &side)],
    );
}

/// Facts in lines of at most this width.
fn wrapped(facts: &[String], width: f64) -> Vec<String> {
    wording::fill(facts, " · ", (width / CHARACTER) as usize)
}

/// The legend of a file: in columns the containers, then the other signs.
struct Legend {
    /// Signs with the texts beside them.
    entries: Vec<(Usage, String, String)>,
    columns: usize,
    /// The width of a column.
    step: f64,
}

impl Legend {
    /// A legend for a picture of this size. One that would be higher than the picture may be as wide
    /// as the widest picture.
    fn of(picture: &Picture, width: f64, height: f64) -> Legend {
        let cut_both = |(usage, title, facts): (Usage, String, String)| {
            (usage, cut(&title, NAME), cut(&facts, FACTS))
        };
        let entries: Vec<_> = picture.entries().into_iter().map(cut_both).collect();
        let characters = |(_, title, facts): &(Usage, String, String)| {
            title.chars().count().max(facts.chars().count())
        };
        let longest = entries.iter().map(characters).max().unwrap_or(0);
        let step = (SWATCH + 8.0 + (longest + 2) as f64 * CHARACTER).min(COLUMN);
        let fitting = |width: f64| ((width / step) as usize).clamp(1, entries.len().max(1));
        let mut columns = fitting(width);
        if entries.len().div_ceil(columns) as f64 * LINE > height {
            columns = fitting(WIDEST.max(width));
        }
        // No more columns than these lines need.
        let lines = entries.len().div_ceil(columns).max(1);
        Legend { columns: entries.len().div_ceil(lines).max(1), entries, step }
    }

    fn width(&self) -> f64 {
        self.columns as f64 * self.step
    }

    fn height(&self) -> f64 {
        self.entries.len().div_ceil(self.columns) as f64 * LINE
    }

    fn draw(&self, xml: &mut Xml) {
        for (at, (usage, title, facts)) in self.entries.iter().enumerate() {
            let x = (at % self.columns) as f64 * self.step;
            let y = (at / self.columns) as f64 * LINE;
            fill(xml, *usage, (x, y), SWATCH);
            let x = x + SWATCH + 8.0;
            let middle = y + if facts.is_empty() { 17.0 } else { 10.0 };
            xml.text("text", &[("class", &"label"), ("x", &x), ("y", &middle)], title);
            if !facts.is_empty() {
                let below = y + 25.0;
                xml.text("text", &[("class", &"label soft"), ("x", &x), ("y", &below)], facts);
            }
        }
    }
}
