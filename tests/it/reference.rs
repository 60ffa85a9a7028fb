//! The pages about the configuration, annotations, options of `run` and overlays are complete, and
//! so is the Helm chart's schema: compared with the declarations of the fields, the plugin's own
//! errors, its command line and the manifests.

use crate::support::commands::cpuctl;
use crate::support::expected::{error, fields, values};
use clap::CommandFactory;
use config::{Declaration, NOT_USED, declarations};
use ledger::annotations::DOMAIN;
use ledger::pod_option::parse;
use nri_cpu_manager::Cli;
use placement::{Options, TopologyManager};
use quiet::Knobs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const ANNOTATIONS: &str = include_str!("../../docs/annotations.md");
const INSTALL: &str = include_str!("../../docs/install.md");
const SECURITY: &str = include_str!("../../docs/security.md");
const CHART: &str = include_str!("../../charts/nri-cpu-manager/README.md");
const SCHEMA: &str = include_str!("../../charts/nri-cpu-manager/values.schema.json");
const VALUES: &str = include_str!("../../charts/nri-cpu-manager/values.yaml");

/// The first table below a heading, without its head: the cells of each row.
fn table<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, text) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The values that an error lists as expected.
fn expected(error: &str) -> Vec<String> {
    let Some((_, values)) = error.split_once(" is unknown, expected ") else { return Vec::new() };
    let values = values.split(['.', '(']).next().unwrap();
    values.split(" or ").map(|value| value.trim().to_owned()).collect()
}

/// The texts in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_configuration_is_documented() {
    let all = fields("xyzzy: 1\n");
    // These two select the nodes of an entry of `nodes`.
    let of_entries = BTreeSet::from(["labels".to_owned(), "names".to_owned()]);
    let (text, rest) = CONFIGURATION.split_once("\n## ").unwrap();
    let documented: BTreeSet<String> = table(&format!("\n{text}"), "# Configuration")
        .iter()
        .flat_map(|row| quoted(row[0]))
        .chain(quoted(rest).intersection(&of_entries).cloned())
        .collect();
    assert!(all.len() > 15, "{all:?}");
    assert_eq!(all, documented);
}

#[test]
fn every_nested_field_is_in_its_example() {
    for (field, heading) in [("rebalance", "## Rebalance"), ("podResources", "## podResources")] {
        let (_, text) = CONFIGURATION.split_once(&format!("\n{heading}\n")).unwrap();
        let example = text.split("```").nth(1).unwrap().strip_prefix("yaml\n").unwrap();
        let example: Value = serde_yaml::from_str(example).unwrap();
        assert_eq!(keys(&example[field]), fields(&format!("{field}: {{xyzzy: 1}}\n")), "{field}");
    }
}

#[test]
fn every_value_of_a_field_is_documented() {
    let text = format!("\n{CONFIGURATION}");
    let rows = table(&text, "# Configuration");
    let mut count = 0;
    for field in fields("xyzzy: 1\n") {
        let values = values(&field);
        let row = rows.iter().find(|row| quoted(row[0]).contains(&field));
        let named = quoted(&row.map(|row| row.join(" ")).unwrap_or_default());
        let missing: Vec<&&str> = values.iter().filter(|value| !named.contains(**value)).collect();
        assert!(missing.is_empty(), "{field}: {missing:?}");
        count += values.len();
    }
    assert!(count > 20, "only {count} values found");
}

/// The error for an unknown word lists the declared words.
#[test]
fn every_default_of_a_field_is_documented() {
    let text = format!("\n{CONFIGURATION}");
    let rows = table(&text, "# Configuration");
    let mut count = 0;
    for Declaration { name, words, default } in declarations() {
        let row = rows.iter().find(|row| quoted(row[0]).contains(name)).unwrap();
        if let Some(default) = default {
            assert_eq!(row[2], format!("`{default}`"), "{name}");
            count += 1;
        }
        if !words.is_empty() {
            assert_eq!(expected(&error(&format!("{name}: xyzzy\n"))), words, "{name}");
        }
    }
    assert!(count > 12, "only {count} defaults found");
}

