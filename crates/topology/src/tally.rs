//! [`Tally`]: the number of CPUs of a set in each domain of a machine.

/// The domains of an online CPU, as positions in the lists of its [`Topology`](super::Topology)
/// (not the kernel's numbers).
///
/// Positions are dense and in the order of the numbers, so a count per domain is a plain vector.
/// Small numbers suffice: there are no more domains than CPUs, and no more CPUs than
/// [`MAX_CPUS`](cpuset::MAX_CPUS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) core: u16,
    pub(super) uncore: u16,
    pub(super) node: u16,
    pub(super) socket: u16,
}

impl Place {
    pub fn core(self) -> usize {
        self.core.into()
    }

    pub fn uncore(self) -> usize {
        self.uncore.into()
    }

    pub fn node(self) -> usize {
        self.node.into()
    }

    pub fn socket(self) -> usize {
        self.socket.into()
    }
}

/// CPUs counted by domain, each list by position in the list of its [`Topology`](super::Topology).
///
/// Counting takes one pass over the set, and a change of one CPU four additions: far cheaper than
/// intersections of the set with each domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub cores: Vec<usize>,
    pub uncores: Vec<usize>,
    pub nodes: Vec<usize>,
    pub sockets: Vec<usize>,
}

impl Tally {
    pub fn add(&mut self, place: Place) {
        self.each(place, |count| *count += 1);
    }

    pub fn remove(&mut self, place: Place) {
        self.each(place, |count| *count = count.saturating_sub(1));
    }

    /// Whether a set with this tally has whole cores only; `sizes` are those of its machine.
    pub fn is_whole_cores(&self, sizes: &Tally) -> bool {
        self.cores.iter().zip(&sizes.cores).all(|(used, all)| *used == 0 || used == all)
    }

    /// `place` is of the machine that this is a tally of, which has a count for each domain.
    fn each(&mut self, place: Place, change: impl Fn(&mut usize)) {
        change(&mut self.cores[place.core()]);
        change(&mut self.uncores[place.uncore()]);
        change(&mut self.nodes[place.node()]);
        change(&mut self.sockets[place.socket()]);
    }
}
