//! The cgroups of QoS classes, which keep shared containers off exclusive CPUs: they empty, refill
//! and are rewritten by systemd.

use super::exclusive;
use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, Pod};
use crate::step::Step;

/// How often the class empties and fills again.
const ROUNDS: usize = 4;
/// Busy pods that the probe checks.
const CROWD: usize = 50;
/// Logged when a cgroup is not relied on any more.
const GIVEN_UP: &str = "bound instead";

fn best_effort(name: &str) -> Pod {
    Pod::new(name, [Container::best_effort("main")])
}

/// Each round fills a class and starts an exclusive pod once it is empty, with static pods and with
/// rewrites by systemd in between.
pub(super) fn emptied(shape: &Shape) -> Option<Script> {
    let rounds = ROUNDS.min(shape.room());
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    for round in 0..rounds {
        let name = format!("job-{round}");
        let pod = best_effort(&name);
        script.first_instruction(if round % 2 == 0 { pod } else { pod.from_file() }, 0);
        script.does(Step::RealiseClasses);
        script.view();
        script.remove(&name);
        script.does(Step::RealiseClasses);
        script.exclusive(&format!("db-{round}"), 1);
    }
    script.first_instruction(best_effort("last"), 0);
    script.view();
    script.never_says(GIVEN_UP);
    Some(script)
}

/// As an exclusive container's first process begins, no thread of many busy pods may run on its
/// CPUs, nor may one of a class that was just created.
pub(super) fn first_instruction(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.does(Step::RunCrowd(CROWD));
    script.first_instruction(exclusive("db", 1), CROWD);
    script.first_instruction(best_effort("job"), CROWD);
    script.remove("job");
    script.first_instruction(best_effort("job-again"), CROWD);
    if shape.room() > 1 {
        script.first_instruction(exclusive("cache", 1), CROWD);
    }
    script.view();
    script.never_says(GIVEN_UP);
    Some(script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FirstInstruction;
    use crate::step::Outcome;
    use crate::vm::Machine;

    #[test]
    fn overlaps_fail() {
        let shape = Shape::of(&Machine::load("small").unwrap()).unwrap();
        let mut script = Script::new(&shape);
        script.first_instruction(exclusive("db", 1), CROWD);
        let judge = |own: &str, threads, met: &[&str]| {
            let met = met.iter().map(ToString::to_string).collect();
            script
                .judge(&[Outcome::FirstInstruction(FirstInstruction {
                    own: own.to_owned(),
                    threads,
                    met,
                })])
                .len()
        };
        assert_eq!(judge("1", CROWD, &[]), 0);
        assert_eq!(judge("1", CROWD, &["process 7 may run on 0-3"]), 1);
        assert_eq!(judge("1", CROWD - 1, &[]), 1);
        assert_eq!(judge("", CROWD, &[]), 1);
    }
}
