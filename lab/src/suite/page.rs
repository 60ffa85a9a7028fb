//! docs/lab.md lists every machine and every scenario.

use std::collections::BTreeMap;

use crate::cache;
use crate::platform::Platform;
use crate::scenario::catalogue::{self, Scenario};
use crate::scenario::shape::Shape;
use crate::vm::Machine;

/// The page before, within and after the two comments that name a part of it.
fn split<'a>(page: &'a str, name: &str) -> [&'a str; 3] {
    let begin = format!("<!-- {name} -->\n");
    let from = page.find(&begin).unwrap() + begin.len();
    let to = page.find(&format!("<!-- end of {name} -->\n")).unwrap();
    [&page[..from], &page[from..to], &page[to..]]
}

fn machines() -> Vec<Machine> {
    Machine::names().unwrap().iter().map(|name| Machine::load(name).unwrap()).collect()
}

fn machine_table() -> String {
    let mut text = "\n| machine | CPUs | |\n|---|---:|---|\n".to_owned();
    for machine in machines() {
        text += &format!("| `{}` | {} | {} |\n", machine.name, machine.cpus(), machine.about);
    }
    text + "\n"
}

/// Only the machines that `all` runs.
fn scenario_table() -> String {
    let shapes: BTreeMap<String, Shape> = machines()
        .into_iter()
        .filter(|machine| machine.platform == Platform::Amd64)
        .map(|machine| (machine.name.clone(), Shape::of(&machine).unwrap()))
        .collect();
    let row = |scenario: &Scenario| {
        let (yes, no): (Vec<_>, Vec<_>) =
            shapes.iter().partition(|(_, shape)| scenario.script(shape).is_some());
        let names = |machines: &[(&String, &Shape)]| {
            let names: Vec<String> = machines.iter().map(|(name, _)| format!("`{name}`")).collect();
            names.join(", ")
        };
        let on = if no.is_empty() {
            "all".to_owned()
        } else if no.len() < yes.len() {
            format!("all but {}", names(&no))
        } else {
            names(&yes)
        };
        format!("| `{}` | {} | {on} |\n", scenario.name, scenario.about)
    };
    let mut text = "\n| scenario | what it shows | on |\n|---|---|---|\n".to_owned();
    text.extend(catalogue::all().iter().map(row));
    text += "\nBy name only, because they take long:\n\n| scenario | what it shows | on |\n|---|---|---|\n";
    text.extend(catalogue::long().iter().map(row));
    text + "\n"
}

#[test]
fn the_page_lists_every_machine_and_scenario() {
    let path = cache::repository().join("docs/lab.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    let tables = [("machines", machine_table()), ("scenarios", scenario_table())];
    if std::env::var_os("UPDATE").is_some() {
        for (name, table) in &tables {
            let [before, _, after] = split(&page, name);
            page = format!("{before}{table}{after}");
        }
        std::fs::write(&path, &page).unwrap();
    }
    for (name, table) in &tables {
        assert!(
            split(&page, name)[1] == table,
            "the {name} of docs/lab.md are stale: `UPDATE=1 cargo test --package lab --lib -- page` \
             writes them"
        );
    }
}
