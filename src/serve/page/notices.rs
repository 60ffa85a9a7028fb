//! Notices at the top of the page. Each has a word and a sign, so that none depends on its colour.

use crate::view::Status;
use crate::view::picture::escaped;
use crate::view::status::{ConfigSourceStatus, NodeStatus};
use std::fmt::{self, Write as _};

#[derive(Clone, Copy)]
enum Severity {
    /// Containers are not placed as configured.
    Error,
    /// They are, and an administrator should look at the node.
    Warning,
}

pub(super) fn write(html: &mut String, status: &Status) -> fmt::Result {
    let obstacles = status.obstacles.iter();
    let mut notices: Vec<(Severity, &str, String)> =
        obstacles.map(|obstacle| (Severity::Error, "Not ready", obstacle.clone())).collect();
    if let Some(node) = &status.node {
        let warnings = warnings(node).into_iter();
        notices.extend(warnings.map(|(title, text)| (Severity::Warning, title, text)));
    }
    if notices.is_empty() {
        return Ok(());
    }
    write!(html, "<ul class=\"notices\" aria-label=\"Notices\">")?;
    for (severity, title, text) in notices {
        let (class, sign) = match severity {
            Severity::Error => ("error", "✗"),
            Severity::Warning => ("warning", "▲"),
        };
        write!(
            html,
            "<li class=\"{class}\"><b><span aria-hidden=\"true\">{sign}</span> {title}:</b> {}</li>",
            escaped(&text)
        )?;
    }
    write!(html, "</ul>")
}

/// Titles and texts.
fn warnings(node: &NodeStatus) -> Vec<(&'static str, String)> {
    let mut warnings = Vec::new();
    let source = &node.config_source;
    if source.state == "rejected" {
        warnings.push(("Configuration rejected", rejection(source)));
    }
    if !source.waiting_for_restart.is_empty() {
        let fields = source.waiting_for_restart.join(", ");
        warnings.push(("Restart needed", format!("restart the plugin to apply {fields}")));
    }
    // The stance to refuse is among the obstacles.
    if node.stance == "observe" {
        let text = "the kubelet's own CPU manager is active: the plugin pins nothing and logs what it would do";
        warnings.push(("Observing only", text.to_owned()));
    }
    if node.drifting > 0 {
        let containers = match node.drifting {
            1 => "1 container is".to_owned(),
            n => format!("{n} containers are"),
        };
        warnings.push(("Drift", format!("{containers} not as decided, despite repairs")));
    }
    if let Some(error) = &node.cgroups_error {
        warnings.push(("Cgroups", error.clone()));
    }
    warnings
}

/// What is wrong with the file. A client that may not see the pods' names gets the line only: the
/// text may quote names.
fn rejection(source: &ConfigSourceStatus) -> String {
    let in_force = "the last good one stays in force";
    match (&source.error, source.error_line) {
        (Some(error), _) => format!("{in_force}. {error}"),
        (None, line) => {
            let line = line.map(|line| format!(" in line {line}")).unwrap_or_default();
            format!(
                "the file is invalid{line}; {in_force}. Run nri-cpu-manager status on the node for details"
            )
        }
    }
}
