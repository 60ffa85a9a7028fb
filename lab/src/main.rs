//! The lab's command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests and demo of nri-cpu-manager: containerd on this host and on virtual machines.
#[derive(Parser)]
#[command(name = "lab")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run KEP-4800's example on a virtual machine with 32 CPUs and draw the result
    Demo(lab::demo::Options),
    /// Stress test: kill the plugin and the runtime at random moments while pods start and end
    Chaos(lab::chaos::command::Options),
    /// Measure how the start of an exclusive container depends on the number of shared ones
    Latency(lab::latency::Options),
    /// Count what else runs or fires on exclusive CPUs, with each mechanism
    Noise(lab::foreign::Options),
    /// Compare the plugin's cgroup model with the kernel of a virtual machine
    Cgroups(lab::cgroup_model::command::Options),
    /// Run scenarios on machines
    Run(lab::suite::Run),
    /// Run the scenarios of a full run on every machine, with both containerd versions
    All,
    /// Open a shell on a virtual machine with the plugin running
    Shell(lab::shell::Options),
    /// List machines and scenarios
    List,
    /// Fetch and build what virtual machines and containers need
    Prepare,
    /// Run a job inside a virtual machine
    #[command(hide = true)]
    Guest,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => lab::demo::run(&options),
        Command::Chaos(options) => lab::chaos::command::run(&options),
        Command::Latency(options) => lab::latency::run(&options),
        Command::Noise(options) => lab::foreign::run(&options),
        Command::Cgroups(options) => lab::cgroup_model::command::run(&options),
        Command::Run(options) => lab::suite::run(&options),
        Command::All => lab::suite::all(),
        Command::Shell(options) => lab::shell::start(&options),
        Command::List => lab::suite::list(),
        Command::Prepare => lab::prepare(),
        Command::Guest => lab::guest::main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind::MissingRequiredArgument;

    use super::*;

    const PAGES: [&str; 4] = [
        include_str!("../../README.md"),
        include_str!("../../CONTRIBUTING.md"),
        include_str!("../../docs/lab.md"),
        include_str!("../../docs/performance.md"),
    ];

    /// The scripts that pass their arguments on, and the words that they add.
    const SCRIPTS: [(&str, &[&str]); 5] = [
        ("hack/lab", &[]),
        ("hack/demo", &["demo"]),
        ("hack/chaos", &["chaos"]),
        ("hack/bench-latency", &["latency"]),
        ("hack/bench-noise", &["noise"]),
    ];

    /// Words of a shell command; quotes hold one together.
    fn words(command: &str) -> Vec<&str> {
        let parts = command.split('\'').enumerate();
        parts
            .flat_map(|(at, part)| match at % 2 {
                1 => vec![part],
                _ => part.split_whitespace().collect(),
            })
            .collect()
    }

    #[test]
    fn the_commands_on_the_pages_are_accepted() {
        let mut found = 0;
        // Spans of code, and lines of blocks, where two spaces or a # begin an explanation.
        for span in PAGES.iter().flat_map(|page| page.split(['`', '\n'])) {
            let command = span.trim_start_matches(['$', '#', ' ']);
            let command = command.split("  ").next().unwrap().split(" #").next().unwrap();
            for (script, before) in SCRIPTS {
                let Some(arguments) = command.strip_prefix(script) else { continue };
                let arguments = words(arguments);
                // The script's own part, and a name alone.
                if arguments.is_empty() || arguments == ["broken"] {
                    continue;
                }
                found += 1;
                let Err(error) = Cli::try_parse_from([&["lab"], before, &arguments[..]].concat())
                else {
                    continue;
                };
                let is_name = arguments.len() == 1 && error.kind() == MissingRequiredArgument;
                assert!(is_name, "{command}: {error}");
            }
        }
        assert!(found > 25, "only {found} commands found");
    }
}
