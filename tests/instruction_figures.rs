//! The judge of instruction counts (`hack/bench`): what it lets pass and what not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../bench/src/figures.rs"]
mod figures;

use figures::{Change, Figures};

fn figures(counts: &[(&str, u64)]) -> Figures {
    let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Figures { compiler: "rustc 1.0 here".to_owned(), counts }
}

#[test]
fn written_figures_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("figures.txt");
    assert_eq!(Figures::read(&file).unwrap(), Figures::default(), "no file is no figures");
    let written = figures(&[("take/8-nodes", 1), (&"long".repeat(20), 12_345_678_901)]);
    written.write(&file).unwrap();
    assert_eq!(Figures::read(&file).unwrap(), written);
    for bad in ["take/8-nodes\n", "take many\n", "\n"] {
        std::fs::write(&file, bad).unwrap();
        let error = Figures::read(&file).unwrap_err().to_string();
        assert!(error.contains("figures.txt") && error.contains("no case"), "{error}");
    }
}

#[test]
fn a_case_may_grow_by_a_twentieth() {
    let kept = figures(&[("less", 1000), ("limit", 1000), ("more", 1000), ("gone", 1000)]);
    let now = figures(&[("less", 10), ("limit", 1050), ("more", 1051), ("new", 10)]);
    let changes = now.compare(&kept);
    let refused: Vec<&str> = changes
        .iter()
        .filter(|change| !change.acceptable())
        .map(|change| change.name.as_str())
        .collect();
    assert_eq!(refused, ["more", "new", "gone"]);
    let lines: Vec<String> = changes.iter().map(Change::to_string).collect();
    let ends = ["10  -99.0 %", "1050  +5.0 %", "1051  +5.1 %  <--", "10  new  <--", "0  gone  <--"];
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line:?} does not end with {end:?}");
    }
}

/// The figures in the tree are of every case there is, and of a known compiler.
#[test]
fn the_kept_figures_are_whole() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/instructions.txt");
    let kept = Figures::read(std::path::Path::new(file)).unwrap();
    assert!(kept.compiler.starts_with("rustc "), "{:?}", kept.compiler);
    assert!(kept.counts.len() > 50 && kept.counts.iter().all(|(_, count)| *count > 1000));
}
