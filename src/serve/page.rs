//! The node as a page: its picture and its containers. It refreshes itself and loads nothing from
//! other servers.

mod notices;

use crate::clock::Moment;
use crate::view::Status;
use crate::view::noise::{heaviest, verdicts};
use crate::view::picture::{Picture, Usage, escaped, svg};
use crate::view::status::{ContainerStatus, NodeStatus, RebalanceStatus, RecordStatus};
use noise::Verdict;
use std::fmt::{self, Write as _};

/// How often the page reloads without its script, in seconds. The script asks every two.
const RELOAD: u32 = 5;
/// How many of the last refusals and of the last troubles the page shows.
const RECORDS: usize = 5;

/// The script that refreshes the page.
pub const SCRIPT: &str = include_str!("page/page.js");
pub const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

pub fn page(status: &Status) -> String {
    let title = escaped(&heading(status));
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
        escaped(&status.at),
        fragment(status),
        escaped(&status.plugin_version),
    )
}

fn heading(status: &Status) -> String {
    match &status.node_name {
        Some(name) => format!("CPUs of node {name}"),
        None => "CPUs of this node".to_owned(),
    }
}

/// The part of the page that changes.
pub fn fragment(status: &Status) -> String {
    let mut html = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut html, status);
    html
}

/// The picture as a separate file; otherwise why there is none.
pub fn picture(status: &Status) -> Result<String, String> {
    let node = status.node.as_ref().ok_or_else(|| status.obstacles.join("; "))?;
    let picture = Picture::of_status(node).map_err(|error| error.to_string())?;
    Ok(svg::file(&picture, &format!("{}, {}", heading(status), status.at)))
}

fn write(html: &mut String, status: &Status) -> fmt::Result {
    let (class, ready) = if status.ready { ("good", "yes") } else { ("bad", "no") };
    notices::write(html, status)?;
    write!(html, "<dl class=\"facts\">")?;
    fact(html, "Ready", &format!("<b class=\"{class}\">{ready}</b>"))?;
    fact(html, "Runtime", &escaped(&status.runtime.to_string()))?;
    if let Some(node) = &status.node {
        write_facts(html, node)?;
    }
    write!(html, "</dl>")?;
    let Some(node) = &status.node else { return Ok(()) };
    match Picture::of_status(node) {
        Ok(picture) => write_picture(html, &picture)?,
        Err(error) => write!(html, "<p class=\"obstacle\">{}</p>", escaped(&error.to_string()))?,
    }
    write_containers(html, node, &status.at)?;
    write_noise(html, node)?;
    write_records(html, "Recent refusals", &node.refusals)?;
    write_records(html, "Recent drifts and other troubles", &node.troubles)
}

fn fact(html: &mut String, name: &str, value: &str) -> fmt::Result {
    write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>")
}

fn write_facts(html: &mut String, node: &NodeStatus) -> fmt::Result {
    let NodeStatus { config, cpus, .. } = node;
    for (name, cpus) in
        [("CPUs online", cpus.online), ("Exclusive", cpus.exclusive), ("Free", cpus.free)]
    {
        fact(html, name, &cpus.len().to_string())?;
    }
    fact(html, "Reserved", &list(&wording::or_none(cpus.reserved)))?;
    if !cpus.foreign.is_empty() {
        fact(html, "In other programs' partitions", &cpus.foreign.len().to_string())?;
    }
    if let Some(scattered) = node.fragmentation.get("uncore_cache") {
        fact(html, "Fragmentation", &format!("{scattered:.2}"))?;
    }
    if let Some(noise) = &node.noise {
        let noisy = noise.with_verdict(Verdict::Noisy).len();
        fact(html, "Noisy CPUs", &noisy.to_string())?;
    }
    fact(html, "CPU manager", &escaped(&config.cpu_manager()))?;
    fact(html, "Topology manager", &escaped(&config.topology_manager()))?;
    fact(html, "Exclusivity", &escaped(&config.exclusivity))?;
    fact(html, "Placement", &escaped(&config.own.placement))?;
    let moves = node.rebalance.as_ref().map_or_else(|| "off".to_owned(), RebalanceStatus::budget);
    fact(html, "Rebalance", &escaped(&moves))?;
    fact(html, "Settings since", &escaped(&node.config_source.loaded))?;
    match node.stance.as_str() {
        "assign" => Ok(()),
        stance => fact(html, "Stance", &escaped(stance)),
    }
}

fn write_picture(html: &mut String, picture: &Picture) -> fmt::Result {
    write!(html, "<figure tabindex=\"0\">{}<figcaption>", svg::part(picture))?;
    for usage in picture.legend() {
        write!(html, "<span>{} {}</span> ", svg::swatch(usage), usage.meaning())?;
    }
    write!(html, "</figcaption></figure>")
}

