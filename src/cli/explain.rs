//! `nri-cpu-manager explain`: why containers have the CPUs they have, or have none.

use super::client::{self, ClientError, show, table};
use super::topology::Output;
use crate::view::explanation::{CacheStatus, DecisionStatus, Explanation};
use crate::wording;
use clap::Args;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER
    #[arg(value_name = "POD[/CONTAINER]", value_parser = name)]
    pub of: String,
    /// The directory of the plugin's state file
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// How to write it down
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// A name as Kubernetes has them, so that it needs no encoding.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let parts: Vec<&str> = text.split('/').collect();
    match parts.len() <= 3 && parts.iter().all(|part| !part.is_empty() && part.chars().all(fits)) {
        true => Ok(text.to_owned()),
        false => {
            Err("expected POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER".to_owned())
        }
    }
}

/// Asks the plugin and writes to `out`.
///
/// # Errors
/// If no plugin answers, it knows no such container, or `out` cannot be written.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), ClientError> {
    let answer = client::ask(&args.state_dir, &format!("/explain?{}", args.of))?;
    let explanations: Vec<Explanation> = client::read(&answer)?;
    if explanations.is_empty() {
        return Err(ClientError::Refused(format!(
            "nothing is known of {}: it is not on this node, has not been asked for yet, or was refused too long ago",
            args.of
        )));
    }
    let text = match args.output {
        Output::Text => explanations.iter().map(text).collect::<Vec<_>>().join("\n"),
        Output::Json => client::pretty(&answer)?,
    };
    Ok(show(out, &text)?)
}

/// An explanation for people.
pub fn text(explanation: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, explanation);
    text
}

fn write(f: &mut String, of: &Explanation) -> std::fmt::Result {
    let cpus =
        of.cpus.as_ref().map_or_else(String::new, |cpus| format!(", {}", wording::cpus(cpus)));
    writeln!(f, "{}/{}/{}: {}{cpus}", of.namespace, of.pod, of.container, of.state)?;
    for sentence in &of.why {
        writeln!(f, "  {sentence}")?;
    }
    if let Some(decision) = &of.decision {
        write_decision(f, decision)?;
    }
    if !of.history.is_empty() {
        writeln!(f, "\n  what happened")?;
        for record in &of.history {
            writeln!(f, "    {}  {}", record.at, record.text)?;
        }
    }
    Ok(())
}

fn write_decision(f: &mut String, decision: &DecisionStatus) -> std::fmt::Result {
    let mark = |yes: bool, word: &str| if yes { word.to_owned() } else { String::new() };
    if !decision.numa_candidates.is_empty() {
        let mut rows = vec![["NUMA nodes", "free", "", ""].map(str::to_owned).to_vec()];
        for set in &decision.numa_candidates {
            let nodes: Vec<String> = set.numa_nodes.iter().map(ToString::to_string).collect();
            rows.push(vec![
                nodes.join(","),
                set.free.to_string(),
                mark(set.preferred, "as narrow as can be"),
                mark(set.chosen, "chosen"),
            ]);
        }
        write_table(f, &rows)?;
    }
    let mut rows = vec![["uncore cache", "free", "", "taken"].map(str::to_owned).to_vec()];
    for CacheStatus(cache) in &decision.uncore_caches {
        rows.push(vec![
            cache.id.to_string(),
            wording::or_none(cache.free),
            mark(cache.fits, "holds all"),
            mark(cache.taken > 0, &cache.taken.to_string()),
        ]);
    }
    write_table(f, &rows)
}

fn write_table(f: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(f)?;
    table(rows).lines().try_for_each(|line| writeln!(f, "    {line}"))
}
