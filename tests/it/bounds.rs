//! The table of bounds in docs/security.md: it has the program's constants, and a test feeds each input its bound.

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

struct Row {
    input: &'static str,
    bounds: &'static [Bound],
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
const MOUNTS: (&str, &str) = ("src/edge/nri/mounts.rs", "more_mounts_than_the_bound_get_no_files");
const CONFIG: (&str, &str) =
    ("src/config/tests/odd_input.rs", "a_text_is_bounded_in_size_depth_and_values");
const FILES: (&str, &str) = ("src/files.rs", "a_regular_file_is_read_up_to_its_limit");
const KERNEL: (&str, &str) = ("tests/it/bounds.rs", "a_file_of_the_kernel_is_read_up_to_its_bound");
const REQUESTS: (&str, &str) =
    ("tests/it/metrics_http.rs", "requests_are_answered_or_rejected_with_a_reason");
const SLOW: (&str, &str) = ("tests/it/metrics_http.rs", "a_client_that_is_too_slow_gets_no_answer");
const PEERS: (&str, &str) =
    ("src/serve/connections.rs", "the_oldest_connection_of_the_busiest_peer_ends");
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
    },
    Row {
        input: "the runtime's list of pods and containers",
        bounds: &[bound(
            "65,536 of both",
            ("crates/nri/src/exchange.rs", "MAX_LISTED", "1 << 16"),
            LIST,
        )],
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
    },
    Row {
        input: "a container's devices and GPUs",
        bounds: &[bound("64", ("crates/ledger/src/devices.rs", "MAX_DEVICES", "64"), DEVICES)],
    },
    Row {
        input: "a container's mounts around exposed files",
        bounds: &[bound("16", ("src/edge/nri/mounts.rs", "MAX_MOUNTS", "16"), MOUNTS)],
    },
    Row {
        input: "the configuration",
        bounds: &[
            bound("1 MiB", ("src/config/yaml.rs", "MAX_SIZE", "1 << 20"), CONFIG),
            bound("50,000 values", ("src/config/yaml.rs", "MAX_VALUES", "50_000"), CONFIG),
            bound("32 levels", ("src/config/yaml.rs", "MAX_DEPTH", "32"), CONFIG),
        ],
    },
    Row {
        input: "the state file",
        bounds: &[bound("4 MiB", ("src/checkpoint.rs", "MAX_BYTES", "4 << 20"), FILES)],
    },
    Row {
        input: "the files `cgroups` and `quiet.json`",
        bounds: &[bound(
            "4 MiB each",
            ("src/exclusivity/records.rs", "MAX_BYTES", "4 << 20"),
            FILES,
        )],
    },
    Row {
        input: "the kubelet's state file",
        bounds: &[bound(
            "1 MiB",
            ("src/kubelet/state_file_watcher.rs", "MAX_BYTES", "1 << 20"),
            FILES,
        )],
    },
    Row {
        input: "a file of the kernel",
        bounds: &[bound("16 MiB", ("crates/kernel/src/lib.rs", "LONGEST", "16 << 20"), KERNEL)],
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
    },
    Row {
        input: "interrupts and softirqs that are observed",
        bounds: &[
            bound("8 MiB", ("crates/noise/src/sample.rs", "MOST_OF_TABLE", "8 << 20"), OBSERVED),
            bound("256 bytes", ("crates/noise/src/sample.rs", "MOST_DESCRIPTION", "256"), OBSERVED),
        ],
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
    },
    Row {
        input: "clients of the metrics port",
        bounds: &[
            bound(
                "8 KiB and 64 fields a request",
                ("src/serve/http.rs", "MAX_HEAD", "8 << 10"),
                REQUESTS,
            ),
            bound("64 fields", ("src/serve/http.rs", "MAX_FIELDS", "64"), REQUESTS),
            bound("5 s", ("src/serve/http.rs", "MAX_TIME", "Duration::from_secs(5)"), SLOW),
            bound("8 connections a peer", ("src/serve/connections.rs", "MAX_OF_PEER", "8"), PEERS),
            bound("32 in total", ("src/serve/connections.rs", "MAX", "32"), PEERS),
            bound(
                "one answer of each kind a second",
                ("src/serve/render.rs", "SHARED", "Duration::from_secs(1)"),
                READERS,
            ),
        ],
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
    },
    Row {
        input: "clients of the podresources socket",
        bounds: &[bound(
            "8 KiB of headers",
            ("crates/podresources/src/authority/headers.rs", "MAX_BLOCK", "8192"),
            HEADERS,
        )],
    },
];

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_of_bounds_has_the_programs_constants_and_each_is_tested() {
    let page = source("docs/security.md");
    let mut wrong = Vec::new();
    for Row { input, bounds } in ROWS {
        let row = page.lines().find(|line| line.starts_with(&format!("| {input} | ")));
        let Some(row) = row else {
            wrong.push(format!("docs/security.md has no row {input:?}"));
            continue;
        };
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
    let table = page.split("| input | at most | beyond it |").nth(1).unwrap_or_default();
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
