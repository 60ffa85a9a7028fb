//! [`text()`]: the node in Prometheus' text form.
//!
//! Metrics of the kubelet's CPU manager and topology manager keep their names, types and labels, so
//! that dashboards for them work (the kubelet's own show nothing while its policy is none). All
//! others begin with `nri_cpu_manager_`. docs/metrics.md is the reference for users; a test
//! compares it with this file.

use super::config_state::ConfigState;
use super::counters::{AlignmentType, Counters, CreateOutcome, Histogram};
use super::node::{Link, NodeFigures, NodeView, OwnFigures};
use super::status::config::stance_name;
use super::status::{ConfigStatus, CpuStatus, DomainStatus};
use crate::cpuset::CpuSet;
use crate::ledger::{MoveReason, Stance, View};
use std::fmt::Display;

/// The media type of [`text()`], with the version of the format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

pub(crate) fn text(view: &NodeView) -> String {
    let mut families = Families::default();
    families.build(&view.link);
    if let Ok(node) = &view.node {
        families.kubelet(&node.view, &node.own.counters);
        families.decisions(&node.own.counters);
        families.moves(&node.view);
        families.drifts(&node.own);
        families.exclusivity(node);
        families.cpus(&node.view);
        families.settings(node);
        families.reloads(&node.own.config);
    }
    families.0
}

#[derive(Default)]
struct Families(String);

impl Families {
    /// Samples are lines without the family's name, see [`sample`].
    fn add(&mut self, kind: &str, name: &str, help: &str, samples: impl Iterator<Item = String>) {
        let mut samples = samples.peekable();
        // The format has no place for a family without samples.
        if samples.peek().is_some() {
            self.0.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            samples.for_each(|sample| self.0.push_str(&format!("{name}{sample}\n")));
        }
    }

    fn gauges(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = String>) {
        self.add("gauge", name, help, samples.into_iter());
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauges(name, help, [sample(&[], value)]);
    }

