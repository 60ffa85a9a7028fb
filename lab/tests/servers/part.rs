//! Parts: steps on an empty node, and a check of their outcomes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lab::debian::KernelPackage;
use lab::job::Software;
use lab::scenario::catalogue::Scenario;
use lab::scenario::shape::Shape;
use lab::step::{Outcome, Step};
use lab::suite;
use lab::vm::{self, Machine, Turn, Vm};

use crate::support::binaries;

/// Per part.
const PATIENCE: Duration = Duration::from_secs(600);

/// Panics on unexpected outcomes.
type Check = Box<dyn Fn(&[Outcome])>;

pub(crate) struct Part {
    name: String,
    steps: Vec<Step>,
    check: Check,
}

impl Part {
    pub(crate) fn new(name: &str, steps: Vec<Step>, check: impl Fn(&[Outcome]) + 'static) -> Self {
        Self { name: name.to_owned(), steps, check: Box::new(check) }
    }
}

/// These scenarios on this machine. Each must apply to it.
pub(crate) fn scenarios(machine: &Machine, names: &[&str]) -> Vec<Part> {
    played(&Shape::of(machine).unwrap(), names)
}

/// As [`scenarios`], with one mechanism where a scenario tries several.
pub(crate) fn scenarios_with(machine: &Machine, exclusivity: &str, names: &[&str]) -> Vec<Part> {
    let shape = Shape { exclusivity: exclusivity.to_owned(), ..Shape::of(machine).unwrap() };
    let mut parts = played(&shape, names);
    for part in &mut parts {
        part.name = format!("{}, exclusivity: {exclusivity}", part.name);
    }
    parts
}

fn played(shape: &Shape, names: &[&str]) -> Vec<Part> {
    let scenarios = suite::scenarios(&names.join(",")).unwrap();
    let part = |scenario: &Scenario| {
        let script = scenario.script(shape);
        let script = script.unwrap_or_else(|| panic!("{} does not apply", scenario.name));
        Part::new(scenario.name, script.steps(), move |outcomes| {
            assert_eq!(script.judge(outcomes), [""; 0]);
        })
    };
    scenarios.iter().map(part).collect()
}

/// All parts share one VM. A failed part does not hide others.
#[track_caller]
pub(crate) fn play(machine: &Machine, software: impl Into<Software>, parts: &[Part]) {
    let steps: Vec<_> = parts.iter().map(|part| part.steps.clone()).collect();
    let mut failed = Vec::new();
    let mut judge = |at: usize, played: vm::Played, time: Duration| {
        let Part { name, check, .. } = &parts[at];
        match played.map(|outcomes| catch_unwind(AssertUnwindSafe(|| check(&outcomes)))) {
            Ok(Ok(())) => {
                println!("passed: {}, {name} ({:.1} s)", machine.name, time.as_secs_f64())
            }
            // The panic's message has the reason.
            Ok(Err(_)) => failed.push(name.clone()),
            Err(why) => failed.push(format!("{name}: {why}")),
        }
    };
    let software = software.into();
    let turn = Turn::WithOthers;
    let kernel = KernelPackage::default();
    let vm = Vm { machine, kernel, software, binaries: binaries(), turn, patience: PATIENCE };
    vm.play(&steps, &mut judge).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(failed.is_empty(), "failed: {}", failed.join("\n"));
}

pub(crate) fn machine(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{error:#}"))
}
