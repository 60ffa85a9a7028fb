//! The rooms keep to themselves: reads the imports and holds ARCHITECTURE.md's list of absences.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};

/// Which texts may not stand in the code of a room; tests (from `#[cfg(test)]` on) may do as they like.
struct Room {
    path: &'static str,
    except: &'static [&'static str],
    absent: &'static [&'static str],
}

const OUTSIDE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::time",
    "SystemTime",
    "Instant::now",
    "tokio",
    "log::",
    "protobuf",
    "ttrpc",
    "serde",
    "crate::nri",
    "crate::config",
    "crate::checkpoint",
    "crate::kubelet",
    "crate::daemon",
    "crate::cli",
    "crate::observe",
    "println!",
    "async fn",
    ".await",
];

/// For what observers are told: it may speak of durations and of the runtime, and do nothing.
const OUTSIDE_BUT_TIME: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "tokio",
    "log::",
    "serde",
    "crate::daemon",
    "crate::cli",
    "println!",
    "async fn",
    ".await",
];

/// The same for what is told as JSON.
const FILES_AND_CLOCKS: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "SystemTime",
    "Instant::now",
    "tokio",
    "log::",
    "serde_json",
    "crate::daemon",
    "async fn",
];

const ROOMS: &[Room] = &[
    Room { path: "src/cpuset.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/topology", except: &["src/topology/sysfs"], absent: OUTSIDE },
    Room { path: "src/placement", except: &[], absent: OUTSIDE },
    Room { path: "src/ledger", except: &["src/ledger/tests"], absent: OUTSIDE },
    Room { path: "src", except: &["src/nri"], absent: &["protobuf", "ttrpc"] },
    Room {
        path: "src",
        // CRI-O tells a container's name in an annotation of JSON.
        except: &[
            "src/checkpoint.rs",
            "src/cli",
            "src/config",
            "src/kubelet/state.rs",
            "src/nri/incoming.rs",
            "src/observe/endpoint.rs",
            "src/observe/explanation.rs",
            "src/observe/report.rs",
            "src/observe/report/",
            "src/simulate/manifests.rs",
            "src/simulate/report.rs",
            "src/simulate/table.rs",
            "src/snapshot.rs",
        ],
        absent: &["serde::", "serde_json", "serde_yaml"],
    },
    Room { path: "src", except: &["src/cli/enable_nri"], absent: &["toml_edit"] },
    Room {
        path: "src/enforce",
        except: &[],
        absent: &["tokio", "crate::nri", "crate::config", "crate::daemon"],
    },
    Room { path: "src/topology/sysfs", except: &[], absent: &["log::", "tokio", "crate::ledger"] },
    Room { path: "src/topology", except: &[], absent: &["crate::placement", "crate::ledger"] },
    Room { path: "src/placement", except: &[], absent: &["crate::ledger"] },
    // What observers are told is plain data, and made into text by pure functions.
    Room { path: "src/observe/counters.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/figures.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/fragmentation.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/observe/history.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/time.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/observe/report.rs", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/observe/report", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/observe/explanation.rs", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/observe/page.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/page", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/picture", except: &[], absent: OUTSIDE },
    Room { path: "src/simulate", except: &[], absent: FILES_AND_CLOCKS },
    Room {
        path: "src",
        except: &["src/simulate/table.rs", "src/cli/simulate"],
        absent: &["csv::"],
    },
    Room { path: "src/snapshot.rs", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/observe/health.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/observe/metrics.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src", except: &["src/observe/metrics.rs"], absent: &["prometheus::"] },
    Room { path: "src", except: &["src/observe/http.rs"], absent: &["httparse"] },
    // The decision whether the kubelet is active, and the reading of its file's bytes, are pure too.
    Room { path: "src/kubelet/guard.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src/kubelet/state.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src", except: &[], absent: &["unsafe {", "unsafe fn", "Mutex<", "RwLock<"] },
];

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
}

/// The code of a file: without comments and without its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn rooms_keep_to_themselves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    for room in ROOMS {
        let files = sources(&root.join(room.path));
        assert!(!files.is_empty(), "{} is empty", room.path);
        for file in files {
            let name = file.strip_prefix(root).unwrap().display().to_string();
            if room.except.iter().any(|except| name.starts_with(except)) {
                continue;
            }
            let code = code(&file);
            let found = room.absent.iter().filter(|absent| code.contains(**absent));
            broken.extend(found.map(|found| format!("{name} has {found:?}")));
        }
    }
    assert!(broken.is_empty(), "see ARCHITECTURE.md, what is not there:\n{}", broken.join("\n"));
}

#[test]
fn files_are_of_a_size_that_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let long: Vec<String> = ["src", "lab/src", "tests", "lab/tests"]
        .iter()
        .map(|dir| root.join(dir))
        .filter(|dir| dir.exists())
        .flat_map(|dir| sources(&dir))
        .map(|file| (code(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > 450)
        .map(|(lines, file)| format!("{}: {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "one room or two?\n{}", long.join("\n"));
}
