//! Scripts for `hack/lab` on any machine, for tests and for the demo.

pub mod catalogue;
mod classes;
mod drift;
mod expose;
mod foreign;
mod hotplug;
mod invariants;
mod isolated;
mod life;
mod machine;
pub mod script;
pub mod shape;
mod uninstall;

use crate::pod::{Container, Pod};
use crate::step::{Outcome, Step};
use crate::view::View;

pub(crate) use classes::DISTRUSTED;

/// Order in which uncore caches are tried
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Order {
    /// Lowest number with room, as in KEP-4800's text
    #[default]
    Numerical,
    /// Fewest free CPUs, as in the kubelet
    FewestFree,
}

/// Reserved CPUs of KEP-4800's examples.
pub const RESERVED: &str = "0-1";

/// Configuration of KEP-4800's examples.
fn config(order: Order, align: bool) -> String {
    let order = match order {
        Order::Numerical => "numerical",
        Order::FewestFree => "fewest-free",
    };
    let options = if align {
        format!(
            "cpuManagerPolicyOptions: {{prefer-align-cpus-by-uncorecache: \"true\"}}\nuncoreCacheOrder: {order}\n"
        )
    } else {
        String::new()
    };
    format!("cpuManagerPolicy: static\n{options}reservedSystemCPUs: \"{RESERVED}\"\n")
}

pub fn guaranteed(name: &str, cpus: usize) -> Container {
    Container::guaranteed(name, milli(cpus))
}

pub fn milli(cpus: usize) -> i64 {
    i64::try_from(cpus).unwrap_or(i64::MAX / 1000) * 1000
}

pub fn exclusive(name: &str, cpus: usize) -> Pod {
    Pod::new(name, [guaranteed("main", cpus)])
}

/// A Burstable pod with one container.
pub fn shared(name: &str) -> Pod {
    Pod::new(name, [Container::burstable("main", 500)])
}

/// An exclusivity mechanism; CPU 0 is reserved.
pub fn exclusivity(mode: &str) -> String {
    format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nexclusivity: {mode}\n")
}

/// KEP-4800's example: two shared containers, exclusive ones of 10, 8 and 6 CPUs, and a view.
pub fn kep_4800(order: Order, align: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::StartPlugin(config(order, align)),
        Step::Run(shared("web")),
        Step::Run(shared("batch")),
    ];
    steps.extend([10, 8, 6].map(|cpus| Step::Run(exclusive(&format!("cpus-{cpus}"), cpus))));
    steps.push(Step::View);
    steps
}

/// The views among outcomes, in their order.
pub fn views(outcomes: &[Outcome]) -> Vec<&View> {
    outcomes
        .iter()
        .filter_map(|o| if let Outcome::View(view) = o { Some(view) } else { None })
        .collect()
}

/// Messages of refused pods.
pub fn refusals(outcomes: &[Outcome]) -> Vec<&str> {
    outcomes
        .iter()
        .filter_map(|o| if let Outcome::Refused(text) = o { Some(text.as_str()) } else { None })
        .collect()
}
