//! A daemon with containers, and the commands that query it.

use std::path::Path;

use clap::Parser;
use ledger::Qos;
use nri_cpu_manager::Cli;

use super::observed::{CONFIG, ObservedDaemon};

/// Runs a command against this daemon; returns its output, or its error.
pub(crate) async fn command(state_dir: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut line = vec!["nri-cpu-manager".to_owned()];
    line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    line.extend(["--state-dir".to_owned(), state_dir.display().to_string()]);
    let parsed = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
    // The daemon runs in this thread, so the command must not block it.
    let run = tokio::task::spawn_blocking(move || {
        let mut out = Vec::new();
        let result = parsed.command.run(&mut out, &mut Vec::new());
        result.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
    });
    run.await.unwrap()
}

/// Two NUMA nodes of eight CPUs, CPUs 0-1 reserved; with two shared containers, an exclusive one,
/// and one that was refused. `more` is added to the configuration.
pub(crate) async fn busy(more: &str) -> ObservedDaemon {
    let daemon = ObservedDaemon::connected(&format!("{CONFIG}{more}")).await;
    daemon.create("web", Qos::Burstable, 500).await.unwrap();
    daemon.create("half", Qos::Guaranteed, 1500).await.unwrap();
    daemon.create("db", Qos::Guaranteed, 8000).await.unwrap();
    daemon.create("big", Qos::Guaranteed, 7000).await.unwrap_err();
    daemon
}

/// Runs a command of `cpuctl`; returns its output and its warnings, or its error.
pub(crate) fn cpuctl(arguments: &[&str]) -> Result<(String, String), String> {
    let line = [&["cpuctl"], arguments].concat();
    let parsed = cpuctl::Cli::try_parse_from(line).map_err(|error| error.to_string())?;
    let (mut out, mut warnings) = (Vec::new(), Vec::new());
    parsed.command.run(&mut out, &mut warnings).map_err(|error| error.to_string())?;
    Ok((String::from_utf8(out).unwrap(), String::from_utf8(warnings).unwrap()))
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