    fn counters(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = String>) {
        self.add("counter", name, help, samples.into_iter());
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [sample(&[], value)]);
    }

    fn histograms(&mut self, name: &str, help: &str, all: impl IntoIterator<Item = Vec<String>>) {
        self.add("histogram", name, help, all.into_iter().flatten());
    }

    fn build(&mut self, link: &Link) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "Always 1; the plugin's version is in the label.";
        self.gauges("nri_cpu_manager_build_info", help, [sample(&version, 1)]);
        let help = "Whether the runtime is connected.";
        self.gauge("nri_cpu_manager_connected", help, u8::from(link.connected));
        let help = "Whether the runtime has listed its containers since it connected.";
        self.gauge("nri_cpu_manager_synchronized", help, u8::from(link.synchronized));
        let help = "Connections to the runtime after the first one.";
        let again = link.connections.saturating_sub(1);
        self.counter("nri_cpu_manager_reconnects_total", help, again);
        let runtime = link.runtime.as_ref().map(|runtime| {
            let labels = [
                ("name", &*runtime.name),
                ("nri", &runtime.nri_version),
                ("version", &runtime.version),
            ];
            sample(&labels, 1)
        });
        let help = "Always 1; the runtime that is, or was last, connected is in the labels.";
        self.gauges("nri_cpu_manager_runtime_info", help, runtime);
    }

    /// The kubelet's own metrics.
    fn kubelet(&mut self, view: &View, counters: &Counters) {
        self.counter(
            "kubelet_cpu_manager_pinning_requests_total",
            "The number of cpu core allocations which required pinning.",
            counters.pinning_requests,
        );
        self.counter(
            "kubelet_cpu_manager_pinning_errors_total",
            "The number of cpu core allocations which required pinning failed.",
            counters.pinning_errors,
        );
        self.gauge(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
            // Like the kubelet's: without reserved CPUs and without those that an ended container's
            // pod may use again.
            view.free.len() * 1000,
        );
        self.gauge(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "The total number of CPUs exclusively allocated to containers running on this node",
            view.exclusive.len(),
        );
        self.gauges(
            "kubelet_cpu_manager_allocation_per_numa",
            "Number of CPUs allocated per NUMA node",
            each(&DomainStatus::numa_nodes(view), "numa_node", |node| node.exclusive),
        );
        let aligned = |(&(scope, boundary), &count): (&AlignmentType, &u64)| {
            sample(&[("boundary", boundary), ("scope", scope)], count)
        };
        self.counters(
            "kubelet_container_aligned_compute_resources_count",
            "Cumulative number of aligned compute resources allocated to containers by alignment type.",
            counters.aligned.iter().map(aligned),
        );
        self.counters(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
            counters.misaligned.iter().map(aligned),
        );
        self.counter(
            "kubelet_topology_manager_admission_requests_total",
            "The number of admission requests where resources have to be aligned.",
            counters.admissions.count(),
        );
        self.counter(
            "kubelet_topology_manager_admission_errors_total",
            "The number of admission request failures where resources could not be aligned.",
            counters.decided(CreateOutcome::Refused),
        );
        self.histograms(
            "kubelet_topology_manager_admission_duration_ms",
            "Duration in milliseconds to serve a pod admission request.",
            [histogram(&[], &counters.admissions)],
        );
        let source = [("resource_name", "cpu"), ("source", "node")];
        self.counters(
            "resource_manager_allocations_total",
            "The number of exclusive resource allocations.",
            [sample(&source, counters.pinning_requests - counters.pinning_errors)],
        );
        self.counters(
            "resource_manager_allocation_errors_total",
            "The number of exclusive resource allocations that failed.",
            [sample(&source, counters.pinning_errors)],
        );
        let exclusive = [("assignment_type", "node_exclusive"), ("resource_name", "cpu")];
        self.counters(
            "resource_manager_container_assignments",
            "Cumulative number of containers by type of assignment.",
            [sample(&exclusive, counters.pinning_requests - counters.pinning_errors)],
        );
    }

    fn decisions(&mut self, counters: &Counters) {
        let handlers = counters.handlers.iter();
        self.histograms(
            "nri_cpu_manager_handler_duration_seconds",
            "Time from taking up an event to its answer, the checkpoint's write and the kernel's work included.",
            handlers.map(|(event, times)| histogram(&[("event", event)], times)),
        );
        let decisions = counters.decisions.iter();
        self.counters(
            "nri_cpu_manager_decisions_total",
            "Containers that were about to be created, by what was decided.",
            decisions.map(|(outcome, count)| sample(&[("outcome", outcome.name())], *count)),
        );
        let rejections = counters.rejections.iter();
        self.counters(
            "nri_cpu_manager_rejections_total",
            "Containers and resizes that were refused, by reason.",
            rejections.map(|(reason, count)| sample(&[("reason", reason)], *count)),
        );
        self.counter(
            "nri_cpu_manager_updates_total",
            "Changes for containers that exist, sent along with answers.",
            counters.updates,
        );
    }

    fn moves(&mut self, view: &View) {
        let moves = MoveReason::ALL.into_iter().map(|reason| {
            let count = view.moves.get(&reason).copied().unwrap_or(0);
            sample(&[("reason", reason.name())], count)
        });
        let help = "Containers that were moved to other CPUs while they ran, by reason.";
        self.counters("nri_cpu_manager_moves_total", help, moves);
    }

    fn drifts(&mut self, own: &OwnFigures) {
        let drifts = own.drifts.iter();
        self.counters(
            "nri_cpu_manager_drifts_total",
            "Times that something was set otherwise than decided, by kind.",
            drifts.map(|(kind, count)| sample(&[("kind", kind)], *count)),
        );
        let repairs = own.repairs.iter();
        self.counters(
            "nri_cpu_manager_drift_repairs_total",
            "What was done about drifts, by kind and action.",
            repairs.map(|((kind, action), count)| {
                sample(&[("action", action), ("kind", kind)], *count)
            }),
        );
        self.gauge(
            "nri_cpu_manager_drifting_containers",
            "Containers that were not as decided at the last look.",
            own.drifting,
        );
        self.gauge(
            "nri_cpu_manager_late_containers",
            "Containers that were not as decided at the last look, as the runtime is still about to change them.",
            own.late,
        );
        self.counter(
            "nri_cpu_manager_late_total",
            "Times that a look found a container which the runtime was still about to change.",
            own.times_late,
        );
        let takes = own.change_takes.unwrap_or_default();
        self.gauges(
            "nri_cpu_manager_runtime_change_seconds",
            "How long the runtime takes to change a container, on the average of late; 0 before that was measured.",
            [sample(&[], takes.as_secs_f64())],
        );
    }

    fn exclusivity(&mut self, node: &NodeFigures) {
        let own = &node.own;
        self.counter(
            "nri_cpu_manager_kernel_refusals_total",
            "Times that the kernel made no partition for a container; cgroups keep others off its CPUs instead.",
            own.kernel_refusals,
        );
        self.gauge(
            "nri_cpu_manager_cgroups_writable",
            "Whether control groups can be written; if not, the runtime alone can repair drifts.",
            u8::from(own.cannot_write_groups.is_none()),
        );
        self.counter(
            "nri_cpu_manager_cgroup_write_errors_total",
            "Times that a control group could not be written.",
            own.group_write_errors,
        );
        self.counter(
            "nri_cpu_manager_pool_writes_total",
            "Writes of the shared pool into the groups above containers.",
            own.pool_writes,
        );
        self.gauge(
            "nri_cpu_manager_groups_given_up",
            "Whether the runtime keeps exclusivity though groups were to.",
            u8::from(node.given_up().is_some()),
        );
        self.gauge(
            "nri_cpu_manager_distrusted_groups",
            "Cgroups that cannot be relied on at present: those below are bound one by one.",
            own.distrusted_groups.len(),
        );
        self.gauge(
            "nri_cpu_manager_unbound_pods",
            "Pods that the runtime keeps off exclusive CPUs though cgroups do so for others.",
            own.unbound_pods.len(),
        );
        self.counter(
            "nri_cpu_manager_checkpoint_errors_total",
            "Times that the checkpoint could not be written.",
            own.counters.checkpoint_errors,
        );
        self.gauge(
            "nri_cpu_manager_checkpoint_current",
            "Whether the last write of the checkpoint succeeded.",
            u8::from(own.checkpoint_error.is_none()),
        );
    }

    fn cpus(&mut self, view: &View) {
        let cpus = CpuStatus::of(view);
        let states = [
            ("exclusive", cpus.exclusive),
            ("free", cpus.free),
            ("online", cpus.online),
            ("reserved", cpus.reserved),
            ("shared", cpus.shared),
        ];
        self.gauges(
            "nri_cpu_manager_cpus",
            "CPUs by state; one may be in several.",
            states.map(|(state, cpus)| sample(&[("state", state)], cpus.len())),
        );
        let caches = DomainStatus::uncore_caches(view);
        let nodes = DomainStatus::numa_nodes(view);
        self.gauges(
            "nri_cpu_manager_uncore_free_cpus",
            "CPUs of an uncore cache that could become exclusive now.",
            each(&caches, "uncore", |cache| cache.free),
        );
        self.gauges(
            "nri_cpu_manager_uncore_exclusive_cpus",
            "CPUs of an uncore cache that are exclusive.",
            each(&caches, "uncore", |cache| cache.exclusive),
        );
        self.gauges(
            "nri_cpu_manager_numa_free_cpus",
            "CPUs of a NUMA node that could become exclusive now.",
            each(&nodes, "numa_node", |node| node.free),
        );
        self.gauges(
            "nri_cpu_manager_numa_exclusive_cpus",
            "CPUs of a NUMA node that are exclusive.",
            each(&nodes, "numa_node", |node| node.exclusive),
        );
        let scattered = [("numa_node", &nodes), ("uncore_cache", &caches)];
        self.gauges(
            "nri_cpu_manager_fragmentation",
            "How scattered free CPUs are: 0 as close together as so many can be, towards 1 in ever smaller pieces.",
            scattered.map(|(boundary, domains)| {
                let value = DomainStatus::fragmentation(domains, cpus.reserved);
                sample(&[("boundary", boundary)], value)
            }),
        );
        let (exclusive, shared) = view.container_counts();
        let containers = [("exclusive", exclusive), ("shared", shared)];
        self.gauges(
            "nri_cpu_manager_containers",
            "Containers that exist, by where they run.",
            containers.map(|(state, count)| sample(&[("state", state)], count)),
        );
        self.gauge("nri_cpu_manager_pods", "Pods that exist.", view.pods);
    }

    fn settings(&mut self, node: &NodeFigures) {
        let config = ConfigStatus::in_force(node);
        let reserved = node.view.settings.placement.reserved.to_string();
        let labels = [
            ("cpu_manager_policy", config.cpu_manager_policy.as_str()),
            ("cpu_manager_policy_options", &config.cpu_manager_policy_options),
            ("exclusivity", &config.exclusivity),
            ("reserved_cpus", &reserved),
            ("strict", if config.strict { "true" } else { "false" }),
            ("topology_manager_policy", &config.topology_manager_policy),
            ("topology_manager_policy_options", &config.topology_manager_policy_options),
            ("topology_manager_scope", &config.topology_manager_scope),
        ];
        self.gauges(
            "nri_cpu_manager_config_info",
            "Always 1; the configuration in force is in the labels.",
            [sample(&labels, 1)],
        );
        let stances = [Stance::Assign, Stance::Refuse, Stance::Observe];
        self.gauges(
            "nri_cpu_manager_stance",
            "1 for what is done at present: CPUs are assigned; or the kubelet assigns them, and new exclusive containers are refused or only observed.",
            stances.map(|stance| {
                sample(&[("stance", stance_name(stance))], u8::from(node.view.stance == stance))
            }),
        );
    }

    /// The first two have the names of Prometheus' own metrics of its configuration.
    fn reloads(&mut self, config: &ConfigState) {
        self.gauge(
            "nri_cpu_manager_config_last_reload_successful",
            "Whether the configuration that is there is in force; if not, the last good one is.",
            u8::from(config.fault.is_none()),
        );
        self.gauges(
            "nri_cpu_manager_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            [sample(&[], config.loaded.0)],
        );
        let line = config.fault.as_ref().and_then(|fault| fault.line);
        self.gauge(
            "nri_cpu_manager_config_fault_line",
            "The line at fault of a configuration that cannot be used; 0 if there is none.",
            line.unwrap_or(0),
        );
        self.gauge(
            "nri_cpu_manager_config_fields_waiting_for_restart",
            "Fields of the configuration that were changed and are followed only after a restart of the plugin.",
            config.waiting.len(),
        );
        self.counters(
            "nri_cpu_manager_config_reloads_total",
            "Changes of the configuration, by what became of them.",
            config.reloads.iter().map(|(result, count)| sample(&[("result", result)], *count)),
        );
    }
}

