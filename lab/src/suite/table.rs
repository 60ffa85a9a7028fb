//! Results of scenarios on machines, as data, lines and table.

use std::fmt::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::command::{command, run};
use crate::containerd::Version;
use crate::scenario::catalogue;
use crate::{cache, files};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub machine: String,
    pub scenario: String,
    pub version: Version,
    pub verdict: Verdict,
    /// Without the boot.
    pub millis: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Passed,
    Failed(Vec<String>),
    /// Says nothing about the plugin.
    NotBooted(String),
}

impl Verdict {
    pub fn of(wrong: Vec<String>) -> Self {
        if wrong.is_empty() { Self::Passed } else { Self::Failed(wrong) }
    }
}

impl Row {
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, scenario, millis, .. } = self;
        let (version, seconds) = (self.version.name(), *millis as f64 / 1000.0);
        let what = match &self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::NotBooted(_) => "NOT BOOTED",
        };
        write!(f, "{what}: {machine}, {scenario}, containerd {version} ({seconds:.1} s)")?;
        match &self.verdict {
            Verdict::Passed => Ok(()),
            Verdict::Failed(wrong) => wrong.iter().try_for_each(|what| write!(f, "\n  {what}")),
            Verdict::NotBooted(why) => write!(f, "\n  {why}"),
        }
    }
}

/// A row per scenario and a column per machine: the containerd versions with which it passed, and
/// in brackets those with which it failed.
pub(super) fn draw(rows: &[Row]) -> String {
    let mut machines: Vec<&str> = Vec::new();
    for row in rows {
        if !machines.contains(&&*row.machine) {
            machines.push(&row.machine);
        }
    }
    let mut text = format!("| | {} |\n", machines.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(machines.len()));
    for scenario in catalogue::all() {
        let _ = write!(text, "| {} |", scenario.name);
        for machine in &machines {
            let mut fields: Vec<String> = rows
                .iter()
                .filter(|row| row.machine == *machine && row.scenario == scenario.name)
                .map(|row| {
                    let version = row.version.name();
                    if row.passed() { version.to_owned() } else { format!("**[{version}]**") }
                })
                .collect();
            fields.sort();
            let field = if fields.is_empty() { "-".to_owned() } else { fields.join(" ") };
            let _ = write!(text, " {field} |");
        }
        text.push('\n');
    }
    text
}

const BEGIN: &str = "<!-- hack/lab all --save writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Writes the table to docs/lab.md.
pub(super) fn save(rows: &[Row], commit: &str, time: Duration) -> Result<()> {
    let path = cache::repository().join("docs/lab.md");
    let text = files::read(&path)?;
    let date = run(&mut command("date", ["-u", "+%Y-%m-%d"]))?;
    let text = insert(&text, rows, &format!("{}, commit {commit}", date.trim()), time)
        .with_context(|| format!("{} has no markers for the table", path.display()))?;
    files::write(&path, text)
}

fn insert(text: &str, rows: &[Row], what: &str, time: Duration) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let failed = rows.iter().filter(|row| !row.passed()).count();
    let passed = rows.len() - failed;
    let minutes = time.as_secs().div_ceil(60);
    let table = draw(rows);
    Some(format!(
        "{before}{BEGIN}\nLast full run: {what}, {minutes} minutes: {passed} passed, {failed} failed.\n\n{table}\n{END}{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(machine: &str, version: Version, verdict: Verdict) -> Row {
        let (machine, scenario) = (machine.to_owned(), "churn".to_owned());
        Row { machine, scenario, version, verdict, millis: 1500 }
    }

    #[test]
    fn failures_are_shown() {
        let rows = [
            row("small", Version::V2_1, Verdict::Passed),
            row(
                "small",
                Version::V1_7,
                Verdict::of(vec!["step 1, check all containers: no".to_owned()]),
            ),
            row("large", Version::V2_1, Verdict::NotBooted("silence".to_owned())),
        ];
        let table = draw(&rows);
        assert!(table.starts_with("| | small | large |\n|---|---|---|\n"), "{table}");
        assert!(table.contains("| churn | **[1.7]** 2.1 | **[2.1]** |\n"), "{table}");
        assert!(table.contains("| resize | - | - |\n"), "{table}");
        assert_eq!(
            rows[1].to_string(),
            "FAILED: small, churn, containerd 1.7 (1.5 s)\n  step 1, check all containers: no"
        );
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let page = insert(&page, &rows, "2026-01-01", Duration::from_secs(61)).unwrap();
        assert!(page.contains("2026-01-01, 2 minutes: 1 passed, 2 failed."), "{page}");
        assert!(
            page.starts_with("a\n") && page.ends_with("b\n") && !page.contains("old"),
            "{page}"
        );
    }
}
