//! The reference of the JSON of `status` and `explain` (docs/status-reference.md), generated from the types of a snapshot and their
//! documentation.

use schemars::schema_for;
use serde_json::{Map, Value};
use status::Snapshot;
use status::explanation::Explanation;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Written by the same test as the page.
const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/status/schema.json");

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/status-reference.md");

const HEAD: &str = "\
# JSON of status and explain: reference

`nri-cpu-manager status --output json` writes a [Snapshot](#snapshot), `explain --output json` a list of
[Explanation](#explanation). [Status and explanations](status.md) says what is promised. This page is generated from the
types of the program: `UPDATE=1 cargo test --test it status_reference` writes it.

Sets of CPUs are texts in the kernel's format (`0-3,8`), empty without any CPU; moments are in RFC 3339, in UTC. A field
that may be `null` is always there unless its meaning says when it is absent.

Two lines of `jq` for scripts: the CPUs of a list, one by one, and the container that has CPU 7 exclusively.

```jq
def cpus: split(\",\")[] | split(\"-\") | map(tonumber) | range(.[0]; .[-1] + 1);
.node.containers[] | select(any(.exclusive // \"\" | cpus; . == 7)) | \"\\(.pod.namespace)/\\(.pod.name)/\\(.name)\"
```
";

/// The types in the order in which the document leads to them.
struct Reference<'a> {
    definitions: &'a Map<String, Value>,
    queue: Vec<String>,
}

impl Reference<'_> {
    fn section(&mut self, title: &str, schema: &Value) -> String {
        let mut text = format!("\n## {title}\n\n");
        if let Some(about) = described(schema) {
            let _ = writeln!(text, "{about}\n");
        }
        if let Some(Value::Object(fields)) = schema.get("properties") {
            text.push_str("| field | type | meaning |\n|---|---|---|\n");
            for (name, field) in fields {
                let meaning = self.meaning(field);
                let kind = self.kind(field);
                let _ = writeln!(text, "| `{name}` | {kind} | {meaning} |");
            }
        } else if let Some(Value::Array(variants)) = schema.get("oneOf") {
            text.push_str("One of:\n\n");
            for variant in variants {
                let (word, about) = (self.kind(variant), described(variant));
                let about = about.map(|about| format!(": {about}")).unwrap_or_default();
                let _ = writeln!(text, "* {word}{about}");
            }
        } else if let Some(Value::Array(words)) = schema.get("enum") {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            let _ = writeln!(text, "One of {}.", words.join(", "));
        }
        text
    }

    fn meaning(&self, field: &Value) -> String {
        let of_type = || {
            let any = field.get("anyOf").and_then(Value::as_array).into_iter().flatten();
            let path = any.chain([field]).find_map(|one| one.get("$ref")?.as_str())?;
            described(self.definitions.get(path.trim_start_matches("#/$defs/"))?)
        };
        described(field).or_else(of_type).unwrap_or_default()
    }

    /// The type in words; types that need a section of their own are queued.
    fn kind(&mut self, schema: &Value) -> String {
        if let Some(word) = schema.get("const") {
            return format!("`{word}`");
        }
        if let Some(Value::Array(words)) = schema.get("enum") {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            return words.join(", ");
        }
        if let Some(Value::String(path)) = schema.get("$ref") {
            let name = path.trim_start_matches("#/$defs/").to_owned();
            let Some(definition) = self.definitions.get(&name) else { return name };
            let needs_section =
                ["properties", "oneOf", "enum"].iter().any(|key| definition.get(key).is_some());
            if !needs_section {
                return self.kind(definition);
            }
            if !self.queue.contains(&name) {
                self.queue.push(name.clone());
            }
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(Value::Array(any)) = schema.get("anyOf") {
            let kinds: Vec<String> = any.iter().map(|one| self.kind(one)).collect();
            return kinds.join(" or ");
        }
        match schema.get("type") {
            Some(Value::Array(types)) => {
                let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
                types.join(" or ")
            }
            Some(Value::String(one)) if one == "array" => {
                if let Some(Value::Array(items)) = schema.get("prefixItems") {
                    let items: Vec<String> = items.iter().map(|one| self.kind(one)).collect();
                    return format!("[{}]", items.join(", "));
                }
                let items = schema.get("items").map(|items| self.kind(items)).unwrap_or_default();
                format!("list of {items}")
            }
            Some(Value::String(one)) if one == "object" => match schema.get("additionalProperties")
            {
                Some(values) if values.is_object() => format!("map to {}", self.kind(values)),
                _ => match schema.get("properties") {
                    Some(Value::Object(fields)) => {
                        let fields: Vec<String> = fields
                            .iter()
                            .map(|(name, field)| format!("`{name}`: {}", self.kind(field)))
                            .collect();
                        fields.join(", ")
                    }
                    _ => "object".to_owned(),
                },
            },
            Some(Value::String(one)) => one.clone(),
            _ => "any".to_owned(),
        }
    }
}

/// Descriptions as on the page.
fn make_plain(schema: &mut Value) {
    if let Some(text) = described(schema) {
        schema["description"] = text.replace("\\|", "|").into();
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(make_plain),
        Value::Array(values) => values.iter_mut().for_each(make_plain),
        _ => {}
    }
}

/// A description in one line, without the links of rustdoc.
fn described(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut rest = line.as_str();
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, after)) = link.split_once(']') else { break };
        plain.push_str(before);
        plain.push_str(name);
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').map_or("", |(_, rest)| rest),
            None => after,
        };
    }
    Some((plain + rest).replace('|', "\\|"))
}

