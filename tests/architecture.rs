//! The rooms keep to themselves: reads the imports and holds ARCHITECTURE.md's table and its list
//! of absences.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "architecture/imports.rs"]
mod imports;

use imports::{Crate, circles, code, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which texts may not stand in the code of a room; tests (from `#[cfg(test)]` on) may do as they
/// like.
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
    "println!",
    "async fn",
    ".await",
];

/// For what observers get: it may have durations and the runtime, and do nothing.
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
    "println!",
    "async fn",
    ".await",
];

/// The same for what observers get as JSON.
const FILES_AND_CLOCKS: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "SystemTime",
    "Instant::now",
    "tokio",
    "log::",
    "serde_json",
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
    Room { path: "src/exclusivity", except: &["src/exclusivity/watch.rs"], absent: &["tokio"] },
    Room { path: "src/exclusivity/cgroup_tree.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/exclusivity/wanted.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/exclusivity/plan.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/verify", except: &[], absent: &["tokio"] },
    Room { path: "src/topology/sysfs", except: &[], absent: &["log::", "tokio"] },
    // Observers get plain data, and pure functions make text from it.
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
    // The decision whether the kubelet is active, and the reading of its file's bytes, are pure
    // too.
    Room { path: "src/kubelet/activity.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src/kubelet/state.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src", except: &[], absent: &["unsafe {", "unsafe fn", "Mutex<", "RwLock<"] },
];

/// What each room of `src` may import: other rooms, or files of these. Everything else fails.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("cpuset", &[]),
    ("nodeset", &[]),
    ("partition", &[]),
    ("pattern", &[]),
    ("quantity", &[]),
    ("wording", &["cpuset"]),
    ("topology", &["cpuset", "wording"]),
    ("snapshot", &["cpuset", "topology"]),
    ("placement", &["cpuset", "nodeset", "topology"]),
    ("ledger", &["cpuset", "nodeset", "pattern", "placement", "wording", "topology"]),
    ("checkpoint", &["cpuset", "ledger"]),
    ("kubelet", &["cpuset", "ledger"]),
    ("nri", &["cpuset", "ledger", "nodeset"]),
    ("exclusivity", &["cpuset", "ledger", "partition", "wording"]),
    ("verify", &["cpuset", "exclusivity", "ledger", "nodeset", "partition", "wording"]),
    (
        "config",
        &[
            "cpuset",
            "exclusivity/mechanism",
            "ledger",
            "partition",
            "pattern",
            "placement",
            "quantity",
            "wording",
            "topology",
        ],
    ),
    (
        "observe",
        &[
            "cpuset",
            "ledger",
            "nri/capabilities",
            "partition",
            "placement",
            "snapshot",
            "wording",
            "topology",
        ],
    ),
    (
        "simulate",
        &[
            "cpuset",
            "ledger",
            "observe/badge",
            "observe/fragmentation",
            "observe/picture",
            "observe/report",
            "placement",
            "quantity",
            "topology",
        ],
    ),
    (
        "daemon",
        &[
            "checkpoint",
            "config",
            "cpuset",
            "exclusivity",
            "kubelet",
            "ledger",
            "nri",
            "observe",
            "partition",
            "placement",
            "verify",
            "wording",
            "topology",
        ],
    ),
    (
        "cli",
        &[
            "checkpoint",
            "config",
            "cpuset",
            "daemon",
            "exclusivity",
            "kubelet",
            "ledger",
            "nri",
            "observe",
            "simulate",
            "snapshot",
            "wording",
            "topology",
        ],
    ),
];

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
    assert!(broken.is_empty(), "see ARCHITECTURE.md, what is absent:\n{}", broken.join("\n"));
}

fn crate_of_the_plugin() -> Crate {
    Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or_default()
}

#[test]
fn rooms_import_what_they_may() {
    let mut broken = Vec::new();
    for (file, imported) in crate_of_the_plugin().imports() {
        let room = room(&file);
        if ["lib", "main"].contains(&room) {
            continue;
        }
        let may = MAY_IMPORT.iter().find(|(name, _)| *name == room);
        let may = may.unwrap_or_else(|| panic!("{room} is not in the table")).1;
        let allowed = |target: &str| {
            let within = |may: &&str| {
                target
                    .strip_prefix(*may)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            may.iter().chain([&room]).any(within)
        };
        let forbidden = imported.iter().filter(|target| !allowed(target));
        broken.extend(forbidden.map(|target| format!("{file} imports {target}")));
    }
    assert!(broken.is_empty(), "see ARCHITECTURE.md, code map:\n{}", broken.join("\n"));
}

/// Circles of files are shown whole, so that the definition that has to move down can be seen.
#[track_caller]
fn has_no_circles(imports: &BTreeMap<String, BTreeSet<String>>) {
    let found: Vec<String> = circles(imports).iter().map(|circle| format!("{circle:?}")).collect();
    assert!(found.is_empty(), "move what they share into a file below them:\n{}", found.join("\n"));
}

#[test]
fn no_two_files_import_each_other() {
    has_no_circles(&crate_of_the_plugin().imports());
}

#[test]
fn no_two_files_of_the_lab_import_each_other() {
    let lab = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/src"));
    has_no_circles(&lab.imports());
}

#[test]
fn imports_are_found() {
    let files = [
        ("lib.rs", "pub mod a;\npub mod b;\n"),
        ("a/mod.rs", "mod c;\n#[cfg(test)]\nmod t;\nmod d;\npub use c::{C, Other as D};\n"),
        ("a/c.rs", "use super::d;\npub struct C(d::D); // crate::b::B\n"),
        (
            "a/d.rs",
            "use crate::{a::{self}, b::{B as Big}};\nfn f() { a::C::new(\"crate::e::E\") }\n",
        ),
        ("a/t.rs", "use crate::b::B;\n"),
        ("b.rs", "fn f(_: crate::a::D) {}\n#[cfg(test)]\nmod tests {\n    use crate::e::E;\n}\n"),
        ("e.rs", "use super::a::D;\nuse std::fmt;\n"),
    ];
    let src = tempfile::tempdir().unwrap();
    std::fs::create_dir(src.path().join("a")).unwrap();
    for (file, text) in files {
        std::fs::write(src.path().join(file), text).unwrap();
    }
    let imports = Crate::read(src.path()).imports();
    let of = |file: &str| imports[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("lib"), [""; 0]);
    assert_eq!(of("a/mod"), [""; 0], "it only re-exports");
    assert_eq!(of("a/c"), ["a/d"]);
    assert_eq!(of("a/d"), ["a/c", "a/mod", "b"]);
    assert_eq!(of("b"), ["a/c"]);
    assert_eq!(of("e"), ["a/c"]);
    assert!(!imports.contains_key("a/t"), "a module of tests");
    let circles: Vec<String> = circles(&imports).into_iter().flatten().collect();
    assert_eq!(circles, ["a/c", "a/d", "b"]);
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
