//! Whole cores, and the numbers of CPUs that they add up to.
//!
//! A core has the CPUs that are online. Cores differ in size where a thread is offline, on hybrid
//! machines, and where SMT is off for some of them; whether a request can be met by whole cores is
//! then a question of subset sums.

use cpuset::CpuSet;
use std::fmt;
use topology::Topology;

/// `cpus` and their SMT siblings.
pub fn whole_cores(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let core = |cpu| topology.cores().get(topology.place(cpu)?.core()).map(|core| core.cpus);
    cpus.iter().filter_map(core).collect()
}

/// The CPUs of all cores that are entirely in `cpus`.
pub fn only_whole_cores(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let cores = topology.cores().iter().map(|core| core.cpus);
    cores.filter(|core| core.is_subset(cpus)).collect()
}

/// How many pieces there are of each size. A piece is taken as a whole or not at all: a core, or
/// what a container may still get of a core that it shares with nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreSizes {
    /// Sizes, ascending, and the number of pieces of that size. No number is 0.
    counts: Vec<(usize, usize)>,
}

impl FromIterator<usize> for CoreSizes {
    fn from_iter<T: IntoIterator<Item = usize>>(sizes: T) -> CoreSizes {
        let mut all = CoreSizes::default();
        sizes.into_iter().for_each(|size| all.add(size, 1));
        all
    }
}

impl CoreSizes {
    /// The cores that `cpus` touches, each with its CPUs in `cpus`.
    pub fn of(topology: &Topology, cpus: &CpuSet) -> CoreSizes {
        topology.tally(cpus).cores.into_iter().collect()
    }

    /// The cores of `cpus`, which must be whole; `None` if one is not.
    pub(crate) fn of_whole(topology: &Topology, cpus: &CpuSet) -> Option<CoreSizes> {
        let mut cores: Vec<usize> =
            cpus.iter().filter_map(|cpu| Some(topology.place(cpu)?.core())).collect();
        cores.sort_unstable();
        let sizes = &topology.sizes().cores;
        let mut all = CoreSizes::default();
        for core in cores.chunk_by(PartialEq::eq) {
            if core.len() < sizes[core[0]] {
                return None;
            }
            all.add(core.len(), 1);
        }
        Some(all)
    }

    pub(crate) fn add(&mut self, size: usize, count: usize) {
        if size == 0 || count == 0 {
            return;
        }
        match self.counts.binary_search_by_key(&size, |&(size, _)| size) {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (size, count)),
        }
    }

    pub(crate) fn extend(&mut self, other: &CoreSizes) {
        other.counts.iter().for_each(|&(size, count)| self.add(size, count));
    }

    /// These pieces without `other`, which must be among them.
    pub(crate) fn without(&self, other: &CoreSizes) -> CoreSizes {
        let mut rest = self.clone();
        for &(size, count) in &other.counts {
            if let Ok(at) = rest.counts.binary_search_by_key(&size, |&(size, _)| size) {
                rest.counts[at].1 = rest.counts[at].1.saturating_sub(count);
            }
        }
        rest.counts.retain(|&(_, count)| count > 0);
        rest
    }

    /// The size that most CPUs are in pieces of, the larger of two; 1 without pieces.
    pub fn usual(&self) -> usize {
        let most = self.counts.iter().max_by_key(|(size, count)| (size * count, *size));
        most.map_or(1, |&(size, _)| size)
    }

    /// Sizes, ascending, and the number of pieces of each.
    pub fn counts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.counts.iter().copied()
    }

    pub fn total(&self) -> usize {
        self.counts.iter().map(|(size, count)| size * count).sum()
    }

    /// Whether some of the pieces have exactly `n` CPUs together.
    pub fn add_up_to(&self, n: usize) -> bool {
        match self.counts[..] {
            [] => n == 0,
            [(size, count)] => n.is_multiple_of(size) && n <= size * count,
            _ => n <= self.total() && Reachable::nothing(n).with(self).has(n),
        }
    }

    /// The most CPUs, at most `n`, that some of the pieces have together.
    pub(crate) fn most_up_to(&self, n: usize) -> usize {
        let sums = Reachable::nothing(n).with(self);
        (0..=n).rev().find(|&sum| sums.has(sum)).unwrap_or(0)
    }
}

impl fmt::Display for CoreSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (size, count)) in self.counts.iter().rev().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            let plural = if *size == 1 { "" } else { "s" };
            write!(f, "{separator}{count} of {size} cpu{plural}")?;
        }
        if self.counts.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// The pieces, in this order, that have exactly `n` CPUs together: a piece is left out only where