fn reference() -> String {
    let (snapshot, explanation) = (schema_for!(Snapshot), schema_for!(Explanation));
    let roots = [("Snapshot", snapshot.to_value()), ("Explanation", explanation.to_value())];
    let definitions = roots.iter().filter_map(|(_, root)| root.get("$defs")?.as_object());
    let definitions: Map<String, Value> =
        definitions.flatten().map(|(name, one)| (name.clone(), one.clone())).collect();
    let mut reference = Reference { definitions: &definitions, queue: Vec::new() };
    let mut text = HEAD.to_owned();
    for (title, root) in &roots {
        text.push_str(&reference.section(title, root));
    }
    let mut at = 0;
    let mut seen: BTreeMap<String, ()> = BTreeMap::new();
    while let Some(name) = reference.queue.get(at).cloned() {
        at += 1;
        if seen.insert(name.clone(), ()).is_none()
            && let Some(definition) = definitions.get(&name)
        {
            text.push_str(&reference.section(&name, definition));
        }
    }
    text
}

#[test]
fn the_reference_of_the_json_is_that_of_the_types() {
    let generated = reference();
    let mut schema = schema_for!(Snapshot);
    schema.insert("$id".to_owned(), "https://cpu-manager.nri.io/schemas/status.json".into());
    let mut schema = schema.to_value();
    make_plain(&mut schema);
    let schema = format!("{schema:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &generated).unwrap();
        std::fs::write(SCHEMA_FILE, &schema).unwrap();
    }
    assert!(
        std::fs::read_to_string(SCHEMA_FILE).unwrap() == schema,
        "crates/status/schema.json is not that of the types: UPDATE=1 cargo test --test it status_reference writes it"
    );
    let page = std::fs::read_to_string(FILE).unwrap_or_default();
    let differs = page.lines().zip(generated.lines()).find(|(a, b)| a != b);
    assert!(
        page == generated,
        "docs/status-reference.md is not that of the types: UPDATE=1 cargo test --test it status_reference writes it; {differs:?}"
    );
}

/// The reader knows JSON, not the program.
#[test]
fn the_reference_speaks_of_json() {
    let page = reference();
    let lines = page.lines().filter(|line| {
        let of_rust = ["::", "`None`", "serde", "See `", " list of  "];
        of_rust.iter().any(|part| line.contains(part)) && !line.contains("`None` or `Static`")
    });
    assert_eq!(lines.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_field_of_the_json_has_a_meaning() {
    let missing: Vec<String> = reference()
        .lines()
        .filter(|line| line.starts_with("| `") && line.ends_with("|  |"))
        .map(str::to_owned)
        .collect();
    assert_eq!(missing, [""; 0]);
}
