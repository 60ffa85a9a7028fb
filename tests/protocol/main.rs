//! The NRI edge against a runtime played by these tests, of every generation and of every kind of
//! unkindness.
//!
//! What can go wrong, and the tests that make it go wrong. `L` is short for `lost`, `ledger` for
//! `crates/ledger/src/tests`.
//!
//! | lost and surplus events | tests |
//! |---|---|
//! | a creation fails and is undone by a stop and a removal (containerd) | `L::a_failed_creation_that_is_undone`, `L::an_undo_of_what_was_never_asked` |
//! | another plugin or we refuse a creation, nothing follows (CRI-O) | `L::a_failed_creation_that_nobody_tells_of`, `L::what_we_refuse_leaves_nothing` |
//! | the OCI runtime fails a creation, nothing follows (CRI-O) | `L::a_failed_creation_that_nobody_tells_of` |
//! | a creation runs into the kubelet's time limit, the container may exist (CRI-O) | `L::containers_that_only_a_later_event_tells_of` |
//! | a task cannot be made, the stop comes with the removal (containerd) | `L::a_container_that_never_starts` |
//! | a restart whose stop comes after the next creation | `L::a_late_stop_of_the_instance_before` |
//! | the runtime restarts: no ends of older pods, none of what ended meanwhile | `L::what_ended_while_the_runtime_was_away`, `ledger::a_pod_is_over_when_its_last_container_is_removed` |
//! | the plugin is away | `L::what_happened_while_the_plugin_was_away`, `crashes` |
//! | registration races with a creation: in no list and in no event | `L::containers_that_only_a_later_event_tells_of`, `L::ends_of_what_was_never_seen` |
//! | `crictl rmp -f` while a plugin registers locks the runtime up | none: nothing a plugin does or sees |
//! | evicted or deleted while being created | `L::evicted_while_being_created` |
//! | CPUs of a container whose cgroup is gone or empty, without any event | `ends_that_nobody_told_of` in `tests/it/daemon.rs` |
//!
//! | checklist | tests |
//! |---|---|
//! | old and new style, `StateChange` and calls of their own, lists in one and in parts, masks | `handshake::every_generation`, `events::a_pods_life`, `events::unknown_calls`, `handshake::one_list_of_fifteen_megabytes`, `handshake::lists_in_parts`, `handshake::configure_begins_the_list_anew` |
//! | Go's reader, strictly | `go`, by every test of this file; `framing::answers_of_every_size` |
//! | frames split in every way | `framing::calls_in_any_frames`, `framing::several_calls_in_a_frame`, `handshake::byte_by_byte` |
//! | configured before the registration is answered | `handshake::configured_before_the_registration_is_answered`, `handshake::configured_before_registering` |
//! | an end in each state of the handshake; late answers of an old session | `handshake::ends_at_every_point`, `reconnect::decisions_die_with_their_connection` |
//! | a call is given up and the next one made | `events::cancelled_calls`, `unkind::given_up_and_gone_on` |
//! | created, never started, created anew; then the late stop | `L::a_container_that_never_starts`, `L::a_late_stop_of_the_instance_before` |
//! | stops of unknown ids, removals without a stop, pods' ends without their containers', unknown pods | `L::ends_of_what_was_never_seen`, `L::ends_that_leave_steps_out` |
//! | the kubelet's own CPUs in an update are overridden with the container's id; a resize is refused | `unkind::updates_by_the_kubelet`, `events::updates_are_told_and_overridden` |
//! | a list's answer: may fail, never empty, no container twice | every test with a `node`; `handshake::lists_in_parts` |
//! | shares and quotas read back, saturated values, absent wrappers | unit tests of `ledger::model` and `nri::incoming` |
//! | classes of service from every shape of cgroup | unit test of `nri::qos` |
//! | real peers | `lab/tests/containerd.rs` for 1.7 and 2.1; `captures` for what containerd 2.1 and 2.4 and CRI-O 1.36 sent, with every answer |
//!
//! | unkindness | tests |
//! |---|---|
//! | late, double, missing, out of order | `events::late_decisions`, `unkind::everything_twice`, `ledger::orders` (every order of every choice), `L::stopped_before_it_is_created` |
//! | created after the stop of the same container | `L::created_again_after_its_stop` |
//! | events with empty pods | `L::events_with_empty_pods`, `events::empty_pods`, `ledger::identity` |
//! | CPUs of a stopped container, whose process may not have ended | `unkind::a_stop_alone_gives_no_cpus_to_another_pod` |
//! | hangs: when registering, in a list, in an event, in an update, when reading | `handshake::silence_after_registering`, `unkind::restarts_in_the_middle_of_a_list`, `unkind::hangs_and_dies_with_an_answer_unread`, `updates::one_at_a_time`, `framing::answers_wait_for_their_reader` |
//! | restarts in the middle of a list, or before its answer | `unkind::restarts_in_the_middle_of_a_list`, `unkind::restarts_before_the_answer_to_a_list` |
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
mod lost;
mod memory;
mod node;
mod owner;
mod process;
mod reconnect;
mod runtime;
mod stalled;
mod strict;
mod takeover;
mod unkind;
mod updates;
mod wishes;
