//! [`text()`]: figures in Prometheus' text form.
//!
//! Metrics of the kubelet's CPU manager and topology manager keep their names, types and labels, so
//! that dashboards for them work (the kubelet's own show nothing while its policy is none). All
//! others begin with `nri_cpu_manager_`. docs/metrics.md is the reference for users; a test
//! compares it with this file.

use super::config_state::ConfigState;
use super::counters::{Alignment, Counters, Histogram, Outcome};
use super::figures::{Domain, Figures, Link, NodeFigures};

use super::report::ConfigStatus;
use crate::ledger::Stance;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramSample, LabelPair, Metric, MetricFamily,
    MetricType,
};
use prometheus::{Encoder, TEXT_FORMAT, TextEncoder};

/// The media type of [`text()`].
pub(crate) const MEDIA_TYPE: &str = TEXT_FORMAT;

/// All figures as text.
///
/// # Errors
/// If a name or value has no text form, which is a mistake in this file.
pub(crate) fn text(figures: &Figures) -> Result<Vec<u8>, prometheus::Error> {
    let mut families = Families::default();
    families.build(&figures.link);
    if let Ok(node) = &figures.node {
        families.kubelet(node);
        families.decisions(&node.counters);
        families.trouble(node);
        families.cpus(node);
        families.settings(node);
        families.reloads(&node.config);
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&families.0, &mut text)?;
    Ok(text)
}

type Labels<'a> = &'a [(&'static str, &'a str)];

