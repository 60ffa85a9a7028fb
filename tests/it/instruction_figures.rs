//! The comparison of instruction counts (`hack/bench`).

#[path = "../../bench/src/figures.rs"]
mod figures;

use figures::{Change, Figures};

fn figures(counts: &[(&str, u64)]) -> Figures {
    let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Figures { compiler: "rustc 1.0 here".to_owned(), counts }
}

#[test]
fn written_figures_are_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("figures.txt");
    assert_eq!(Figures::read(&file).unwrap(), Figures::default(), "a missing file has no figures");
    let written = figures(&[("take/8-nodes", 1), (&"long".repeat(20), 12_345_678_901)]);
    written.write(&file).unwrap();
    assert_eq!(Figures::read(&file).unwrap(), written);
    for bad in ["take/8-nodes\n", "take many\n", "\n"] {
        std::fs::write(&file, bad).unwrap();
        let error = Figures::read(&file).unwrap_err().to_string();
        assert!(error.contains("figures.txt") && error.contains("not a case"), "{error}");
    }
}

#[test]
fn a_case_that_grows_by_more_than_5_percent_is_refused() {
    let saved = figures(&[("less", 1000), ("limit", 1000), ("more", 1000), ("gone", 1000)]);
    let now = figures(&[("less", 10), ("limit", 1050), ("more", 1051), ("new", 10)]);
    let changes = now.compare(&saved);
    let refused = changes.iter().filter(|change| !change.acceptable());
    let refused: Vec<&str> = refused.map(|change| change.name.as_str()).collect();
    assert_eq!(refused, ["more", "new", "gone"]);
    let lines: Vec<String> = changes.iter().map(Change::to_string).collect();
    let ends = ["10  -99.0 %", "1050  +5.0 %", "1051  +5.1 %  <--", "10  new  <--", "0  gone  <--"];
    assert_eq!(lines.len(), ends.len(), "{lines:?}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line:?} does not end with {end:?}");
    }
}

#[test]
fn the_saved_figures_have_a_compiler_and_all_cases() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/instructions.txt");
    let saved = Figures::read(std::path::Path::new(file)).unwrap();
    assert!(saved.compiler.starts_with("rustc "), "{:?}", saved.compiler);
    assert!(saved.counts.len() > 50 && saved.counts.iter().all(|(_, count)| *count > 1000));
}
