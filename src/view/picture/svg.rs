//! The picture as SVG: one document without references, light or dark as the reader prefers, and
//! light in programs that are no browsers.

use super::super::badge::Badge;
use super::layout::{self, LIST, Placed, TITLE};
use super::names::cut;
use super::xml::Xml;
use super::{Cell, Core, Picture, Tenant, Usage};
use topology::CoreKind;

/// The width that frames side by side fill, in pixels.
const WIDTH: f64 = 1180.0;
/// The margin of a file. A page has its own margins: there it is half the width of a frame's line.
const MARGIN: f64 = 12.0;
const NO_MARGIN: f64 = 1.0;
/// The width of a column of the legend, and the height of its lines.
const COLUMN: f64 = 384.0;
const LINE: f64 = 40.0;
/// The most characters of a name and of a remark that a column has room for.
const NAME: usize = 48;
const REMARK: usize = 52;

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

/// The style sheet of a page, which needs it once for all of its pictures. The page's own rules may
/// use the variables.
pub fn page_style() -> String {
    let declared = COLOURS.map(|(variable, light, _)| format!("{variable}: {light};")).join(" ");
    let dark = COLOURS.map(|(variable, _, dark)| format!("{variable}: {dark};")).join(" ");
    format!(
        ":root {{ color-scheme: light dark; {declared} }}\n{DARK} {{ :root {{ {dark} }} }}\n{RULES}"
    )
}

/// The style sheet of a file, which other programs than browsers read, too. A variable is too much
/// for them, even after a plain value: librsvg leaves that declaration out, resvg paints black, and
/// Inkscape drops the whole sheet. So all values are plain; media queries they skip.
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

/// Whether the drawing stands alone.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    /// A separate file, with this title above it and a legend below it.
    File(&'a str),
    /// A part of a page that has [`page_style`] and its own legend.
    Part,
}

/// Draws a picture as an `svg` element.
pub fn draw(picture: &Picture, form: Form<'_>) -> String {
    let side = layout::side(picture.cells().len());
    let (placed, width, height) = layout::flow(&picture.frames, side, WIDTH);
    let (above, below, widest, margin) = match form {
        Form::File(_) => {
            let columns = ((width / COLUMN) as usize).max(1);
            let lines = picture.tenants.len().div_ceil(columns) as f64;
            (30.0, 14.0 + lines * LINE + LINE, width.max(COLUMN * 1.5), MARGIN)
        }
        Form::Part => (0.0, 0.0, width, NO_MARGIN),
    };
    let full_width = widest + 2.0 * margin;
    let full_height = height + above + below + 2.0 * margin;
    let mut xml = Xml::default();
    let title = match form {
        Form::File(title) => title,
        Form::Part => "CPUs and their containers",
    };
    xml.element(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("class", &"picture"),
            ("viewBox", &format!("0 0 {full_width} {full_height}")),
            ("width", &full_width),
            ("height", &full_height),
            ("role", &"img"),
            ("aria-labelledby", &"picture-title picture-desc"),
        ],
        |xml| {
            xml.text("title", &[("id", &"picture-title")], title);
            xml.text("desc", &[("id", &"picture-desc")], &picture.sentence());
            if let Form::File(_) = form {
                xml.element("style", &[], |xml| xml.raw(&file_style()));
                xml.empty("rect", &[("class", &"paper"), ("width", &"100%"), ("height", &"100%")]);
                xml.text("text", &[("class", &"headline"), ("x", &MARGIN), ("y", &30)], title);
            }
            xml.raw(TEXTURE_DEFINITIONS);
            let top = margin + above;
            let painter = Painter { picture, side };
            xml.element("g", &[("transform", &format!("translate({margin} {top})"))], |xml| {
                placed.iter().for_each(|one| painter.frame(xml, one));
            });
            if let Form::File(_) = form {
                legend(xml, picture, top + height + 14.0, width);
            }
        },
    );
    xml.finish()
}

