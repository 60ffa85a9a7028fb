//! [`text()`]: the node in Prometheus' text format.
//!
//! Metrics of the kubelet's CPU manager and topology manager keep their names, types and labels, so
//! that dashboards for them work (the kubelet's own show nothing while its policy is none). All
//! others begin with `nri_cpu_manager_`. docs/metrics.md is the reference for users; a test
//! compares it with this file.

use super::config_state::ConfigState;
use super::counters::{AlignmentType, Counters, CreateOutcome, Histogram};
use super::domains::{live_score, numa_nodes, scattered, uncore_caches};
use super::memory::MemoryStatus;
use super::node::Link;
use super::noise::NoiseFigures;
use super::quiet::QuietFigures;
use super::snapshot::{Node, Snapshot};
use exclusivity::verify;
use ledger::{ContainerCounts, Figures, MoveOutcome, MoveReason, Occasion, Stance};
use noise::{Kind, Visibility};
use placement::quality::LiveScore;
use std::fmt::Display;
use wording::printable;

/// The media type of [`text()`], with the version of the format.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

pub fn text(snapshot: &Snapshot) -> String {
    let mut families = Families::default();
    families.build(&snapshot.runtime);
    if let Some(node) = &snapshot.node {
        let parts = &node.parts;
        families.kubelet(node);
        families.decisions(&parts.counters);
        families.moves(&node.figures);
        families.alignment(node);
        families.drifts(&parts.drift);
        families.exclusivity(&parts.exclusivity, &node.figures);
        families.checkpoint(node);
        families.interrupts(&parts.quiet);
        families.noise(&node.noise);
        families.cpus(node);
        families.memory(node.memory.as_ref(), &parts.counters);
        families.settings(node);
        families.reloads(&parts.config_source);
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

    /// The metrics that a kubelet has, too.
    fn kubelet(&mut self, node: &Node) {
        let (counters, cpus) = (&node.parts.counters, &node.figures.cpus);
        let help = "The number of cpu core allocations which required pinning.";
        self.counter("kubelet_cpu_manager_pinning_requests_total", help, counters.pinning_requests);
        let help = "The number of cpu core allocations which required pinning failed.";
        self.counter("kubelet_cpu_manager_pinning_errors_total", help, counters.pinning_errors);
        // Like the kubelet's: without reserved CPUs and without those that an ended container's pod
        // may use again.
        let pool = cpus.free.len() * 1000;
        let help = "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.";
        self.gauge("kubelet_cpu_manager_shared_pool_size_millicores", help, pool);
        let help =
            "The total number of CPUs exclusively allocated to containers running on this node";
        let exclusive = cpus.exclusive.len();
        self.gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", help, exclusive);
        let nodes = numa_nodes(&node.machine, cpus);
        let allocated = nodes.iter().map(|node| (node.id, node.exclusive.len()));
        let help = "Number of CPUs allocated per NUMA node";
        let samples = by("numa_node", allocated);
        self.gauges("kubelet_cpu_manager_allocation_per_numa", help, samples);
        let aligned = counters.aligned.iter().map(alignment);
        let help = "Cumulative number of aligned compute resources allocated to containers by alignment type.";
        self.counters("kubelet_container_aligned_compute_resources_count", help, aligned);
        let misaligned = counters.misaligned.iter().map(alignment);
        let help = "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.";
        self.counters(
            "kubelet_container_aligned_compute_resources_failure_count",
            help,
            misaligned,
        );
        let admissions = counters.admissions.count();
        let help = "The number of admission requests where resources have to be aligned.";
        self.counter("kubelet_topology_manager_admission_requests_total", help, admissions);
        let refused = counters.decided(CreateOutcome::Refused);
        let help = "The number of admission request failures where resources could not be aligned.";
        self.counter("kubelet_topology_manager_admission_errors_total", help, refused);
        let durations = [histogram(&[], &counters.admissions)];
        let help = "Duration in milliseconds to serve a pod admission request.";
        self.histograms("kubelet_topology_manager_admission_duration_ms", help, durations);
        let source = [("resource_name", "cpu"), ("source", "node")];
        let allocations = [sample(&source, counters.pinning_requests - counters.pinning_errors)];
        let help = "The number of exclusive resource allocations.";
        self.counters("resource_manager_allocations_total", help, allocations);
        let errors = [sample(&source, counters.pinning_errors)];
        let help = "The number of exclusive resource allocations that failed.";
        self.counters("resource_manager_allocation_errors_total", help, errors);
        let assignments = counters.assignments.iter().map(|(assignment, count)| {
            sample(&[("assignment_type", assignment), ("resource_name", "cpu")], count)
        });
        let help = "Cumulative number of containers by type of assignment.";
        self.counters("resource_manager_container_assignments", help, assignments);
    }

    fn decisions(&mut self, counters: &Counters) {
        let handlers = counters.handlers.iter();
        let durations = handlers.map(|(event, times)| histogram(&[("event", event)], times));
        let help = "Time from taking up an event to its answer, the checkpoint's write and the kernel's work included.";
        self.histograms("nri_cpu_manager_handler_duration_seconds", help, durations);
        let decisions = counters.decisions.iter().map(|(outcome, count)| (outcome.name(), count));
        let help = "Containers that were about to be created, by what was decided.";
        self.counters("nri_cpu_manager_decisions_total", help, by("outcome", decisions));
        let help = "Containers and resizes that were refused, by reason.";
        let rejections = by("reason", &counters.rejections);
        self.counters("nri_cpu_manager_rejections_total", help, rejections);
        let help = "Changes for containers that exist, sent along with answers.";
        self.counter("nri_cpu_manager_container_updates_total", help, counters.updates);
    }

    fn moves(&mut self, figures: &Figures) {
        // The ledger has no entry for a reason that has not occurred.
        let moves = MoveReason::ALL
            .map(|reason| (reason.name(), figures.moves.get(&reason).copied().unwrap_or(0)));
        let help = "Containers that were moved to other CPUs while they ran, by reason.";
        self.counters("nri_cpu_manager_moves_total", help, by("reason", moves));
        let rebalance = figures.rebalance.as_ref();
        let totals = rebalance.map(|moves| moves.totals.clone()).unwrap_or_default();
        let kinds = Occasion::ALL
            .iter()
            .flat_map(|occasion| MoveOutcome::ALL.iter().map(move |outcome| (occasion, outcome)));
        let steps = kinds.map(|(occasion, outcome)| {
            let labels = [("occasion", occasion.name()), ("outcome", outcome.name())];
            sample(&labels, totals.of(*occasion, *outcome))
        });
        let help = "Moves of running containers to better CPUs, by occasion and outcome.";
        self.counters("nri_cpu_manager_rebalance_moves_total", help, steps);
        let help = "CPUs that containers got by moves to better CPUs.";
        self.counter("nri_cpu_manager_rebalance_cpus_total", help, totals.cpus);
        let help = "Containers that may move to better CPUs now.";
        self.gauge(
            "nri_cpu_manager_rebalance_moves_left",
            help,
            rebalance.map_or(0, |moves| moves.moves_left),
        );
    }

    /// The placement quality of containers that have not ended.
    fn alignment(&mut self, node: &Node) {
        let LiveScore {
            containers,
            fit_one_uncore_cache,
            in_one_uncore_cache,
            excess_uncore_caches,
            excess_numa_nodes,
            shared_cores,
            samples: _,
        } = live_score(&node.machine, node.containers.iter().map(|one| &one.view));
        let help = "Containers with exclusive CPUs that exist: all, those no larger than the largest uncore cache, and those of them in one.";
        let counts = [
            ("all", containers),
            ("fit_one_uncore_cache", fit_one_uncore_cache),
            ("in_one_uncore_cache", in_one_uncore_cache),
        ];
        self.gauges("nri_cpu_manager_exclusive_containers", help, by("alignment", counts));
        let help = "Uncore caches and NUMA nodes of containers with exclusive CPUs beyond the fewest possible.";
        let excess = [("uncore_cache", excess_uncore_caches), ("numa_node", excess_numa_nodes)];
        self.gauges("nri_cpu_manager_excess_domains", help, by("boundary", excess));
        let help = "Cores that containers with exclusive CPUs share with another one.";
        self.gauge("nri_cpu_manager_split_cores", help, shared_cores);
    }

    fn drifts(&mut self, own: &verify::Figures) {
        let help = "Times that something was set otherwise than decided, by kind.";
        self.counters("nri_cpu_manager_drifts_total", help, by("kind", &own.drifts));
        let repairs = own
            .repairs
            .iter()
            .map(|((kind, action), count)| sample(&[("action", action), ("kind", kind)], count));
        let help = "What was done about drifts, by kind and action.";
        self.counters("nri_cpu_manager_drift_repairs_total", help, repairs);
        let help = "Times that the CFS quota of a pod with exclusive CPUs was lifted after the kubelet or systemd had set it again.";
        self.counter(
            "nri_cpu_manager_pod_quotas_lifted_again_total",
            help,
            own.pod_quotas_lifted_again,
        );
        let help = "Containers that are not as decided despite repairs.";
        self.gauge("nri_cpu_manager_drifting_containers", help, own.drifting);
        let help = "Containers that were not as decided at the last check pass, as the runtime is still about to change them.";
        self.gauge("nri_cpu_manager_late_containers", help, own.late);
        let help = "Times that a check pass found a container which the runtime was still about to change.";
        self.counter("nri_cpu_manager_late_findings_total", help, own.times_late);
        let help = "How long the runtime takes to change a container, on the average of late; 0 before that was measured.";
        let takes = own.change_seconds.unwrap_or_default();
        self.gauge("nri_cpu_manager_runtime_change_seconds", help, takes);
    }

    fn exclusivity(&mut self, own: &exclusivity::Figures, figures: &Figures) {
        let help = "Times that the kernel made no partition for a container; cgroups keep others off its CPUs instead.";
        self.counter("nri_cpu_manager_partition_refusals_total", help, own.partition_refusals);
        let writable = u8::from(own.cannot_write.is_none());
        let help =
            "Whether control groups can be written; if not, the runtime alone can repair drifts.";
        self.gauge("nri_cpu_manager_cgroups_writable", help, writable);
        let help = "Times that a control group could not be written.";
        self.counter("nri_cpu_manager_cgroup_write_errors_total", help, own.write_errors);
        let help = "Writes of the shared pool into the groups above containers.";
        self.counter("nri_cpu_manager_pool_writes_total", help, own.pool_writes);
        let help = "Whether the runtime keeps exclusivity though groups were to.";
        self.gauge(
            "nri_cpu_manager_exclusivity_fallback",
            help,
            u8::from(own.given_up(figures.mechanism).is_some()),
        );
        let help = "Cgroups that cannot be relied on at present: those below are bound one by one.";
        self.gauge("nri_cpu_manager_distrusted_cgroups", help, own.distrusted_cgroups.len());
        let help =
            "Pods that the runtime keeps off exclusive CPUs though cgroups do so for others.";
        self.gauge("nri_cpu_manager_unbound_pods", help, own.unbound_pods.len());
    }

    fn checkpoint(&mut self, node: &Node) {
        let errors = node.parts.counters.checkpoint_errors;
        let help = "Times that the checkpoint could not be written.";
        self.counter("nri_cpu_manager_checkpoint_errors_total", help, errors);
        let current = u8::from(node.parts.checkpoint.error.is_none());
        let help = "Whether the last write of the checkpoint succeeded.";
        self.gauge("nri_cpu_manager_checkpoint_current", help, current);
    }

    fn interrupts(&mut self, quiet: &QuietFigures) {
        let report = &quiet.report;
        let states = [
            ("away", report.away.len()),
            ("pending", report.pending.len()),
            ("refused", report.refused.len() + report.nowhere.len()),
        ];
        let help = "Device interrupts that could fire on CPUs of containers which want none: kept away, leaving when they fire next, and those that stay.";
        self.gauges("nri_cpu_manager_interrupts", help, by("state", states));
        let help = "Times that another program's value of an interrupt or latency knob of exclusive CPUs was replaced, by kind.";
        self.counters("nri_cpu_manager_quiet_drifts_total", help, by("kind", &quiet.drifts));
        let works = u8::from(quiet.troubles().is_empty());
        let help = "Whether interrupts and latency knobs of exclusive CPUs can be set, where containers ask for that.";
        self.gauge("nri_cpu_manager_quiet_working", help, works);
    }

    /// Nothing for CPUs that were never exclusive.
    fn noise(&mut self, noise: &NoiseFigures) {
        let kinds = || {
            let totals = noise.totals.iter();
            totals.flat_map(|(cpu, of_cpu)| {
                of_cpu.kinds.iter().map(move |(kind, one)| (cpu, *kind, one))
            })
        };
        let of = |cpu: &usize, kind: Kind, value: String| {
            sample(&[("cpu", &cpu.to_string()), ("kind", kind.word())], value)
        };
        let help = "Interrupts, softirqs, and context switches of threads on exclusive CPUs that are not their container's.";
        let counts = kinds().map(|(cpu, kind, one)| of(cpu, kind, one.count.to_string()));
        self.counters("nri_cpu_manager_noise_events_total", help, counts);
        let help =
            "CPU time of threads that were seen on exclusive CPUs and are not their container's.";
        let threads = kinds().filter(|(_, kind, _)| kind.is_thread());
        let seconds = threads
            .map(|(cpu, kind, one)| of(cpu, kind, (one.milliseconds as f64 / 1000.0).to_string()));
        self.counters("nri_cpu_manager_noise_seconds_total", help, seconds);
        let help = "How often threads of containers had to make way on their exclusive CPUs.";
        let switches = noise.totals.iter().map(|(cpu, one)| (cpu, one.involuntary));
        self.counters(
            "nri_cpu_manager_involuntary_context_switches_total",
            help,
            by("cpu", switches),
        );
        let help = "Exclusive CPUs on which something unexpected ran or fired in the last minute.";
        self.gauge("nri_cpu_manager_noisy_cpus", help, noise.noisy().len());
        let visibility = noise.recent.as_ref().map(|recent| recent.visibility);
        let threads = Visibility::ALL.map(|one| (one.word(), u8::from(visibility == Some(one))));
        let help = "1 for what is visible on exclusive CPUs at present; all are 0 while nothing is observed.";
        self.gauges("nri_cpu_manager_noise_visibility", help, by("visibility", threads));
    }

    fn cpus(&mut self, node: &Node) {
        let figures = &node.figures;
        let cpus = &figures.cpus;
        let states = [
            ("exclusive", cpus.exclusive),
            ("free", cpus.free),
            ("isolated", cpus.isolated),
            ("isolated_free", cpus.isolated_free),
            ("online", cpus.online),
            ("reserved", cpus.reserved),
            ("shared", cpus.shared),
        ];
        let states = states.map(|(state, cpus)| (state, cpus.len()));
        let help = "CPUs by state; one may be in several.";
        self.gauges("nri_cpu_manager_cpus", help, by("state", states));
        let help = "CPUs of other programs' cpuset partitions, which no container can run on.";
        self.gauge(
            "nri_cpu_manager_foreign_partition_cpus",
            help,
            node.parts.exclusivity.foreign().len(),
        );
        let caches = uncore_caches(&node.machine, cpus);
        let nodes = numa_nodes(&node.machine, cpus);
        let help = "CPUs of an uncore cache that could become exclusive now.";
        let free = by("uncore_cache", caches.iter().map(|cache| (cache.id, cache.free.len())));
        self.gauges("nri_cpu_manager_uncore_cache_free_cpus", help, free);
        let help = "CPUs of an uncore cache that are exclusive.";
        let exclusive =
            by("uncore_cache", caches.iter().map(|cache| (cache.id, cache.exclusive.len())));
        self.gauges("nri_cpu_manager_uncore_cache_exclusive_cpus", help, exclusive);
        let help = "CPUs of a NUMA node that could become exclusive now.";
        let free = by("numa_node", nodes.iter().map(|node| (node.id, node.free.len())));
        self.gauges("nri_cpu_manager_numa_node_free_cpus", help, free);
        let help = "CPUs of a NUMA node that are exclusive.";
        let exclusive = by("numa_node", nodes.iter().map(|node| (node.id, node.exclusive.len())));
        self.gauges("nri_cpu_manager_numa_node_exclusive_cpus", help, exclusive);
        let by_boundary = [("numa_node", &nodes), ("uncore_cache", &caches)];
        let by_boundary = by_boundary.map(|(name, domains)| (name, scattered(cpus, domains)));
        let help = "How scattered free CPUs are: 0 as close together as so many can be, towards 1 in ever smaller pieces.";
        self.gauges("nri_cpu_manager_fragmentation", help, by("boundary", by_boundary));
        let ContainerCounts { exclusive, shared, reserved } =
            ContainerCounts::of(node.containers.iter().map(|one| &one.view));
        let containers = [("exclusive", exclusive), ("reserved", reserved), ("shared", shared)];
        let help = "Containers that exist, by where they run.";
        self.gauges("nri_cpu_manager_containers", help, by("state", containers));
        self.gauge("nri_cpu_manager_pods", "Pods that exist.", figures.pods);
        let help = "Pods that wait for exclusive CPUs after several refusals for lack of CPUs.";
        self.gauge("nri_cpu_manager_pods_lacking_cpus", help, figures.pods_lacking_cpus);
    }

    /// Nothing where memory is not counted.
    fn memory(&mut self, memory: Option<&MemoryStatus>, counters: &Counters) {
        let Some(memory) = memory else { return };
        let help = "The number of memory pages allocations which required pinning.";
        let requests = counters.memory_requests;
        self.counter("kubelet_memory_manager_pinning_requests_total", help, requests);
        let help = "The number of memory pages allocations which required pinning that failed.";
        let errors = counters.memory_errors;
        self.counter("kubelet_memory_manager_pinning_errors_total", help, errors);
        let nodes = || memory.numa_nodes.iter();
        let help = "Memory of a NUMA node for containers, by type.";
        let all = nodes().map(|one| of_node(one.id, &one.kind, one.allocatable));
        self.gauges("nri_cpu_manager_memory_allocatable_bytes", help, all);
        let help = "Memory that is allocated to containers, by NUMA node and type; under several nodes that of containers which have these together.";
        let alone = nodes().map(|one| of_node(one.id, &one.kind, one.allocated));
        let together =
            memory.together.iter().map(|one| of_node(one.list(), &one.kind, one.allocated));
        self.gauges("nri_cpu_manager_memory_allocated_bytes", help, alone.chain(together));
        let help = "The largest request for memory that fits a NUMA node alone, by type.";
        let free = nodes().map(|one| of_node(one.id, &one.kind, one.free));
        self.gauges("nri_cpu_manager_memory_free_bytes", help, free);
        let types = || memory.types.iter();
        let help = "The largest request for memory that fits all NUMA nodes together, by type.";
        let free = by("type", types().map(|one| (&one.kind, one.free)));
        self.gauges("nri_cpu_manager_memory_free_in_all_nodes_bytes", help, free);
        let help = "How scattered free memory is: 0 if one NUMA node has all that one could have, towards 1 in ever smaller pieces.";
        let scattered = by("type", types().map(|one| (&one.kind, one.fragmentation)));
        self.gauges("nri_cpu_manager_memory_fragmentation", help, scattered);
    }

    fn settings(&mut self, node: &Node) {
        let config = &node.config;
        let reserved = node.figures.cpus.reserved.to_string();
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
        let help = "Always 1; the configuration in force is in the labels.";
        self.gauges("nri_cpu_manager_config_info", help, [sample(&labels, 1)]);
        let nothing = u8::from(node.parts.config_source.nothing_to_assign.is_some());
        let help = "Whether all CPUs of the machine are reserved, so that no container gets exclusive ones.";
        self.gauge("nri_cpu_manager_nothing_to_assign", help, nothing);
        let stances = [Stance::Assign, Stance::Refuse, Stance::Observe];
        let stances =
            stances.map(|stance| (stance.name(), u8::from(node.figures.stance == stance)));
        let help = "1 for what is done at present: CPUs are assigned; or the kubelet assigns them, and new exclusive containers are refused or only observed.";
        self.gauges("nri_cpu_manager_stance", help, by("stance", stances));
    }

    /// The first two have the names of Prometheus' own metrics of its configuration.
    fn reloads(&mut self, config: &ConfigState) {
        let in_force = u8::from(config.fault.is_none());
        let help =
            "Whether the configuration that is there is in force; if not, the last good one is.";
        self.gauge("nri_cpu_manager_config_last_reload_successful", help, in_force);
        let loaded = config.loaded.0;
        let help = "When the configuration in force was read.";
        self.gauge("nri_cpu_manager_config_last_reload_success_timestamp_seconds", help, loaded);
        let line = config.fault.as_ref().and_then(|fault| fault.line);
        let help = "The line at fault of a configuration that cannot be used; 0 if there is none.";
        self.gauge("nri_cpu_manager_config_error_line", help, line.unwrap_or(0));
        let help = "Fields of the configuration that were changed and are followed only after a restart of the plugin.";
        self.gauge("nri_cpu_manager_config_fields_waiting_for_restart", help, config.waiting.len());
        let help = "Changes of the configuration, by what became of them.";
        let reloads = by("result", &config.reloads);
        self.counters("nri_cpu_manager_config_reloads_total", help, reloads);
    }
}

fn alignment((&(scope, boundary), count): (&AlignmentType, &u64)) -> String {
    sample(&[("boundary", boundary), ("scope", scope)], count)
}

fn of_node(node: impl Display, kind: &str, value: u64) -> String {
    sample(&[("numa_node", &node.to_string()), ("type", kind)], value)
}

/// Samples with one label.
fn by(label: &str, samples: impl IntoIterator<Item = (impl Display, impl Display)>) -> Vec<String> {
    let samples = samples.into_iter();
    samples.map(|(name, value)| sample(&[(label, &name.to_string())], value)).collect()
}

/// The rest of a line after the name of its metric.
fn sample(labels: &[(&str, &str)], value: impl Display) -> String {
    if labels.is_empty() {
        return format!(" {value}");
    }
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}} {value}", labels.join(","))
}

