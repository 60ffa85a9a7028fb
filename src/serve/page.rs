//! The node as a page: its picture and its containers. It refreshes itself and loads nothing from
//! elsewhere.

mod notices;

use crate::cpuset::CpuSet;
use crate::view::badge::Badge;
use crate::view::picture::{Picture, Usage, escaped, names, svg};
use crate::view::report::{ContainerStatus, NodeStatus, RecordStatus, Status};
use std::fmt::Write as _;

/// How often the page reloads without its script, in seconds. The script asks every two.
const PATIENCE: u32 = 5;
/// How many of the last refusals and of the last troubles the page shows.
const RECORDS: usize = 5;

/// The script that refreshes the page.
pub const SCRIPT: &str = include_str!("page/page.js");
/// The page's icon.
pub const ICON: &str = include_str!("page/icon.svg");
const STYLE: &str = include_str!("page/page.css");

/// The whole page.
pub fn page(status: &Status) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>CPUs of this node</title>\n\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"icon.svg\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{PATIENCE}\"></noscript>\n\
         <style>{}{STYLE}</style>\n<script src=\"page.js\" defer></script>\n</head>\n<body>\n\
         <header><h1>CPUs of this node</h1><p id=\"state\" role=\"status\">as of {}</p></header>\n\
         <main>{}</main>\n\
         <footer><a href=\"picture.svg\">the picture alone</a> · <a href=\"metrics\">metrics</a> · \
         <a href=\"readyz\">readiness</a> · nri-cpu-manager {}</footer>\n</body>\n</html>\n",
        svg::page_style(),
        escaped(&status.at),
        fragment(status),
        escaped(&status.plugin_version),
    )
}

/// The part of the page that changes.
pub fn fragment(status: &Status) -> String {
    let mut html = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut html, status);
    html
}

/// The picture alone, as a file.
pub fn picture(status: &Status) -> Result<String, String> {
    let node = status.node.as_ref().ok_or_else(|| status.obstacles.join("; "))?;
    let picture = Picture::of_status(node).map_err(|error| error.to_string())?;
    let picture =
        picture.ok_or("the plugin does not tell of the machine: it is of an older version")?;
    Ok(svg::draw(&picture, svg::Form::File(&format!("CPUs of this node, {}", status.at))))
}

fn write(html: &mut String, status: &Status) -> std::fmt::Result {
    let runtime = &status.runtime;
    let name = match (&runtime.name, &runtime.version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        _ => "no runtime yet".to_owned(),
    };
    let link = if runtime.connected { "connected" } else { "not connected" };
    let class = if status.ready { "good" } else { "bad" };
    notices::write(html, status)?;
    write!(html, "<dl class=\"facts\">")?;
    fact(
        html,
        "Ready",
        &format!("<b class=\"{class}\">{}</b>", if status.ready { "yes" } else { "no" }),
    )?;
    fact(html, "Runtime", &escaped(&format!("{name}, {link}")))?;
    if let Some(node) = &status.node {
        write_facts(html, node)?;
    }
    write!(html, "</dl>")?;
    let Some(node) = &status.node else { return Ok(()) };
    match Picture::of_status(node) {
        Ok(Some(picture)) => write_picture(html, &picture)?,
        Ok(None) => {}
        Err(error) => write!(html, "<p class=\"obstacle\">{}</p>", escaped(&error.to_string()))?,
    }
    write_containers(html, node)?;
    write_records(html, "Refused lately", &node.refusals)?;
    write_records(html, "Found otherwise than decided lately", &node.troubles)
}

fn fact(html: &mut String, name: &str, value: &str) -> std::fmt::Result {
    write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>")
}

