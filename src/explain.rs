//! `nri-cpu-manager explain`: why containers have the CPUs they have, or have none.

use super::NamespaceArgs;
use clap::Args;
use serde_json::Value;
use status::explanation::{CacheStatus, DecisionStatus, Explanation};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use terminal::client::{self, ClientError, IN_POD};
use terminal::output::{Output, show, table};

#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER
    #[arg(value_name = "POD[/CONTAINER]", value_parser = name)]
    pub of: String,
    #[command(flatten)]
    pub namespaces: NamespaceArgs,
    /// The plugin's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Accepts Kubernetes' names only: they need no encoding in a URL.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > 3 || parts.iter().any(|part| part.is_empty() || !part.chars().all(fits)) {
        let forms = "expected POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER";
        return Err(forms.to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let answer = client::ask(&args.state_dir, &format!("/explain?{}", args.of))?;
    // As it came: a newer plugin's answer may have fields that this program does not know.
    let mut answer: Value = serde_json::from_str(&answer).map_err(ClientError::from)?;
    if let Value::Array(explanations) = &mut answer {
        explanations
            .retain(|one| args.namespaces.includes(one["namespace"].as_str().unwrap_or("")));
    }
    let explanations: Vec<Explanation> = client::read(&answer.to_string())?;
    if explanations.is_empty() {
        let status: Value = client::read(&client::ask(&args.state_dir, "/status")?)?;
        return Err(no_record(args, status["node_name"].as_str()).into());
    }
    let text = match args.output {
        Output::Text => explanations.iter().map(text).collect::<Vec<_>>().join("\n"),
        Output::Json => format!("{answer:#}\n"),
    };
    Ok(show(out, &text)?)
}

/// The plugin knows no other nodes: the message has the commands that find the pod's.
fn no_record(args: &ExplainArgs, node: Option<&str>) -> String {
    let of = &args.of;
    let within = match args.namespaces.namespaces.as_slice() {
        [] => String::new(),
        [one] => format!(" in namespace {one}"),
        several => format!(" in namespaces {}", several.join(", ")),
    };
    let node = node.map_or("this node".to_owned(), |node| format!("node {node}"));
    let parts: Vec<&str> = of.split('/').collect();
    let row = match *parts.as_slice() {
        [_, pod, _] => pod.to_owned(),
        // Either may be the pod.
        [one, other] => format!("({one}|{other})"),
        _ => of.clone(),
    };
    format!(
        "no record of {of}{within}: it is not on {node}, not created yet, or its refusal is too long ago. To find its node, and ask there:\n\
         kubectl get pod -A -o wide | grep -E ' {row} '\n\
         {IN_POD}/nri-cpu-manager explain {of}"
    )
}

pub(crate) fn text(explanation: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, explanation);
    text
}

fn write(f: &mut String, of: &Explanation) -> std::fmt::Result {
    write!(f, "{}/{}/{}: {}", of.namespace, of.pod, of.container, of.state)?;
    if let Some(cpus) = &of.cpus {
        write!(f, ", {}", wording::cpus(cpus))?;
    }
    writeln!(f)?;
    for sentence in &of.why {
        writeln!(f, "  {sentence}")?;
    }
    if let Some(decision) = &of.decision {
        write_decision(f, decision)?;
    }
    if !of.history.is_empty() {
        writeln!(f, "\n  history")?;
        for record in &of.history {
            writeln!(f, "    {}  {}", record.at, record.text)?;
        }
    }
    Ok(())
}

fn write_decision(f: &mut String, decision: &DecisionStatus) -> std::fmt::Result {
    if !decision.numa_candidates.is_empty() {
        let mut rows = vec![["NUMA nodes", "free", "", ""].map(str::to_owned).to_vec()];
        for set in &decision.numa_candidates {
            let nodes: Vec<String> = set.numa_nodes.iter().map(ToString::to_string).collect();
            rows.push(vec![
                nodes.join(","),
                set.free.to_string(),
                if set.preferred { "narrowest" } else { "" }.to_owned(),
                if set.chosen { "chosen" } else { "" }.to_owned(),
            ]);
        }
        write_table(f, &rows)?;
    }
    let mut rows = vec![["uncore cache", "free", "", "taken"].map(str::to_owned).to_vec()];
    for CacheStatus(cache) in &decision.uncore_caches {
        rows.push(vec![
            cache.id.to_string(),
            wording::or_none(cache.free),
            if cache.fits { "fits all" } else { "" }.to_owned(),
            if cache.taken > 0 { cache.taken.to_string() } else { String::new() },
        ]);
    }
    write_table(f, &rows)
}

fn write_table(f: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(f)?;
    table(rows).lines().try_for_each(|line| writeln!(f, "    {line}"))
}
