//! `sim`: plays histories from consecutive seeds, and prints violations.

use clap::{Parser, Subcommand};
use sim::history::History;
use sim::settings::Trouble;
use sim::small;
use sim::trace::record_logs;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Plays random histories on a simulated node.
///
/// Prints each violation with its seed and its shrunk history, then a hash over all traces, which
/// is equal for equal seeds, and last: runs=N events=N foreseen=N violations=N, with the number of changes
/// that were compared with their preview
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The first seed; otherwise the time.
    #[arg(long)]
    seed: Option<u64>,
    /// How many histories; 1000 without --minutes.
    #[arg(long)]
    runs: Option<u64>,
    /// For how long.
    #[arg(long)]
    minutes: Option<f64>,
    /// Print each history, a line for each event.
    #[arg(long)]
    trace: bool,
    /// Do not shrink histories that fail.
    #[arg(long)]
    quick: bool,
    /// End with the first history that fails.
    #[arg(long)]
    first: bool,
    /// Only histories without restarts and faults.
    #[arg(long)]
    peace: bool,
    /// With `exclusivity: kernel` in all histories.
    #[arg(long)]
    kernel: bool,
}

#[derive(Subcommand)]
enum Command {
    Small(small::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command, seed, runs, minutes, trace, quick, first, peace, kernel } =
        Arguments::parse();
    record_logs();
    if let Some(Command::Small(arguments)) = command {
        return if small::search(&arguments) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = seed.unwrap_or(clock.as_secs());
    let runs = runs.unwrap_or(if minutes.is_some() { u64::MAX } else { 1000 });
    let time = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    eprintln!("first seed {seed}");
    let started = Instant::now();
    let mut played = 0;
    let mut events = 0;
    let mut foreseen = 0;
    let mut violations = 0;
    let mut hash = 0_u64;
    let mut seeds = (0..).map(|number| seed.wrapping_add(number));
    while played < runs && time.is_none_or(|time| started.elapsed() < time) {
        let Some(mut history) = seeds.next().map(History::roll) else { break };
        if kernel {
            history.settings.make_partitions();
        }
        if peace && history.settings.trouble != Trouble::None {
            continue;
        }
        let outcome = history.run(trace);
        played += 1;
        events += outcome.events;
        foreseen += outcome.foreseen;
        hash = (hash.rotate_left(5) ^ outcome.hash).wrapping_mul(0x0100_0000_01b3);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        if let Some(why) = outcome.violation {
            violations += 1;
            println!("seed {} ({:?}): {why}", history.seed, history.settings.trouble);
            if !quick {
                show(&history);
            }
            if first {
                break;
            }
        }
    }
    println!("hash={hash:016x}");
    println!("runs={played} events={events} foreseen={foreseen} violations={violations}");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the shortest history with the same violation.
fn show(history: &History) {
    let shrunk = history.shrunk();
    println!("  shrunk from {} to {} operations on:", history.ops.len(), shrunk.ops.len());
    println!("  {:?}", shrunk.settings);
    println!("  {:?}", shrunk.ops);
    for line in shrunk.run(true).trace {
        println!("  {line}");
    }
}