#[test]
fn every_policy_option_is_documented() {
    let rows = table(CONFIGURATION, "## Policy options");
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    let names = Options::NAMES.iter().chain(TopologyManager::OPTIONS);
    assert_eq!(documented, names.map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_field_of_a_namespace_is_documented() {
    let rows = table(ANNOTATIONS, "## What the administrator allows");
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    assert_eq!(documented, fields("namespaces: [{xyzzy: 1}]\n"));
}

#[test]
fn every_pod_option_is_documented() {
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut key = String::new();
    for row in table(&format!("\n{ANNOTATIONS}"), "# Pod options") {
        // Only the row of a key's first value has the key.
        if let Some(name) = quoted(row[0]).first() {
            key = name.strip_suffix(DOMAIN).unwrap().to_owned();
        }
        documented.entry(key.clone()).or_default().extend(quoted(row[1]));
    }
    let keys = expected(&parse("xyzzy", "").unwrap_err());
    assert_eq!(keys.len(), 8 + Knobs::KEYS.len());
    // Values of knobs are open: the documented ones are examples.
    for key in Knobs::KEYS {
        for value in documented.insert(key.to_owned(), BTreeSet::new()).unwrap() {
            parse(key, &value).unwrap();
        }
    }
    let values = |key: &String| {
        let is_open = Knobs::KEYS.contains(&&**key);
        if is_open { Vec::new() } else { expected(&parse(key, "xyzzy").unwrap_err()) }
    };
    let all = keys.iter().map(|key| (key.clone(), values(key).into_iter().collect()));
    assert_eq!(documented, all.collect());
}

/// Helm reads one file: the chart's schema has the definitions of the configuration's, as they are.
#[test]
fn the_charts_schema_has_that_of_the_configuration() {
    let own: Value = serde_json::from_str(config::SCHEMA).unwrap();
    let chart: Value = serde_json::from_str(SCHEMA).unwrap();
    for (name, definition) in own["definitions"].as_object().unwrap() {
        assert_eq!(chart["definitions"][name], *definition, "{name}");
    }
    assert_eq!(chart["properties"]["config"]["allOf"], own["allOf"]);
}

/// A part of the configuration's schema, by its JSON pointer below the fields.
fn schema(pointer: &str) -> Value {
    let schema: Value = serde_json::from_str(config::SCHEMA).unwrap();
    let part = schema.pointer(&format!("/definitions/fields/properties{pointer}")).unwrap();
    match part["$ref"].as_str() {
        Some(target) => schema.pointer(target.strip_prefix('#').unwrap()).unwrap().clone(),
        None => part.clone(),
    }
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// The values that a field may have, as texts. The kubelet's empty string is none.
fn allowed(pointer: &str) -> BTreeSet<String> {
    let schema = schema(pointer);
    let values = schema["enum"].as_array().into_iter().flatten();
    let texts = values.map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    texts.filter(|text| !text.is_empty()).collect()
}

/// Fields of a KubeletConfiguration that mean nothing here may have any value.
#[test]
fn the_schema_has_every_field_of_a_kubelet() {
    let all = schema("");
    let any = |name: &String| all[name] == Value::Bool(true);
    let of_any_value: BTreeSet<String> = keys(&all).into_iter().filter(any).collect();
    assert_eq!(of_any_value, NOT_USED.iter().map(|name| (*name).to_owned()).collect());
    let named: BTreeSet<String> = keys(&all).difference(&of_any_value).cloned().collect();
    let mut known = fields("xyzzy: 1\n");
    for (field, value) in
        [("apiVersion", "kubelet.config.k8s.io/v1beta1"), ("kind", "KubeletConfiguration")]
    {
        assert_eq!(allowed(&format!("/{field}")), BTreeSet::from([value.to_owned()]));
        assert_eq!(error(&format!("{field}: {value}\n")), "");
        known.insert(field.to_owned());
    }
    assert_eq!(named, known);
}

#[test]
fn the_schema_has_every_nested_field() {
    for (pointer, text) in [
        ("/rebalance/properties", "rebalance: {xyzzy: 1}\n"),
        ("/podResources/properties", "podResources: {xyzzy: 1}\n"),
        ("/namespaces/items/properties", "namespaces: [{xyzzy: 1}]\n"),
        ("/reservedMemory/items/properties", "reservedMemory: [{xyzzy: 1}]\n"),
    ] {
        assert_eq!(keys(&schema(pointer)), fields(text), "{pointer}");
    }
    for (field, names) in [
        ("cpuManagerPolicyOptions", Options::NAMES),
        ("topologyManagerPolicyOptions", TopologyManager::OPTIONS),
    ] {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(keys(&schema(&format!("/{field}/properties"))), names, "{field}");
    }
}

#[test]
fn the_schema_has_every_value() {
    let mut count = 0;
    for field in fields("xyzzy: 1\n") {
        let values: BTreeSet<String> = values(&field).into_iter().map(str::to_owned).collect();
        count += values.len();
        assert_eq!(allowed(&format!("/{field}")), values, "{field}");
    }
    assert!(count > 20, "only {count} values found");
    let modes = expected(&error("rebalance: {mode: xyzzy}\n"));
    assert_eq!(allowed("/rebalance/properties/mode"), modes.into_iter().collect());
}

#[test]
fn the_schema_has_every_pod_option() {
    let pod_options: BTreeSet<String> =
        expected(&parse("xyzzy", "").unwrap_err()).into_iter().collect();
    let namespace = "/namespaces/items/properties";
    for (field, below) in [("allow", "/items"), ("defaults", "")] {
        let properties = format!("{namespace}/{field}/properties");
        assert_eq!(keys(&schema(&properties)), pod_options, "{field}");
        // Values of knobs are open.
        for pod_option in
            pod_options.iter().filter(|pod_option| !Knobs::KEYS.contains(&&***pod_option))
        {
            let values = expected(&parse(pod_option, "xyzzy").unwrap_err());
            let values: BTreeSet<String> = values.into_iter().collect();
            assert_eq!(
                allowed(&format!("{properties}/{pod_option}{below}")),
                values,
                "{field} {pod_option}"
            );
        }
    }
}

/// The values with a description, by their paths, such as `image.tag`.
fn descriptions(schema: &Value, above: &str, found: &mut BTreeMap<String, String>) {
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{above}{name}");
        match part["description"].as_str() {
            Some(text) => _ = found.insert(path, text.to_owned()),
            None => descriptions(part, &format!("{path}."), found),
        }
    }
}

/// Every key of a YAML file in its order, as a path, with the comment above it.
fn comments(text: &str) -> Vec<(String, String)> {
    let mut keys: Vec<(usize, &str)> = Vec::new();
    let mut comment = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(part) = content.strip_prefix("# ") {
            comment.push(part);
            continue;
        }
        if let Some((key, _)) = content.split_once(':')
            && !key.starts_with('-')
        {
            let indentation = line.len() - content.len();
            keys.retain(|(above, _)| *above < indentation);
            keys.push((indentation, key));
            let path: Vec<&str> = keys.iter().map(|(_, key)| *key).collect();
            found.push((path.join("."), comment.join(" ")));
        }
        comment.clear();
    }
    found
}

/// A value's comment, its description in the schema and its row in the chart's README are the same
/// text.
#[test]
fn every_value_of_the_chart_is_described() {
    let mut described = BTreeMap::new();
    descriptions(&serde_json::from_str(SCHEMA).unwrap(), "", &mut described);
    described.remove("global").expect("Helm's own value");
    let defaults: Value = serde_yaml::from_str(VALUES).unwrap();
    let mut rows = Vec::new();
    for (path, comment) in comments(VALUES) {
        let Some(description) = described.remove(&path) else { continue };
        assert_eq!(comment, description, "{path}: values.yaml and its schema");
        let default = defaults.pointer(&format!("/{}", path.replace('.', "/"))).unwrap();
        let default = match default.to_string() {
            long if long.len() > 60 => "[values.yaml](values.yaml)".to_owned(),
            short => format!("`{short}`"),
        };
        rows.push(format!("| `{path}` | {default} | {comment} |"));
    }
    assert!(described.is_empty(), "not in values.yaml: {described:?}");
    assert!(rows.len() > 40, "{rows:?}");
    let table = rows.join("\n");
    let (_, documented) = CHART.split_once("\n|---|---|---|\n").unwrap();
    assert!(documented.trim_end() == table, "the README of the chart needs this table:\n{table}");
}

#[test]
fn the_charts_schema_has_every_alert() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let disabled = "/properties/prometheusRule/properties/disabled/items/enum";
    let rules = include_str!("../../manifests/prometheus/rules.yaml").lines();
    let alerts: Vec<&str> =
        rules.filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(schema.pointer(disabled).unwrap(), &serde_json::json!(alerts));
}

