//! Namespaces of the system: their containers run on the reserved CPUs only.

use super::script::Script;
use super::shape::Shape;
use super::{exclusive, shared};
use crate::pod::Pod;
use crate::step::Step;

/// Logged when another configuration is in force.
const CHANGED: &str = "config: reloaded; in force: ";
/// Seconds for running containers to follow a configuration.
const FOLLOWED: u64 = 15;

fn system(pod: Pod) -> Pod {
    Pod { namespace: "kube-system".to_owned(), ..pod }
}

/// Shared pods of the system and one that asks for a whole CPU, next to an exclusive pod and a shared
/// one; and what becomes of them while the list of namespaces changes.
pub(super) fn namespaces(shape: &Shape) -> Option<Script> {
    let with = shape.config("reservedNamespaces: [\"kube-*\"]");
    let without = shape.config("");
    let mut script = Script::new(shape);
    script.plugin(with.clone());
    for pod in [system(shared("dns")), system(exclusive("proxy", 1))] {
        script.for_reserved(&pod.name);
        script.run(pod);
    }
    script.exclusive("db", 1);
    script.shared("web");
    script.view();
    script.says(
        Step::Explain("proxy".to_owned()),
        &["for the reserved CPUs, and gets no exclusive ones: its namespace is one of reservedNamespaces"],
    );
    script.remove("proxy");

    script.does(Step::SwapConfig(without));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    script.does(Step::Wait(FOLLOWED));
    script.for_pool("dns");
    script.view();
    script.does(Step::SwapConfig(with));
    script.does(Step::WaitFor(CHANGED.to_owned(), 2));
    script.does(Step::Wait(FOLLOWED));
    script.for_reserved("dns");
    script.view();
    script.does(Step::KillPlugin);
    script.remove("db");
    script.exclusive("db-again", 1);
    script.view();
    Some(script)
}