/// A badge alone, for a legend: letters on colour and texture.
pub fn swatch(badge: Badge) -> String {
    let mut xml = Xml::default();
    let size = 26.0;
    xml.element(
        "svg",
        &[
            ("class", &"swatch"),
            ("viewBox", &format!("0 0 {size} {size}")),
            ("width", &size),
            ("height", &size),
            ("aria-hidden", &"true"),
        ],
        |xml| held(xml, badge, (0.0, 0.0), size),
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

impl Painter<'_> {
    fn frame(&self, xml: &mut Xml, placed: &Placed<'_>) {
        let at = format!("translate({} {})", placed.x, placed.y);
        let frame = placed.frame;
        xml.element("g", &[("transform", &at)], |xml| {
            let class = if placed.inner.is_empty() { "frame inner" } else { "frame" };
            let Placed { width, height, .. } = placed;
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
            placed.inner.iter().for_each(|one| self.frame(xml, one));
        });
    }

    fn core(&self, xml: &mut Xml, (x, y): (f64, f64), core: &Core) {
        for (at, cell) in core.cells.iter().enumerate() {
            self.cell(xml, (x, y + at as f64 * self.side), cell, core.kind);
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

    fn cell(&self, xml: &mut Xml, at: (f64, f64), cell: &Cell, kind: Option<CoreKind>) {
        let tenant = match cell.usage {
            Usage::Held(at) => Some(&self.picture.tenants[at]),
            _ => None,
        };
        let kind = match kind {
            None => "",
            Some(CoreKind::Performance) => ", performance core",
            Some(CoreKind::Efficient) => ", efficient core",
        };
        let user = match tenant {
            Some(Tenant { badge, name, .. }) if name.is_empty() => badge.to_string(),
            Some(Tenant { badge, name, .. }) => format!("{badge} {name}"),
            None => cell.usage.meaning().to_owned(),
        };
        xml.element("g", &[], |xml| {
            xml.text("title", &[], &format!("CPU {}{kind}: {user}", cell.cpu));
            match tenant {
                Some(tenant) => held(xml, tenant.badge, at, self.side),
                None => unheld(xml, cell.usage, at, self.side),
            }
            if self.side > 30.0 {
                let class = tenant
                    .map_or("number".to_owned(), |one| format!("number on{}", one.badge.colour()));
                let x = at.0 + self.side / 2.0;
                let y = at.1 + self.side - 4.0;
                xml.text("text", &[("class", &class), ("x", &x), ("y", &y)], &cell.cpu.to_string());
            }
        });
    }
}

fn held(xml: &mut Xml, badge: Badge, at: (f64, f64), side: f64) {
    let colour = badge.colour();
    square(xml, &format!("c{colour}"), at, side);
    if badge.texture() > 0 {
        square(xml, &format!("x{}", badge.texture()), at, side);
    }
    sign(xml, &format!("letter c{colour} on{colour}"), &badge.to_string(), at, side);
}

fn unheld(xml: &mut Xml, usage: Usage, at: (f64, f64), side: f64) {
    let class = match usage {
        Usage::Reserved => "reserved",
        Usage::Offline => "offline",
        Usage::Idle | Usage::Isolated | Usage::Unused => "unused",
        Usage::Shared | Usage::Held(_) => "shared",
    };
    square(xml, class, at, side);
    sign(xml, "sign", usage.sign(), at, side);
}

fn square(xml: &mut Xml, class: &str, (x, y): (f64, f64), side: f64) {
    xml.empty(
        "rect",
        &[("class", &class), ("x", &x), ("y", &y), ("width", &side), ("height", &side)],
    );
}

fn sign(xml: &mut Xml, class: &str, text: &str, (x, y): (f64, f64), side: f64) {
    let size = match text.chars().count() {
        1 => side * 0.56,
        2 => side * 0.5,
        _ => side * 0.36,
    };
    // The letter is a little higher where the CPU's number is below it.
    let middle = if side > 30.0 { 0.56 } else { 0.7 };
    xml.text(
        "text",
        &[
            ("class", &class),
            ("x", &(x + side / 2.0)),
            ("y", &(y + side * middle).round()),
            ("font-size", &size.round()),
        ],
        text,
    );
}

/// Each container with letter, name and CPUs, and what the other signs mean.
fn legend(xml: &mut Xml, picture: &Picture, top: f64, width: f64) {
    let columns = ((width / COLUMN) as usize).max(1);
    let size = 26.0;
    for (at, tenant) in picture.tenants.iter().enumerate() {
        let x = MARGIN + (at % columns) as f64 * COLUMN;
        let y = top + (at / columns) as f64 * LINE;
        held(xml, tenant.badge, (x, y), size);
        let x = x + size + 8.0;
        xml.text(
            "text",
            &[("class", &"label"), ("x", &x), ("y", &(y + 10.0))],
            &cut(&tenant.name, NAME),
        );
        let parts = [wording::cpus(tenant.cpus), tenant.remark.clone()];
        let facts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let facts = cut(&facts.join(", "), REMARK);
        xml.text("text", &[("class", &"label soft"), ("x", &x), ("y", &(y + 25.0))], &facts);
    }
    let y = top + picture.tenants.len().div_ceil(columns) as f64 * LINE;
    let mut x = MARGIN;
    // A picture of one use only needs no legend.
    let signs = picture.signs();
    let signs = if picture.tenants.is_empty() && signs.len() == 1 { Vec::new() } else { signs };
    for usage in signs {
        unheld(xml, usage, (x, y), size);
        xml.text(
            "text",
            &[("class", &"label"), ("x", &(x + size + 8.0)), ("y", &(y + 17.0))],
            usage.meaning(),
        );
        x += size + 30.0 + usage.meaning().chars().count() as f64 * 6.8;
    }
}
