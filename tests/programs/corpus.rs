//! The sysfs reader on real machines, compared with what hwloc reads from the same files.
//!
//! The machines are copies of `/sys` from hwloc's own tests, each with hwloc's tree of objects.
//! They are not part of this project: their directory is `$HWLOC_CORPUS`, else `../shared/hwloc`.
//! Without it the test is skipped and passes. It needs `tar` with bzip2, `gzip` and, for machines
//! of which there is only hwloc's XML, `python3`.

use cpuset::CpuSet;
use kernel::Linux;
use machines::picture::TopologyText;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use topology::{Domain, Topology, sysfs};

/// A question that both readers answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Cpus,
    Cores,
    Packages,
    Nodes,
    L3,
}

use Question::{Cores, Cpus, L3, Nodes, Packages};

/// Sets of CPUs that answer each question, restricted to CPUs both sides know (except for [`Cpus`]
/// itself).
type Answers = BTreeMap<Question, BTreeSet<String>>;

/// Machines on which the two readers differ, and why.
const DIFFERENCES: &[(&str, &[Question], &str)] = &[
    (
        "16amd64-4n4c-cgroup-distance-merge",
        &[Cpus, Cores, Nodes],
        "hwloc leaves out what the caller's cgroup forbids (CPUs 4-15, nodes 0-1), and was run without cores",
    ),
    (
        "16em64t-4s2ca2c-cpusetreorder",
        &[Cpus],
        "hwloc leaves out what the caller's cpuset forbids; all 16 CPUs are online",
    ),
    (
        "32amd64-4s2n4c-cgroup2",
        &[Cpus, Nodes],
        "hwloc leaves out what the caller's cgroup forbids: CPUs 6-31, whose nodes seem to have no CPUs then",
    ),
    (
        "64amd64-4s2n4ca2co",
        &[Cores],
        "the kernel calls the two halves of a Bulldozer module siblings, but gives them different core_ids; \
         hwloc counts core_ids, we count siblings",
    ),
    (
        "8em64t-2s2ca2c-buggynuma",
        &[Nodes],
        "all nodes list all CPUs: hwloc merges them into one, we leave the others without CPUs",
    ),
    ("AMD-17h-Zen-2xEpyc-7451", &[Nodes], ONE_NODE),
    ("AMD-19h-Zen3-2xEpyc-7763", &[Nodes], ONE_NODE),
    ("Intel-CascadeLake-2xXeon6230", &[Nodes], ONE_NODE),
    ("Intel-SapphireRapids-2xXeonMax9460", &[Nodes], ONE_NODE),
    ("fakeheteromemtiers", &[Nodes], NEAREST),
    ("fakememinitiators-1np2c+1npp+gi", &[Nodes], NEAREST),
    (
        "nvidiagpunumanodes",
        &[Nodes],
        "hwloc hides nodes that are the memory of GPUs; the kernel has them",
    ),
];

const ONE_NODE: &str = "read with the cpuid instruction, which knows no nodes: hwloc has one, xml2sysfs.py one a socket";

const NEAREST: &str =
    "hwloc gives a node without CPUs those that are nearest to it; to the kernel it has none";

fn known_differences(machine: &str) -> BTreeMap<Question, &'static str> {
    let known = DIFFERENCES.iter().filter(|(name, ..)| machine == *name);
    known
        .flat_map(|(_, questions, why)| questions.iter().map(|&question| (question, *why)))
        .collect()
}

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("HWLOC_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/hwloc"),
        PathBuf::from,
    );
    dir.is_dir().then_some(dir)
}

/// Runs a program and returns what it prints, or nothing if it cannot be run.
fn output(program: &str, args: &[&Path]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The directory with `sys` in it, at most three levels down.
fn find_root(dir: &Path, depth: usize) -> Option<PathBuf> {
    if dir.join("sys/devices/system/cpu").is_dir() {
        return Some(dir.to_owned());
    }
    let mut inside: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|at| at.path()).collect();
    inside.sort();
    inside.iter().filter(|at| at.is_dir() && 0 < depth).find_map(|at| find_root(at, depth - 1))
}