fn escaped(value: &str) -> String {
    printable(&value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\""))
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
    use super::super::noise::{NoiseTotal, NoiseTotals};
    use super::*;
    use ledger::{Ledger, Settings};
    use machines::synthetic::Machine;
    use noise::{ContainerNoise, CpuNoise, NoiseReport, Verdict};
    use placement::memory_manager::{Amounts, Capacity, NodeMemory};

    #[test]
    fn a_hostile_label_stays_in_its_line() {
        let line = sample(&[("name", "a\"b\\c\nd"), ("nri", "")], 1.5);
        assert_eq!(line, r#"{name="a\"b\\c\nd",nri=""} 1.5"#);
    }

    #[test]
    fn memory_has_metrics_only_where_it_is_counted() {
        let machine: Machine = "pack:2 core:2".parse().unwrap();
        let topology = machine.topology().unwrap();
        let text = |memory: Option<Capacity>| {
            let settings = Settings { memory, ..Settings::default() };
            let ledger = Ledger::new(topology.clone(), settings, Vec::new());
            let mut families = Families::default();
            let counters = Counters { memory_requests: 3, ..Counters::default() };
            families.memory(MemoryStatus::of(&ledger.view()).as_ref(), &counters);
            families.0
        };
        assert_eq!(text(None), "");
        let node = |id| NodeMemory {
            id,
            total: 100,
            huge_pages: Amounts::new(),
            reserved: Amounts::new(),
        };
        let text = text(Some(Capacity::new((0..2).map(node)).unwrap()));
        for line in [
            "kubelet_memory_manager_pinning_requests_total 3",
            "kubelet_memory_manager_pinning_errors_total 0",
            r#"nri_cpu_manager_memory_allocatable_bytes{numa_node="1",type="memory"} 100"#,
            r#"nri_cpu_manager_memory_allocated_bytes{numa_node="0",type="memory"} 0"#,
            r#"nri_cpu_manager_memory_free_bytes{numa_node="1",type="memory"} 100"#,
            r#"nri_cpu_manager_memory_free_in_all_nodes_bytes{type="memory"} 200"#,
            r#"nri_cpu_manager_memory_fragmentation{type="memory"} 0"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn noise_has_metrics_for_cpus_that_were_exclusive() {
        let text = |noise: &NoiseFigures| {
            let mut families = Families::default();
            families.noise(noise);
            families.0
        };
        let nothing = text(&NoiseFigures::default());
        assert!(!nothing.contains("{cpu"), "{nothing}");
        let total = |count, milliseconds| NoiseTotal { count, milliseconds };
        let kinds = [
            (Kind::HostProcess, total(12, 1040)),
            (Kind::DeviceInterrupt, total(7, 0)),
            (Kind::PerCpuThread, total(3, 10)),
        ];
        let totals = [(4, NoiseTotals { kinds: kinds.into(), involuntary: 5 })].into();
        let noise = |verdict| CpuNoise {
            cpu: 4,
            verdict,
            findings: Vec::new(),
            expected: Vec::new(),
            involuntary_context_switches: None,
        };
        let container = ContainerNoise {
            name: "ns/db/main".to_owned(),
            cpus: "4".parse().unwrap(),
            by_cpu: vec![noise(Verdict::Noisy)],
        };
        let recent = NoiseReport {
            version: noise::VERSION,
            seconds: 60.0,
            samples: 7,
            visibility: Visibility::Host,
            threads_read: 800,
            threads_unread: 0,
            sample_milliseconds: Some(8),
            interrupts_error: None,
            containers: vec![container],
        };
        let text = text(&NoiseFigures { recent: Some(recent), totals, obstacle: None });
        for line in [
            r#"nri_cpu_manager_noise_events_total{cpu="4",kind="host_process"} 12"#,
            r#"nri_cpu_manager_noise_events_total{cpu="4",kind="device_interrupt"} 7"#,
            r#"nri_cpu_manager_noise_seconds_total{cpu="4",kind="host_process"} 1.04"#,
            r#"nri_cpu_manager_noise_seconds_total{cpu="4",kind="per_cpu_thread"} 0.01"#,
            r#"nri_cpu_manager_involuntary_context_switches_total{cpu="4"} 5"#,
            "nri_cpu_manager_noisy_cpus 1",
            r#"nri_cpu_manager_noise_visibility{visibility="host"} 1"#,
            r#"nri_cpu_manager_noise_visibility{visibility="processes"} 0"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"noise_seconds_total{cpu="4",kind="device"#), "{text}");
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
