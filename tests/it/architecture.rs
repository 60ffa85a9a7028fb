//! The rooms keep to themselves: reads the imports and holds ARCHITECTURE.md's table and its list
//! of absences.

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
    "clock::now",
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

/// What only `kernel` asks, so that a simulation can answer.
const NODE: &[&str] = &[
    "std::fs",
    "std::{fs",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "sched_setaffinity",
    "uname",
];

/// For what observers get: it may have durations and the runtime, and do nothing.
const OUTSIDE_BUT_TIME: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "SystemTime",
    "clock::now",
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
    "clock::now",
    "Instant::now",
    "tokio",
    "log::",
    "serde_json",
    "async fn",
];

const ROOMS: &[Room] = &[
    Room { path: "src", except: &[], absent: &["protobuf", "ttrpc"] },
    Room { path: "src", except: &["src/edge/nri"], absent: &["nri::wire"] },
    Room {
        path: "src",
        // CRI-O tells a container's name in an annotation of JSON.
        except: &[
            "src/checkpoint.rs",
            "src/cli",
            "src/config",
            "src/kubelet/state.rs",
            "src/edge/nri/incoming.rs",
            "src/serve/endpoint.rs",
            "src/view/explanation.rs",
            "src/view/status/",
            "src/snapshot.rs",
        ],
        absent: &["serde::", "serde_json", "serde_yaml"],
    },
    Room { path: "src", except: &["src/cli/enable_nri"], absent: &["toml_edit"] },
    Room { path: "src", except: &["src/config/yaml.rs"], absent: &["granit_parser"] },
    Room { path: "src/config", except: &[], absent: &["serde_yaml", "serde_json"] },
    Room { path: "src/exclusivity", except: &["src/exclusivity/watch.rs"], absent: &["tokio"] },
    Room { path: "src/exclusivity", except: &["src/exclusivity/watch.rs"], absent: NODE },
    Room {
        path: "crates/cgroups/src",
        except: &["crates/cgroups/src/groups/tests.rs"],
        absent: NODE,
    },
    Room { path: "crates/cgroups/src/cgroup_tree.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/cgroups/src/hazard.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/cgroups/src/goal.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/cgroups/src/layout.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/cgroups/src/names.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/cgroups/src/plan.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/verify", except: &[], absent: &["tokio"] },
    Room { path: "src/verify", except: &["src/verify/tests.rs"], absent: NODE },
    // Observers get plain data, and pure functions make text from it.
    Room { path: "src/view/counters.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/view/node.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/view/history.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/view/status", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/view/explanation.rs", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/serve/page.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/serve/page", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/view/picture", except: &[], absent: OUTSIDE },
    Room { path: "src", except: &["src/cli/simulate"], absent: &["csv::"] },
    Room { path: "src/snapshot.rs", except: &[], absent: FILES_AND_CLOCKS },
    Room { path: "src/view/health.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src/view/metrics.rs", except: &[], absent: OUTSIDE_BUT_TIME },
    Room { path: "src", except: &["src/serve/http.rs"], absent: &["httparse"] },
    Room { path: "crates/podresources/src/answer.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/podresources/src/authority", except: &[], absent: OUTSIDE },
    Room { path: "crates/podresources/src/known.rs", except: &[], absent: OUTSIDE },
    Room { path: "crates/podresources/src/wire.rs", except: &[], absent: OUTSIDE },
    Room { path: "src/pod_resources/kubelet_configuration.rs", except: &[], absent: OUTSIDE },
    // The decision whether the kubelet is active, and the reading of its file's bytes, are pure
    // too.
    Room { path: "src/kubelet/activity.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src/kubelet/state.rs", except: &[], absent: &["std::fs", "tokio", "log::"] },
    Room { path: "src", except: &[], absent: &["unsafe {", "unsafe fn", "Mutex<", "RwLock<"] },
];

/// The table of rooms in ARCHITECTURE.md: for each room of `src`, the rooms and files that it may
/// import; `None` allows all.
fn table() -> BTreeMap<String, Option<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let mut table = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let [rooms, _, may] = cells(row);
        let may: Vec<String> = may.split(',').map(str::trim).map(str::to_owned).collect();
        let may = if may == ["all"] { None } else { Some(may) };
        for room in rooms.split(',') {
            let room = room.trim().trim_matches('`').trim_end_matches('/').trim_end_matches(".rs");
            table.insert(room.strip_prefix("src/").unwrap().to_owned(), may.clone());
        }
    }
    assert!(table.len() > 15, "the table of ARCHITECTURE.md: {table:?}");
    table
}

