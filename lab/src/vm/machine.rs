//! Virtual servers, described: sockets, caches, cores, threads, NUMA nodes and what is wrong with them.

/// A machine. CPUs are numbered through threads, cores, dies and sockets, in this order.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What it is called in messages.
    pub name: String,
    /// Sockets.
    pub sockets: usize,
    /// Dies a socket: each has an uncore cache of its own.
    pub dies: usize,
    /// Cores a die.
    pub cores: usize,
    /// Threads a core.
    pub threads: usize,
    /// The CPUs of each NUMA node, in the kernel's list format; empty for one node with everything. A node may have
    /// memory only.
    pub nodes: Vec<String>,
    /// Distances from node to node; those not given are 10 to itself and 20 to others.
    pub distances: Vec<(usize, usize, u8)>,
    /// CPUs to take offline before anything starts.
    pub offline: Vec<usize>,
    /// Memory in MiB.
    pub memory: usize,
}

impl Machine {
    /// One socket, one NUMA node, no SMT: `caches` uncore caches of `cores` CPUs.
    #[must_use]
    pub fn single(name: &str, caches: usize, cores: usize) -> Self {
        Self {
            name: name.to_owned(),
            sockets: 1,
            dies: caches,
            cores,
            threads: 1,
            nodes: Vec::new(),
            distances: Vec::new(),
            offline: Vec::new(),
            memory: 3072,
        }
    }

    /// KEP-4800's worked example: 32 CPUs, four uncore caches.
    #[must_use]
    pub fn kep_4800() -> Self {
        Self::single("kep-4800", 4, 8)
    }

    /// KEP-4800's smaller node: 16 CPUs, two uncore caches.
    #[must_use]
    pub fn kep_4800_small() -> Self {
        Self::single("kep-4800-small", 2, 8)
    }

    /// 8 CPUs that are four cores of two threads.
    #[must_use]
    pub fn smt() -> Self {
        Self { threads: 2, ..Self::single("smt", 1, 4) }
    }

    /// Sockets of several NUMA nodes, no SMT: `cores` CPUs and one uncore cache a node; `near` is the distance between
    /// nodes of a socket, `far` that between sockets.
    #[must_use]
    pub fn numa(
        name: &str,
        sockets: usize,
        nodes: usize,
        cores: usize,
        (near, far): (u8, u8),
    ) -> Self {
        let total = sockets * nodes;
        let distance = |from: usize, to: usize| if from / nodes == to / nodes { near } else { far };
        let pairs = (0..total).flat_map(|from| (0..total).map(move |to| (from, to)));
        Self {
            sockets,
            nodes: (0..total)
                .map(|node| format!("{}-{}", node * cores, (node + 1) * cores - 1))
                .collect(),
            distances: pairs
                .filter(|(from, to)| from != to)
                .map(|(from, to)| (from, to, distance(from, to)))
                .collect(),
            ..Self::single(name, nodes, cores)
        }
    }

    /// All CPUs, online or not.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.sockets * self.dies * self.cores * self.threads
    }

    /// The part of QEMU's command line that gives it this shape.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let Self { sockets, dies, cores, threads, memory, .. } = self;
        let shape = format!(
            "{},sockets={sockets},dies={dies},cores={cores},threads={threads}",
            self.cpus()
        );
        let mut arguments = vec!["-smp".to_owned(), shape, "-m".to_owned(), format!("{memory}M")];
        let mut push = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        let share = if self.nodes.is_empty() { 0 } else { memory / self.nodes.len() };
        for (node, cpus) in self.nodes.iter().enumerate() {
            push("-object", format!("memory-backend-ram,id=memory{node},size={share}M"));
            let ranges: String =
                cpus.split(',').filter(|r| !r.is_empty()).map(|r| format!(",cpus={r}")).collect();
            push("-numa", format!("node,nodeid={node},memdev=memory{node}{ranges}"));
        }
        // QEMU wants all distances or none.
        let all = if self.distances.is_empty() { 0 } else { self.nodes.len() };
        for (from, to) in (0..all).flat_map(|from| (0..all).map(move |to| (from, to))) {
            push("-numa", format!("dist,src={from},dst={to},val={}", self.distance(from, to)));
        }
        arguments
    }

    fn distance(&self, from: usize, to: usize) -> u8 {
        let given = self.distances.iter().find(|(f, t, _)| (*f, *t) == (from, to));
        given.map_or(if from == to { 10 } else { 20 }, |(_, _, distance)| *distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_become_arguments() {
        assert_eq!(
            Machine::kep_4800().arguments(),
            ["-smp", "32,sockets=1,dies=4,cores=8,threads=1", "-m", "3072M"]
        );
        let two_nodes = Machine {
            nodes: vec!["0-3".into(), "4-5,7".into()],
            distances: vec![(0, 1, 32)],
            memory: 2048,
            ..Machine::smt()
        };
        let text = two_nodes.arguments().join(" ");
        assert!(text.contains("-object memory-backend-ram,id=memory1,size=1024M"), "{text}");
        assert!(text.contains("-numa node,nodeid=1,memdev=memory1,cpus=4-5,cpus=7"), "{text}");
        for distance in ["src=0,dst=0,val=10", "src=0,dst=1,val=32", "src=1,dst=0,val=20"] {
            assert!(text.contains(&format!("-numa dist,{distance}")), "{text}");
        }
    }

    #[test]
    fn near_nodes_are_those_of_a_socket() {
        let machine = Machine::numa("numa", 2, 2, 4, (12, 32));
        assert_eq!(machine.cpus(), 16);
        assert_eq!(machine.nodes, ["0-3", "4-7", "8-11", "12-15"]);
        let row = |from| [0, 1, 2, 3].map(|to| machine.distance(from, to));
        assert_eq!([row(0), row(3)], [[10, 12, 32, 32], [32, 32, 12, 10]]);
    }
}