/// the rest would not add up with it. `None` if no pieces add up to `n`.
pub(crate) fn pick(pieces: &[CpuSet], n: usize) -> Option<CpuSet> {
    let mut open: CoreSizes = pieces.iter().map(CpuSet::len).collect();
    if !open.add_up_to(n) {
        return None;
    }
    let mut need = n;
    let mut picked = CpuSet::EMPTY;
    for piece in pieces {
        let size = piece.len();
        if size > need {
            continue;
        }
        let rest = open.without(&[size].into_iter().collect());
        if rest.add_up_to(need - size) {
            need -= size;
            picked |= *piece;
            open = rest;
        }
    }
    debug_assert_eq!(need, 0, "{n} of {pieces:?}");
    Some(picked)
}

/// Sums up to a limit, bit `s` for sum `s`.
#[derive(Debug, Clone)]
pub(crate) struct Reachable {
    limit: usize,
    words: Vec<u64>,
}

impl Reachable {
    /// All sums of some of these pieces.
    pub(crate) fn of(sizes: &CoreSizes) -> Reachable {
        Reachable::nothing(sizes.total()).with(sizes)
    }

    /// The sum 0 only.
    fn nothing(limit: usize) -> Reachable {
        let mut words = vec![0; limit / 64 + 1];
        words[0] = 1;
        Reachable { limit, words }
    }

    pub(crate) fn has(&self, sum: usize) -> bool {
        self.words.get(sum / 64).is_some_and(|word| word >> (sum % 64) & 1 == 1)
    }

    /// Whether a sum of each has the sum `n`.
    fn meets(&self, other: &Reachable, n: usize) -> bool {
        (0..=n).any(|sum| self.has(sum) && other.has(n - sum))
    }

    fn union(&mut self, other: &Reachable) {
        for (one, other) in self.words.iter_mut().zip(&other.words) {
            *one |= other;
        }
    }

    /// These sums and those with some of the pieces added.
    fn with(mut self, sizes: &CoreSizes) -> Reachable {
        for &(size, count) in &sizes.counts {
            // Every number up to `count` is a sum of some of these.
            let mut left = count.min(self.limit / size);
            let mut part = 1;
            while left > 0 {
                let pieces = part.min(left);
                self.add(pieces * size);
                left -= pieces;
                part *= 2;
            }
        }
        self
    }

    fn add(&mut self, number: usize) {
        let (skip, shift) = (number / 64, number % 64);
        for word in (skip..self.words.len()).rev() {
            let mut shifted = self.words[word - skip] << shift;
            if shift > 0 && word > skip {
                shifted |= self.words[word - skip - 1] >> (64 - shift);
            }
            self.words[word] |= shifted;
        }
    }
}

/// Domains (NUMA nodes or uncore caches) to choose among, so that the cores in them add up to a
/// number of CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Domains<'a> {
    pub(crate) sizes: &'a [CoreSizes],
    pub(crate) n: usize,
}

/// Domains that may be chosen, given by index, and exactly how many of them are.
pub(crate) type Choice<'c> = (&'c [usize], usize);

/// By number up to `most`: the sums of `base` with cores of at most that many of the domains.
fn rows<'s>(
    base: Reachable,
    most: usize,
    domains: impl IntoIterator<Item = &'s CoreSizes>,
) -> Vec<Reachable> {
    let mut rows = vec![base; most + 1];
    domains.into_iter().for_each(|sizes| add_domain(&mut rows, sizes));
    rows
}

/// Adds the sums that need one more domain.
fn add_domain(rows: &mut [Reachable], sizes: &CoreSizes) {
    for used in (1..rows.len()).rev() {
        let more = rows[used - 1].clone().with(sizes);
        rows[used].union(&more);
    }
}

/// By number of domains: the sums that cores of at most that many of them have, up to `limit`.
pub(crate) fn sums_by_domains(sizes: &[CoreSizes], limit: usize) -> Vec<Reachable> {
    rows(Reachable::nothing(limit), sizes.len(), sizes)
}

