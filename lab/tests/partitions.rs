//! Partitions on a virtual server when things go wrong or change: somebody writes to the groups, somebody else has the
//! CPUs, another kind is asked for, the kernel's way is given up. And a busy container is not throttled for a minute.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::time::Duration;

use lab::containerd::Version;
use lab::scenario::{exclusive, exclusivity, refusals, shared, views};
use lab::step::{Group, Outcome, Step};
use lab::vm::{self, Machine};
use support::binaries;

const PARTITION: &str = "cpuset.cpus.partition";
const CPUS: &str = "cpuset.cpus";

fn play(steps: &[Step]) -> Vec<Outcome> {
    let machine = Machine::single("partitions", 1, 8);
    vm::run(&machine, Version::V2_1, steps, binaries(), Duration::from_secs(600))
        .unwrap_or_else(|error| panic!("{error:#}"))
}

fn texts(outcomes: &[Outcome]) -> Vec<&str> {
    outcomes
        .iter()
        .filter_map(|o| if let Outcome::Text(text) = o { Some(text.as_str()) } else { None })
        .collect()
}

fn container(pod: &str) -> Group {
    Group::Container(pod.to_owned())
}

fn write(group: Group, file: &str, value: &str) -> Step {
    Step::WriteGroup(group, file.to_owned(), value.to_owned())
}

fn read(group: Group, file: &str) -> Step {
    Step::ReadGroup(group, file.to_owned())
}

/// Someone with root writes into the groups; the plugin sees it, says so and puts it right.
#[test]
fn what_somebody_wrote_is_put_right() {
    let steps = [
        Step::StartPlugin(exclusivity("kernel")),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        read(container("db"), PARTITION),
        write(container("db"), PARTITION, "member"),
        Step::Await("its group is a cpuset partition \"member\": set again".into()),
        read(container("db"), PARTITION),
        write(container("db"), CPUS, "1"),
        Step::Await("CPUs 1 are set for its group: set again".into()),
        read(container("db"), CPUS),
        read(container("db"), PARTITION),
        write(container("web"), CPUS, "5"),
        Step::Await("CPUs 5 are set for its group: set again".into()),
        read(container("web"), CPUS),
        write(Group::Pod("db".into()), "cpu.max", "200000 100000"),
        Step::Await("its pod has the CFS quota \"200000 100000\": set again".into()),
        read(Group::Pod("db".into()), "cpu.max"),
        Step::Look,
    ];
    let outcomes = play(&steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    assert_eq!(texts(&outcomes), ["root", "root", "1-2", "root", "0-7", "max 100000"]);
    let view = views(&outcomes)[0];
    assert_eq!([view.allowed("db"), view.allowed("web")], ["1-2", "0,3-7"]);
}

/// Where somebody else has the CPUs the kernel refuses the partition: the runtime keeps others off them, for this
/// container only, and they come back.
#[test]
fn what_the_kernel_refuses_the_runtime_keeps() {
    let other = || Group::Named("other".into());
    let steps = [
        Step::StartPlugin(exclusivity("kernel")),
        write(Group::Named(String::new()), "cgroup.subtree_control", "+cpuset"),
        write(other(), CPUS, "3-4"),
        write(other(), "cpuset.cpus.exclusive", "3-4"),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        Step::Run(exclusive("refused", 2)),
        Step::Await("the kernel does not keep others off its CPUs, the runtime has to".into()),
        read(container("db"), PARTITION),
        read(container("refused"), PARTITION),
        Step::Look,
        Step::Remove("refused".into()),
        Step::Run(shared("another")),
        Step::Look,
    ];
    let outcomes = play(&steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    assert_eq!(texts(&outcomes), ["root", "member"]);
    let [beside, after] = views(&outcomes)[..] else { panic!("two views") };
    let allowed = ["db", "refused", "web"].map(|pod| beside.allowed(pod));
    assert_eq!(allowed, ["1-2", "3-4", "0,5-7"]);
    assert_eq!(["db", "web", "another"].map(|pod| after.allowed(pod)), ["1-2", "0,3-7", "0,3-7"]);
}

/// Partitions without load balancing, then with, then none at all: nobody moves.
#[test]
fn the_kind_can_change_and_the_way_too() {
    let isolated = format!("{}cpusetPartition: isolated\n", exclusivity("kernel"));
    let mut steps = vec![
        Step::StartPlugin(isolated),
        Step::Run(shared("web")),
        Step::Run(exclusive("db", 2)),
        read(container("db"), PARTITION),
        Step::Look,
    ];
    for mode in ["kernel", "runtime"] {
        steps.extend([
            Step::Reconfigure(exclusivity(mode)),
            Step::Run(exclusive(mode, 1)),
            read(container("db"), PARTITION),
            read(container(mode), PARTITION),
            Step::Look,
        ]);
    }
    let outcomes = play(&steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    let texts = texts(&outcomes);
    assert_eq!((texts[0], texts[2], texts[4]), ("isolated", "root", "member"));
    assert_eq!(texts[1], "root");
    let views = views(&outcomes);
    let allowed = |pod| views.iter().map(|view| view.allowed(pod)).collect::<Vec<_>>();
    assert_eq!(allowed("db"), ["1-2"; 3]);
    assert_eq!(allowed("web"), ["0,3-7", "0,4-7", "0,5-7"]);
}

/// The pod's quota is lifted as well, so nothing is left that could throttle.
#[test]
fn a_busy_container_is_not_throttled_for_a_minute() {
    let steps = [
        Step::StartPlugin(exclusivity("kernel")),
        Step::RunBusy(exclusive("db", 2)),
        Step::Throttling("db".into(), 60),
    ];
    let outcomes = play(&steps);
    let Some(Outcome::Throttled { container, pod }) = outcomes.last() else {
        panic!("{outcomes:?}")
    };
    assert_eq!((container, pod), (&0, &0));
}
