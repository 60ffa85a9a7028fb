//! The workflows of the repository's host, which run only there: what can be checked without it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Name, text and content of each workflow.
fn workflows() -> Vec<(String, String, Value)> {
    let entries = fs::read_dir(root().join(".github/workflows")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    let read = |name: String| {
        let text = text(&format!(".github/workflows/{name}"));
        let content = serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, text, content)
    };
    names.into_iter().map(read).collect()
}

/// Each job of a workflow, with its name.
fn jobs(workflow: &Value) -> impl Iterator<Item = (&String, &Value)> {
    workflow["jobs"].as_object().unwrap().iter()
}

fn steps(job: &Value) -> &Vec<Value> {
    job["steps"].as_array().unwrap()
}

/// Whether a line names what it uses by a commit, with the version that this is in a comment.
fn is_pinned(uses: &str) -> bool {
    let Some((action, rest)) = uses.split_once('@') else { return false };
    let Some((commit, version)) = rest.split_once(" # v") else { return false };
    action.contains('/')
        && commit.len() == 40
        && commit.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && version.split('.').count() == 3
        && version.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[test]
fn every_action_is_pinned_by_a_commit_with_its_version() {
    let mut found = 0;
    for (name, text, _) in workflows() {
        for line in text.lines() {
            let Some((before, uses)) = line.split_once("uses: ") else { continue };
            assert_eq!(before.trim_start_matches([' ', '-']), "", "{name}: {line}");
            assert!(is_pinned(uses), "{name}: {uses}");
            found += 1;
        }
    }
    assert!(found > 10, "only {found} actions found");
}

#[test]
fn lines_that_are_not_pinned_are_found() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    assert!(is_pinned(&format!("a/b@{commit} # v1.2.3")));
    assert!(is_pinned(&format!("a/b/c@{commit} # v1.2.3")));
    for wrong in [
        "a/b@v1".to_owned(),
        "./local".to_owned(),
        format!("a/b@{commit}"),
        format!("a/b@{commit} # v1"),
        format!("a/b@{} # v1.2.3", &commit[1..]),
        format!("a/b@{} # v1.2.3", commit.to_uppercase()),
    ] {
        assert!(!is_pinned(&wrong), "{wrong}");
    }
}

/// Otherwise a fix of an action reaches some of the jobs that use it.
#[test]
fn an_action_has_one_version() {
    let all: BTreeSet<String> = workflows()
        .iter()
        .flat_map(|(_, text, _)| text.lines().filter_map(|line| line.split_once("uses: ")))
        .map(|(_, uses)| uses.to_owned())
        .collect();
    // The parts of CodeQL are of one repository.
    let repository = |uses: &String| uses.split(['/', '@']).take(2).collect::<Vec<_>>().join("/");
    let version = |uses: &String| uses.split_once('@').unwrap().1.to_owned();
    let repositories: BTreeSet<String> = all.iter().map(repository).collect();
    let versions: BTreeSet<(String, String)> =
        all.iter().map(|uses| (repository(uses), version(uses))).collect();
    assert_eq!(versions.len(), repositories.len(), "{versions:#?}");
}

#[test]
fn every_job_names_its_permissions() {
    for (name, _, workflow) in workflows() {
        let none = workflow["permissions"].as_object().is_some_and(|rights| rights.is_empty());
        assert!(none, "{name}: expected `permissions: {{}}` for the whole workflow");
        for (job, content) in jobs(&workflow) {
            let rights = content["permissions"].as_object();
            let rights = rights.unwrap_or_else(|| panic!("{name}: {job} has no permissions"));
            assert!(content["timeout-minutes"].is_u64(), "{name}: {job} has no timeout");
            // What compiles runs the code of every dependency.
            let compiles = content["container"].is_object();
            let writes = rights.values().any(|right| right != "read");
            assert!(!(compiles && writes), "{name}: {job} compiles, and may write {rights:?}");
        }
    }
}

#[test]
fn no_checkout_keeps_its_credentials() {
    for (name, _, workflow) in workflows() {
        for step in jobs(&workflow).flat_map(|(_, job)| steps(job)) {
            if step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/checkout@")) {
                assert_eq!(step["with"]["persist-credentials"], false, "{name}");
            }
        }
    }
}

/// An expression becomes part of the program; an environment variable stays data.
#[test]
fn no_expression_is_part_of_a_program() {
    for (name, _, workflow) in workflows() {
        for step in jobs(&workflow).flat_map(|(_, job)| steps(job)) {
            let run = step["run"].as_str().unwrap_or_default();
            assert!(!run.contains("${{"), "{name}: {run}");
        }
    }
}

