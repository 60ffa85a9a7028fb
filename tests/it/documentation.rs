//! Links, paths, commands, options and versions on the pages exist. `reference.rs` compares the
//! tables of fields.

use clap::CommandFactory;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page of the project.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    for directory in ["", "docs", "docs/decisions", "docs/recipes", "charts/nri-cpu-manager"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(pages.len() > 50, "only {} pages found", pages.len());
    pages.sort();
    pages
}

/// The pages without the decision records, which describe the tree of their time.
fn guides() -> Vec<(PathBuf, String)> {
    let mut pages = pages();
    pages.retain(|(path, _)| !path.starts_with(root().join("docs/decisions")));
    pages
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// Inline code, and the lines of code blocks.
fn code(text: &str) -> Vec<String> {
    let mut code = Vec::new();
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            let block = part.replace("\\\n", " ");
            code.extend(block.lines().skip(1).map(str::to_owned));
        } else {
            code.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        }
    }
    code
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_to_a_heading() {
    let mut wrong = Vec::new();
    let mut links = 0;
    for (path, text) in pages() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let Ok(other) = fs::read_to_string(&to) else {
                wrong.push(format!("{}: no file {target}", name(&path)));
                continue;
            };
            let mut headings = other.lines().filter(|line| line.starts_with('#')).map(anchor);
            if !heading.is_empty() && !headings.any(|one| one == heading) {
                wrong.push(format!("{}: no heading {target}", name(&path)));
            }
        }
    }
    assert!(links > 200, "only {links} links found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `runbook_url` is relative to the root of the sources; the chart's value `prometheusRule.runbooks`
/// comes before it.
#[test]
fn every_alert_has_a_runbook() {
    let rules = include_str!("../../manifests/prometheus/rules.yaml");
    let rules: serde_yaml::Value = serde_yaml::from_str(rules).unwrap();
    let groups = rules["groups"].as_sequence().unwrap().iter();
    let rules: Vec<_> = groups.flat_map(|one| one["rules"].as_sequence().unwrap()).collect();
    assert!(rules.len() > 15, "only {} alerts found", rules.len());
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        let runbook = rule["annotations"]["runbook_url"].as_str();
        let (file, heading) = runbook.and_then(|url| url.split_once('#')).expect(alert);
        let page = fs::read_to_string(root().join(file)).expect(alert);
        let mut headings = page.lines().filter(|line| line.starts_with('#')).map(anchor);
        assert!(headings.any(|one| one == heading), "{alert}: no heading {file}#{heading}");
    }
}

/// Whether only a release has this file: `hack/release` renders each directory of manifests into
/// one.
fn is_released(path: &str) -> bool {
    let directory = path.strip_prefix("manifests/").and_then(|file| file.strip_suffix(".yaml"));
    let is_manifest = |directory: &str| {
        let places = ["manifests", "manifests/overlays"].map(|above| root().join(above));
        places.iter().any(|above| above.join(directory).join("kustomization.yaml").is_file())
    };
    directory.is_some_and(is_manifest)
}

/// [`is_released`] relies on these lines.
#[test]
fn a_release_has_every_directory_of_manifests() {
    let script = include_str!("../../hack/release");
    for line in [
        "for directory in manifests/base manifests/uninstall manifests/doctor manifests/bench-gain manifests/overlays/*; do",
        "rendered=$out/manifests/$(basename \"$directory\").yaml",
    ] {
        assert!(script.contains(line), "hack/release has no {line}");
    }
}

#[test]
fn every_page_is_in_the_list_of_its_directory() {
    let mut missing = Vec::new();
    for (path, _) in pages() {
        let list = path.with_file_name("README.md");
        if !path.starts_with(root().join("docs")) || path == list {
            continue;
        }
        let file = path.file_name().unwrap().to_str().unwrap();
        if !fs::read_to_string(&list).unwrap().contains(&format!("]({file})")) {
            missing.push(name(&path));
        }
    }
    assert!(missing.is_empty(), "in no list: {}", missing.join(", "));
}

