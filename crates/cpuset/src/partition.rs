//! [`PartitionType`]: the type of a cpuset partition, and [`PartitionState`].

use std::fmt;

/// The types of cpuset partitions in `cpuset.cpus.partition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionType {
    /// A separate scheduling domain in which the kernel balances load: for ordinary programs.
    #[default]
    Root,
    /// No load balancing, as with `isolcpus`: for programs that place their own threads.
    Isolated,
}

impl PartitionType {
    pub const ALL: [PartitionType; 2] = [PartitionType::Root, PartitionType::Isolated];

    pub fn name(self) -> &'static str {
        match self {
            PartitionType::Root => "root",
            PartitionType::Isolated => "isolated",
        }
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of `cpuset.cpus.partition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionState {
    /// An ordinary cgroup.
    #[default]
    Member,
    Valid(PartitionType),
    /// A partition that is not in force: the kernel treats it like an ordinary cgroup.
    Invalid(PartitionType),
}

impl PartitionState {
    /// Reads the file's text. The kernel appends a reason to the state of an invalid partition.
    pub fn parse(text: &str) -> Option<PartitionState> {
        if text == "member" {
            return Some(PartitionState::Member);
        }
        let kind = PartitionType::ALL.into_iter().find(|kind| text.starts_with(kind.name()))?;
        let rest = &text[kind.name().len()..];
        if rest.is_empty() {
            Some(PartitionState::Valid(kind))
        } else if rest.starts_with(" invalid") {
            Some(PartitionState::Invalid(kind))
        } else {
            None
        }
    }

    pub fn is_valid(self) -> bool {
        matches!(self, PartitionState::Valid(_))
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionState::Member => f.write_str("member"),
            PartitionState::Valid(kind) => write!(f, "{kind}"),
            PartitionState::Invalid(kind) => write!(f, "{kind} invalid"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_with_or_without_the_kernels_reason() {
        use PartitionState::*;
        use PartitionType::*;
        for (text, state) in [
            ("member", Some(Member)),
            ("root", Some(Valid(Root))),
            ("isolated", Some(Valid(Isolated))),
            ("root invalid (Cpu list in cpuset.cpus not exclusive)", Some(Invalid(Root))),
            ("isolated invalid", Some(Invalid(Isolated))),
            ("rootless", None),
            ("", None),
        ] {
            assert_eq!(PartitionState::parse(text), state, "{text}");
        }
    }
}