#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    fn add(&mut self, of: MetricType, name: &str, help: &str, metrics: Vec<Metric>) {
        // The text form has no place for a family without samples.
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_field_type(of);
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn gauges(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Metric>) {
        self.add(MetricType::GAUGE, name, help, samples.into_iter().collect());
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) {
        self.gauges(name, help, [gauge(&[], value as f64)]);
    }

    fn counters(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Metric>) {
        self.add(MetricType::COUNTER, name, help, samples.into_iter().collect());
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [counter(&[], value)]);
    }

    fn histograms(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Metric>) {
        self.add(MetricType::HISTOGRAM, name, help, samples.into_iter().collect());
    }

    fn build(&mut self, link: &Link) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "Always 1; the plugin's version is in the label.";
        self.gauges("nri_cpu_manager_build_info", help, [gauge(&version, 1.0)]);
        let help = "Whether the runtime is connected.";
        self.gauge("nri_cpu_manager_connected", help, link.is_connected().into());
        let help = "Whether the runtime has listed its containers since it connected.";
        self.gauge("nri_cpu_manager_synchronized", help, link.is_synchronized().into());
        let help = "Connections to the runtime after the first one.";
        let again = link.connections().saturating_sub(1);
        self.counter("nri_cpu_manager_reconnects_total", help, again);
        let runtime = link.runtime().map(|runtime| {
            let labels = [
                ("name", &*runtime.name),
                ("nri", &runtime.nri_version),
                ("version", &runtime.version),
            ];
            gauge(&labels, 1.0)
        });
        let help = "Always 1; the runtime that is, or was last, connected is in the labels.";
        self.gauges("nri_cpu_manager_runtime_info", help, runtime);
    }

    /// The kubelet's own metrics.
    fn kubelet(&mut self, node: &NodeFigures) {
        let counters = &node.counters;
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
            node.free.len() * 1000,
        );
        self.gauge(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "The total number of CPUs exclusively allocated to containers running on this node",
            node.exclusive.len(),
        );
        self.gauges(
            "kubelet_cpu_manager_allocation_per_numa",
            "Number of CPUs allocated per NUMA node",
            each(&node.nodes, "numa_node", |domain| domain.exclusive),
        );
        let aligned = |(&(scope, boundary), &count): (&Alignment, &u64)| {
            counter(&[("boundary", boundary), ("scope", scope)], count)
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
            counters.decisions.get(&Outcome::Refused).copied().unwrap_or(0),
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
            [counter(&source, counters.pinning_requests - counters.pinning_errors)],
        );
        self.counters(
            "resource_manager_allocation_errors_total",
            "The number of exclusive resource allocations that failed.",
            [counter(&source, counters.pinning_errors)],
        );
        let exclusive = [("assignment_type", "node_exclusive"), ("resource_name", "cpu")];
        self.counters(
            "resource_manager_container_assignments",
            "Cumulative number of containers by type of assignment.",
            [counter(&exclusive, counters.pinning_requests - counters.pinning_errors)],
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
            decisions.map(|(outcome, count)| counter(&[("outcome", outcome.name())], *count)),
        );
        let rejections = counters.rejections.iter();
        self.counters(
            "nri_cpu_manager_rejections_total",
            "Containers and resizes that were refused, by reason.",
            rejections.map(|(reason, count)| counter(&[("reason", reason)], *count)),
        );
        self.counter(
            "nri_cpu_manager_updates_total",
            "Changes for containers that exist, sent along with answers.",
            counters.updates,
        );
    }

    fn trouble(&mut self, node: &NodeFigures) {
        let moves = node.moves.iter();
        self.counters(
            "nri_cpu_manager_moves_total",
            "Containers that were moved to other CPUs while they ran, by reason.",
            moves.map(|(reason, count)| counter(&[("reason", reason.name())], *count)),
        );
        let drifts = node.drifts.iter();
        self.counters(
            "nri_cpu_manager_drifts_total",
            "Times that something was set otherwise than decided, by kind.",
            drifts.map(|(kind, count)| counter(&[("kind", kind)], *count)),
        );
        let repairs = node.repairs.iter();
        self.counters(
            "nri_cpu_manager_drift_repairs_total",
            "What was done about drifts, by kind and action.",
            repairs.map(|((kind, action), count)| {
                counter(&[("action", action), ("kind", kind)], *count)
            }),
        );
        self.gauge(
            "nri_cpu_manager_drifting_containers",
            "Containers that were not as decided at the last look.",
            node.drifting,
        );
        self.gauge(
            "nri_cpu_manager_late_containers",
            "Containers that were not as decided at the last look, as the runtime is still about to change them.",
            node.late,
        );
        self.counter(
            "nri_cpu_manager_late_total",
            "Times that a look found a container which the runtime was still about to change.",
            node.times_late,
        );
        let takes = node.change_takes.unwrap_or_default();
        self.gauges(
            "nri_cpu_manager_runtime_change_seconds",
            "How long the runtime takes to change a container, on the average of late; 0 before that was measured.",
            [gauge(&[], takes.as_secs_f64())],
        );
        self.counter(
            "nri_cpu_manager_kernel_refusals_total",
            "Times that the kernel made no partition for a container; cgroups keep others off its CPUs instead.",
            node.kernel_refusals,
        );
        self.gauge(
            "nri_cpu_manager_cgroups_writable",
            "Whether control groups can be written; if not, the runtime alone can repair drifts.",
            node.cannot_write_groups.is_none().into(),
        );
        self.counter(
            "nri_cpu_manager_cgroup_write_errors_total",
            "Times that a control group could not be written.",
            node.group_write_errors,
        );
        self.counter(
            "nri_cpu_manager_pool_writes_total",
            "Writes of the shared pool into the groups above containers.",
            node.pool_writes,
        );
        self.gauge(
            "nri_cpu_manager_groups_given_up",
            "Whether the runtime keeps exclusivity though groups were to.",
            node.given_up().is_some().into(),
        );
        self.gauge(
            "nri_cpu_manager_distrusted_groups",
            "Cgroups that cannot be relied on at present: those below are bound one by one.",
            node.distrusted_groups.len(),
        );
        self.gauge(
            "nri_cpu_manager_unbound_pods",
            "Pods that the runtime keeps off exclusive CPUs though cgroups do so for others.",
            node.unbound_pods.len(),
        );
        self.counter(
            "nri_cpu_manager_checkpoint_errors_total",
            "Times that the checkpoint could not be written.",
            node.counters.checkpoint_errors,
        );
        self.gauge(
            "nri_cpu_manager_checkpoint_current",
            "Whether the last write of the checkpoint succeeded.",
            node.checkpoint_error.is_none().into(),
        );
    }

    fn cpus(&mut self, node: &NodeFigures) {
        let reserved = node.settings.placement.reserved;
        let states = [
            ("exclusive", node.exclusive.len()),
            ("free", node.free.len()),
            ("online", node.online.len()),
            ("reserved", reserved.len()),
            ("shared", node.pool.len()),
        ];
        self.gauges(
            "nri_cpu_manager_cpus",
            "CPUs by state; one may be in several.",
            states.map(|(state, count)| gauge(&[("state", state)], count as f64)),
        );
        let help = "CPUs of an uncore cache that could become exclusive now.";
        let free = each(&node.uncores, "uncore", |domain| domain.free);
        self.gauges("nri_cpu_manager_uncore_free_cpus", help, free);
        let help = "CPUs of an uncore cache that are exclusive.";
        let exclusive = each(&node.uncores, "uncore", |domain| domain.exclusive);
        self.gauges("nri_cpu_manager_uncore_exclusive_cpus", help, exclusive);
        let help = "CPUs of a NUMA node that could become exclusive now.";
        let free = each(&node.nodes, "numa_node", |domain| domain.free);
        self.gauges("nri_cpu_manager_numa_free_cpus", help, free);
        let help = "CPUs of a NUMA node that are exclusive.";
        let exclusive = each(&node.nodes, "numa_node", |domain| domain.exclusive);
        self.gauges("nri_cpu_manager_numa_exclusive_cpus", help, exclusive);
        let scattered = [("numa_node", &node.nodes), ("uncore_cache", &node.uncores)];
        self.gauges(
            "nri_cpu_manager_fragmentation",
            "How scattered free CPUs are: 0 as close together as so many can be, towards 1 in ever smaller pieces.",
            scattered.map(|(boundary, domains)| {
                gauge(&[("boundary", boundary)], Domain::fragmentation(domains))
            }),
        );
        let (exclusive, shared) = node.containers;
        let containers = [("exclusive", exclusive), ("shared", shared)];
        self.gauges(
            "nri_cpu_manager_containers",
            "Containers that exist, by where they run.",
            containers.map(|(state, count)| gauge(&[("state", state)], count as f64)),
        );
        self.gauge("nri_cpu_manager_pods", "Pods that exist.", node.pods);
    }

    fn settings(&mut self, node: &NodeFigures) {
        let config = ConfigStatus::in_force(node);
        let reserved = node.settings.placement.reserved.to_string();
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
            [gauge(&labels, 1.0)],
        );
        let stances =
            [("assign", Stance::Assign), ("refuse", Stance::Refuse), ("observe", Stance::Observe)];
        self.gauges(
            "nri_cpu_manager_stance",
            "1 for what is done at present: CPUs are assigned; or the kubelet assigns them, and new exclusive containers are refused or only observed.",
            stances.map(|(name, stance)| {
                gauge(&[("stance", name)], u8::from(node.stance == stance).into())
            }),
        );
    }

    /// The first two have the names of Prometheus' own metrics of its configuration.
    fn reloads(&mut self, config: &ConfigState) {
        self.gauge(
            "nri_cpu_manager_config_last_reload_successful",
            "Whether the configuration that is there is in force; if not, the last good one is.",
            config.fault.is_none().into(),
        );
        self.gauges(
            "nri_cpu_manager_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            [gauge(&[], config.loaded.0 as f64)],
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
            config.reloads.iter().map(|(result, count)| counter(&[("result", result)], *count)),
        );
    }
}

/// A gauge of each domain, its number in a label.
fn each(
    domains: &[Domain],
    label: &'static str,
    value: fn(&Domain) -> usize,
) -> impl Iterator<Item = Metric> {
    domains
        .iter()
        .map(move |domain| gauge(&[(label, &domain.id.to_string())], value(domain) as f64))
}

fn sample(labels: Labels<'_>) -> Metric {
    let pair = |&(name, value): &(&'static str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn gauge(labels: Labels<'_>, value: f64) -> Metric {
    let (mut metric, mut gauge) = (sample(labels), Gauge::default());
    gauge.set_value(value);
    metric.set_gauge(gauge);
    metric
}

fn counter(labels: Labels<'_>, value: u64) -> Metric {
    let (mut metric, mut counter) = (sample(labels), Counter::default());
    counter.set_value(value as f64);
    metric.set_counter(counter);
    metric
}

fn histogram(labels: Labels<'_>, values: &Histogram) -> Metric {
    let (mut metric, mut histogram) = (sample(labels), HistogramSample::default());
    let bucket = |(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    histogram.set_bucket(values.cumulative().map(bucket).collect());
    histogram.set_sample_count(values.count());
    histogram.set_sample_sum(values.sum());
    metric.set_histogram(histogram);
    metric
}