#[test]
fn every_path_exists() {
    let mut wrong = BTreeSet::new();
    let mut paths = 0;
    for (path, text) in guides() {
        for code in code(&text) {
            let words = code.split(|c: char| c.is_whitespace() || "\"'`,;:()=".contains(c));
            for word in words.map(|word| word.trim_end_matches('.')) {
                let Some((directory, rest)) = word.split_once('/') else { continue };
                let own = [
                    "bench",
                    "charts",
                    "crates",
                    "docs",
                    "examples",
                    "fuzz",
                    "hack",
                    "lab",
                    "manifests",
                    "proto",
                    "src",
                    "tests",
                ];
                // A pattern, a placeholder, or a file that a program writes.
                let general = rest.contains(['*', '<', '{'])
                    || rest.split(['/', '.']).any(|part| {
                        !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase())
                    });
                if !own.contains(&directory) || general {
                    continue;
                }
                paths += 1;
                if !root().join(word).exists() && !is_released(word) {
                    wrong.insert(format!("{}: {word}", name(&path)));
                }
            }
        }
    }
    assert!(paths > 200, "only {paths} paths found");
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "no such file:\n{}", wrong.join("\n"));
}

/// Both programs, by name.
fn programs() -> [(&'static str, clap::Command); 2] {
    [("nri-cpu-manager", nri_cpu_manager::Cli::command()), ("cpuctl", cpuctl::Cli::command())]
}

#[test]
fn every_command_is_accepted() {
    let mut wrong = Vec::new();
    for (program, cli) in programs() {
        let subcommands: BTreeSet<String> =
            cli.get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let mut shown = BTreeSet::new();
        for (path, text) in guides() {
            for code in code(&text) {
                let Some((before, command)) = code.split_once(&format!("{program} ")) else {
                    continue;
                };
                let command = command.split(['>', '<', '|', '#', ')']).next().unwrap();
                let command = command.replace('"', "");
                let words: Vec<&str> = command.split_whitespace().collect();
                // A description of a machine is one argument.
                let words: Vec<&str> =
                    words.into_iter().filter(|word| !word.contains(":2")).collect();
                let Some(first) = words.first() else { continue };
                if !subcommands.contains(*first) {
                    let typed = before.is_empty()
                        || ["$ ", "# ", "-- /"].iter().any(|start| before.ends_with(start));
                    let other =
                        |(_, cli): &(_, clap::Command)| cli.find_subcommand(first).is_some();
                    if typed && programs().iter().any(other) {
                        wrong.push(format!("{}: {program} has no {first}", name(&path)));
                    }
                    continue;
                }
                shown.insert((*first).to_owned());
                // The page only names the subcommand.
                if words.len() == 1 {
                    continue;
                }
                let line = [&[program], &words[..]].concat();
                if let Err(error) = cli.clone().try_get_matches_from(line) {
                    wrong.push(format!("{}: {command}\n{error}", name(&path)));
                }
            }
        }
        assert_eq!(shown, subcommands, "the pages show no command of the others");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_pages_of_the_installation_begin_with_what_it_changes() {
    let pages = guides();
    for page in ["docs/install.md", "charts/nri-cpu-manager/README.md"] {
        let (_, text) = pages.iter().find(|(path, _)| name(path) == page).unwrap();
        let first = text.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
        assert!(
            first.unwrap().starts_with("**The installation changes running pods at once**"),
            "{page}: {first:?}"
        );
    }
    for (path, text) in pages {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!text.contains("keep their CPUs, while you install"), "{}", name(&path));
    }
}

/// Finds the plugin's pod on a node, on one line.
const FIND_POD: &str = "$(kubectl -n kube-system get pod -l app.kubernetes.io/name=nri-cpu-manager --field-selector spec.nodeName=";

/// Texts besides the pages that show commands.
fn notes() -> Vec<(PathBuf, String)> {
    let paths = ["charts/nri-cpu-manager/templates/NOTES.txt", ".github/ISSUE_TEMPLATE/bug.yml"];
    let read = |path| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let text = text.replace("{{ .Release.Namespace }}", "kube-system");
        (root().join(path), text.replace("{{ $name }}", "nri-cpu-manager"))
    };
    paths.map(read).into()
}

/// `daemonset/nri-cpu-manager` and a bare `POD` leave open which node answers.
#[test]
fn every_command_in_a_pod_of_the_plugin_names_the_node() {
    let manifest = include_str!("../../manifests/base/daemonset.yaml");
    let manifest: serde_yaml::Value = serde_yaml::from_str(manifest).unwrap();
    let template = &manifest["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/name"], "nri-cpu-manager");
    assert_eq!(template["spec"]["containers"].as_sequence().unwrap().len(), 1);

    let mut commands = 0;
    let mut wrong = Vec::new();
    for (path, text) in guides().into_iter().chain(notes()).chain(sources()) {
        let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == '`').collect();
        let line = words.iter().filter(|word| !["", "\\"].contains(word));
        let line = line.copied().collect::<Vec<_>>().join(" ");
        let line = line.replace("k3s kubectl", "kubectl");
        let names_the_node = line.contains(&format!("POD={FIND_POD}"));
        for verb in ["exec", "port-forward", "logs"] {
            for command in line.split(&format!("kubectl -n kube-system {verb} ")).skip(1) {
                let of = command
                    .split(' ')
                    .find(|word| !["-i", "-f", "--previous"].contains(word))
                    .unwrap();
                commands += 1;
                let is_found = command.trim_start_matches("-i ").starts_with(FIND_POD);
                let is_one_pod = of == "$POD" && names_the_node || is_found;
                // Logs of all nodes, and of a job.
                let others = verb == "logs" && (of == "-l" || of.starts_with("job/"));
                if !is_one_pod && !others {
                    wrong.push(format!("{}: {verb} {of}", name(&path)));
                }
            }
        }
    }
    assert!(commands > 15, "only {commands} commands found");
    assert!(wrong.is_empty(), "which node's pod?\n{}", wrong.join("\n"));
}

