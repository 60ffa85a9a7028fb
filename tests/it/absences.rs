//! Where production code may do what ARCHITECTURE.md calls absent elsewhere. The page has the rule, this table the
//! rooms; a room that does it no longer has to leave the table.
//!
//! `crates/clippy.toml` forbids files, threads, clocks and locks in the crates that have no `clippy.toml` of their own.
//! Their rows here are about what it cannot say: names of files, and crates that only some may use.

use std::collections::BTreeSet;
use std::fs;

use super::architecture::{root, sources};

/// Code that is absent outside of its rooms.
struct Absence {
    /// In the page's section "What is absent".
    page: &'static str,
    /// Text of code, which begins and ends where words do.
    patterns: &'static [&'static str],
    /// Beginnings of paths, and why the pattern is there.
    rooms: &'static [(&'static str, &'static str)],
}

/// In `src/` and in the crates with a `clippy.toml` of their own.
const OF_THOSE_THAT_ACT: &[Absence] = &[
    Absence {
        page: "Files and directories",
        patterns: &["fs::", "File::", "OpenOptions"],
        rooms: &[
            ("crates/gain/src/lib.rs", "results go into files"),
            ("crates/kernel/", "is the door to the files of the kernel"),
            ("crates/nri/src/supervisor.rs", "a new socket is another file"),
            ("crates/podresources/src/socket.rs", "sockets are files that others may have left"),
            ("crates/state/src/checkpoint.rs", "the state directory"),
            ("crates/terminal/src/input.rs", "files that arguments name"),
            ("tools/", "files that a command reads, prints or sets up"),
            ("crates/state/src/disk.rs", "the thread that writes files"),
            (
                "crates/exclusivity/src/noise.rs",
                "modes of interrupts' files, which `Kernel` does not have",
            ),
            ("crates/exclusivity/src/watch.rs", "inotify"),
            ("crates/state/src/files.rs", "reads files that others may have replaced"),
            ("crates/kubelet/src/state_file_watcher.rs", "the kubelet's state files"),
            ("crates/daemon/src/pod_resources/", "the policy of device plugins' sockets"),
            ("crates/serve/src/endpoint.rs", "sockets are files that others may have left"),
        ],
    },
    Absence {
        page: "threads",
        patterns: &["thread::spawn", "thread::scope", "thread::Builder", "spawn_blocking"],
        rooms: &[
            ("crates/gain/", "the measured programs"),
            ("src/status.rs", "asks and draws at the same time"),
            ("crates/daemon/src/lib.rs", "the kernel may block a step of the core"),
            ("crates/daemon/src/device_finder.rs", "NVIDIA's driver may block"),
            ("crates/daemon/src/executor.rs", "the disk and check passes may block"),
            ("crates/daemon/src/poller.rs", "files of others may block"),
            ("crates/daemon/src/threads.rs", "starts tokio's threads"),
            ("crates/daemon/src/pod_resources/", "the disk may block"),
            ("crates/state/src/worker.rs", "starts all others"),
        ],
    },
    Absence {
        page: "clocks",
        patterns: &["Instant::now", "SystemTime::now", "clock_gettime"],
        rooms: &[
            ("crates/gain/", "measures times"),
            ("crates/nri/", "deadlines of calls, pauses between connections"),
            ("crates/podresources/", "deadlines of calls and connections"),
            ("crates/state/src/checkpoint.rs", "names of files that are put aside"),
            ("src/noise.rs", "how long was observed"),
            ("tools/src/simulate.rs", "progress on the terminal"),
            ("crates/state/src/clock.rs", "dates for people"),
            ("crates/daemon/src/executor.rs", "gives the core the time"),
            ("crates/daemon/src/main_loop.rs", "waits for another instance"),
            ("crates/daemon/src/noise_monitor.rs", "how long was observed"),
            ("crates/daemon/src/poller.rs", "pauses between readings"),
            ("crates/daemon/src/standby.rs", "since when it waits"),
            ("crates/state/src/disk.rs", "how long a write took"),
            ("crates/serve/src/endpoint.rs", "pauses between messages in the log"),
            ("crates/serve/src/question.rs", "when the owner last waited"),
            ("crates/serve/src/render.rs", "how long clients share an answer"),
        ],
    },
    Absence { page: "Locks", patterns: &["Mutex", "RwLock"], rooms: &[] },
];

