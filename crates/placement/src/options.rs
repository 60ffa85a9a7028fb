//! [`Options`]: the CPU manager's policy options, by the kubelet's names.

use super::cores::CoreSizes;
use super::strategy::{Distribution, Strategy, UncoreOrder};
use core::time::Duration;
use std::fmt;
use topology::Topology;

/// The options of CPU manager policy `static`. All are off by default.
///
/// All fields except [`uncore_order`](Options::uncore_order) are the kubelet's option names with
/// underscores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers get whole cores only; other requests are refused (KEP-2625).
    pub full_pcpus_only: bool,
    /// Shared containers may not use reserved CPUs either (KEP-4540).
    pub strict_cpu_reservation: bool,
    /// The fewest possible uncore caches, best effort (KEP-4800).
    pub prefer_align_cpus_by_uncorecache: bool,
    /// Equal shares from several NUMA nodes where one is too small (KEP-2902).
    pub distribute_cpus_across_numa: bool,
    /// NUMA nodes of one socket count as aligned (KEP-3327).
    pub align_by_socket: bool,
    /// CPUs of as many cores of a socket as possible (KEP-4176).
    pub distribute_cpus_across_cores: bool,
    /// How long a running container keeps the CPUs that a resize takes away (KEP-6122, a draft);
    /// `None` if the option is not given. Engines ignore it.
    pub scale_delay: Option<Duration>,
    pub uncore_order: UncoreOrder,
}

const FULL_PCPUS_ONLY: &str = "full-pcpus-only";
const STRICT_CPU_RESERVATION: &str = "strict-cpu-reservation";
const UNCORE: &str = "prefer-align-cpus-by-uncorecache";
pub(super) const ACROSS_NUMA: &str = "distribute-cpus-across-numa";
pub(super) const ALIGN_BY_SOCKET: &str = "align-by-socket";
pub(super) const ACROSS_CORES: &str = "distribute-cpus-across-cores";
const SCALE_DELAY: &str = "scale-delay-time";
/// The longest [`Options::scale_delay`].
const MOST_DELAY: Duration = Duration::from_secs(10);

/// What containers get from an option that excludes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    pub option: &'static str,
    /// For the end of a sentence.
    pub gives: &'static str,
}

/// Why policy options are refused, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown CPU Manager Policy option: {0:?}")]
    Unknown(String),
    #[error("bad value for option {0:?}: {1}")]
    Value(String, NotABool),
    #[error(
        "bad value for option {0:?}: {1:?} is no duration from 0s to 10s in whole s or ms, such as 5s or 500ms"
    )]
    Delay(&'static str, String),
    #[error("static policy options {} and {} can not be used at the same time", .0.option, .1.option)]
    Exclusive(Effect, Effect),
    /// Socket alignment allows several NUMA nodes, which policy `single-numa-node` forbids.
    // "Topolgy" is the kubelet's spelling. A search for the message finds the kubelet's
    // documentation.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
    )]
    AlignBySocketPolicy,
    /// Socket alignment on a machine with several sockets in a NUMA node.
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )]
    AlignBySocketMachine,
}

