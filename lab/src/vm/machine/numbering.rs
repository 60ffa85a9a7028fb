//! The order in which a machine's CPUs are numbered.
//!
//! QEMU numbers CPUs by threads, cores, modules, dies and sockets, its firmware lists them in that
//! order, and Linux numbers them as listed. Another list ([`madt`](super::madt)) gives another
//! numbering.

use super::{Level, Machine};

impl Machine {
    pub(super) fn count(&self, level: Level) -> usize {
        match level {
            Level::Threads => self.threads,
            Level::Cores => self.cores,
            Level::Modules => self.modules,
            Level::Dies => self.dies,
            Level::Sockets => self.sockets,
        }
    }

    /// QEMU's number of a CPU.
    pub(super) fn index(&self, cpu: usize) -> usize {
        let mut rest = cpu;
        let mut index = 0;
        for level in &self.numbering {
            let inside = Level::INSIDE_OUT.iter().take_while(|other| *other != level);
            let step: usize = inside.map(|level| self.count(*level)).product();
            index += rest % self.count(*level) * step;
            rest /= self.count(*level);
        }
        index
    }

    /// The APIC id of the CPU with QEMU's number `index`: a bit field per level.
    pub(super) fn apic_id(&self, index: usize) -> usize {
        let mut rest = index;
        let mut id = 0;
        let mut shift = 0;
        for count in Level::INSIDE_OUT.map(|level| self.count(level)) {
            id |= (rest % count) << shift;
            rest /= count;
            shift += count.next_power_of_two().trailing_zeros();
        }
        id
    }

    /// Whether the numbers differ from QEMU's.
    pub(super) fn is_renumbered(&self) -> bool {
        (0..self.cpus()).any(|cpu| self.index(cpu) != cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two dies of one module of three cores of two threads.
    fn machine(numbering: &[Level]) -> Machine {
        Machine {
            sockets: 2,
            threads: 2,
            numbering: numbering.to_vec(),
            ..Machine::single("test", 2, 3)
        }
    }

    #[track_caller]
    fn check(numbering: &[Level], indexes: [usize; 24]) {
        let machine = machine(numbering);
        assert_eq!((0..24).map(|cpu| machine.index(cpu)).collect::<Vec<_>>(), indexes);
        assert_eq!(machine.is_renumbered(), indexes.iter().enumerate().any(|(a, b)| a != *b));
    }

    #[test]
    fn levels_count_in_the_order_of_the_numbering() {
        use Level::{Cores, Dies, Modules, Sockets, Threads};
        check(&Level::INSIDE_OUT, std::array::from_fn(|cpu| cpu));
        // Siblings far apart: all first threads, then all second ones.
        check(
            &[Cores, Modules, Dies, Sockets, Threads],
            std::array::from_fn(|cpu| cpu % 12 * 2 + cpu / 12),
        );
        // Alternating sockets; the single module is left out.
        check(
            &[Sockets, Threads, Cores, Dies],
            [0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20, 9, 21, 10, 22, 11, 23],
        );
        check(
            &[Dies, Cores, Threads, Sockets],
            [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11, 12, 18, 14, 20, 16, 22, 13, 19, 15, 21, 17, 23],
        );
    }

    #[test]
    fn apic_ids_have_holes_where_counts_are_no_powers_of_two() {
        let machine = machine(&Level::INSIDE_OUT);
        let ids: Vec<usize> = (0..8).chain([23]).map(|index| machine.apic_id(index)).collect();
        // The last one is in socket 1, die 1, core 2 and thread 1: of one bit each, but for two for
        // the core.
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 8, 9, (1 << 4) | (1 << 3) | (2 << 1) | 1]);
    }
}
