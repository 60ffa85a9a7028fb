//! ARCHITECTURE.md's table lists each crate with its dependencies, and each program links what it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The cells of each row of the table with this head.
fn table(head: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let cells = |row: &str| {
        let inner = row.strip_prefix('|').unwrap().strip_suffix('|').unwrap();
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn names(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The names below `[dependencies]` in a Cargo.toml.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.split("[dependencies]").nth(1).unwrap_or_default().lines();
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
}

#[test]
fn the_table_of_crates_lists_their_dependencies() {
    let crates: BTreeSet<String> =
        names("crates").into_iter().filter(|name| !name.contains('.')).collect();
    let mut described = BTreeSet::new();
    for row in table("| crate |") {
        let [name, _, depends] = &row[..] else { panic!("{row:?}") };
        let Some(name) = name.trim_matches('`').strip_prefix("crates/") else { continue };
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        let ours: BTreeSet<&str> =
            dependencies(&manifest).filter(|dependency| crates.contains(*dependency)).collect();
        let listed: BTreeSet<&str> = depends.split(", ").filter(|name| !name.is_empty()).collect();
        assert_eq!(listed, ours, "{name}");
        described.insert(name.to_owned());
    }
    assert_eq!(described, crates);
}

/// A new user waits for it before the plugin's own build begins.
#[test]
fn a_first_build_of_the_image_compiles_only_the_plugin_and_a_packer() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let script = read("hack/image");
    let built: Vec<&str> = script
        .split("--package ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert_eq!(built, ["image"]);
    assert!(!script.contains("lab_unprivileged"));
    let mut ours = names("crates");
    ours.extend(["lab", "sim", "nri-cpu-manager"].map(str::to_owned));
    let manifest = read("image/Cargo.toml");
    let used: Vec<&str> = dependencies(&manifest).filter(|name| ours.contains(*name)).collect();
    assert!(used.is_empty(), "{used:?}");
}

/// What people do at a terminal is in the other program.
#[test]
fn the_program_on_a_node_links_only_what_it_needs_to_run() {
    let ours = names("crates");
    let mut linked = BTreeSet::new();
    let mut open = vec!["Cargo.toml".to_owned()];
    while let Some(manifest) = open.pop() {
        let manifest = fs::read_to_string(root().join(manifest)).unwrap();
        for dependency in dependencies(&manifest) {
            if linked.insert(dependency.to_owned()) && ours.contains(dependency) {
                open.push(format!("crates/{dependency}/Cargo.toml"));
            }
        }
    }
    assert!(linked.contains("placement") && linked.contains("tokio"), "{linked:?}");
    let other = ["gain", "simulate", "machines", "serde_yaml", "toml_edit", "csv", "clap_complete"];
    let wrong: Vec<&&str> = other.iter().filter(|name| linked.contains(**name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Rust files in a directory and below.
pub(crate) fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

#[test]
fn no_source_file_is_longer_than_1300_lines() {
    for directory in ["src", "tools", "crates", "lab/src", "lab/tests", "sim/src", "tests"] {
        for file in sources(&root().join(directory)) {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= 1300, "{}, {lines} lines: one subject or two?", file.display());
        }
    }
}

/// The modules of a crate, by their paths, with those that they import from.
fn imports(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let root = root().join("crates").join(name).join("src");
    let files = sources(&root).into_iter().map(|file| {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        let path = path.to_str().unwrap().trim_end_matches("/mod").replace('/', "::");
        (path, fs::read_to_string(file).unwrap())
    });
    let is_test = |path: &str| path.split("::").any(|part| part == "tests");
    let files: BTreeMap<String, String> = files.filter(|(path, _)| !is_test(path)).collect();
    let of = |path: &String, text: &str| {
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let paths = text.lines().filter_map(|line| line.trim().split("use ").nth(1));
        let resolved = paths.filter_map(|import| {
            let (above, rest) = match (import.strip_prefix("crate::"), path.rsplit_once("::")) {
                (Some(rest), _) => ("", rest),
                (None, Some((above, _))) => (above, import.strip_prefix("super::")?),
                (None, None) => ("", import.strip_prefix("super::")?),
            };
            let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let whole = [above, words.into_iter().next()?].join("::");
            let mut target = whole.trim_start_matches("::");
            while !files.contains_key(target) {
                target = target.rsplit_once("::")?.0;
            }
            if target == path { None } else { Some(target.to_owned()) }
        });
        resolved.collect()
    };
    files.iter().map(|(path, text)| (path.clone(), of(path, text))).collect()
}

/// What a module imports is below it.
#[test]
fn no_modules_import_from_each_other_in_a_circle() {
    for name in ["cgroups", "daemon", "ledger", "quiet"] {
        let mut left = imports(name);
        assert!(left.len() > 5, "{name}: {left:?}");
        while let Some(lowest) = left
            .iter()
            .find(|(_, below)| below.iter().all(|module| !left.contains_key(module)))
            .map(|(module, _)| module.clone())
        {
            left.remove(&lowest);
        }
        assert!(left.is_empty(), "{name}: these and what imports them: {:?}", left.keys());
    }
}
