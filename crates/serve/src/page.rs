//! The node as a page: its picture and its containers. It refreshes itself and loads nothing from
//! other servers.

use ledger::Stance;
use status::facts::{Fact, Level, facts};
use status::memory;
use status::outline::{ContainerOutline, NodeOutline, Outline};
use status::picture::{Picture, escaped, svg};
use status::snapshot::{Container, Node, Record, Snapshot};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use wording::Moment;
use wording::count;

/// How often the page reloads without its script, in seconds. The script asks every two.
const RELOAD: u32 = 5;
/// The most letters of a name that stay in a line.
const LONG_PART: usize = 28;
/// How many of the last refusals and of the last troubles the page shows.
const RECORDS: usize = 5;

/// The script that refreshes the page.
pub const SCRIPT: &str = include_str!("page/page.js");
pub(crate) const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

/// What a reader sees.
#[derive(Debug, Clone, Copy)]
pub enum Reader<'a> {
    /// One without rights: an outline.
    Stranger(&'a Outline),
    /// One who may see what runs on the node.
    Entitled(&'a Snapshot),
}

pub fn page(reader: Reader<'_>) -> String {
    let outline = reader.outline();
    let title = escaped(&heading(&outline));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"icon.svg\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{RELOAD}\"></noscript>\n\
         <style>{}{STYLE}</style>\n<script src=\"page.js\" defer></script>\n</head>\n<body>\n\
         <header><h1>{title}</h1><p id=\"state\" role=\"status\">as of {}</p></header>\n\
         <main>{}</main>\n\
         <footer><a href=\"picture.svg\">picture only</a> · <a href=\"metrics\">metrics</a> · \
         <a href=\"readyz\">readiness</a> · nri-cpu-manager {}</footer>\n</body>\n</html>\n",
        svg::page_style(),
        outline.at,
        main(reader, &outline),
        outline.plugin_version,
    )
}

/// The part of the page that changes.
pub fn fragment(reader: Reader<'_>) -> String {
    main(reader, &reader.outline())
}

fn main(reader: Reader<'_>, outline: &Outline) -> String {
    let mut html = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut html, reader, outline);
    html
}

/// The picture as a separate file; otherwise why there is none.
pub fn picture(reader: Reader<'_>) -> Result<String, String> {
    let outline = reader.outline();
    let none = || "there is no usable configuration: /readyz says why".to_owned();
    let node = outline.node.as_ref().ok_or_else(none)?;
    let picture = reader.picture(node);
    Ok(svg::file(&picture, &format!("{}, {}", heading(&outline), outline.at)))
}

fn heading(outline: &Outline) -> String {
    match &outline.node_name {
        Some(name) => format!("CPUs of node {name}"),
        None => "CPUs of this node".to_owned(),
    }
}

impl<'a> Reader<'a> {
    fn outline(self) -> Outline {
        match self {
            Reader::Stranger(outline) => outline.clone(),
            Reader::Entitled(snapshot) => Outline::of(snapshot),
        }
    }

    fn snapshot(self) -> Option<&'a Snapshot> {
        match self {
            Reader::Stranger(_) => None,
            Reader::Entitled(snapshot) => Some(snapshot),
        }
    }

    fn picture(self, outline: &NodeOutline) -> Picture {
        let picture = Picture::of_outline(outline);
        match self.node() {
            Some(node) => picture.named(node),
            None => picture,
        }
    }

    fn node(self) -> Option<&'a Node> {
        self.snapshot()?.node.as_ref()
    }
}

fn write(html: &mut String, reader: Reader<'_>, outline: &Outline) -> fmt::Result {
    let snapshot = reader.snapshot();
    let all = snapshot.map(facts).unwrap_or_default();
    write_notices(html, &all)?;
    write!(html, "<dl class=\"facts\">")?;
    let (class, ready) = if outline.ready { ("good", "yes") } else { ("bad", "no") };
    fact(html, "Ready", &format!("<b class=\"{class}\">{ready}</b>"))?;
    let connected = if outline.connected { "connected" } else { "not connected" };
    let runtime = snapshot.map(|snapshot| snapshot.runtime.to_string());
    fact(html, "Runtime", &escaped(runtime.as_deref().unwrap_or(connected)))?;
    let named = reader.node();
    if let Some(node) = &outline.node {
        write_figures(html, node)?;
    }
    if let Some(node) = named {
        write_settings(html, node)?;
    }
    write!(html, "</dl>")?;
    let Some(node) = &outline.node else { return Ok(()) };
    if let Some(named) = named {
        let refusals = named.refusals.iter().filter(|one| !one.settled);
        write_records(html, "Refused", refusals, outline)?;
    }
    write_picture(html, &reader.picture(node))?;
    write_containers(html, node, named, outline)?;
    if let Some(named) = named {
        let troubles = named.troubles.iter();
        write_records(html, "Recent drifts and other troubles", troubles, outline)?;
        write_notes(html, &all)?;
    }
    Ok(())
}

