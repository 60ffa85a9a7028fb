//! The table of bounds in docs/security.md: it has the program's constants, and a test feeds each input its bound.

use Figure::{Measured, Sum};
use kernel::{Kernel, Linux};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

struct Bound {
    /// What the row says.
    text: &'static str,
    /// Where the constant is, its name and its value.
    constant: (&'static str, &'static str, &'static str),
    /// The test that feeds the bound, and its file.
    fed_by: (&'static str, &'static str),
}

/// Where a figure comes from.
enum Figure {
    /// The sum of these numbers of bytes, all of them in the constants of the row.
    Sum(&'static [usize]),
    /// The test that measures it, its file, and how the test says it.
    Measured(&'static str, &'static str, &'static str),
}

struct Row {
    input: &'static str,
    bounds: &'static [Bound],
    /// What the row says, and why.
    memory: (&'static str, Figure),
}

const fn bound(
    text: &'static str,
    constant: (&'static str, &'static str, &'static str),
    fed_by: (&'static str, &'static str),
) -> Bound {
    Bound { text, constant, fed_by }
}

const FRAMES: (&str, &str) =
    ("crates/nri/src/frame.rs", "frames_for_connection_0_and_long_frames_are_errors");
const CALLS: (&str, &str) =
    ("tests/protocol/hostile.rs", "a_flood_of_calls_is_bounded_and_ends_the_connection");
const LIST: (&str, &str) = ("tests/protocol/handshake.rs", "a_list_is_bounded_by_its_entries");
const POD_OPTIONS: (&str, &str) =
    ("tests/protocol/pod_options.rs", "too_many_pod_options_are_refused_without_repeating_them");
const VALUES: (&str, &str) = ("crates/ledger/src/annotations/tests.rs", "no_valid_value_is_cut");
const DEVICES: (&str, &str) = (
    "crates/ledger/src/tests/topology_manager.rs",
    "too_many_devices_refuse_only_who_gets_cpus_near_them",
);
const MOUNTS: (&str, &str) =
    ("crates/edge/src/nri/mounts.rs", "more_mounts_than_the_bound_get_no_files");
const CONFIG: (&str, &str) =
    ("crates/config/src/tests/odd_input.rs", "a_text_is_bounded_in_size_depth_and_values");
const FILES: (&str, &str) = ("crates/state/src/files.rs", "a_regular_file_is_read_up_to_its_limit");
const KERNEL: (&str, &str) = ("tests/it/bounds.rs", "a_file_of_the_kernel_is_read_up_to_its_bound");
const REQUESTS: (&str, &str) =
    ("tests/it/metrics_http.rs", "requests_are_answered_or_rejected_with_a_reason");
const BODY: (&str, &str) = ("tests/it/metrics_http.rs", "a_body_is_read_up_to_its_bound");
const SLOW: (&str, &str) = ("tests/it/metrics_http.rs", "a_client_that_is_too_slow_gets_no_answer");
const PEERS: (&str, &str) =
    ("crates/serve/src/connections.rs", "the_oldest_connection_of_the_busiest_peer_ends");
const READERS: (&str, &str) =
    ("tests/it/metrics_http.rs", "readers_cost_the_owner_a_view_a_second_and_probes_none");
const HEADERS: (&str, &str) = (
    "crates/podresources/src/authority/frames/tests.rs",
    "large_frames_and_large_header_blocks_are_refused",
);
const KUBELET: (&str, &str) = (
    "crates/podresources/tests/hostile_kubelet.rs",
    "nothing_that_a_kubelet_sends_takes_long_or_much_memory",
);
const LONG_ANSWER: (&str, &str) =
    ("tests/programs/podresources/devices.rs", "a_failing_kubelet_delays_no_container");
const DEVICES_OF_ONE: (&str, &str) =
    ("crates/podresources/src/devices.rs", "too_many_devices_are_those_of_one_container");
const DEVICES_OF_ALL: (&str, &str) =
    ("crates/podresources/src/devices.rs", "a_list_is_bounded_by_what_it_unfolds_to");
const INTERRUPTS: (&str, &str) = (
    "crates/quiet/src/interrupts.rs",
    "more_interrupts_and_longer_names_than_the_bound_are_not_read",
);
const OBSERVED: (&str, &str) =
    ("crates/noise/src/sample/tests.rs", "a_table_is_bounded_by_the_counters_of_watched_cpus");
const IRQBALANCE: (&str, &str) =
    ("crates/quiet/src/irqbalance/tests.rs", "a_reply_without_end_is_an_error");

const MEMORY: &str = "tests/protocol/memory.rs";
const FULL_FILES: &str = "files_at_their_bounds_take_the_memory_that_the_page_names";
const CROWD: (&str, &str) = (
    "crates/noise/src/sample/tests.rs",
    "a_crowd_of_processes_and_cgroups_costs_a_sample_no_more_than_its_bounds",
);
const HISTORY: (&str, &str) = ("crates/status/src/history.rs", "the_history_is_bounded");
const REPEATS: (&str, &str) = ("crates/wording/src/repeats.rs", "many_conditions_share_a_row");
const REPEATED: (&str, &str) = (
    "crates/wording/src/repeats.rs",
    "the_first_occurrence_is_logged_and_then_one_in_ten_at_most_once_a_minute",
);

const ROWS: &[Row] = &[
    Row {
        input: "the runtime's connection",
        bounds: &[
            bound(
                "16 MiB a frame",
                ("crates/nri/src/frame.rs", "MAX_FRAME", "(16 << 20) + 4096"),
                FRAMES,
            ),
            bound("32 MiB unread", ("crates/nri/src/mux.rs", "MAX_WAITING", "32 << 20"), CALLS),
            bound("64 calls", ("crates/nri/src/rpc.rs", "MAX_WAITING", "64"), CALLS),
        ],
        memory: ("48 MiB", Sum(&[32 << 20, 16 << 20])),
    },
    Row {
        input: "the runtime's list of pods and containers",
        bounds: &[bound(
            "65,536 of both",
            ("crates/nri/src/exchange.rs", "MAX_LISTED", "1 << 16"),
            LIST,
        )],
        memory: (
            "4 KiB a container",
            Measured(
                MEMORY,
                "a_container_without_exclusive_cpus_takes_little_memory",
                "CONTAINER_KIB: u64 = 4;",
            ),
        ),
    },
    Row {
        input: "a pod's annotations",
        bounds: &[
            bound(
                "64 in the plugin's domain",
                ("crates/ledger/src/annotations.rs", "MAX_ANNOTATIONS", "64"),
                POD_OPTIONS,
            ),
            bound(
                "64 bytes a value",
                ("crates/ledger/src/annotations.rs", "MAX_VALUE", "64"),
                VALUES,
            ),
        ],
        memory: ("24 KiB a pod", Sum(&[64 * (253 + 1 + 63), 64 * 64])),
    },
    Row {
        input: "a container's devices and GPUs",
        bounds: &[bound("64", ("crates/ledger/src/device.rs", "MAX_DEVICES", "64"), DEVICES)],
        memory: ("6 KiB a container", Sum(&[64 * 52, 64 * 32])),
    },
    Row {
        input: "a container's mounts around exposed files",
        bounds: &[bound("16", ("crates/edge/src/nri/mounts.rs", "MAX_MOUNTS", "16"), MOUNTS)],
        memory: ("64 KiB, for a call", Sum(&[16 * 4096])),
    },
    Row {
        input: "the configuration",
        bounds: &[
            bound("1 MiB", ("crates/config/src/yaml.rs", "MAX_SIZE", "1 << 20"), CONFIG),
            bound("50,000 values", ("crates/config/src/yaml.rs", "MAX_VALUES", "50_000"), CONFIG),
            bound("32 levels", ("crates/config/src/yaml.rs", "MAX_DEPTH", "32"), CONFIG),
        ],
        memory: ("24 MiB", Measured(MEMORY, FULL_FILES, "full_config as fn(&Path), 24)")),
    },
    Row {
        input: "the state file",
        bounds: &[bound(
            "2 MiB",
            ("crates/state/src/checkpoint.rs", "MAX_BYTES", "2 << 20"),
            FILES,
        )],
        memory: ("40 MiB", Measured(MEMORY, FULL_FILES, "full_state, 40)")),
    },
    Row {
        input: "the files `cgroups` and `quiet.json`",
        bounds: &[bound(
            "4 MiB each",
            ("crates/exclusivity/src/records.rs", "MAX_BYTES", "4 << 20"),
            FILES,
        )],
        memory: ("40 MiB", Measured(MEMORY, FULL_FILES, "full_originals, 40)")),
    },
    Row {
        input: "the kubelet's state file",
        bounds: &[bound(
            "512 KiB",
            ("crates/kubelet/src/state_file_watcher.rs", "MAX_BYTES", "512 << 10"),
            FILES,
        )],
        memory: ("28 MiB", Measured(MEMORY, FULL_FILES, "full_kubelet, 28)")),
    },
    Row {
        input: "a file of the kernel",
        bounds: &[bound("16 MiB", ("crates/kernel/src/lib.rs", "LONGEST", "16 << 20"), KERNEL)],
        memory: ("16 MiB", Sum(&[16 << 20])),
    },
    Row {
        input: "interrupts to move",
        bounds: &[
            bound(
                "8192",
                ("crates/quiet/src/interrupts.rs", "MOST_INTERRUPTS", "8192"),
                INTERRUPTS,
            ),
            bound(
                "256 bytes",
                ("crates/quiet/src/interrupts.rs", "MOST_DESCRIPTION", "256"),
                INTERRUPTS,
            ),
        ],
        memory: (
            "64 MiB",
            Measured(
                "crates/quiet/tests/memory.rs",
                "twenty_thousand_interrupts_take_bounded_memory",
                "MOST_KIB: u64 = 64 << 10;",
            ),
        ),
    },
    Row {
        input: "interrupts and softirqs that are observed",
        bounds: &[
            bound("8 MiB", ("crates/noise/src/sample.rs", "MOST_OF_TABLE", "8 << 20"), OBSERVED),
            bound("256 bytes", ("crates/noise/src/sample.rs", "MOST_DESCRIPTION", "256"), OBSERVED),
        ],
        memory: ("32 MiB", Sum(&[2 * (8 << 20), 16 << 20])),
    },
    Row {
        input: "irqbalance's reply",
        bounds: &[
            bound(
                "1 MiB",
                ("crates/quiet/src/irqbalance.rs", "LONGEST_REPLY", "1 << 20"),
                IRQBALANCE,
            ),
            bound(
                "1 s",
                ("crates/quiet/src/irqbalance.rs", "PATIENCE", "Duration::from_secs(1)"),
                IRQBALANCE,
            ),
        ],
        memory: ("1 MiB", Sum(&[1 << 20])),
    },
    Row {
        input: "clients of the metrics port",
        bounds: &[
            bound(
                "8 KiB and 64 fields a request",
                ("crates/serve/src/http.rs", "MAX_HEAD", "8 << 10"),
                REQUESTS,
            ),
            bound("64 fields", ("crates/serve/src/http.rs", "MAX_FIELDS", "64"), REQUESTS),
            bound("5 s", ("crates/serve/src/http.rs", "MAX_TIME", "Duration::from_secs(5)"), SLOW),
            bound(
                "8 connections a peer",
                ("crates/serve/src/connections.rs", "MAX_OF_PEER", "8"),
                PEERS,
            ),
            bound("32 in total", ("crates/serve/src/connections.rs", "MAX", "32"), PEERS),
            bound(
                "one answer of each kind a second",
                ("crates/serve/src/render.rs", "SHARED", "Duration::from_secs(1)"),
                READERS,
            ),
        ],
        memory: ("256 KiB, and the answers", Sum(&[32 * (8 << 10)])),
    },
    Row {
        input: "threads and their cgroups, for [noise](troubleshooting.md#noise-on-exclusive-cpus)",
        bounds: &[
            bound(
                "2,048 threads of one cgroup",
                ("crates/noise/src/sample.rs", "MOST_OF_CGROUP", "2048"),
                (
                    "crates/noise/src/report/tests.rs",
                    "a_container_with_many_threads_hides_no_others",
                ),
            ),
            bound("16,384 in all", ("crates/noise/src/sample.rs", "MOST_THREADS", "16_384"), CROWD),
            bound("2,048 cgroups", ("crates/noise/src/sample.rs", "MOST_CGROUPS", "2048"), CROWD),
            bound(
                "512 bytes of a path",
                ("crates/noise/src/sample.rs", "LONGEST_PATH", "512"),
                CROWD,
            ),
        ],
        memory: (
            "24 MiB",
            Measured(
                "crates/noise/src/sample/tests.rs",
                "two_full_samples_take_at_most_24_mib",
                "24 << 20",
            ),
        ),
    },
    Row {
        input: "containers with [exposed files](configuration.md#cpus-in-files-that-follow)",
        bounds: &[],
        memory: (
            "4 KiB a container",
            Measured(
                "crates/daemon/src/exposed_files.rs",
                "a_container_with_files_takes_at_most_4_kib",
                "4 << 10",
            ),
        ),
    },
    Row {
        input: "what happened to containers, for `explain`",
        bounds: &[
            bound(
                "8 records of each",
                ("crates/status/src/history.rs", "MAX_OF_ONE", "8"),
                HISTORY,
            ),
            bound("of 2,048 containers", ("crates/cpuset/src/cpus.rs", "WORDS", "32"), HISTORY),
            bound("64 refusals", ("crates/status/src/history.rs", "MAX_REFUSALS", "64"), HISTORY),
            bound(
                "64 other troubles",
                ("crates/status/src/history.rs", "MAX_TROUBLES", "64"),
                HISTORY,
            ),
        ],
        memory: (
            "24 KiB a container",
            Measured(
                "crates/status/src/history.rs",
                "the_records_of_a_container_take_at_most_24_kib",
                "24 << 10",
            ),
        ),
    },
    Row {
        input: "events of the log that repeat",
        bounds: &[
            bound("8 conditions", ("crates/wording/src/repeats.rs", "MOST", "8"), REPEATS),
            bound("one line in 10", ("crates/wording/src/repeats.rs", "EVERY", "10"), REPEATED),
            bound(
                "one in 60 s",
                ("crates/wording/src/repeats.rs", "PAUSE", "Duration::from_secs(60)"),
                REPEATED,
            ),
        ],
        memory: (
            "48 KiB of lines an hour",
            Measured("tests/it/log_volume.rs", "a_disk_that_fails", "MOST: usize = 48 << 10"),
        ),
    },
    Row {
        input: "clients of the status socket",
        bounds: &[
            bound("8 connections", ("crates/serve/src/connections.rs", "MAX_OF_PEER", "8"), PEERS),
            bound(
                "one answer of each kind a second",
                ("crates/serve/src/render.rs", "SHARED", "Duration::from_secs(1)"),
                READERS,
            ),
        ],
        memory: (
            "12 KiB a container",
            Measured(
                MEMORY,
                "answers_of_the_status_socket_take_at_most_12_kib_a_container",
                "12 * 3000",
            ),
        ),
    },
    Row {
        input: "configurations in questions to the status socket",
        bounds: &[
            bound("1 MiB each", ("crates/config/src/yaml.rs", "MAX_SIZE", "1 << 20"), BODY),
            bound("8 at a time", ("crates/serve/src/connections.rs", "MAX_OF_PEER", "8"), PEERS),
        ],
        memory: (
            "32 MiB, and 8 KiB a container",
            Measured(
                MEMORY,
                "questions_about_full_configurations_take_bounded_memory",
                "let most = (32 << 10) + 8 * 3000;",
            ),
        ),
    },
    Row {
        input: "the kubelet's podresources",
        bounds: &[
            bound(
                "4 MiB",
                ("crates/podresources/src/kubelet.rs", "MAX_ANSWER", "4 << 20"),
                LONG_ANSWER,
            ),
            bound(
                "8 KiB",
                ("crates/podresources/src/kubelet.rs", "MAX_HEADERS", "8 << 10"),
                KUBELET,
            ),
            bound(
                "1 s",
                ("crates/podresources/src/kubelet.rs", "PATIENCE", "Duration::from_secs(1)"),
                KUBELET,
            ),
        ],
        memory: ("24 MiB", Measured(KUBELET.0, KUBELET.1, "MOST_KIB: u64 = 24 << 10;")),
    },
    Row {
        input: "devices in the kubelet's podresources",
        bounds: &[
            bound(
                "64 devices",
                ("crates/podresources/src/devices.rs", "MAX_DEVICES", "64"),
                DEVICES_OF_ONE,
            ),
            bound(
                "32 KiB a container",
                ("crates/podresources/src/devices.rs", "MAX_OF_CONTAINER", "32 << 10"),
                DEVICES_OF_ONE,
            ),
            bound(
                "4 MiB in total",
                ("crates/podresources/src/devices.rs", "MAX_KEPT", "4 << 20"),
                DEVICES_OF_ALL,
            ),
        ],
        memory: (
            "16 MiB",
            Measured(
                MEMORY,
                "a_list_of_devices_takes_little_memory_and_delays_no_container",
                "DEVICES_KIB: u64 = 16 << 10;",
            ),
        ),
    },
    Row {
        input: "clients of the podresources socket",
        bounds: &[bound(
            "8 KiB of headers",
            ("crates/podresources/src/authority/headers.rs", "MAX_BLOCK", "8192"),
            HEADERS,
        )],
        memory: ("640 KiB", Sum(&[16 * (16_384 + 8192), 16 * 4 * 4096])),
    },
];

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number of bytes in the largest unit, rounded up.
fn size(bytes: usize) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{} MiB", bytes.div_ceil(1 << 20))
    }
}

#[test]
fn the_table_of_bounds_has_the_programs_constants_and_each_is_tested() {
    let page = source("docs/security.md");
    let mut wrong = Vec::new();
    for Row { input, bounds, memory } in ROWS {
        let row = page.lines().find(|line| line.starts_with(&format!("| {input} | ")));
        let Some(row) = row else {
            wrong.push(format!("docs/security.md has no row {input:?}"));
            continue;
        };
        let (text, figure) = memory;
        if !row.contains(&format!(" | {text}")) {
            wrong.push(format!("docs/security.md, {input}: the memory is not {text:?}"));
        }
        match figure {
            Sum(parts) if !text.starts_with(&size(parts.iter().sum())) => {
                wrong.push(format!(
                    "docs/security.md, {input}: {text:?} is not the sum of {parts:?}"
                ));
            }
            Sum(_) => {}
            Measured(tests, test, says) => {
                let tests_text = source(tests);
                if !tests_text.contains(&format!("fn {test}(")) || !tests_text.contains(says) {
                    wrong.push(format!("{tests}: no test {test} with {says:?} measures {text:?}"));
                }
            }
        }
        for Bound { text, constant: (path, name, value), fed_by: (tests, test) } in *bounds {
            if !row.contains(text) {
                wrong.push(format!("docs/security.md, {input}: no {text:?}"));
            }
            let declared = source(path).lines().any(|line| {
                line.contains(&format!("const {name}: ")) && line.ends_with(&format!(" = {value};"))
            });
            if !declared {
                wrong.push(format!("{path}: {name} is not {value}: change docs/security.md, too"));
            }
            if !source(tests).contains(&format!("fn {test}(")) {
                wrong.push(format!("{tests}: no test {test} feeds {name} of {path}"));
            }
        }
    }
    let table = page.split("| input | at most | memory | beyond it |").nth(1).unwrap_or_default();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|')).count();
    assert_eq!(wrong, [""; 0]);
    assert_eq!(rows, ROWS.len(), "rows of the table");
}

#[test]
fn a_file_of_the_kernel_is_read_up_to_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = File::create(&path).unwrap();
    file.set_len(16 << 20).unwrap();
    assert_eq!(Linux.read(&path).unwrap().len(), 16 << 20);
    file.set_len((16 << 20) + 1).unwrap();
    assert_eq!(Linux.read(&path).unwrap_err().kind(), ErrorKind::FileTooLarge);
}
