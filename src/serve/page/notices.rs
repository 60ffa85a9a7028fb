//! Notices at the top of the page. Each has a word and a sign, so that none depends on its colour.

use crate::view::Status;
use crate::view::picture::escaped;
use crate::view::status::NodeStatus;
use ledger::Stance;
use std::fmt::{self, Write as _};

#[derive(Clone, Copy)]
enum Severity {
    /// Containers are not placed as configured.
    Error,
    /// They are, and the node needs an administrator.
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
    warnings.extend(source.rejection().map(|text| ("Configuration rejected", text)));
    warnings.extend(source.needs_restart().map(|text| ("Restart needed", text)));
    warnings.extend(node.nothing_to_assign.clone().map(|text| ("Nothing to assign", text)));
    // The stance to refuse is among the obstacles.
    if node.stance == Stance::Observe.name() {
        warnings.extend(node.why_not_assigning().map(|why| ("Observing only", why.to_owned())));
    }
    warnings.extend(node.drift().map(|text| ("Drift", text)));
    warnings.extend(node.cgroups_error.clone().map(|text| ("Cgroups", text)));
    let errors = node.interrupts.iter().flat_map(|interrupts| &interrupts.errors);
    warnings.extend(errors.map(|text| ("Interrupts", text.clone())));
    warnings
}
