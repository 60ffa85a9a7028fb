//! Histories without violations, and properties of their traces.

#![allow(clippy::expect_used, reason = "a test that cannot run fails")]

use sim::configuration::Configuration;
use sim::history::{Action, History, Op};
use sim::settings::{Settings, Trouble};
use sim::trace::record_logs;
use std::process::Command;
use std::time::Duration;

const SIM: &str = env!("CARGO_BIN_EXE_sim");

fn play(arguments: &[&str]) -> String {
    let played = Command::new(SIM).args(arguments).output().expect("the program runs");
    String::from_utf8(played.stdout).expect("its output is text")
}

#[test]
fn the_first_histories_have_no_violation() {
    let played = play(&["--seed", "1", "--runs", "60", "--quick"]);
    assert!(played.ends_with(" violations=0\n"), "{played}");
}

/// Plays one history, which must have no violation.
#[track_caller]
fn check(seed: &str) {
    let played = play(&["--seed", seed, "--runs", "1", "--quick"]);
    assert!(played.ends_with(" violations=0\n"), "{played}");
}

/// The plugin is killed after its start saved the state file, and before the runtime's list.
#[test]
fn containers_stay_left_alone_when_the_plugin_dies_before_the_list() {
    check("8123223");
}

/// After the kubelet's CPU manager was switched off, each of several containers has to leave CPUs for
/// another one.
#[test]
fn containers_that_wait_for_each_other_after_the_kubelets_cpu_manager_all_get_their_cpus() {
    for seed in ["1017", "2024"] {
        check(seed);
    }
}

/// A container that is listed as created starts before the runtime makes the update in the answer. The
/// update changes only the runtime's record, and is repeated after the start.
#[test]
fn a_container_that_starts_during_the_list_has_no_drift() {
    check("1101196");
}

/// A container was created while the plugin was away, and stays created because a sidecar of its pod is
/// refused again and again. It may start at any moment.
#[test]
fn a_created_container_keeps_its_cpus_out_of_the_pool() {
    check("1304106");
}

/// The runtime passes on a request that names CPUs after the kubelet's CPU manager was switched off. The
/// plugin leaves the container alone, and assigns no CPUs if another pod gets such a request.
#[test]
fn a_late_request_that_names_cpus_holds_back_its_container() {
    check("2500291");
}

/// The kernel has refused a write, and the check a second later comes while a slow disk is saving a move.
#[test]
fn a_check_of_cgroups_waits_for_a_move_that_is_being_saved() {
    check("2713907");
}

/// A class that needs no value gets one from another program, without any CPU that a pod in it is for.
#[test]
fn a_write_into_a_class_without_a_value_is_noticed_at_once() {
    check("7700338");
}

/// Decisions about other containers follow a failed write of a container's files more often than the
/// write is tried again.
#[test]
fn files_are_written_soon_after_the_disk_works_again() {
    check("7703229");
}

/// The disk is full while a container is resized, so the state file has the request from before.
#[test]
fn another_instance_knows_a_resize_that_could_not_be_saved() {
    check("7700185");
}

/// A program puts an exclusive container on all CPUs, while a pod for the reserved ones starts in a class
/// that is still on the container's CPU: each waits for the other.
#[test]
fn a_class_for_the_reserved_cpus_gets_them_though_a_container_strayed_there() {
    check("1388");
}

/// A program keeps a class to the reserved CPU and an exclusive one, and a pod in it has neither.
#[test]
fn a_pod_whose_class_is_kept_to_other_cpus_leaves_the_exclusive_ones() {
    check("9204766");
}

/// The plugin dies between the writes that follow a resize, which gave up a CPU that the kernel was booted
/// to isolate.
#[test]
fn no_sibling_enters_an_isolated_cpu_that_its_pod_gives_up() {
    check("9304397");
}

/// The state directory is lost, and a configuration of that time gives the container shared CPUs.
#[test]
fn a_partition_ends_whose_container_shares_cpus_after_a_loss_of_the_state() {
    check("8815169");
}

/// The plugin has died between a decision and its answer, and starts with `full-pcpus-only`.
#[test]
fn a_container_keeps_its_cpus_under_an_option_that_came_after_the_decision() {
    check("9402337");
}

/// Memory has grown to a second node, the runtime's update to both has failed, and the plugin dies. At the
/// next start only the first one is set.
#[test]
fn memory_that_grew_keeps_its_nodes_if_the_plugin_dies_before_they_are_set() {
    check("31000652");
}

/// The end of an init container is reported after the next container was created: its memory moves while
/// that one starts, so the update changes only the runtime's record.
#[test]
fn memory_that_moves_to_a_starting_container_follows_with_the_next_message() {
    check("7300474");
}

/// A container is moved while the disk is read-only, the plugin dies, and its next start fails.
#[test]
fn files_are_old_until_the_plugin_starts_after_a_fault_of_the_disk() {
    check("8421441");
}

/// A program crashes while it has notice of fewer CPUs.
#[test]
fn no_pod_is_refused_for_cpus_of_which_a_notice_has_ended() {
    check("8421668");
}

/// With `full-pcpus-only`, cores of 1 and 2 CPUs, and cores of SMT 2 and 4 with a thread that is offline.
#[test]
fn whole_cores_are_given_on_machines_with_unequal_cores() {
    for seed in ["474", "21", "49", "339"] {
        check(seed);
    }
}

/// A history with one operation, on containerd with systemd.
#[track_caller]
fn check_one(action: Action, trouble: Trouble) {
    for dice in 0..20 {
        let after = Duration::from_secs(20);
        let settings = Settings {
            systemd: true,
            configuration: Configuration::default().with("exclusivity", "groups"),
            trouble,
            ..Settings::default()
        };
        let ops = vec![Op { after, action, dice }, Op { after, action: Action::Wait, dice }];
        let outcome = History { seed: dice, settings, ops }.run(true);
        assert_eq!(outcome.violation, None, "{:#?}", outcome.trace);
    }
}

/// Nothing is exclusive, so that the class needs no value.
#[test]
fn a_node_distrusts_no_class_that_got_all_cpus_and_was_made_again() {
    record_logs();
    check_one(Action::RemakeClass, Trouble::All);
}

#[test]
fn pods_from_while_the_plugin_was_away_are_pinned_with_the_list() {
    record_logs();
    check_one(Action::CreateWhileAway, Trouble::Restarts);
}

#[test]
fn two_processes_have_the_same_trace() {
    let arguments = ["--seed", "7", "--runs", "4", "--quick", "--trace"];
    let first = play(&arguments);
    assert!(first.contains("hash="));
    assert!(first == play(&arguments), "the trace differs");
}

#[test]
fn operations_stay_the_same_when_another_one_is_left_out() {
    let whole = History::roll(3);
    let mut less = whole.clone();
    less.ops.remove(0);
    assert_eq!(whole.ops[1..], less.ops[..]);
    assert_eq!(History::roll(3), whole);
}