/// What is wrong, at the top. Each has a word and a sign, so that none depends on its colour.
fn write_notices(html: &mut String, facts: &[Fact]) -> fmt::Result {
    let mut urgent = facts.iter().filter(|fact| fact.level < Level::Note).peekable();
    if urgent.peek().is_none() {
        return Ok(());
    }
    write!(html, "<ul class=\"notices\" aria-label=\"Notices\">")?;
    for Fact { level, label, value, advice } in urgent {
        let (class, sign, word) = match level {
            Level::Obstacle => ("error", "✗", "Not ready"),
            _ => ("warning", "▲", "Warning"),
        };
        let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        write!(
            html,
            "<li class=\"{class}\"><b><span aria-hidden=\"true\">{sign}</span> {word}, {}:</b> {}</li>",
            escaped(label),
            sentence(&format!("{value}{advice}"))
        )?;
    }
    write!(html, "</ul>")
}

/// Everything else that holds for the node.
fn write_notes(html: &mut String, facts: &[Fact]) -> fmt::Result {
    write!(html, "<h2>Node</h2><dl class=\"notes\">")?;
    let mut before = "";
    for Fact { label, value, .. } in facts.iter().filter(|fact| fact.level == Level::Note) {
        if label != before {
            write!(html, "<dt>{}</dt>", escaped(label))?;
            before = label;
        }
        write!(html, "<dd>{}</dd>", sentence(value))?;
    }
    write!(html, "</dl>")
}

fn fact(html: &mut String, name: &str, value: &str) -> fmt::Result {
    write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>")
}

fn write_figures(html: &mut String, node: &NodeOutline) -> fmt::Result {
    let cpus = &node.cpus;
    let exclusive = cpus.exclusive - cpus.shared;
    for (name, cpus) in
        [("CPUs online", cpus.online), ("Exclusive", exclusive), ("Free", cpus.free)]
    {
        fact(html, name, &cpus.len().to_string())?;
    }
    fact(html, "Reserved", &list(&wording::or_none(cpus.reserved)))?;
    if !node.foreign.is_empty() {
        fact(html, "In other programs' partitions", &node.foreign.len().to_string())?;
    }
    fact(html, "Fragmentation", &format!("{:.2}", node.scattered))?;
    if let Some(noisy) = node.noisy {
        fact(html, "Noisy CPUs", &noisy.to_string())?;
    }
    fact(html, "Exclusivity", &node.mechanism.to_string())?;
    fact(html, "Settings since", &node.settings_since.to_string())?;
    if node.is_rejected {
        fact(html, "Configuration", "rejected: the last good one is in force")?;
    }
    match node.stance {
        Stance::Assign => Ok(()),
        stance => fact(html, "Stance", stance.name()),
    }
}

fn write_settings(html: &mut String, node: &Node) -> fmt::Result {
    fact(html, "CPU manager", &escaped(&node.config.cpu_manager()))?;
    fact(html, "Topology manager", &escaped(&node.config.topology_manager()))?;
    fact(html, "Placement", &escaped(&node.config.own.placement))
}

fn write_picture(html: &mut String, picture: &Picture) -> fmt::Result {
    write!(html, "<figure tabindex=\"0\">{}<figcaption>", svg::part(picture))?;
    for usage in picture.legend() {
        write!(html, "<span>{} {}</span> ", svg::swatch(usage), usage.meaning())?;
    }
    write!(html, "</figcaption></figure>")
}

/// Those with CPUs of their own in a table, and below it a line for those that share each set of CPUs.
fn write_containers(
    html: &mut String,
    node: &NodeOutline,
    named: Option<&Node>,
    outline: &Outline,
) -> fmt::Result {
    let names = named.map(Node::listed).unwrap_or_default();
    let all = node.containers.iter().enumerate().map(|(at, one)| (one, names.get(at).copied()));
    let (own, sharing): (Vec<_>, Vec<_>) = all.partition(|(one, _)| one.badge.is_some());
    if own.is_empty() {
        write!(html, "<p class=\"shares\">No container has CPUs of its own.</p>")?;
    } else {
        write!(
            html,
            "<div class=\"scroll\"><table class=\"containers\"><caption>Containers with CPUs of their own: {}</caption>\
             <thead><tr><th scope=\"col\"></th><th scope=\"col\">Container</th><th scope=\"col\">CPUs</th>\
             <th scope=\"col\">Placement</th><th scope=\"col\">Kept by</th><th scope=\"col\">Age</th>\
             <th scope=\"col\">State</th></tr></thead><tbody>",
            own.len()
        )?;
        for (one, named) in own {
            write_row(html, node, one, named, outline)?;
        }
        write!(html, "</tbody></table></div>")?;
    }
    let mut by_cpus: BTreeMap<String, Vec<Option<&Container>>> = BTreeMap::new();
    for (one, named) in sharing {
        by_cpus.entry(one.runs_on.to_string()).or_default().push(named);
    }
    for (cpus, same) in by_cpus {
        let containers = count(same.len() as u64, "container");
        let shares = if same.len() == 1 { "shares" } else { "share" };
        let line = format!("{containers} {shares} <span class=\"cpus\">{}</span>", list(&cpus));
        let names: Vec<String> =
            same.into_iter().flatten().map(|named| breakable(&named.full_name())).collect();
        if names.is_empty() {
            write!(html, "<p class=\"shares\">{line}</p>")?;
        } else {
            write!(
                html,
                "<details class=\"shares\"><summary>{line}</summary><ul><li>{}</li></ul></details>",
                names.join("</li><li>")
            )?;
        }
    }
    Ok(())
}

