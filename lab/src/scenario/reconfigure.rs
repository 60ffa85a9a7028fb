//! Configuration changes, made like a kubelet that changes a mounted ConfigMap.

use super::exclusive;
use super::invariants::parse;
use super::life::{caught_up, some_pods};
use super::script::Script;
use super::shape::Shape;
use crate::step::Step;

/// Logged when another configuration is in force.
const CHANGED: &str = "config: reloaded; in force: ";

/// Seconds for all containers to follow a changed configuration.
const FOLLOWED: u64 = 30;

const STRICT: &str = "cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}";

/// Two reserved cores instead of one, without shared containers, and whole cores only; then an
/// invalid configuration, then a valid one. The plugin is not restarted.
pub(super) fn live(shape: &Shape) -> Option<Script> {
    let threads = shape.threads();
    // The last core is still free.
    let last = *shape.cores().last().filter(|core| core.is_disjoint(&shape.reserved))?;
    let reserved = shape.reserved | last;
    if shape.room() < 2 + 3 * threads + last.len() {
        return None;
    }
    let tight = Shape { reserved, ..shape.clone() }.config(
        "cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\", full-pcpus-only: \"true\"}",
    );
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    let before = some_pods(&mut script);
    script.does(Step::SwapConfig(tight.clone()));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    caught_up(&mut script);
    script.reserve(reserved);
    script.strict();
    let tightened = script.exclusive_unmoved(before);
    let in_force = format!("reserved {reserved}, ");
    script.says(Step::Status, &["strict-cpu-reservation", &in_force]);
    let reloads = |result: &str, count: u32| {
        format!("nri_cpu_manager_config_reloads_total{{result=\"{result}\"}} {count}\n")
    };
    script.says(Step::Fetch("/metrics".to_owned()), &[&reloads("applied", 1)]);
    // New containers are placed by it.
    if threads > 1 && shape.topology.cpus_per_core() > 1 {
        script.refused(Step::Run(exclusive("half", threads - 1)), "SMTAlignmentError");
        script.remove("half");
    }

    let wrong = tight.replace("reservedSystemCPUs", "reservedSystemCPU");
    script.does(Step::SwapConfig(wrong));
    script.does(Step::WaitFor("rejected, the last good one stays in force".to_owned(), 1));
    let fault = "line 2: unknown field \"reservedSystemCPU\"";
    script.says(Step::Log, &[fault]);
    script.says(Step::Status, &["ready:    yes", "REJECTED", fault, &in_force]);
    script.says(Step::Fetch("/healthz".to_owned()), &["200 OK", "ok\nwarning: ", fault]);
    script.says(Step::Fetch("/readyz".to_owned()), &["200 OK", "ok\nwarning: ", fault]);
    let rejected = [
        "nri_cpu_manager_config_last_reload_successful 0\n",
        "nri_cpu_manager_config_fault_line 2\n",
        &reloads("rejected", 1),
    ];
    script.says(Step::Fetch("/metrics".to_owned()), &rejected);
    script.unmoved(tightened);
    script.exclusive("new", threads);
    let with_new = script.exclusive_unmoved(before);

    script.does(Step::SwapConfig(tight));
    script.does(Step::WaitFor(CHANGED.to_owned(), 2));
    script.says(Step::Fetch("/healthz".to_owned()), &["200 OK", "\r\n\r\nok\n"]);
    let repaired = ["nri_cpu_manager_config_last_reload_successful 1\n", &reloads("unchanged", 1)];
    script.says(Step::Fetch("/metrics".to_owned()), &repaired);
    script.unmoved(with_new);
    Some(script)
}

/// From a shared pool with the reserved CPUs to one without, across a restart of the plugin.
pub(super) fn restart(shape: &Shape) -> Option<Script> {
    let mut script = Script::new(shape);
    script.plugin(shape.config(""));
    let before = some_pods(&mut script);
    script.does(Step::SwapConfig(shape.config(STRICT)));
    script.does(Step::KillPlugin);
    caught_up(&mut script);
    script.strict();
    script.exclusive_unmoved(before);
    script.remove("cache");
    script.exclusive("new", 1);
    script.exclusive_unmoved(before);
    Some(script)
}

/// The CPUs of a busy exclusive container become reserved: it must leave them before shared
/// containers get them, and those must leave its new CPUs first.
pub(super) fn reserved(shape: &Shape) -> Option<Script> {
    let size = (shape.room() / 2).min(2);
    if size == 0 {
        return None;
    }
    // At first only these can be exclusive, so that db has them on every machine.
    let own = shape.free() - shape.free().lowest(shape.room() - size);
    let reserving = |reserved| Shape { reserved, ..shape.clone() };
    let narrow = reserving(shape.online() - own);
    let wide = reserving(shape.reserved | own);
    let mut script = Script::new(&narrow);
    script.plugin(narrow.config(""));
    script.shared("web");
    script.does(Step::RunBusy(exclusive("db", size)));
    script.reserve(shape.reserved);
    script.does(Step::SwapConfig(shape.config("")));
    script.does(Step::WaitFor(CHANGED.to_owned(), 1));
    script.expect(&[("db", own)]);
    script.reserve(wide.reserved);
    script.watches(vec![
        Step::SwapConfig(wide.config("")),
        Step::WaitFor(CHANGED.to_owned(), 2),
        // Some runtimes get the update only with their next call.
        Step::Run(super::shared("late")),
        Step::Settle(FOLLOWED),
    ]);
    script.view_where(|view| {
        let (allowed, ran) = view.busy("db");
        let (allowed, ran) = (parse(allowed), parse(ran));
        if !ran.is_empty() && ran.is_subset(&allowed) {
            return Ok(());
        }
        Err(format!("db may run on {allowed}, and runs on {ran}"))
    });
    Some(script)
}