/// In all crates.
const EVERYWHERE: &[Absence] = &[
    Absence {
        page: "Names of cgroup files",
        patterns: &[
            "/sys/fs/cgroup",
            "\"cpuset.",
            "\"cgroup.",
            "\"cpu.shares",
            "\"cpu.weight",
            "\"cpu.max",
        ],
        rooms: &[
            ("crates/cgroups/", "is the door to cgroups"),
            ("crates/gain/src/tree.rs", "makes cgroups of its own, with requests and memory nodes"),
            ("tools/src/doctor.rs", "default of an option"),
            ("src/uninstall.rs", "default of an option"),
            ("src/run.rs", "default of an option"),
            ("crates/exclusivity/src/isolation.rs", "reads what the kernel isolates"),
            ("crates/exclusivity/src/verify/", "reads memory nodes and threads"),
        ],
    },
    Absence {
        page: "interrupts and latency knobs",
        patterns: &[
            "smp_affinity",
            "smp_affinity_list",
            "default_smp_affinity",
            "pm_qos_resume_latency_us",
        ],
        rooms: &[
            ("crates/quiet/", "is the door to interrupts and latency knobs"),
            ("crates/exclusivity/src/noise.rs", "reads which interrupts cannot be moved"),
            ("crates/exclusivity/src/steering.rs", "opens files, and writes none"),
        ],
    },
    Absence {
        page: "calls of Linux",
        patterns: &["nix::", "rustix::", "libc::"],
        rooms: &[
            ("crates/cgroups/src/hierarchy.rs", "error numbers"),
            ("crates/gain/src/lib.rs", "blocks signals until cgroups are removed"),
            ("crates/gain/src/measured.rs", "clocks and sleep of the measured program"),
            ("crates/gain/src/neighbour.rs", "CPU time of the neighbour"),
            ("crates/kernel/", "is the door to Linux"),
            ("crates/nri/src/launched.rs", "the connection that a runtime hands over"),
            ("crates/quiet/src/irqbalance.rs", "irqbalance's socket"),
            ("crates/quiet/src/planned.rs", "error numbers"),
            ("crates/quiet/src/steer.rs", "error numbers"),
            ("crates/state/src/checkpoint.rs", "whose files are safe"),
            ("tools/src/doctor.rs", "whether it is root"),
            ("src/log.rs", "whether systemd reads the log"),
            ("crates/terminal/src/output.rs", "the width of a terminal"),
            ("crates/daemon/src/threads.rs", "the limits of this process"),
            ("crates/exclusivity/src/watch.rs", "inotify"),
            ("crates/state/src/files.rs", "opens a file without waiting for it"),
            ("crates/state/src/worker.rs", "the priority of a thread"),
        ],
    },
    Absence {
        page: "affinities of threads",
        patterns: &["sched_setaffinity"],
        rooms: &[("crates/kernel/", "is the door to Linux")],
    },
    Absence {
        page: "protobuf and ttrpc",
        patterns: &["protobuf::", "ttrpc::"],
        rooms: &[("crates/nri/", "NRI's wire format")],
    },
    Absence {
        page: "NRI's messages",
        patterns: &[
            "wire::",
            "PodSandbox",
            "ContainerAdjustment",
            "ContainerUpdate",
            "LinuxResources",
        ],
        rooms: &[
            ("crates/nri/", "NRI's messages"),
            ("crates/podresources/", "another wire format"),
            ("crates/edge/src/nri/", "converts NRI's messages"),
        ],
    },
    Absence {
        page: "HTTP/2",
        patterns: &["h2::", "loona_hpack::"],
        rooms: &[("crates/podresources/", "gRPC")],
    },
    Absence {
        page: "The Kubernetes API",
        patterns: &["kube::", "k8s_openapi::", "serviceaccount"],
        rooms: &[],
    },
    Absence { page: "`unsafe`", patterns: &["unsafe {", "unsafe fn", "unsafe impl"], rooms: &[] },
];