impl OptionError {
    /// The option at fault; the first one of two that contradict each other.
    pub fn option(&self) -> &str {
        match self {
            OptionError::Unknown(name) | OptionError::Value(name, _) => name,
            OptionError::Delay(option, _) => option,
            OptionError::Exclusive(one, _) => one.option,
            OptionError::AlignBySocketPolicy | OptionError::AlignBySocketMachine => ALIGN_BY_SOCKET,
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for name in self.enabled() {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        if let Some(delay) = self.scale_delay {
            write!(f, "{separator}{SCALE_DELAY} {delay:?}")?;
            separator = ", ";
        }
        if self.prefer_align_cpus_by_uncorecache {
            write!(f, " with uncoreCacheOrder {}", self.uncore_order.name())
        } else if separator.is_empty() {
            f.write_str("no options")
        } else {
            Ok(())
        }
    }
}

impl Options {
    pub const NAMES: &'static [&'static str] = &[
        FULL_PCPUS_ONLY,
        STRICT_CPU_RESERVATION,
        UNCORE,
        ACROSS_NUMA,
        ALIGN_BY_SOCKET,
        ACROSS_CORES,
        SCALE_DELAY,
    ];

    /// The kubelet's names of the options that are on.
    pub fn enabled(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            (FULL_PCPUS_ONLY, self.full_pcpus_only),
            (STRICT_CPU_RESERVATION, self.strict_cpu_reservation),
            (UNCORE, self.prefer_align_cpus_by_uncorecache),
            (ACROSS_NUMA, self.distribute_cpus_across_numa),
            (ALIGN_BY_SOCKET, self.align_by_socket),
            (ACROSS_CORES, self.distribute_cpus_across_cores),
        ];
        options.into_iter().filter(|(_, on)| *on).map(|(name, _)| name)
    }

    /// Reads the names and values of `cpuManagerPolicyOptions`.
    pub fn parse<'a>(
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Options, OptionError> {
        let mut parsed = Options::default();
        for (name, value) in options {
            if name == SCALE_DELAY {
                let delay = parse_delay(value);
                let wrong = || OptionError::Delay(SCALE_DELAY, value.to_owned());
                parsed.scale_delay = Some(delay.ok_or_else(wrong)?);
                continue;
            }
            let field = match name {
                FULL_PCPUS_ONLY => &mut parsed.full_pcpus_only,
                STRICT_CPU_RESERVATION => &mut parsed.strict_cpu_reservation,
                UNCORE => &mut parsed.prefer_align_cpus_by_uncorecache,
                ACROSS_NUMA => &mut parsed.distribute_cpus_across_numa,
                ALIGN_BY_SOCKET => &mut parsed.align_by_socket,
                ACROSS_CORES => &mut parsed.distribute_cpus_across_cores,
                _ => return Err(OptionError::Unknown(name.to_owned())),
            };
            *field =
                parse_bool(value).map_err(|error| OptionError::Value(name.to_owned(), error))?;
        }
        parsed.check_exclusive()?;
        Ok(parsed)
    }

    /// Checks that no two options contradict each other. The error names the first contradicting
    /// pair in the kubelet's order.
    pub fn check_exclusive(&self) -> Result<(), OptionError> {
        let full_pcpus_only =
            (self.full_pcpus_only, Effect { option: FULL_PCPUS_ONLY, gives: "whole cores" });
        let across_numa = (
            self.distribute_cpus_across_numa,
            Effect { option: ACROSS_NUMA, gives: "equal shares from several NUMA nodes" },
        );
        let across_cores = (
            self.distribute_cpus_across_cores,
            Effect { option: ACROSS_CORES, gives: "CPUs of as many cores as possible" },
        );
        let uncore = (
            self.prefer_align_cpus_by_uncorecache,
            Effect { option: UNCORE, gives: "CPUs of the fewest possible uncore caches" },
        );
        let pairs = [
            (full_pcpus_only, across_cores),
            (across_numa, across_cores),
            (uncore, across_cores),
            (uncore, across_numa),
        ];
        match pairs.into_iter().find(|(one, other)| one.0 && other.0) {
            Some(((_, one), (_, other))) => Err(OptionError::Exclusive(one, other)),
            None => Ok(()),
        }
    }

    /// How an allocation with these options chooses CPUs on this machine, inside an affinity of
    /// `nodes` NUMA nodes; 0 if there is none.
    pub fn strategy(&self, topology: &Topology, nodes: usize) -> Strategy {
        if self.distribute_cpus_across_numa {
            return Strategy::AcrossNuma(Distribution {
                group: if self.full_pcpus_only {
                    CoreSizes::of(topology, &topology.online()).usual()
                } else {
                    1
                },
                min_nodes: nodes,
                align_by_socket: self.align_by_socket,
            });
        }
        if self.distribute_cpus_across_cores {
            return Strategy::Spread;
        }
        let aligns = self.prefer_align_cpus_by_uncorecache;
        Strategy::Packed { uncore: if aligns { Some(self.uncore_order) } else { None } }
    }
}