/// Names of the directories in a directory of the project.
fn directories(path: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let directories = entries.filter(|entry| entry.path().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn every_overlay_is_documented_and_in_the_chart() {
    let overlays = directories("manifests/overlays");
    assert!(overlays.len() > 4, "{overlays:?}");
    let first = |row: &Vec<&str>| quoted(row[0]).into_iter().next();
    let rows = table(INSTALL, "## Overlays");
    let documented: BTreeSet<String> = rows.iter().filter_map(first).collect();
    assert_eq!(documented, overlays, "docs/install.md, Overlays");
    let rows = table(INSTALL, "## What a node needs");
    let documented = rows.iter().filter(|row| row[0].starts_with("overlay "));
    let documented: BTreeSet<String> = documented.filter_map(first).collect();
    assert_eq!(documented, overlays, "docs/install.md, What a node needs");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/nri-cpu-manager/overlays");
    let files = fs::read_dir(files).unwrap().map(|file| file.unwrap().path());
    let values = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(values.collect::<BTreeSet<_>>(), overlays, "the chart");
}

/// The capabilities that the patches of an overlay add.
fn capabilities(directory: &str) -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut added = BTreeSet::new();
    for file in fs::read_dir(directory).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for list in text.lines().filter_map(|line| line.trim().strip_prefix("add: ")) {
            added.extend(serde_yaml::from_str::<Vec<String>>(list).unwrap());
        }
    }
    added
}