/// `at` is when the status was written.
fn write_containers(html: &mut String, node: &NodeStatus, at: &str) -> fmt::Result {
    let containers = node.listed();
    let exclusive = containers.iter().filter(|one| one.exclusive).count();
    write!(
        html,
        "<div class=\"scroll\"><table><caption>Containers with exclusive CPUs: {exclusive}. On shared CPUs: {}.</caption>",
        containers.len() - exclusive
    )?;
    write!(
        html,
        "<thead><tr><th scope=\"col\"></th><th scope=\"col\">Container</th><th scope=\"col\">CPUs</th>\
         <th scope=\"col\">Placement</th><th scope=\"col\">Kept by</th><th scope=\"col\">Age</th>\
         <th scope=\"col\">State</th></tr></thead><tbody>"
    )?;
    for one in containers {
        // A client that may not see names gets no rows of nothing but shared CPUs.
        if one.exclusive || one.pool_badge.is_some() || !one.pod.is_empty() {
            write_row(html, one, at)?;
        }
    }
    write!(html, "</tbody></table></div>")
}

fn write_row(html: &mut String, one: &ContainerStatus, at: &str) -> fmt::Result {
    let mut name = one.full_name();
    if name.is_empty() {
        name = one.usage().map(Usage::sign).unwrap_or_default();
    }
    let class = if one.exclusive { "" } else { " class=\"shares\"" };
    write!(
        html,
        "<tr{class}><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        one.usage().map(svg::swatch).unwrap_or_default(),
        escaped(&name),
        list(&one.cpus.to_string()),
        placement(one),
        escaped(one.mechanism.as_deref().unwrap_or_default()),
        one.since.as_ref().or(one.created.as_ref()).map(|since| age(since, at)).unwrap_or_default(),
        escaped(&one.state)
    )
}

/// Where its exclusive CPUs and its counted memory are.
fn placement(one: &ContainerStatus) -> String {
    let cpus = one.placement.words(&one.idle);
    let Some(memory) = &one.memory else { return cpus };
    let memory = escaped(&format!("{} on {}", memory.amounts(), memory.nodes()));
    if cpus.is_empty() { memory } else { format!("{cpus}; {memory}") }
}

/// A list of CPUs that can break after each comma.
fn list(cpus: &str) -> String {
    escaped(cpus).replace(',', ",<wbr>")
}

/// How long ago `since` was at `at`. It changes once a minute at most: the page replaces what has
/// changed, and with it a reader's selection.
fn age(since: &str, at: &str) -> String {
    let seconds = match (Moment::parse(since), Moment::parse(at)) {
        (Some(since), Some(at)) => at.0.saturating_sub(since.0).max(0),
        _ => return escaped(since),
    };
    let age = match seconds {
        0..60 => "under 1 min".to_owned(),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    };
    let since = escaped(since);
    format!("<time datetime=\"{since}\" title=\"{since}\">{age}</time>")
}

/// What ran or fired on exclusive CPUs besides their containers.
fn write_noise(html: &mut String, node: &NodeStatus) -> fmt::Result {
    if node.noise.is_none() && node.noise_error.is_none() {
        return Ok(());
    }
    write!(html, "<h2>Noise on exclusive CPUs</h2>")?;
    if let Some(error) = &node.noise_error {
        return write!(html, "<p class=\"obstacle\">{}</p>", escaped(error));
    }
    let Some(noise) = &node.noise else { return Ok(()) };
    write!(html, "<p>In the last {:.0} s: {}.", noise.seconds, escaped(&verdicts(noise)))?;
    write!(html, "</p><ul>")?;
    for line in noise.hidden() {
        write!(html, "<li>{}</li>", escaped(&line))?;
    }
    for container in &noise.containers {
        for line in heaviest(container) {
            write!(html, "<li><b>{}</b> {}</li>", escaped(&container.name), escaped(&line))?;
        }
    }
    write!(html, "</ul>")
}

fn write_records(html: &mut String, title: &str, records: &[RecordStatus]) -> fmt::Result {
    if records.is_empty() {
        return Ok(());
    }
    write!(html, "<h2>{title}</h2><ul>")?;
    for one in records.iter().rev().take(RECORDS) {
        write!(
            html,
            "<li><time>{}</time> <b>{}</b>: {}</li>",
            escaped(&one.at),
            escaped(&one.full_name()),
            escaped(&one.text)
        )?;
    }
    write!(html, "</ul>")
}