/// Except options of `run`, which have a table (`reference.rs`).
#[test]
fn every_option_is_on_a_page() {
    let code: Vec<String> = guides().iter().flat_map(|(_, text)| code(text)).collect();
    let words: BTreeSet<&str> =
        code.iter().flat_map(|code| code.split(|c: char| c.is_whitespace() || c == '=')).collect();
    let mut missing = Vec::new();
    let programs = programs();
    let subcommands = programs.iter().flat_map(|(_, cli)| cli.get_subcommands());
    for subcommand in subcommands.filter(|one| one.get_name() != "run") {
        for option in subcommand.get_arguments().filter_map(|one| one.get_long()) {
            let option = format!("--{option}");
            if !words.contains(option.as_str()) {
                missing.push(format!("{} {option}", subcommand.get_name()));
            }
        }
    }
    assert!(missing.is_empty(), "on no page: {}", missing.join(", "));
}

#[test]
fn the_readme_shows_the_installed_configuration() {
    let readme = include_str!("../../README.md");
    let example = readme.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let map = include_str!("../../manifests/base/configmap.yaml");
    let map: serde_yaml::Value = serde_yaml::from_str(map).unwrap();
    let installed = map["data"]["config.yaml"].as_str().unwrap();
    let parse = |text| serde_yaml::from_str::<serde_yaml::Value>(text).unwrap();
    assert_eq!(parse(example), parse(installed));
}

/// The files of the program, each with its string literals on one line.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    let mut directories =
        ["src", "tools/src", "crates"].map(|directory| root().join(directory)).to_vec();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                // A backslash at the end of a line joins string literals.
                let text: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
                sources.push((path, text.concat().replace("\\\"", "\"")));
            }
        }
    }
    sources
}

const TROUBLESHOOTING: &str = include_str!("../../docs/troubleshooting.md");

#[test]
fn every_message_on_the_troubleshooting_page_is_in_the_source() {
    let source: String = sources().into_iter().map(|(_, text)| text.replace('`', "")).collect();
    let page = TROUBLESHOOTING;
    let tables = [
        "| log line | what to do |\n",
        "| reason | meaning | what helps |\n",
        "| warning or error | what to do |\n",
    ];
    let mut quoted = 0;
    for table in tables.into_iter().flat_map(|table| page.split(table).skip(1)) {
        for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
            let message = row.split('|').nth(1).unwrap();
            // These are the runtime's messages.
            if message.contains("validator ") || message.contains("required plugin") {
                continue;
            }
            let spans = message.split('`').skip(1).step_by(2);
            for part in spans.flat_map(|span| span.split("...")) {
                // A reason comes before the message.
                for part in part.split(", N s").flat_map(|part| part.split(": ")) {
                    let part = part.trim_matches([' ', ':', ';']);
                    quoted += 1;
                    assert!(source.contains(part), "no message of the program has {part:?}");
                }
            }
        }
    }
    assert!(quoted > 200, "only {quoted} messages found");
}