/// One object of hwloc's tree.
struct Object {
    depth: usize,
    kind: String,
    os_index: Option<usize>,
    /// The CPUs of the objects inside it.
    cpus: CpuSet,
}

/// Reads hwloc's tree from the output of `lstopo -v` or from its XML: both indent each object by
/// its depth.
fn objects(text: &str) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for line in text.lines().take_while(|line| !line.starts_with("depth 0")) {
        let depth = line.len() - line.trim_start().len();
        let Some((kind, os_index)) = xml_object(line).or_else(|| console_object(line)) else {
            continue;
        };
        let mut object = Object { depth, kind, os_index, cpus: CpuSet::EMPTY };
        if object.kind == "PU" {
            object.cpus = CpuSet::of(os_index.unwrap()).unwrap();
            // The objects around it: of each smaller depth, the nearest one before it.
            let mut inside = depth;
            for around in objects.iter_mut().rev() {
                if around.depth < inside {
                    inside = around.depth;
                    around.cpus |= object.cpus;
                }
            }
        }
        objects.push(object);
    }
    objects
}

/// `<object type="Core" os_index="3" ...>`
fn xml_object(line: &str) -> Option<(String, Option<usize>)> {
    let attributes = line.trim_start().strip_prefix("<object ")?;
    let value =
        |name: &str| Some(attributes.split_once(&format!("{name}=\""))?.1.split_once('"')?.0);
    Some((value("type")?.to_owned(), value("os_index").and_then(|index| index.parse().ok())))
}

/// `Core L#3 (P#3 ...)`, `NUMANode(DRAM) L#0 (P#0 ...)`
fn console_object(line: &str) -> Option<(String, Option<usize>)> {
    let (kind, rest) = match line.trim_start().split_once(' ')? {
        ("Machine", rest) => ("Machine", rest),
        (kind, rest) if rest.starts_with("L#") => {
            (kind.split_once('(').map_or(kind, |at| at.0), rest)
        }
        _ => return None,
    };
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let os_index = rest.split_once("(P#").and_then(|(_, rest)| digits(rest).parse().ok());
    Some((kind.to_owned(), os_index))
}

fn hwlocs_answers(text: &str) -> (CpuSet, Answers) {
    let objects = objects(text);
    let all: CpuSet = objects.iter().filter(|at| at.kind == "PU").map(|at| at.cpus).collect();
    let mut answers = Answers::from([(Cpus, BTreeSet::from([all.to_string()]))]);
    let kinds = [("Core", Cores), ("Package", Packages), ("L3Cache", L3)];
    for (kind, question) in kinds {
        let sets = objects.iter().filter(|at| at.kind == kind && !at.cpus.is_empty());
        answers.insert(question, sets.map(|at| at.cpus.to_string()).collect());
    }
    // A node is a leaf next to its CPUs: these are the CPUs of the object around it.
    let mut nodes = BTreeSet::new();
    for (at, node) in objects.iter().enumerate().filter(|(_, node)| node.kind == "NUMANode") {
        let around = objects.iter().take(at).rev().find(|around| around.depth < node.depth);
        nodes.insert(format!("{}:{}", node.os_index.unwrap(), around.unwrap().cpus));
    }
    answers.insert(Nodes, nodes);
    (all, answers)
}

fn our_answers(topology: &Topology, l3: &BTreeSet<usize>, both: CpuSet) -> Answers {
    let sets = |domains: &mut dyn Iterator<Item = &Domain>| -> BTreeSet<String> {
        let sets = domains.map(|domain| domain.cpus & both).filter(|cpus| !cpus.is_empty());
        sets.map(|cpus| cpus.to_string()).collect()
    };
    let nodes = topology.nodes().iter();
    let nodes = nodes.filter(|node| node.cpus.is_empty() || !node.cpus.is_disjoint(&both));
    Answers::from([
        (Cpus, BTreeSet::from([topology.online().to_string()])),
        (Cores, sets(&mut topology.cores().iter())),
        (Packages, sets(&mut topology.sockets().iter())),
        (L3, sets(&mut topology.uncores().iter().filter(|uncore| l3.contains(&uncore.id)))),
        (Nodes, nodes.map(|node| format!("{}:{}", node.id, node.cpus & both)).collect()),
    ])
}