/// A text that is not a boolean in Go. The message is that of Go's standard library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.ParseBool: parsing {0:?}: invalid syntax")]
pub struct NotABool(pub String);

fn parse_delay(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number = number.parse().ok()?;
    let delay = match unit {
        "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        _ => return None,
    };
    if delay <= MOST_DELAY { Some(delay) } else { None }
}

/// Reads a boolean as Go, and therefore the kubelet, does.
pub(super) fn parse_bool(text: &str) -> Result<bool, NotABool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(NotABool(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machines::Shape;
    use super::*;

    #[track_caller]
    fn check(options: &[(&str, &str)], expect: Result<Strategy, &str>) {
        let shape = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 2, threads: 2 };
        let strategy = Options::parse(options.iter().copied());
        let strategy = strategy.map(|options| options.strategy(&shape.build(), 2));
        assert_eq!(strategy.map_err(|error| error.to_string()), expect.map_err(String::from));
    }

    #[test]
    fn options_decide_the_strategy() {
        check(&[], Ok(Strategy::Packed { uncore: None }));
        let uncore = Some(UncoreOrder::FewestFree);
        check(&[(UNCORE, "T")], Ok(Strategy::Packed { uncore }));
        check(&[(UNCORE, "1"), (FULL_PCPUS_ONLY, "true")], Ok(Strategy::Packed { uncore }));
        let distribution = Distribution { group: 1, min_nodes: 2, align_by_socket: false };
        check(&[(ACROSS_NUMA, "true")], Ok(Strategy::AcrossNuma(distribution)));
        let by_socket = Distribution { align_by_socket: true, ..distribution };
        let both = [(ACROSS_NUMA, "true"), (ALIGN_BY_SOCKET, "true")];
        check(&both, Ok(Strategy::AcrossNuma(by_socket)));
        let both = [(ACROSS_NUMA, "true"), (FULL_PCPUS_ONLY, "True")];
        let cores = Distribution { group: 2, ..distribution };
        check(&both, Ok(Strategy::AcrossNuma(cores)));
        check(&[(ACROSS_CORES, "TRUE"), (UNCORE, "F")], Ok(Strategy::Spread));
    }

    #[test]
    fn a_delay_has_a_unit_and_a_limit() {
        let read = |text| Options::parse([(SCALE_DELAY, text)]).map(|options| options.scale_delay);
        assert_eq!(read("5s"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(read("250ms"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(read("0s"), Ok(Some(Duration::ZERO)));
        for wrong in
            ["true", "5", "11s", "10001ms", "-1s", "1m", "1.5s", "", "s", "99999999999999999999s"]
        {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with("bad value for option \"scale-delay-time\""), "{error}");
        }
    }

    #[test]
    fn contradicting_and_unknown_options_are_refused_in_the_kubelets_words() {
        for (one, other) in [
            (FULL_PCPUS_ONLY, ACROSS_CORES),
            (ACROSS_NUMA, ACROSS_CORES),
            (UNCORE, ACROSS_CORES),
            (UNCORE, ACROSS_NUMA),
        ] {
            let text =
                format!("static policy options {one} and {other} can not be used at the same time");
            check(&[(other, "true"), (one, "true")], Err(&text));
        }
        check(
            &[(UNCORE, "yes")],
            Err(
                "bad value for option \"prefer-align-cpus-by-uncorecache\": strconv.ParseBool: parsing \"yes\": invalid syntax",
            ),
        );
        check(&[("numa", "true")], Err("unknown CPU Manager Policy option: \"numa\""));
    }
}
