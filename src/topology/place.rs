//! [`Place`]: the domains of a CPU.

/// The domains of an online CPU, as positions in the lists of its [`Topology`](super::Topology)
/// (not the kernel's numbers).
///
/// Positions are dense and in the order of the numbers, so a count per domain is a plain vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) core: u16,
    pub(super) uncore: u16,
    pub(super) node: u16,
    pub(super) socket: u16,
}

impl Place {
    /// Position in [`Topology::cores`](super::Topology::cores).
    pub fn core(self) -> usize {
        self.core.into()
    }

    /// Position in [`Topology::uncores`](super::Topology::uncores).
    pub fn uncore(self) -> usize {
        self.uncore.into()
    }

    /// Position in [`Topology::nodes`](super::Topology::nodes).
    pub fn node(self) -> usize {
        self.node.into()
    }

    /// Position in [`Topology::sockets`](super::Topology::sockets).
    pub fn socket(self) -> usize {
        self.socket.into()
    }
}