/// Reads a machine and compares; returns what differs unexpectedly.
fn compare(machine: &str, root: &Path, hwloc: &str) -> Vec<String> {
    let reading = match sysfs::read(&Linux, root) {
        Ok(reading) => reading,
        Err(error) => return vec![format!("{machine}: {error}")],
    };
    let caches = reading.sizes.caches.iter();
    let l3 = caches.filter(|(_, size)| size.level == 3).map(|(&id, _)| id).collect();
    let topology = Topology::build(reading.facts).unwrap();
    let picture = TopologyText { topology: &topology, sizes: &reading.sizes }.to_string();
    println!("{machine}: {}", picture.lines().next().unwrap_or_default());
    for warning in &reading.warnings {
        println!("  warning: {warning}");
    }
    let (all, hwlocs) = hwlocs_answers(hwloc);
    assert!(!all.is_empty(), "{machine}: hwloc's reading has no CPUs: is the file cut?");
    let ours = our_answers(&topology, &l3, all & topology.online());
    let known = known_differences(machine);
    let mut unexpected = Vec::new();
    for (question, theirs) in &hwlocs {
        let ours = &ours[question];
        match (ours == theirs, known.get(question)) {
            (true, None) => {}
            (false, Some(why)) => println!("  {question:?} differ: {why}"),
            (true, Some(_)) => unexpected.push(format!("{machine}: {question:?} differ no more")),
            (false, None) => {
                unexpected.push(format!(
                    "{machine}: {question:?}\n  ours:  {ours:?}\n  hwloc: {theirs:?}"
                ));
            }
        }
    }
    unexpected
}

#[test]
fn real_machines_are_read_as_hwloc_reads_them() {
    let Some(corpus) = corpus() else {
        println!("skipped: no directory $HWLOC_CORPUS or ../shared/hwloc");
        return;
    };
    let mut files: Vec<PathBuf> =
        fs::read_dir(&corpus).unwrap().flatten().map(|file| file.path()).collect();
    files.sort();
    let scratch = tempfile::tempdir().unwrap();
    let mut read = 0;
    let mut skipped = Vec::new();
    let mut unexpected = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let dir = scratch.path().join(&name);
        let (machine, hwloc) = if let Some(machine) = name.strip_suffix(".tar.bz2") {
            fs::create_dir(&dir).unwrap();
            let args = ["-xjf".as_ref(), file.as_path(), "-C".as_ref(), dir.as_path()];
            if output("tar", &args).is_none() {
                skipped.push(format!("{name}: tar cannot unpack it"));
                continue;
            }
            let console = fs::read_to_string(corpus.join(format!("{machine}.console"))).ok();
            let xml = corpus.join(format!("{machine}.xml.gz"));
            (machine, console.or_else(|| output("gzip", &["-dc".as_ref(), &xml])))
        } else if let Some(machine) = name.strip_suffix(".xml.gz") {
            if corpus.join(format!("{machine}.tar.bz2")).exists() {
                continue;
            }
            let xml = output("gzip", &["-dc".as_ref(), &file]);
            let unpacked = scratch.path().join(format!("{machine}.xml"));
            fs::write(&unpacked, xml.as_deref().unwrap_or_default()).unwrap();
            let script = corpus.join("xml2sysfs.py");
            if output("python3", &[&script, &unpacked, &dir]).is_none() {
                skipped.push(format!("{name}: python3 cannot run xml2sysfs.py on it"));
                continue;
            }
            (machine, xml)
        } else {
            continue;
        };
        match (find_root(&dir, 3), hwloc) {
            (Some(root), Some(hwloc)) => {
                read += 1;
                unexpected.extend(compare(machine, &root, &hwloc));
            }
            (None, _) => skipped.push(format!("{name}: no sys/devices/system/cpu in it")),
            (_, None) => skipped.push(format!("{name}: hwloc's reading is missing")),
        }
    }
    println!("{read} machines read, {} skipped", skipped.len());
    for why in &skipped {
        println!("skipped: {why}");
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}
