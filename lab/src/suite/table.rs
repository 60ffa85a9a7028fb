//! Results of scenarios on machines, as data, lines and table.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::containerd::Version;
use crate::scenario::catalogue;

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
    }
}