/// The lines of a file without comments and items for tests only, as hack/lines recognises these.
fn production(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut all = text.lines();
    while let Some(line) = all.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim_start() == "#[cfg(test)]" {
            // An item ends with its first line, or with the brace that is indented like that one.
            let first = all.by_ref().find(|line| line.ends_with(['(', '{', '[', ';', ',', '}']));
            if first.is_some_and(|line| line.ends_with(['(', '{', '['])) {
                let close = format!("{indent}}}");
                all.by_ref().find(|line| line.starts_with(&close));
            }
        } else if !line.trim_start().starts_with("//") {
            lines.push(line);
        }
    }
    lines
}

/// Whether the pattern is in the line, and not only as a part of longer words.
fn occurs(line: &str, pattern: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let joins = |a: Option<char>, b: Option<char>| a.is_some_and(is_word) && b.is_some_and(is_word);
    line.match_indices(pattern).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + pattern.len()..]);
        !joins(before.chars().next_back(), pattern.chars().next())
            && !joins(pattern.chars().next_back(), after.chars().next())
    })
}

/// Whether `crates/clippy.toml` does not hold for a file.
fn acts(path: &str) -> bool {
    let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) else {
        return true;
    };
    root().join("crates").join(name).join("clippy.toml").exists()
}

/// Paths below the root, and production code.
fn code() -> Vec<(String, String)> {
    let mut code = Vec::new();
    for directory in ["src", "tools/src", "crates"] {
        for file in sources(&root().join(directory)) {
            let path = file.strip_prefix(root()).unwrap().to_str().unwrap();
            let is_production = path.starts_with("src/") || path.contains("/src/");
            if is_production && !path.contains("/tests/") && !path.ends_with("/tests.rs") {
                let text = fs::read_to_string(&file).unwrap();
                code.push((path.to_owned(), production(&text).join("\n")));
            }
        }
    }
    code
}

/// Each line with a pattern outside of its rooms, and each room without one.
fn mistakes(absences: &[Absence], code: &[(String, String)]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for Absence { page, patterns, rooms } in absences {
        let mut left: BTreeSet<&str> = rooms.iter().map(|(room, _)| *room).collect();
        for (path, text) in code {
            let mut found =
                text.lines().filter(|line| patterns.iter().any(|one| occurs(line, one)));
            if let Some((room, _)) = rooms.iter().find(|(room, _)| path.starts_with(room)) {
                if found.next().is_some() {
                    left.remove(room);
                }
            } else {
                mistakes.extend(found.map(|line| format!("{path}: {page}: {}", line.trim())));
            }
        }
        mistakes.extend(left.into_iter().map(|room| format!("{room}: {page}: no longer there")));
    }
    mistakes
}

#[test]
fn what_is_absent_is_in_its_rooms_only() {
    let code = code();
    let acting: Vec<_> = code.iter().filter(|(path, _)| acts(path)).cloned().collect();
    let mistakes = [mistakes(OF_THOSE_THAT_ACT, &acting), mistakes(EVERYWHERE, &code)].concat();
    assert!(
        mistakes.is_empty(),
        "use the door that has it, or name the room with its reason in {}:\n{}",
        file!(),
        mistakes.join("\n")
    );
}

#[test]
fn the_page_names_each_absence() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("## What is absent").nth(1).unwrap();
    for Absence { page, .. } in OF_THOSE_THAT_ACT.iter().chain(EVERYWHERE) {
        assert!(
            section.contains(page),
            "ARCHITECTURE.md does not name {page:?} in \"What is absent\""
        );
    }
    assert!(section.contains(file!()), "ARCHITECTURE.md does not name {}", file!());
}

#[test]
fn tests_and_comments_are_no_production_code() {
    let text = "use std::fs::File;\n// fs::read\n#[cfg(test)]\nuse std::fs;\n#[cfg(test)]\nmod tests {\n    fs::read();\n}\n\
                fn f() {\n    #[cfg(test)]\n    fn g() {\n        fs::write();\n    }\n    sysfs::read();\n}\n";
    let lines = production(text);
    assert_eq!(lines, ["use std::fs::File;", "fn f() {", "    sysfs::read();", "}"]);
    let found: Vec<&&str> = lines.iter().filter(|line| occurs(line, "fs::")).collect();
    assert_eq!(found, [&"use std::fs::File;"]);
}