fn cells(row: &str) -> [&str; 3] {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    cells.try_into().unwrap()
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
    assert!(broken.is_empty(), "see ARCHITECTURE.md, what is absent:\n{}", broken.join("\n"));
}

fn crate_of_the_plugin() -> Crate {
    Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// Whether an import of `target` is an import of `room`: a folder, or a file.
fn is_in(target: &str, room: &str) -> bool {
    target.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn rooms_import_what_the_table_allows() {
    let table = table();
    let mut broken = Vec::new();
    let mut used = BTreeSet::new();
    for (file, imported) in crate_of_the_plugin().imports() {
        if ["lib", "main"].contains(&file.as_str()) {
            continue;
        }
        let room = table.keys().filter(|room| is_in(&file, room)).max_by_key(|room| room.len());
        let Some(room) = room else {
            broken.push(format!("{file} is in no room of the table"));
            continue;
        };
        let Some(may) = &table[room] else { continue };
        for target in imported.iter().filter(|target| !is_in(target, room)) {
            match may.iter().find(|may| is_in(target, may)) {
                Some(may) => drop(used.insert((room, may.clone()))),
                None => broken.push(format!("{file} imports {target}")),
            }
        }
    }
    for (room, may) in &table {
        let may = may.iter().flatten().filter(|may| !may.is_empty());
        let unused = may.filter(|may| !used.contains(&(room, (*may).clone())));
        broken.extend(unused.map(|may| format!("{room} may import {may}, and does not")));
    }
    assert!(broken.is_empty(), "see ARCHITECTURE.md, Rooms:\n{}", broken.join("\n"));
}

/// The imports between the entries of each folder: its files, and its subfolders as one each. A
/// file and the folder of the same name are one entry; inside that folder the file is `mod`.
fn entries(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, imported) in imports {
        for target in imported {
            let parts = file.split('/').zip(target.split('/'));
            let common = parts.take_while(|(from, to)| from == to).count();
            let entry = |path: &str| {
                let parts: Vec<&str> = path.split('/').chain(["mod"]).collect();
                parts[..=common].join("/")
            };
            let (from, to) = (entry(file), entry(target));
            if from != to {
                entries.entry(to.clone()).or_default();
                entries.entry(from).or_default().insert(to);
            }
        }
    }
    entries
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
fn no_two_entries_of_a_folder_import_each_other() {
    has_no_circles(&entries(&crate_of_the_plugin().imports()));
}

#[test]
fn folders_are_collapsed_to_entries() {
    let import = |from: &str, to: &[&str]| {
        (from.to_owned(), to.iter().map(|to| (*to).to_owned()).collect::<BTreeSet<_>>())
    };
    let imports = BTreeMap::from([
        import("a/x/one", &["a/y/two", "b"]),
        import("a/x", &["a/x/one"]),
        import("a/y/two", &[]),
        import("a/y/three", &["a/x/one"]),
        import("b", &[]),
    ]);
    let entries = entries(&imports);
    assert_eq!(entries["a/x"], BTreeSet::from(["a/y".to_owned()]));
    assert_eq!(entries["a"], BTreeSet::from(["b".to_owned()]));
    let circles: Vec<String> = circles(&entries).into_iter().flatten().collect();
    assert_eq!(circles, ["a/x", "a/y"], "no two files import each other, but the folders do");
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
    let long: Vec<String> = ["src", "crates", "lab/src", "tests", "lab/tests"]
        .iter()
        .map(|dir| root.join(dir))
        .filter(|dir| dir.exists())
        .flat_map(|dir| sources(&dir))
        .map(|file| (code(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > 1000)
        .map(|(lines, file)| format!("{}: {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "one subject or two?\n{}", long.join("\n"));
}
