//! What a person should see to, at the top of the page: a word and a sign for each, so that nothing
//! hangs on its colour.

use super::super::picture::escaped;
use super::super::report::{ConfigSourceStatus, NodeStatus, Status};
use std::fmt::{self, Display, Formatter, Write as _};

/// One of them.
struct Notice {
    severity: Severity,
    /// What it is, in two or three words.
    title: &'static str,
    /// The rest of it.
    text: String,
}

#[derive(Clone, Copy)]
enum Severity {
    /// Containers are not placed as configured.
    Error,
    /// They are, and an administrator should look all the same.
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

/// All there are, as a list; nothing if there are none.
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
    // That it refuses is among what keeps it from being ready.
    let stance = (node.stance == "observe").then(|| {
        let text = "the kubelet's own CPU manager is active: nothing is pinned, what would be done is logged";
        warning("Observing only", text.to_owned())
    });
    let drift = (node.drifting > 0).then(|| {
        let who = match node.drifting {
            1 => "1 container does".to_owned(),
            n => format!("{n} containers do"),
        };
        warning("Drift", format!("{who} not run where it was decided, in spite of repairs"))
    });
    let groups = node.cgroups_error.clone().map(|error| warning("Control groups", error));
    [rejected, restart, stance, drift, groups].into_iter().flatten()
}

/// What is wrong with the file. A reader who may not know the pods' names gets the line only: the
/// text may quote names.
fn rejection(from: &ConfigSourceStatus) -> String {
    let follows = "the last good one stays in force";
    let line = from.error_line.map(|line| format!(", by its line {line}")).unwrap_or_default();
    match &from.error {
        Some(error) => format!("{follows}. {error}"),
        None => format!(
            "the file cannot be used{line}; {follows}. What is wrong is told on the node, by nri-cpu-manager status"
        ),
    }
}