/// Of each domain, its number in a label and how many of these CPUs it has.
fn each(domains: &[DomainStatus], label: &str, cpus: fn(&DomainStatus) -> CpuSet) -> Vec<String> {
    let domains = domains.iter();
    domains.map(|one| sample(&[(label, &one.id.to_string())], cpus(one).len())).collect()
}

/// A line behind the name of its metric.
fn sample(labels: &[(&str, &str)], value: impl Display) -> String {
    if labels.is_empty() {
        return format!(" {value}");
    }
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}} {value}", labels.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
}

fn histogram(labels: &[(&str, &str)], values: &Histogram) -> Vec<String> {
    let bucket = |bound: String, count: u64| {
        let labels = [labels, &[("le", bound.as_str())]].concat();
        format!("_bucket{}", sample(&labels, count))
    };
    let mut lines: Vec<String> =
        values.cumulative().map(|(bound, count)| bucket(bound.to_string(), count)).collect();
    lines.push(bucket("+Inf".to_owned(), values.count()));
    lines.push(format!("_sum{}", sample(labels, values.sum())));
    lines.push(format!("_count{}", sample(labels, values.count())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_label_stays_in_its_line() {
        let line = sample(&[("name", "a\"b\\c\nd"), ("nri", "")], 1.5);
        assert_eq!(line, r#"{name="a\"b\\c\nd",nri=""} 1.5"#);
    }

    #[test]
    fn a_histogram_counts_up_to_infinity() {
        let mut values = Histogram::new(&[0.5, 2.0]);
        values.observe(1.0);
        values.observe(4.0);
        let lines = [
            r#"_bucket{event="create",le="0.5"} 0"#,
            r#"_bucket{event="create",le="2"} 1"#,
            r#"_bucket{event="create",le="+Inf"} 2"#,
            r#"_sum{event="create"} 5"#,
            r#"_count{event="create"} 2"#,
        ];
        assert_eq!(histogram(&[("event", "create")], &values), lines);
    }
}
