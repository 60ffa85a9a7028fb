//! The cgroups of QoS classes, which keep shared containers off exclusive CPUs: they empty, refill
//! and are rewritten by systemd.

use super::exclusive;
use super::script::Script;
use super::shape::Shape;
use crate::pod::{Container, Pod};
use crate::step::{CgroupRef, Step};

/// How often the class empties and fills again.
const ROUNDS: usize = 4;
/// Busy pods that the probe checks.
const CROWD: usize = 50;
/// Seconds, with a margin: the plugin checks all cgroups every ten.
const CHECK_PASS: u64 = 12;
const CPUS: &str = "cpuset.cpus";
/// Logged when a cgroup is not relied on any more.
pub(crate) const DISTRUSTED: &str = "setting each cgroup below it individually";
/// In `status`, for another program's bound.
const BOUND: &str = "another program limits it to";

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
    script.says_no(Step::Log, DISTRUSTED);
    Some(script)
}

/// Values of other programs in a class: one that is set once is replaced, one that is set again is a
/// bound until all CPUs are written. What a release leaves is none.
pub(super) fn bounds(shape: &Shape) -> Option<Script> {
    if shape.exclusivity == "runtime" {
        return None;
    }
    let [all, reserved] = [shape.online(), shape.reserved].map(|cpus| cpus.to_string());
    let class = || CgroupRef::Class("web".to_owned());
    let mut script = Script::new(shape);
    let write = |script: &mut Script, value: &str| {
        script.does(Step::WriteCgroup(class(), CPUS.to_owned(), value.to_owned()));
        script.does(Step::Wait(CHECK_PASS));
    };
    script.plugin(shape.config(""));
    script.exclusive("db", 1);
    script.shared("web");
    let free = script.view();
    for value in [&all, &reserved] {
        write(&mut script, value);
        script.unmoved(free);
        script.says_no(Step::Status, BOUND);
    }
    write(&mut script, &reserved);
    script.reads(class(), CPUS, &reserved);
    script.says(Step::Status, &[BOUND, &format!("echo {all} > ")]);
    script.remove("db");
    script.exclusive("cache", 1);
    script.reads(class(), CPUS, &reserved);
    write(&mut script, &all);
    script.says_no(Step::Status, BOUND);
    script.view();
    script.remove("cache");
    script.expect(&[("web", shape.online())]);

    script.exclusive("db", 1);
    script.uninstall();
    script.says(Step::Release(false), &["shared pool: "]);
    script.plugin(shape.config(""));
    script.says_no(Step::Status, BOUND);
    script.remove("db");
    script.expect(&[("web", shape.online())]);
    Some(script)
}

/// New pods of every class next to an exclusive one: not even their pause containers run on its CPUs.
pub(super) fn new_pods(shape: &Shape) -> Option<Script> {
    if shape.exclusivity == "runtime" {
        return None;
    }
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    script.exclusive("db", 1);
    for round in 0..ROUNDS {
        for pod in [
            best_effort(&format!("best-{round}")),
            super::shared(&format!("web-{round}")),
            Pod::new(&format!("half-{round}"), [Container::guaranteed("main", 500)]),
        ] {
            let name = pod.name.clone();
            script.begins_in_pool(pod);
            script.remove(&name);
        }
    }
    script.view();
    script.says_no(Step::Log, DISTRUSTED);
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
    script.says_no(Step::Log, DISTRUSTED);
    Some(script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FirstInstruction;
    use crate::step::Outcome;
    use crate::vm::Machine;

    #[test]
    fn an_overlap_fails_the_check() {
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
