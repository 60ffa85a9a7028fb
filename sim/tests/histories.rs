//! Some histories hold, and each has one trace.

#![allow(clippy::expect_used, reason = "a test that cannot run fails")]

use sim::history::History;
use std::process::Command;

const SIM: &str = env!("CARGO_BIN_EXE_sim");

fn play(arguments: &[&str]) -> String {
    let played = Command::new(SIM).args(arguments).output().expect("the program runs");
    String::from_utf8(played.stdout).expect("its output is text")
}

#[test]
fn histories_hold() {
    let played = play(&["--seed", "1", "--runs", "60", "--quick"]);
    assert!(played.ends_with(" violations=0\n"), "{played}");
}

/// Plays one history, which must have no violation.
#[track_caller]
fn check(seed: &str) {
    let played = play(&["--seed", seed, "--runs", "1", "--quick"]);
    assert!(played.ends_with(" violations=0\n"), "{played}");
}

/// Containers that each have to leave CPUs for another one, after the kubelet's CPU manager was
/// switched off.
#[test]
fn a_takeover_from_the_kubelet_ends() {
    for seed in ["1017", "2024"] {
        check(seed);
    }
}

/// A container that is listed as created starts before the runtime makes the update in the answer:
/// that changes only the runtime's own record, and is repeated after the start.
#[test]
fn a_container_that_starts_during_the_list_has_no_drift() {
    check("1101196");
}

/// Beside a sidecar that is refused again and again, a container of its pod that came while the plugin
/// was away stays created: it may start at any moment, and the pool lacks its CPUs.
#[test]
fn a_created_container_keeps_its_cpus_out_of_the_pool() {
    check("1304106");
}

/// The runtime passes on a request that names CPUs after the kubelet's CPU manager was switched off:
/// the plugin stands back until a container is created without.
#[test]
fn a_late_request_that_names_cpus_counts() {
    check("2500291");
}

/// The kernel has refused a write, and the check a second later comes while a slow disk saves a move.
#[test]
fn a_check_of_cgroups_waits_for_a_move_that_is_being_saved() {
    check("2713907");
}

#[test]
fn two_processes_have_the_same_trace() {
    let arguments = ["--seed", "7", "--runs", "4", "--quick", "--trace"];
    let first = play(&arguments);
    assert!(first.contains("hash="));
    assert!(first == play(&arguments), "the trace differs");
}

/// To shrink a history, operations are left out: the others stay what they were.
#[test]
fn an_operation_has_its_own_dice() {
    let whole = History::roll(3);
    let mut less = whole.clone();
    less.ops.remove(0);
    assert_eq!(whole.ops[1..], less.ops[..]);
    assert_eq!(History::roll(3), whole);
}
