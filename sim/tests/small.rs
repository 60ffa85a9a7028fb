//! Searches of small worlds, which find no violation and are reproducible.

#![allow(clippy::expect_used, reason = "a test that cannot run fails")]

use std::process::Command;

fn search(arguments: &[&str]) -> String {
    let sim = env!("CARGO_BIN_EXE_sim");
    let played = Command::new(sim).arg("small").args(arguments).output().expect("the program runs");
    String::from_utf8(played.stdout).expect("its output is text")
}

#[test]
fn no_order_of_two_events_has_a_violation() {
    let found = search(&["--depth", "2"]);
    for mechanism in ["groups", "runtime"] {
        let prefix = format!("{mechanism}: kinds=");
        let line = found.lines().find_map(|line| line.strip_prefix(&prefix)).expect("a last line");
        let (kinds, rest) = line.split_once(' ').expect("more than kinds");
        assert!(kinds.parse::<u32>().expect("a number") >= 12, "{found}");
        assert!(rest.ends_with(" violations=0"), "{found}");
    }
}

#[test]
fn two_searches_print_the_same() {
    let arguments = ["--depth", "2", "--faults", "0"];
    assert_eq!(search(&arguments), search(&arguments));
}
