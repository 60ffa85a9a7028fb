//! Notices at the top of the page. Each has a word and a sign, so that none depends on its colour.

use crate::view::picture::escaped;
use crate::view::report::{ConfigSourceStatus, NodeStatus, Status};
use std::fmt::{self, Display, Formatter, Write as _};

struct Notice {
    severity: Severity,
    title: &'static str,
    text: String,
}

#[derive(Clone, Copy)]
enum Severity {
    /// Containers are not placed as configured.
    Error,
    /// They are, and an administrator should look at the node.
    Warning,
}

impl Severity {
    fn class(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Severity::Error => "✗",
            Severity::Warning => "▲",
        }
    }
}

impl Display for Notice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Notice { severity, title, text } = self;
        write!(
            f,
            "<li class=\"{}\"><b><span aria-hidden=\"true\">{}</span> {title}:</b> {}</li>",
            severity.class(),
            severity.sign(),
            escaped(text)
        )
    }
}

pub(super) fn write(html: &mut String, status: &Status) -> fmt::Result {
    let obstacles = status.obstacles.iter().map(|obstacle| Notice {
        severity: Severity::Error,
        title: "Not ready",
        text: obstacle.clone(),
    });
    let notices: Vec<Notice> = obstacles.chain(status.node.iter().flat_map(of_node)).collect();
    if notices.is_empty() {
        return Ok(());
    }
    write!(html, "<ul class=\"notices\" aria-label=\"Notices\">")?;
    for notice in notices {
        write!(html, "{notice}")?;
    }
    write!(html, "</ul>")
}

fn of_node(node: &NodeStatus) -> impl Iterator<Item = Notice> {
    let warning = |title, text| Notice { severity: Severity::Warning, title, text };
    let from = &node.config_source;
    let rejected =
        (from.state == "rejected").then(|| warning("Configuration rejected", rejection(from)));
    let restart = (!from.waiting_for_restart.is_empty()).then(|| {
        let fields = from.waiting_for_restart.join(", ");
        warning(
            "Restart needed",
            format!("the change of {fields} is followed only after a restart of the plugin"),
        )
    });
    // The stance to refuse is among the obstacles.
    let stance = (node.stance == "observe").then(|| {
        let text = "the kubelet's own CPU manager is active: nothing is pinned, what would be done is logged";
        warning("Observing only", text.to_owned())
    });
    let drift = (node.drifting > 0).then(|| {
        let containers = match node.drifting {
            1 => "1 container does".to_owned(),
            n => format!("{n} containers do"),
        };
        warning("Drift", format!("{containers} not run where it was decided, in spite of repairs"))
    });
    let groups = node.cgroups_error.clone().map(|error| warning("Control groups", error));
    [rejected, restart, stance, drift, groups].into_iter().flatten()
}

/// What is wrong with the file. A client that may not see the pods' names gets the line only: the
/// text may quote names.
fn rejection(from: &ConfigSourceStatus) -> String {
    let follows = "the last good one stays in force";
    let line = from.error_line.map(|line| format!(", by its line {line}")).unwrap_or_default();
    match &from.error {
        Some(error) => format!("{follows}. {error}"),
        None => format!(
            "the file cannot be used{line}; {follows}. On the node, nri-cpu-manager status shows what is wrong"
        ),
    }
}
