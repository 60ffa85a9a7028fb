//! The sysfs reader on synthetic machines: whole ones are read back, broken ones cause no panic.

use crate::support::fake_sysfs;
use crate::support::fake_sysfs::{CACHE_BYTES, Files, NODE_BYTES};
use cpuset::CpuSet;
use kernel::Linux;
use machines::picture::TopologyText;
use machines::synthetic::{Machine, Numbering};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use topology::CacheSize;
use topology::sysfs::{self, ReadError, Reading};
use topology::{CoreKind, Cpu, Topology};

fn read(files: &Files) -> Result<Reading, ReadError> {
    let root = fake_sysfs::scratch();
    fake_sysfs::write(root.path(), files);
    sysfs::read(&Linux, root.path())
}

/// Any machine of moderate size.
fn machines() -> impl Strategy<Value = Machine> {
    let parts = (1..4usize, 1..3usize, 1..4usize, 1..4usize, 0..3usize, 1..3usize);
    let numbering = prop_oneof![
        Just(Numbering::Adjacent),
        Just(Numbering::Interleaved),
        Just(Numbering::RoundRobin)
    ];
    let sets = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    (parts, 0..3usize, 0..3usize, numbering, sets.clone(), sets).prop_map(
        |(
            (sockets, dies, nodes, caches, more, threads),
            efficient,
            memory_only,
            numbering,
            off,
            isolated,
        )| {
            let cores = dies.max(nodes).max(caches).max(efficient) + more;
            let mut machine = Machine {
                sockets,
                dies,
                nodes,
                caches,
                cores,
                threads,
                numbering,
                ..Machine::default()
            };
            machine.efficient = efficient;
            machine.memory_only = memory_only;
            let cpus = machine.facts().unwrap().cpus.len();
            let set = |picks: &[prop::sample::Index]| -> CpuSet {
                picks.iter().map(|pick| CpuSet::of(pick.index(cpus)).unwrap()).collect()
            };
            machine.offline = set(&off);
            if machine.offline.len() == cpus {
                machine.offline.remove(0);
            }
            machine.isolated = set(&isolated);
            machine
        },
    )
}

