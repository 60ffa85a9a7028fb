//! Counts the instructions of decisions under valgrind, which are the same in every run, even on a
//! busy machine.
//!
//! `hack/bench` compares the counts with `bench/instructions.txt`, and fails if a case takes over 5
//! % more; `hack/bench --save` writes the new counts there. The program runs itself under valgrind;
//! the cases are in `cases.rs`.

mod callgrind;
mod cases;
mod figures;
mod node;

use clap::Parser;
use figures::{Change, Figures};
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The counts to compare with.
const SAVED: &str = "bench/instructions.txt";

/// Counts the instructions of decisions and compares them with the saved counts.
#[derive(Parser)]
#[command(name = "hack/bench")]
struct Args {
    /// Save the new counts
    #[arg(long)]
    save: bool,
    /// Run the cases, as valgrind does, and print their names.
    #[arg(long, hide = true)]
    cases: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.cases { cases::run().map(|()| true) } else { count(args.save) };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether the new counts are acceptable, or were saved.
fn count(save: bool) -> Result<bool, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let saved = Figures::read(&file)?;
    let new = Figures { compiler: compiler()?, counts: callgrind::count()? };
    let changes = new.compare(&saved);
    changes.iter().for_each(|change| println!("{change}"));
    if save {
        new.write(&file)?;
        println!("saved in {SAVED}");
        return Ok(true);
    }
    if !saved.counts.is_empty() && saved.compiler != new.compiler {
        println!(
            "skipped: instruction counts are not compared: {SAVED} is of {:?}, this is {:?}; hack/bench --save saves new ones",
            saved.compiler, new.compiler
        );
        return Ok(true);
    }
    let good = changes.iter().all(Change::acceptable);
    if !good {
        println!(
            "Cases marked <-- take over 5 % more than in {SAVED}, or are not in both. To accept them: hack/bench --save"
        );
    }
    Ok(good)
}

/// The compiler and its host. Another compiler makes another program, with other counts.
fn compiler() -> Result<String, Box<dyn Error>> {
    let about = String::from_utf8(Command::new("rustc").arg("-vV").output()?.stdout)?;
    Ok(format!("rustc {} {}", field(&about, "release: ")?, field(&about, "host: ")?))
}

fn field<'a>(about: &'a str, name: &str) -> Result<&'a str, String> {
    let value = about.lines().find_map(|line| line.strip_prefix(name));
    value.ok_or_else(|| format!("rustc -vV prints no {name:?}"))
}
