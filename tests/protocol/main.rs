//! The NRI edge with a runtime played by these tests, of every generation, which misbehaves in
//! every way.
//!
//! The tables list what can go wrong, with the tests. `L` stands for `lost`, `ledger` for
//! `crates/ledger/src/tests`.
//!
//! | lost and surplus events | tests |
//! |---|---|
//! | a creation fails and is undone by a stop and a removal (containerd) | `L::an_undone_creation_frees_its_cpus`, `L::an_undo_of_an_unknown_creation_changes_nothing` |
//! | another plugin or this one refuses a creation, nothing follows (CRI-O) | `L::an_unreported_failed_creation_leaves_its_cpus_to_the_next_instance`, `L::a_refused_creation_leaves_nothing` |
//! | the OCI runtime fails a creation, nothing follows (CRI-O) | `L::an_unreported_failed_creation_leaves_its_cpus_to_the_next_instance` |
//! | a creation runs into the kubelet's time limit, the container may exist (CRI-O) | `L::an_unlisted_container_is_pinned_at_its_first_event` |
//! | a task cannot be made, the stop comes with the removal (containerd) | `L::a_container_that_never_starts_leaves_its_cpus_to_its_successor` |
//! | a restart whose stop comes after the next creation | `L::a_late_stop_of_the_previous_instance_changes_nothing` |
//! | the runtime restarts: no ends of older pods, none of what ended meanwhile | `L::pods_that_ended_during_a_restart_of_the_runtime_hold_no_cpus`, `ledger::restart` |
//! | the plugin is away | `L::changes_during_a_restart_of_the_plugin_are_taken_over`, `crashes` |
//! | registration races with a creation: in no list and in no event | `L::an_unlisted_container_is_pinned_at_its_first_event`, `L::ends_of_unknown_containers_and_pods_change_nothing` |
//! | `crictl rmp -f` while a plugin registers locks the runtime up | none: a plugin neither causes nor notices it |
//! | evicted or deleted while being created | `L::a_pod_that_is_evicted_during_a_creation_holds_no_cpus` |
//! | CPUs of a container whose cgroup is gone or empty, without any event | `unreported_ends_are_detected_by_cgroups` in `tests/it/groups.rs` |
//!
//! | checklist | tests |
//! |---|---|
//! | `StateChange` and separate calls, lists in one and in parts, masks | `handshake::every_generation_configures_the_plugin_and_lists_a_node`, `events::every_generation_reports_the_same_life_of_a_pod`, `events::unknown_calls_are_unimplemented`, `handshake::one_list_of_fifteen_megabytes_is_accepted`, `handshake::the_parts_of_a_list_are_collected`, `handshake::another_configure_discards_the_parts_of_a_list` |
//! | Go's strict reader | `go`, in every test of this program; `framing::answers_of_every_size_are_readable` |
//! | frames split in every way | `framing::calls_in_any_frames_are_answered`, `framing::several_calls_in_one_frame_are_answered`, `handshake::the_handshake_works_byte_by_byte` |
//! | configured before the registration is answered | `handshake::a_runtime_may_configure_before_it_answers_the_registration`, `handshake::a_runtime_may_configure_before_the_registration` |
//! | an end in each state of the handshake; late answers of an old session | `handshake::a_disconnect_at_any_point_of_the_handshake_is_reported`, `reconnect::a_decision_is_dropped_with_its_connection` |
//! | a runtime gives up on a call and makes the next one | `events::a_call_after_a_cancelled_one_gets_its_own_answer`, `unkind::a_creation_after_one_that_was_given_up_gets_other_cpus` |
//! | created, never started, created again; then the late stop | `L::a_container_that_never_starts_leaves_its_cpus_to_its_successor`, `L::a_late_stop_of_the_previous_instance_changes_nothing` |
//! | stops of unknown ids, removals without a stop, pods' ends without their containers', unknown pods | `L::ends_of_unknown_containers_and_pods_change_nothing`, `L::each_kind_of_end_alone_frees_the_cpus` |
//! | the kubelet's own CPUs in an update are overridden with the container's id; a resize is refused | `unkind::quotas_of_the_kubelet_are_overridden_and_growth_without_room_is_refused`, `events::updates_reach_the_owner_and_are_overridden` |
//! | CPUs that were set before the plugin sees a container | `left_alone` |
//! | a list's answer: may fail, never empty, no container twice | every test with a `node`; `handshake::the_parts_of_a_list_are_collected` |
//! | shares and quotas read back, saturated values, absent wrappers; QoS classes from every shape of cgroup | unit tests of `crates/edge/src/nri` |
//! | real runtimes | `lab/tests/containerd.rs` for 1.7 and 2.1; `captures` for recordings of containerd 2.1 and 2.4 and CRI-O 1.36, with every answer |
//!
//! | misbehaviour | tests |
//! |---|---|
//! | late, double, missing, out of order | `events::a_late_decision_is_dropped_and_the_call_answered_in_time`, `unkind::every_event_may_arrive_twice`, `ledger::event_order` (every order of every choice), `L::a_stop_before_the_creation_frees_nothing_later` |
//! | created after the stop of the same container | `L::a_container_created_again_after_its_stop_gets_its_cpus_back` |
//! | events with empty pods | `L::events_with_empty_pods_find_their_container`, `events::stops_and_removals_need_only_the_containers_id`, `ledger::identity` |
//! | CPUs of a stopped container, whose process may not have ended | `unkind::a_stop_alone_gives_no_cpus_to_another_pod` |
//! | hangs: when registering, in a list, in an event, in an update, when reading | `handshake::a_runtime_that_never_configures_is_given_up_after_a_minute`, `unkind::a_restart_in_the_middle_of_a_list_discards_it`, `unkind::an_answer_that_the_runtime_never_read_has_no_effect`, `updates::only_one_unsolicited_update_is_under_way_at_a_time`, `framing::answers_wait_for_their_reader` |
//! | restarts in the middle of a list, or before its answer | `unkind::a_restart_in_the_middle_of_a_list_discards_it`, `unkind::a_list_whose_answer_was_lost_is_repaired_by_the_next_one` |
//! | garbage | `hostile`, the fuzz targets (`tests/it/fuzz.rs`, `hack/fuzz`) |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_enum_variant,
    clippy::disallowed_types,
    reason = "a test fails by panicking, in its helpers as well"
)]

mod captures;
mod crashes;
mod events;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/fake_sysfs.rs"]
mod fake_sysfs;
mod framing;
#[allow(dead_code, unreachable_pub, reason = "the fuzzers use the rest")]
#[path = "../fuzz_bodies/calls.rs"]
mod fuzz_calls;
mod go;
mod handshake;
mod hostile;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../programs/podresources/kubelet.rs"]
mod kubelet;
mod left_alone;
mod lost;
mod memory;
mod node;
mod owner;
mod pod_options;
mod process;
mod reconnect;
mod runtime;
mod snapshot;
mod stalled;
mod strict;
mod takeover;
mod threads;
mod unkind;
mod updates;
