//! Compares decisions with the kubelet's own: runs every vector file in a directory.
//!
//! `cargo run --release --example conformance -- DIR` prints `FILE passed P failed F excepted E`
//! for each file and the first failures in full; the exit code is non-zero if any vector failed.
//! Vectors that the kubelet itself answers wrongly, or kubelet 1.37 otherwise than 1.36, are
//! excepted: they must get a legal answer of the right size instead.

use std::path::PathBuf;
use std::process::ExitCode;

#[path = "conformance/runner.rs"]
mod runner;

/// How many failures of a file are printed in full.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!(
            "usage: conformance DIR, a directory with topologies.jsonl[.gz] and vector files"
        );
        return ExitCode::from(64);
    };
    match runner::run(&dir) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(66)
        }
        Ok(reports) => {
            for report in &reports {
                println!("{report}");
                for failure in report.failures.iter().take(SHOWN) {
                    println!("  {failure}");
                }
                let ids = report.failures.iter().skip(SHOWN);
                let ids: Vec<&str> = ids.filter_map(|failure| failure.split(": ").next()).collect();
                if !ids.is_empty() {
                    println!("  also failed: {}", ids.join(" "));
                }
            }
            let passed = reports.iter().all(|report| report.failures.is_empty());
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
