//! The plugin on virtual machines. A boot takes as long as a scenario, so those of a machine share
//! one, each starting from an empty node. As many VMs run at the same time as there are test
//! threads: at most two.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod scenarios;
mod shipped;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use lab::debian::KernelPackage;
use lab::job::Software;
use lab::scenario::shape::Shape;
use lab::suite;
use lab::task::Task;
use lab::vm::{Machine, Turn, Vm};

/// Per scenario.
const PATIENCE: Duration = Duration::from_secs(600);

fn vm(machine: &Machine, software: impl Into<Software>) -> Vm<'_> {
    Vm {
        machine,
        kernel: KernelPackage::default(),
        software: software.into(),
        binaries: support::binaries(),
        turn: Turn::WithOthers,
        patience: PATIENCE,
    }
}

fn machine(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{error:#}"))
}

/// These scenarios, separated by commas, pass on this machine, to which each must apply. A failed one
/// does not hide others.
#[track_caller]
fn pass(machine: &str, software: impl Into<Software>, exclusivity: &str, names: &str) {
    let machine = self::machine(machine);
    let shape = Shape { short: true, ..Shape::of(&machine).unwrap().with(exclusivity) };
    let scenarios = suite::scenarios(names).unwrap();
    for scenario in &scenarios {
        assert!(scenario.applies(&shape), "{} does not apply", scenario.name);
    }
    let task = |name: &str| Task::Scenario(name.to_owned(), shape.clone());
    let tasks: Vec<Task> = scenarios.iter().map(|scenario| task(scenario.name)).collect();
    let mut failed = Vec::new();
    let mut on_result = |at: usize, result: Result<_, String>, time: Duration| {
        let name = scenarios[at].name;
        match result {
            Ok(_) => println!("passed: {}, {name} ({:.1} s)", machine.name, time.as_secs_f64()),
            Err(why) => failed.push(format!("{name}: {why}")),
        }
    };
    let vm = vm(&machine, software);
    vm.run_all(&tasks, &mut on_result).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(failed.is_empty(), "failed: {}", failed.join("\n"));
}
