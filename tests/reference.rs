//! The reference of the configuration and of the annotations, and the Helm chart's schema, name
//! everything there is. What there is, the plugin's own errors tell.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use nri_cpu_manager::config::Config;
use nri_cpu_manager::ledger::annotations::DOMAIN;
use nri_cpu_manager::ledger::wish::Wish;
use nri_cpu_manager::placement::{Options, TopologyManager};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const CONFIGURATION: &str = include_str!("../docs/configuration.md");
const ANNOTATIONS: &str = include_str!("../docs/annotations.md");
const SCHEMA: &str = include_str!("../charts/nri-cpu-manager/values.schema.json");

fn error(text: &str) -> String {
    Config::parse("c", text).unwrap_err().to_string()
}

/// The fields that serde expects instead of one that there is not.
fn fields(text: &str) -> BTreeSet<String> {
    let error = error(text);
    // "expected one of", or of two fields "expected `a` or `b`".
    let (_, expected) = error.split_once(", expected ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What an error says that was expected.
fn expected(error: &str) -> Vec<String> {
    let Some((_, values)) = error.split_once(" is unknown, expected ") else { return Vec::new() };
    let values = values.split(['.', '(']).next().unwrap();
    values.split(" or ").map(|value| value.trim().to_owned()).collect()
}

/// The first table below a heading, without its head: the cells of each row.
fn table<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, text) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What stands in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_configuration() {
    let all = fields("xyzzy: 1\n");
    // These two say which nodes an entry is for.
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
fn every_value_of_a_field() {
    let text = format!("\n{CONFIGURATION}");
    let rows = table(&text, "# Configuration");
    let mut seen = 0;
    for field in fields("xyzzy: 1\n") {
        let values = expected(&error_of_value(&field));
        let row = rows.iter().find(|row| quoted(row[0]).contains(&field));
        let named = quoted(&row.map(|row| row.join(" ")).unwrap_or_default());
        let missing: Vec<&String> = values.iter().filter(|value| !named.contains(*value)).collect();
        assert!(missing.is_empty(), "{field}: {missing:?}");
        seen += values.len();
    }
    assert!(seen > 20, "only {seen} values found");
}

/// The error of a value that no field has; empty if it has.
fn error_of_value(field: &str) -> String {
    let result = Config::parse("c", &format!("{field}: xyzzy\n"));
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn every_policy_option() {
    let rows = table(CONFIGURATION, "## Policy options");
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    let names = Options::NAMES.iter().chain(TopologyManager::OPTIONS);
    assert_eq!(documented, names.map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_field_of_a_namespace() {
    let rows = table(ANNOTATIONS, "## What the administrator allows");
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    assert_eq!(documented, fields("namespaces: [{xyzzy: 1}]\n"));
}

#[test]
fn every_wish() {
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut key = String::new();
    for row in table(&format!("\n{ANNOTATIONS}"), "# Wishes of pods") {
        // A key stands in the row of its first value alone.
        if let Some(name) = quoted(row[0]).first() {
            key = name.strip_suffix(DOMAIN).unwrap().to_owned();
        }
        documented.entry(key.clone()).or_default().extend(quoted(row[1]));
    }
    let keys = expected(&Wish::parse("xyzzy", "").unwrap_err());
    assert_eq!(keys.len(), 6);
    let values = |key: &String| expected(&Wish::parse(key, "xyzzy").unwrap_err());
    let all = keys.iter().map(|key| (key.clone(), values(key).into_iter().collect()));
    assert_eq!(documented, all.collect());
}

/// A part of the chart's schema, by its JSON pointer below the fields of the configuration.
fn schema(pointer: &str) -> Value {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let part = schema.pointer(&format!("/definitions/fields/properties{pointer}")).unwrap();
    match part["$ref"].as_str() {
        Some(target) => schema.pointer(target.strip_prefix('#').unwrap()).unwrap().clone(),
        None => part.clone(),
    }
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// The values that a field of the chart may have, as texts. The kubelet's empty string is none.
fn allowed(pointer: &str) -> BTreeSet<String> {
    let schema = schema(pointer);
    let values = schema["enum"].as_array().into_iter().flatten();
    let texts = values.map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    texts.filter(|text| !text.is_empty()).collect()
}

#[test]
fn the_charts_schema_has_every_field() {
    for (pointer, text) in [
        ("", "xyzzy: 1\n"),
        ("/rebalance/properties", "rebalance: {xyzzy: 1}\n"),
        ("/podResources/properties", "podResources: {xyzzy: 1}\n"),
        ("/namespaces/items/properties", "namespaces: [{xyzzy: 1}]\n"),
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
fn the_charts_schema_has_every_value() {
    let mut seen = 0;
    for field in fields("xyzzy: 1\n") {
        let values: BTreeSet<String> = expected(&error_of_value(&field)).into_iter().collect();
        seen += values.len();
        assert_eq!(allowed(&format!("/{field}")), values, "{field}");
    }
    assert!(seen > 20, "only {seen} values found");
    let modes = expected(&error("rebalance: {mode: xyzzy}\n"));
    assert_eq!(allowed("/rebalance/properties/mode"), modes.into_iter().collect());
}

#[test]
fn the_charts_schema_has_every_wish() {
    let wishes: BTreeSet<String> =
        expected(&Wish::parse("xyzzy", "").unwrap_err()).into_iter().collect();
    let namespace = "/namespaces/items/properties";
    for (field, below) in [("allow", "/items"), ("defaults", "")] {
        let properties = format!("{namespace}/{field}/properties");
        assert_eq!(keys(&schema(&properties)), wishes, "{field}");
        for wish in &wishes {
            let values = expected(&Wish::parse(wish, "xyzzy").unwrap_err());
            let values: BTreeSet<String> = values.into_iter().collect();
            assert_eq!(allowed(&format!("{properties}/{wish}{below}")), values, "{field} {wish}");
        }
    }
}