impl Domains<'_> {
    /// Whether the cores of all `chosen` domains and of the given number of each list of `open`
    /// ones can add up.
    pub(crate) fn add_up<'c>(
        &self,
        chosen: impl IntoIterator<Item = usize>,
        open: impl IntoIterator<Item = Choice<'c>>,
    ) -> bool {
        let mut sums = Reachable::nothing(self.n);
        for domain in chosen {
            sums = sums.with(&self.sizes[domain]);
        }
        for (domains, count) in open {
            if domains.len() < count {
                return false;
            }
            let mut rows = rows(sums, count, domains.iter().map(|&domain| &self.sizes[domain]));
            let Some(last) = rows.pop() else { return false };
            sums = last;
        }
        sums.has(self.n)
    }

    /// How many domains are needed at least; all of them if these do not add up.
    pub(crate) fn fewest(&self) -> usize {
        let rows = rows(Reachable::nothing(self.n), self.sizes.len(), self.sizes);
        rows.iter().skip(1).position(|sums| sums.has(self.n)).map_or(self.sizes.len(), |at| at + 1)
    }

    /// The fewest domains that, with all of `chosen`, add up, of those the ones that come first in
    /// `open`. `None` if all of `open` are not enough.
    pub(crate) fn first(&self, chosen: &[usize], open: &[usize]) -> Option<Vec<usize>> {
        let size = |domain: &usize| &self.sizes[*domain];
        let nothing = || Reachable::nothing(self.n);
        let mut sums = chosen.iter().fold(nothing(), |sums, domain| sums.with(size(domain)));
        let all = rows(sums.clone(), open.len(), open.iter().map(size));
        let count = all.iter().position(|sums| sums.has(self.n))?;
        // By position in `open`: what the later domains can add, by how many of them are used.
        let mut later = vec![vec![nothing(); count + 1]];
        for domain in open.iter().rev() {
            let mut rows = later[later.len() - 1].clone();
            add_domain(&mut rows, size(domain));
            later.push(rows);
        }
        later.reverse();
        let mut taken = Vec::with_capacity(count);
        for (at, domain) in open.iter().enumerate() {
            if taken.len() == count {
                break;
            }
            let with = sums.clone().with(size(domain));
            if with.meets(&later[at + 1][count - taken.len() - 1], self.n) {
                taken.push(*domain);
                sums = with;
            }
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::super::machines::{Shape, set};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_cores_add_the_siblings() {
        let shape = Shape { sockets: 1, nodes: 1, uncores: 1, cores: 4, threads: 2 };
        assert_eq!(whole_cores(&shape.build(), &set("1,6,9")), set("1-2,5-6"));
        assert_eq!(only_whole_cores(&shape.build(), &set("1,2,6,9")), set("2,6"));
    }

    #[test]
    fn pieces_are_picked_in_order() {
        let pieces = ["0-1", "2", "3-4", "5"].map(set);
        let picked = |n| pick(&pieces, n).map(|cpus| cpus.to_string());
        assert_eq!(picked(3).as_deref(), Some("0-2"));
        assert_eq!(picked(4).as_deref(), Some("0-2,5"));
        assert_eq!(picked(0).as_deref(), Some(""));
        assert_eq!(picked(7), None);
        assert_eq!(pick(&["0-1", "2", "3-4"].map(set), 4), Some(set("0-1,3-4")));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_all_subsets(sizes in prop::collection::vec(1..9usize, 0..9), n in 0..70usize) {
            let sum = |bits: u32| -> usize {
                sizes.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, size)| size).sum()
            };
            let possible = (0..1u32 << sizes.len()).any(|bits| sum(bits) == n);
            let counts: CoreSizes = sizes.iter().copied().collect();
            prop_assert_eq!(counts.add_up_to(n), possible);
            let mut next = 0;
            let pieces: Vec<CpuSet> = sizes
                .iter()
                .map(|size| {
                    next += size;
                    (next - size..next).map(|cpu| CpuSet::of(cpu).unwrap()).collect()
                })
                .collect();
            prop_assert_eq!(pick(&pieces, n).map(|cpus| cpus.len()), possible.then_some(n));
        }

        #[test]
        fn the_fewest_domains_are_those_of_all_combinations(
            domains in prop::collection::vec(prop::collection::vec(1..5usize, 0..4), 1..6),
            n in 1..20usize,
        ) {
            let sizes: Vec<CoreSizes> = domains.iter().map(|cores| cores.iter().copied().collect()).collect();
            let adds_up = |bits: u32| {
                let cores = domains.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                cores.flat_map(|(_, cores)| cores.iter().copied()).collect::<CoreSizes>().add_up_to(n)
            };
            let sets = (0..1u32 << domains.len()).filter(|&bits| adds_up(bits));
            // The first index counts most.
            let best = sets.min_by_key(|bits| (bits.count_ones(), std::cmp::Reverse(bits.reverse_bits())));
            let all: Vec<usize> = (0..domains.len()).collect();
            let first = Domains { sizes: &sizes, n }.first(&[], &all);
            let first = first.map(|taken| taken.iter().fold(0, |bits, at| bits | 1 << at));
            prop_assert_eq!(first, best);
            if let Some(best) = best {
                prop_assert_eq!(Domains { sizes: &sizes, n }.fewest(), best.count_ones() as usize);
            }
        }
    }
}