fn write_facts(html: &mut String, node: &NodeStatus) -> std::fmt::Result {
    let (config, cpus) = (&node.config, &node.cpus);
    let count = |list: &str| list.parse::<CpuSet>().unwrap_or_default().len().to_string();
    fact(html, "CPUs online", &count(&cpus.online))?;
    fact(html, "Exclusive", &count(&cpus.exclusive))?;
    fact(html, "Free", &count(&cpus.free))?;
    fact(html, "Reserved", &count(&cpus.reserved))?;
    let scattered = node.fragmentation.get("uncore_cache").copied().unwrap_or_default();
    fact(html, "Fragmentation", &format!("{scattered:.2}"))?;
    let policy = match config.cpu_manager_policy.as_str() {
        "none" => "none".to_owned(),
        policy => format!("{policy} ({})", config.cpu_manager_policy_options),
    };
    fact(html, "CPU manager", &escaped(&policy))?;
    let manager = match config.topology_manager_policy.as_str() {
        "none" => "none".to_owned(),
        policy => {
            let options = &config.topology_manager_policy_options;
            format!("{policy} (scope {}, {options})", config.topology_manager_scope)
        }
    };
    fact(html, "Topology manager", &escaped(&manager))?;
    match node.stance.as_str() {
        "assign" => Ok(()),
        stance => fact(html, "Stance", &escaped(stance)),
    }
}

fn write_picture(html: &mut String, picture: &Picture) -> std::fmt::Result {
    write!(html, "<figure>{}<figcaption>", svg::draw(picture, svg::Form::Part))?;
    for usage in picture.signs() {
        let class = if usage == Usage::Reserved { " class=\"reserved\"" } else { "" };
        let (sign, meaning) = (usage.sign(), usage.meaning());
        write!(html, "<span><b{class}>{sign}</b> {meaning}</span> ")?;
    }
    write!(html, "</figcaption></figure>")
}

fn write_containers(html: &mut String, node: &NodeStatus) -> std::fmt::Result {
    let (mut exclusive, shared): (Vec<&ContainerStatus>, Vec<&ContainerStatus>) =
        node.containers.iter().partition(|one| one.exclusive);
    let badge =
        |one: &ContainerStatus| one.badge.as_deref().and_then(|text| text.parse::<Badge>().ok());
    exclusive.sort_unstable_by_key(|one| badge(one));
    write!(
        html,
        "<table><caption>Containers with CPUs of their own: {}. Others, which share the rest: {}.</caption>",
        exclusive.len(),
        shared.len()
    )?;
    write!(
        html,
        "<thead><tr><th scope=\"col\"></th><th scope=\"col\">Container</th><th scope=\"col\">CPUs</th>\
         <th scope=\"col\">How they lie</th><th scope=\"col\">State</th></tr></thead><tbody>"
    )?;
    for one in &exclusive {
        let sign = badge(one).map(svg::swatch).unwrap_or_default();
        let remark = names::alignment(&one.numa_nodes, &one.uncore_caches, one.whole_cores);
        write_row(html, &sign, one, &remark)?;
    }
    for one in shared.iter().filter(|one| !one.pod.is_empty()) {
        write_row(html, "·", one, "")?;
    }
    write!(html, "</tbody></table>")
}

fn write_row(
    html: &mut String,
    sign: &str,
    one: &ContainerStatus,
    remark: &str,
) -> std::fmt::Result {
    let name = match names::container(one) {
        name if name.is_empty() => one.badge.clone().unwrap_or_default(),
        name => name,
    };
    let shared = if one.exclusive { "" } else { " class=\"shares\"" };
    write!(
        html,
        "<tr{shared}><td>{sign}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(&name),
        escaped(&one.cpus).replace(',', ",<wbr>"),
        escaped(remark),
        escaped(&one.state)
    )
}

fn write_records(html: &mut String, title: &str, records: &[RecordStatus]) -> std::fmt::Result {
    if records.is_empty() {
        return Ok(());
    }
    write!(html, "<h2>{title}</h2><ul>")?;
    for one in records.iter().rev().take(RECORDS) {
        let name = format!("{}/{}/{}", one.namespace, one.pod, one.container);
        write!(
            html,
            "<li><time>{}</time> <b>{}</b>: {}</li>",
            escaped(&one.at),
            escaped(&name),
            escaped(&one.text)
        )?;
    }
    write!(html, "</ul>")
}
