//! docs/lab.md lists every machine and every scenario.

use crate::cache;
use crate::scenario;
use crate::vm::Machine;

/// The page before, within and after the two comments that name a part of it.
fn split<'a>(page: &'a str, name: &str) -> [&'a str; 3] {
    let begin = format!("<!-- {name} -->\n");
    let from = page.find(&begin).unwrap() + begin.len();
    let to = page.find(&format!("<!-- end of {name} -->\n")).unwrap();
    [&page[..from], &page[from..to], &page[to..]]
}

fn machine_table() -> String {
    let mut text = "\n| machine | CPUs | |\n|---|---:|---|\n".to_owned();
    for name in Machine::names().unwrap() {
        let machine = Machine::load(&name).unwrap();
        text += &format!("| `{name}` | {} | {} |\n", machine.cpus(), machine.about);
    }
    text + "\n"
}

fn scenario_table() -> String {
    let mut text = "\n| scenario | what it shows |\n|---|---|\n".to_owned();
    for scenario in scenario::ALL {
        text += &format!("| `{}` | {} |\n", scenario.name, scenario.about);
    }
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