fn write_row(
    html: &mut String,
    node: &NodeOutline,
    one: &ContainerOutline,
    named: Option<&Container>,
    outline: &Outline,
) -> fmt::Result {
    let name = named.map_or_else(|| one.usage.sign(), Container::full_name);
    let mechanism = one.exclusive.map(|_| one.mechanism.to_string()).unwrap_or_default();
    let memory = named
        .and_then(|named| named.memory.as_ref())
        .map(|memory| format!("{} on {}", memory::amounts(memory), memory::nodes(memory)));
    let cpus = one.exclusive.unwrap_or(one.runs_on);
    let words = Some(node.placement(&cpus, &one.idle)).filter(|words| !words.is_empty());
    let placement = [words, memory];
    let placement: Vec<String> = placement.into_iter().flatten().collect();
    let age = one.since.map(|since| {
        let age = age(since, outline.at);
        format!("<time datetime=\"{since}\" title=\"{since}\">{age}</time>")
    });
    write!(
        html,
        "<tr><td>{}</td><th scope=\"row\">{}</th><td class=\"cpus\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        svg::swatch(one.usage),
        breakable(&name),
        list(&one.runs_on.to_string()),
        escaped(&placement.join("; ")),
        mechanism,
        age.unwrap_or_default(),
        one.phase.name()
    )
}

/// A name that can break after each slash and hyphen, and in a part that is too long for a column.
fn breakable(name: &str) -> String {
    let mut html = String::new();
    let mut unbroken = 0;
    for letter in name.chars() {
        unbroken = if matches!(letter, '/' | '-') { 0 } else { unbroken + 1 };
        html += &escaped(letter.encode_utf8(&mut [0; 4]));
        if unbroken % LONG_PART == 0 {
            html += "<wbr>";
        }
    }
    html
}

/// A text whose paths can break after each slash but the first.
fn sentence(text: &str) -> String {
    escaped(text).replace('/', "/<wbr>").replace(" /<wbr>", " /")
}

/// How long ago it was. It changes once a minute at most: the page replaces what has changed, and with it a reader's
/// selection.
fn age(since: Moment, at: Moment) -> String {
    if at.0.saturating_sub(since.0) < 120 { "under 2m".to_owned() } else { since.age_at(at) }
}

/// A list of CPUs that can break after each comma; for an element of the class `cpus`.
fn list(cpus: &str) -> String {
    escaped(cpus).replace(',', ",<wbr>")
}

fn write_records<'a>(
    html: &mut String,
    title: &str,
    records: impl DoubleEndedIterator<Item = &'a Record>,
    outline: &Outline,
) -> fmt::Result {
    let mut last = records.rev().take(RECORDS).peekable();
    if last.peek().is_none() {
        return Ok(());
    }
    write!(html, "<h2>{title}</h2><ul>")?;
    for one in last {
        write!(
            html,
            "<li><b>{}</b>: {} <time datetime=\"{}\" title=\"{}\">{} ago</time></li>",
            breakable(&one.full_name()),
            sentence(&one.text),
            one.at,
            one.at,
            age(one.at, outline.at)
        )?;
    }
    write!(html, "</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of 253 letters does not widen the page.
    #[test]
    fn names_break_after_slashes_and_hyphens_and_elsewhere_only_if_a_part_is_long() {
        assert_eq!(breakable("ns/pod-1/<c>"), "ns/<wbr>pod-<wbr>1/<wbr>&lt;c&gt;");
        assert_eq!(breakable("victoriametrics/x"), "victoriametrics/<wbr>x");
        let long = breakable(&"p".repeat(253));
        assert!(long.split("<wbr>").all(|part| part.len() <= LONG_PART), "{long}");
        assert_eq!(list("0-3,64-67"), "0-3,<wbr>64-67");
        assert!(!STYLE.contains("anywhere"), "words of cells are broken");
    }

    #[test]
    fn an_age_changes_once_a_minute() {
        let ages = |seconds: i64| age(Moment(0), Moment(seconds));
        assert_eq!([0, 1, 119].map(ages), ["under 2m"; 3]);
        assert_eq!([120, 179, 180, 7200].map(ages), ["2m", "2m", "3m", "2h"]);
    }
}
