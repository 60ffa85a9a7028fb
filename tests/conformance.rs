//! Our decisions against the kubelet's own, all vectors of `tests/conformance`.

use std::path::Path;

#[path = "../examples/conformance/runner.rs"]
mod runner;

#[test]
fn every_vector() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let reports = runner::run(&dir).unwrap();
    assert!(!reports.is_empty());
    for report in reports {
        println!("{report}");
        let failures: Vec<&String> = report.failures.iter().take(5).collect();
        assert!(failures.is_empty(), "{report}: {failures:#?}");
    }
}