#[test]
fn every_script_that_a_workflow_runs_has_the_options() {
    let mut found = BTreeSet::new();
    for (name, _, workflow) in workflows() {
        for step in jobs(&workflow).flat_map(|(_, job)| steps(job)) {
            let run = step["run"].as_str().unwrap_or_default();
            for line in run.lines().filter(|line| line.starts_with("hack/")) {
                let mut words = line.split_whitespace();
                let script = words.next().unwrap();
                let source = text(script);
                for option in words.filter(|word| word.starts_with("--")) {
                    // As it is parsed, not as it is explained.
                    let parsed = |line: &str| !line.starts_with('#') && line.contains(option);
                    assert!(source.lines().any(parsed), "{name}: {script} has no {option}");
                    found.insert(format!("{script} {option}"));
                }
                found.insert(script.to_owned());
            }
        }
    }
    let expected = [
        "hack/deny",
        "hack/deny --require-advisories",
        "hack/release",
        "hack/release --publish",
        "hack/release --registry",
        "hack/release --source",
        "hack/test",
        "hack/test --all",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}

/// What the release's steps take from the one that publishes.
#[test]
fn the_release_uses_only_outputs_that_the_script_writes() {
    let workflow = text(".github/workflows/release.yml");
    let script = text("hack/release");
    let outputs: BTreeSet<&str> = workflow
        .split("steps.publish.outputs.")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next())
        .collect();
    assert_eq!(outputs, ["chart", "chart-digest", "files", "image", "image-digest"].into());
    for output in outputs {
        assert!(script.contains(&format!("\"{output}=$")), "hack/release writes no {output}");
    }
}

/// Dependabot knows the Dockerfile's image, and not that of the workflows.
#[test]
fn workflows_use_the_image_of_the_dockerfile() {
    let dockerfile = text("Dockerfile");
    let image = dockerfile.lines().find_map(|line| line.strip_prefix("FROM ")).unwrap();
    let image = image.strip_suffix(" AS build").unwrap();
    let (_, digest) = image.split_once("@sha256:").unwrap();
    assert!(digest.len() == 64 && digest.chars().all(|c| c.is_ascii_hexdigit()), "{image}");
    let mut found = 0;
    for (name, _, workflow) in workflows() {
        for (job, content) in jobs(&workflow).filter(|(_, job)| job["container"].is_object()) {
            assert_eq!(content["container"]["image"], image, "{name}: {job}");
            found += 1;
        }
    }
    assert_eq!(found, 3);
}

#[test]
fn forms_ask_for_what_a_report_needs() {
    let read = |name: &str| -> Value {
        serde_yaml::from_str(&text(&format!(".github/ISSUE_TEMPLATE/{name}.yml"))).unwrap()
    };
    for name in ["bug", "feature"] {
        let form = read(name);
        assert!(form["name"].is_string() && form["description"].is_string(), "{name}");
        let mut ids = BTreeSet::new();
        for field in form["body"].as_array().unwrap() {
            if field["type"] != "markdown" {
                assert!(field["attributes"]["label"].is_string(), "{name}: {field}");
                assert!(ids.insert(field["id"].as_str().unwrap()), "{name}: {field}");
            }
        }
    }
    assert_eq!(read("config")["blank_issues_enabled"], false);
    let bug = read("bug").to_string();
    for needed in ["status --output json", "log", "configuration", "runtime", "kernel"] {
        assert!(bug.contains(needed), "the form for bugs does not ask for {needed}");
    }
}

/// What `.editorconfig` says of every file, and its exceptions.
#[test]
fn text_files_follow_the_editorconfig() {
    let config = text(".editorconfig");
    for line in
        ["end_of_line = lf", "insert_final_newline = true", "trim_trailing_whitespace = true"]
    {
        assert!(config.contains(line), "{line}");
    }
    let mut checked = 0;
    let mut wrong = Vec::new();
    let mut directories = vec![root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            // Not in git, or an exception in the file.
            if path.is_symlink()
                || name.ends_with("target")
                || [".git", "fuzz/corpus"].contains(&&*name)
            {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !["rs", "md", "yaml", "yml", "toml", "sh", "py", "proto", "css"]
                .contains(&extension.unwrap_or_default())
            {
                continue;
            }
            checked += 1;
            let text = fs::read_to_string(&path).unwrap();
            if !text.ends_with('\n') || text.contains('\r') || text.contains("\n\t") {
                wrong.push(name);
            } else if text.lines().any(|line| line.ends_with([' ', '\t'])) {
                wrong.push(format!("{name}: space at the end of a line"));
            }
        }
    }
    assert!(checked > 500, "only {checked} files found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