/// What replaces a file: nothing, noise, or a text that a kernel prints elsewhere.
fn garbage() -> impl Strategy<Value = Option<Vec<u8>>> {
    let plausible = prop_oneof![
        Just(""),
        Just("0"),
        Just("-1"),
        Just("1"),
        Just("3"),
        Just("0-7"),
        Just("7-0"),
        Just("0-4095"),
        Just("18446744073709551615"),
        Just("4294967295"),
        Just("ff"),
        Just("f,ffffffff"),
        Just("10 20"),
        Just("Unified"),
        Just("Instruction"),
        Just("99999999999999999999999999"),
        Just("0-2047"),
        Just("2047"),
    ];
    prop_oneof![
        1 => Just(None),
        3 => plausible.prop_map(|text| Some(text.as_bytes().to_vec())),
        2 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_written_machine_is_read_back(machine in machines()) {
        let facts = machine.facts().unwrap();
        let reading = read(&fake_sysfs::files(&facts)).unwrap();
        prop_assert_eq!(&reading.facts, &facts);
        prop_assert_eq!(&reading.warnings, &[]);
        let size = CacheSize { level: 3, bytes: Some(CACHE_BYTES) };
        let caches = facts.cpus.iter().map(|cpu| (cpu.uncore, size)).collect();
        prop_assert_eq!(&reading.sizes.caches, &caches);
        prop_assert_eq!(reading.sizes.memory.len(), facts.nodes.len());
        prop_assert!(reading.sizes.memory.values().all(|&bytes| bytes == NODE_BYTES));
        let pools = |id| BTreeMap::from([(2 << 20, 512 + id as u64), (1 << 30, 0)]);
        let pools = facts.nodes.iter().map(|node| (node.id, pools(node.id)));
        prop_assert_eq!(reading.sizes.huge_pages, pools.collect());
    }

    /// Any files give a machine or an error, the same each time, and a machine can be displayed.
    #[test]
    fn broken_files_cause_no_panic(
        machine in machines(),
        breaks in prop::collection::vec((any::<prop::sample::Index>(), garbage(), any::<bool>()), 1..12),
    ) {
        let mut files = fake_sysfs::files(&machine.facts().unwrap());
        for (pick, garbage, directory) in breaks {
            let path = files.keys().nth(pick.index(files.len())).unwrap().clone();
            files.remove(&path);
            match garbage {
                Some(bytes) if !path.ends_with('/') => files.insert(path, bytes),
                None if directory && !path.ends_with('/') => files.insert(path + "/", Vec::new()),
                _ => None,
            };
        }
        let root = fake_sysfs::scratch();
        fake_sysfs::write(root.path(), &files);
        let Ok(reading) = sysfs::read(&Linux, root.path()) else { return Ok(()) };
        prop_assert_eq!(&reading, &sysfs::read(&Linux, root.path()).unwrap());
        let topology = Topology::build(reading.facts).unwrap();
        let _ = TopologyText { topology: &topology, sizes: &reading.sizes }.to_string();
        for warning in &reading.warnings {
            prop_assert!(warning.to_string().ends_with(warning.assumed()));
        }
        // The id of a core or cache is its lowest CPU.
        for domain in topology.cores().iter().chain(topology.uncores()) {
            prop_assert_eq!(domain.cpus.first(), Some(domain.id));
        }
    }
}

/// A reading in the format of the trees.
fn summary(reading: &Reading) -> String {
    let mut text = String::new();
    let facts = &reading.facts;
    let mut domains = |name: &str, id: &dyn Fn(&Cpu) -> Option<String>| {
        let mut sets: BTreeMap<(usize, String), CpuSet> = BTreeMap::new();
        for cpu in &facts.cpus {
            let Some(id) = id(cpu) else { continue };
            let order = id.parse().unwrap_or_default();
            sets.entry((order, id)).or_default().insert(cpu.id).unwrap();
        }
        if !sets.is_empty() {
            let sets: Vec<String> =
                sets.iter().map(|((_, id), cpus)| format!("{id}:{cpus}")).collect();
            writeln!(text, "{name}: {}", sets.join(" ")).unwrap();
        }
    };
    domains("sockets", &|cpu| Some(cpu.socket.to_string()));
    domains("dies", &|cpu| cpu.die.map(|die| format!("{}.{die}", cpu.socket)));
    domains("nodes", &|cpu| Some(cpu.numa.to_string()));
    domains("uncores", &|cpu| Some(cpu.uncore.to_string()));
    domains("cores", &|cpu| Some(cpu.core.to_string()));
    domains("kinds", &|cpu| {
        cpu.kind.map(|kind| match kind {
            CoreKind::Performance => "performance".to_owned(),
            CoreKind::Efficient => "efficient".to_owned(),
        })
    });
    for node in &facts.nodes {
        writeln!(text, "distances from node {}: {:?}", node.id, node.distances).unwrap();
    }
    for node in facts.nodes.iter().filter(|node| node.memoryless) {
        writeln!(text, "no memory in node {}", node.id).unwrap();
    }
    for cpu in &facts.offline {
        writeln!(text, "offline CPU {}: node {:?}, socket {:?}", cpu.id, cpu.numa, cpu.socket)
            .unwrap();
    }
    writeln!(text, "isolated: {:?}", facts.isolated).unwrap();
    for (id, size) in &reading.sizes.caches {
        if size.level != 3 {
            writeln!(text, "uncore {id} is an L{}", size.level).unwrap();
        }
    }
    for warning in &reading.warnings {
        writeln!(text, "warning: {warning}").unwrap();
    }
    text
}

/// Applies one line of a tree: `machine ...`, `remove PATTERN`, or `write PATTERN = TEXT`.
fn apply(line: &str, files: &mut Files) {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let matching = |pattern: &str, files: &Files| -> Vec<String> {
        let inside = format!("{pattern}/");
        let matched = files.keys().filter(|path| {
            let prefix: Vec<&str> = path.split('/').take(pattern.split('/').count()).collect();
            matches_pattern(pattern, &prefix.join("/")) || **path == inside
        });
        matched.cloned().collect()
    };
    match verb {
        "machine" => {
            let (shape, rest) = rest.split_once('|').unwrap_or((rest, ""));
            let mut machine: Machine = shape.parse().unwrap();
            for option in rest.split_whitespace() {
                match option.split_once('=').unwrap_or((option, "")) {
                    ("interleaved", "") => machine.numbering = Numbering::Interleaved,
                    ("efficient", n) => machine.efficient = n.parse().unwrap(),
                    ("memory_only", n) => machine.memory_only = n.parse().unwrap(),
                    ("offline", list) => machine.offline = list.parse().unwrap(),
                    ("isolated", list) => machine.isolated = list.parse().unwrap(),
                    other => panic!("{other:?} is no option of a machine"),
                }
            }
            *files = fake_sysfs::files(&machine.facts().unwrap());
        }
        "remove" => {
            let matched = matching(rest, files);
            assert!(!matched.is_empty(), "{line:?} removes nothing");
            files.retain(|path, _| !matched.contains(path));
        }
        "write" => {
            let (pattern, text) = rest.split_once(" = ").unwrap();
            let bytes = format!("{}\n", text.replace("\\n", "\n")).into_bytes();
            let matched = matching(pattern, files);
            if matched.is_empty() {
                assert!(!pattern.contains('*'), "{line:?} writes nothing");
                files.insert(pattern.to_owned(), bytes.clone());
            }
            for path in matched {
                files.insert(path, bytes.clone());
            }
        }
        "directory" => {
            files.remove(rest);
            files.insert(format!("{rest}/"), Vec::new());
        }
        "rename" => {
            let (from, to) = rest.split_once(" = ").unwrap();
            let matched = matching(from, files);
            assert!(!matched.is_empty(), "{line:?} renames nothing");
            for path in matched {
                let bytes = files.remove(&path).unwrap();
                files.insert(path.replace(from, to), bytes);
            }
        }
        _ => panic!("{line:?} is no line of a tree"),
    }
}

/// Whether a path matches a pattern, each segment of which may have one `*`.
fn matches_pattern(pattern: &str, path: &str) -> bool {
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(|(pattern, name)| {
            match pattern.split_once('*') {
                Some((head, tail)) => {
                    head.len() + tail.len() <= name.len()
                        && name.starts_with(head)
                        && name.ends_with(tail)
                }
                None => pattern == name,
            }
        })
}

/// Reads the machine that a file in `tests/trees` describes, and compares the result with the part
/// of the file below `---`.
///
/// With `BLESS=1` in the environment, the result is written there instead: review the difference.
#[track_caller]
fn check_tree(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let (recipe, expect) = text.split_once("---\n").unwrap();
    let mut files = Files::new();
    for line in recipe.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        apply(line, &mut files);
    }
    let result = match read(&files) {
        Ok(reading) => summary(&reading),
        Err(error) => format!("error: {}\n", error_kind(&error)),
    };
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, format!("{recipe}---\n{result}")).unwrap();
    } else {
        assert_eq!(result, expect, "{}", path.display());
    }
}

