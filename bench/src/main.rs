//! How many instructions decisions take: counted by valgrind, so the same in every run, on a busy
//! machine too.
//!
//! `hack/bench` counts and compares with `bench/instructions.txt`, and fails where a case takes
//! over 5 % more; `hack/bench --save` writes the new figures there. The program runs itself under
//! valgrind to count; what is counted is in `cases.rs`.

mod callgrind;
mod cases;
mod figures;
mod node;

use clap::Parser;
use figures::{Change, Figures};
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The figures to compare with.
const KEPT: &str = "bench/instructions.txt";

/// Counts the instructions of decisions and compares them with the figures kept.
#[derive(Parser)]
#[command(name = "hack/bench")]
struct Args {
    /// Keep the new figures
    #[arg(long)]
    save: bool,
    /// Run the cases, as under valgrind: their names go to standard output.
    #[arg(long, hide = true)]
    cases: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.cases {
        true => cases::run().map(|()| true),
        false => count(args.save),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether the new figures are as good as those kept, or kept themselves.
fn count(save: bool) -> Result<bool, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let kept = Figures::read(&file)?;
    let new = Figures { compiler: compiler()?, counts: callgrind::count()? };
    let changes = new.compare(&kept);
    changes.iter().for_each(|change| println!("{change}"));
    if save {
        new.write(&file)?;
        println!("saved in {KEPT}");
        return Ok(true);
    }
    if !kept.counts.is_empty() && kept.compiler != new.compiler {
        let kept = &kept.compiler;
        let new = &new.compiler;
        println!(
            "skipped: instruction counts are not judged: {KEPT} is of {kept:?}, this is {new:?}; hack/bench --save keeps new ones"
        );
        return Ok(true);
    }
    let good = changes.iter().all(Change::acceptable);
    if !good {
        println!(
            "Cases marked <-- take over 5 % more than in {KEPT}, or are not in both. If it shall be so: hack/bench --save"
        );
    }
    Ok(good)
}

/// The compiler and what it compiles for: another one makes another program, with other counts.
fn compiler() -> Result<String, Box<dyn Error>> {
    let about = String::from_utf8(Command::new("rustc").arg("-vV").output()?.stdout)?;
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?");
    Ok(format!("rustc {} {}", field("release: "), field("host: ")))
}
