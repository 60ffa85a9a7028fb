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
        for (from, to, distance) in &self.distances {
            push("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
        arguments
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
        assert!(text.ends_with("-numa dist,src=0,dst=1,val=32"), "{text}");
    }
}