#[test]
fn every_privilege_is_documented() {
    let mut manifests = BTreeSet::from(
        ["base", "bench-gain", "uninstall", "doctor"].map(|name| format!("manifests/{name}")),
    );
    let overlays = directories("manifests/overlays");
    manifests.extend(overlays.iter().map(|name| format!("manifests/overlays/{name}")));
    let rows = table(SECURITY, "## Privileges of the plugin");
    let mut documented = BTreeSet::new();
    for row in &rows {
        let name = quoted(row[0]).into_iter().next().unwrap();
        if name.starts_with("manifests/") {
            assert_eq!(quoted(row[2]), capabilities(&name), "{name}");
            documented.insert(name);
        }
    }
    assert_eq!(documented, manifests, "docs/security.md");
}

#[test]
fn every_option_of_run_is_documented() {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let options = run.get_arguments().map(|option| {
        let default = match option.get_env() {
            Some(variable) => format!("`{}` in the environment", variable.display()),
            None => {
                let values = option.get_default_values().iter();
                values.map(|value| format!("`{}`", value.display())).collect()
            }
        };
        (format!("`--{}`", option.get_long().unwrap()), default)
    });
    let rows = table(INSTALL, "## Run without the DaemonSet");
    let documented = rows.iter().map(|row| (row[0].to_owned(), row[1].to_owned()));
    assert_eq!(documented.collect::<BTreeMap<_, _>>(), options.collect());
}

/// A pod for `simulate`, with one container `db`.
fn pod(name: &str, cpus: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let resources = serde_json::json!({"limits": {"cpu": cpus, "memory": "1Gi"}});
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "hpc", "annotations": annotations},
        "spec": {"containers": [{"name": "db", "resources": resources}]},
    })
}

/// Simulates these pods; returns the reasons of the refused containers.
fn refusals(topology: &str, allowed: &str, pods: &[Value]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name).display().to_string();
        fs::write(&path, text).unwrap();
        path
    };
    let config = format!(
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n\
         cpuManagerPolicyOptions: {{prefer-align-cpus-by-uncorecache: \"true\"}}\n\
         namespaces: [{{names: [hpc], allow: {{{allowed}}}}}]\n"
    );
    let documents: Vec<String> =
        pods.iter().map(|pod| serde_yaml::to_string(pod).unwrap()).collect();
    let config = file("config.yaml", &config);
    let pods = file("pods.yaml", &documents.join("---\n"));
    let decisions = file("decisions.csv", "");
    let arguments = ["simulate", "--topology", topology, "--config", &config];
    cpuctl(&[&arguments[..], &["--workload", &pods, "--decisions", &decisions]].concat()).unwrap();
    let mut table = csv::Reader::from_path(decisions).unwrap();
    let rows = table.records().map(|row| row.unwrap());
    let refused = rows.filter(|row| &row[4] == "refused");
    refused.map(|row| row[6].to_owned()).collect()
}

#[test]
fn the_documented_errors_of_annotations_are_those_that_the_plugin_prints() {
    let many: Vec<String> = (0..65).map(|n| format!("uncore{DOMAIN}/container.c{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "prefer")).collect();
    let uncore = |pod_option| [("uncore.cpu-manager.nri.io/pod", pod_option)];
    let cases = [
        refusals(
            "kep-4800",
            "uncore: [exclusive], cpus: [exclusive]",
            &[
                pod("misspelt", "1", &[("uncor.cpu-manager.nri.io/container.db", "require")]),
                pod("unknown", "1", &uncore("requires")),
                pod("forbidden", "1", &uncore("require")),
                pod("many", "1", &many),
                pod("fraction", "1500m", &[("cpus.cpu-manager.nri.io/pod", "exclusive")]),
            ],
        ),
        // Each cache has six CPUs: 4 are free next to the reserved ones, and 1 next to each pod.
        refusals(
            "l3:3 core:6",
            "uncore: [require]",
            &[pod("a", "5", &[]), pod("b", "5", &[]), pod("require", "6", &uncore("require"))],
        ),
        refusals(
            "kep-4800-small",
            "uncore: [exclusive]",
            &[pod("exclusive", "9", &uncore("exclusive"))],
        ),
        refusals(
            "core:3 pu:2",
            "smt: [isolate]",
            &[pod("isolate", "3", &[("smt.cpu-manager.nri.io", "isolate")])],
        ),
    ];
    let (_, text) = ANNOTATIONS.split_once("\n## Errors\n").unwrap();
    let documented = text.split("```").nth(1).unwrap().trim().lines().map(str::to_owned);
    assert_eq!(documented.collect::<Vec<_>>(), cases.concat());
}