/// An error without the temporary directory's name.
fn error_kind(error: &ReadError) -> String {
    match error {
        ReadError::NoMachine { .. } => "no machine".to_owned(),
        ReadError::Unreadable { .. } => "unreadable".to_owned(),
        ReadError::NoCpus { .. } => "no CPUs".to_owned(),
        ReadError::TooLarge { what, .. } => format!("too large: {what}"),
    }
}

#[test]
fn described_trees_are_read_as_expected() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(20 < paths.len());
    for path in paths {
        check_tree(&path);
    }
}

#[test]
fn a_copy_of_a_machine_is_read_like_its_sys() {
    let files = fake_sysfs::files(&Machine::default().facts().unwrap());
    let root = fake_sysfs::scratch();
    fake_sysfs::write(&root.path().join("sys"), &files);
    // A whole machine's copy and its /sys are the same machine.
    let whole = sysfs::read(&Linux, root.path()).unwrap();
    assert_eq!(whole, sysfs::read(&Linux, &root.path().join("sys")).unwrap());

    let error = sysfs::read(&Linux, &root.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, ReadError::NoMachine { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    let file = root.path().join("sys/devices/system/cpu/online");
    assert!(matches!(sysfs::read(&Linux, &file), Err(ReadError::NoMachine { .. })));
}

/// Copies of real machines have such loops.
#[test]
fn loops_of_links_are_read_with_a_warning() {
    let files = fake_sysfs::files(&Machine { cores: 2, ..Machine::default() }.facts().unwrap());
    let root = fake_sysfs::scratch();
    fake_sysfs::write(root.path(), &files);
    let cpu = root.path().join("devices/system/cpu/cpu0");
    fs::remove_dir_all(cpu.join("cache")).unwrap();
    std::os::unix::fs::symlink("cache", cpu.join("cache")).unwrap();
    fs::remove_file(cpu.join("topology/core_cpus_list")).unwrap();
    std::os::unix::fs::symlink("core_cpus_list", cpu.join("topology/core_cpus_list")).unwrap();
    std::os::unix::fs::symlink("..", cpu.join("subsystem")).unwrap();
    let reading = sysfs::read(&Linux, root.path()).unwrap();
    assert_eq!(reading.facts.cpus.len(), 2);
    assert_eq!(reading.warnings.len(), 2, "{:?}", reading.warnings);
}