/// Calls that log only the text of something: its file, and what the page has of such texts.
const TEXTS: [(&str, &[&str]); 15] = [
    ("crates/daemon/src/lib.rs", &[]),
    (
        "crates/daemon/src/decision_log.rs",
        &["refused: ", "moved from ", "requested for it by the kubelet"],
    ),
    ("crates/daemon/src/drift.rs", &[": should have "]),
    (
        "crates/daemon/src/enforcement.rs",
        &[
            "neither verified nor repaired",
            "Only the runtime sets CPUs",
            "setting each cgroup below it individually",
            "falling back to runtime updates",
        ],
    ),
    ("crates/daemon/src/enforcement/writes.rs", &["the kernel refused ", "is not a list of CPUs"]),
    ("crates/daemon/src/executor.rs", &["the runtime did not update containers"]),
    (
        "crates/daemon/src/hotplug.rs",
        &["have changed", "cannot read the machine", "partitions ignored", "foreign partition"],
    ),
    (
        "crates/daemon/src/main_loop.rs",
        &["can deadlock while a plugin registers", "unknown runtime"],
    ),
    (
        "crates/daemon/src/owner.rs",
        &[
            "cannot be kept with this runtime",
            "stores its state there",
            "move taken back: ",
            "treated as ended",
            "cannot change its affinity",
        ],
    ),
    (
        "crates/daemon/src/quieting.rs",
        &[
            "no latency knob",
            "this node has no ",
            "cannot be changed",
            "kept free of interrupts",
            "until the next pass",
        ],
    ),
    ("crates/daemon/src/reload.rs", &["configuration rejected", "restart the plugin to apply"]),
    ("crates/daemon/src/start.rs", &["uncore caches", "core kinds"]),
    ("crates/daemon/src/threads.rs", &["cannot start the thread"]),
    (
        "crates/nri/src/rpc.rs",
        &[
            "without an id",
            "answered without changes",
            "synchronisation: ",
            "exposeCPUs: no files for ",
        ],
    ),
    ("crates/nri/src/supervisor.rs", &["the runtime refused to register this plugin"]),
];

#[test]
fn every_warning_and_error_is_on_the_troubleshooting_page() {
    let (_, section) = TROUBLESHOOTING.split_once("\n## Warnings and errors in the log\n").unwrap();
    let section = section.split("\n## ").next().unwrap().replace('`', "");
    let mut calls = 0;
    let mut missing = Vec::new();
    let mut without_words = BTreeSet::new();
    for (path, text) in sources() {
        let path = name(&path);
        let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for at in ["::warn!(", "::error!(", "::log!(", "log_repeated("] {
            for call in program.split(at).skip(1) {
                let call = call.split(");\n").next().unwrap();
                if call.contains("Level::Info") || call.starts_with("repeats: &mut ") {
                    continue;
                }
                calls += 1;
                // The literal, up to its end: none has a quotation mark within.
                let literal = call.split('"').nth(1).unwrap_or_default().replace('`', "");
                let parts: Vec<&str> = literal.split(['{', '}']).step_by(2).collect();
                let words =
                    parts.iter().map(|part| part.trim_matches([' ', ':', ',', '.', '(', ')']));
                let words: Vec<&str> = words.filter(|words| words.len() >= 8).collect();
                if words.is_empty() {
                    without_words.insert(path.clone());
                }
                for words in words.into_iter().filter(|words| !section.contains(words)) {
                    missing.push(format!("{path}: {words}"));
                }
            }
        }
    }
    assert!(calls > 60, "only {calls} calls found");
    let listed: BTreeSet<String> = TEXTS.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(without_words, listed, "calls that log the text of something");
    let texts = TEXTS.iter().flat_map(|(path, texts)| texts.iter().map(move |text| (path, text)));
    let texts = texts.filter(|(_, text)| !section.contains(**text));
    missing.extend(texts.map(|(path, text)| format!("{path}: {text}")));
    assert!(missing.is_empty(), "not on the page:\n{}", missing.join("\n"));
}

/// Names of images, archives and charts contain the version; `hack/version` replaces it.
#[test]
fn every_page_names_the_current_version() {
    let mut count = 0;
    for (path, text) in guides() {
        for (at, _) in text.match_indices("nri-cpu-manager") {
            let rest = &text[at + "nri-cpu-manager".len()..];
            let Some(rest) = rest.strip_prefix([':', '-']) else { continue };
            if rest.starts_with(|c: char| c.is_ascii_digit()) {
                count += 1;
                let version = env!("CARGO_PKG_VERSION");
                assert!(rest.starts_with(version), "{}: {}", name(&path), &rest[..10]);
            }
        }
    }
    assert!(count > 5, "only {count} versions found");
}
