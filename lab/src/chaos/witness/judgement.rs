//! What another set of exclusive CPUs of a container means.

use cpuset::CpuSet;

use crate::chaos::summary::Changes;

pub(super) struct Claim<'a> {
    /// Its exclusive CPUs as they were last.
    pub(super) held: CpuSet,
    /// Numbers of CPUs that it has asked for since then, the last one is what it asks for now.
    /// Empty if that is not known.
    pub(super) requests: &'a [usize],
    /// Those of its CPUs that have been offline meanwhile.
    pub(super) lost: CpuSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Unchanged,
    /// On its way, or some of its CPUs are offline and there are no others for it.
    Underway,
    /// More CPUs in addition, or some of the old ones.
    Resized,
    /// Other CPUs in the place of those that went offline.
    Replaced,
    /// Allowed if the plugin has logged it.
    Rebalanced,
    Violation,
}

impl Claim<'_> {
    pub(super) fn verdict(&self, now: CpuSet, changes: Changes, at_rest: bool) -> Verdict {
        let Changes { rebalance, resizes, hotplug } = changes;
        let (before, lost) = (self.held, self.lost);
        let is_as_large = now.len() == before.len();
        if now == before {
            // It keeps what it had after a resize for which there was no room without the plugin.
            let most = self.requests.iter().max().copied().unwrap_or(usize::MAX);
            let is_too_large = resizes && at_rest && now.len() > most;
            return if is_too_large { Verdict::Violation } else { Verdict::Unchanged };
        }
        if now.is_subset(&before) && (before - now).is_subset(&lost) {
            return Verdict::Underway;
        }
        let fits = self.requests.contains(&now.len());
        if resizes && fits && self.keeps_enough(now) {
            return Verdict::Resized;
        }
        if is_as_large && (before - now).is_subset(&lost) {
            return Verdict::Replaced;
        }
        if rebalance && (is_as_large || resizes && fits) {
            return Verdict::Rebalanced;
        }
        // A partition has both sets for a moment, and a step may meet a resize or an offline CPU.
        let has_both = (before - lost).is_subset(&now) && (rebalance || hotplug);
        let meets_resize = rebalance && resizes && now.is_subset(&before);
        let meets_hotplug = rebalance && hotplug && now.len() < before.len();
        if !at_rest && (has_both || meets_resize || meets_hotplug) {
            Verdict::Underway
        } else if meets_hotplug {
            Verdict::Rebalanced
        } else {
            Verdict::Violation
        }
    }

    /// Whether it has as many of its CPUs as its smallest request meanwhile, not counting those that
    /// were offline. Without a request for another number it has to keep all.
    fn keeps_enough(&self, now: CpuSet) -> bool {
        let before = self.held;
        let smallest = self.requests.iter().copied().min().unwrap_or_default();
        let least = smallest.min(before.len()).min(now.len());
        let excused = (before & self.lost) - now;
        let changed = now.len() != before.len() || smallest < before.len();
        changed && (before & now).len() + excused.len() >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REBALANCE: Changes = Changes { rebalance: true, resizes: false, hotplug: false };
    const RESIZES: Changes = Changes { rebalance: false, resizes: true, hotplug: false };
    const HOTPLUG: Changes = Changes { rebalance: false, resizes: false, hotplug: true };
    const ALL: Changes = Changes { rebalance: true, resizes: true, hotplug: true };

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn verdict(changes: Changes, held: &str, requests: &[usize], lost: &str, now: &str) -> Verdict {
        let claim = Claim { held: cpus(held), requests, lost: cpus(lost) };
        claim.verdict(cpus(now), changes, false)
    }

    fn at_rest(changes: Changes, held: &str, requests: &[usize], lost: &str, now: &str) -> Verdict {
        let claim = Claim { held: cpus(held), requests, lost: cpus(lost) };
        claim.verdict(cpus(now), changes, true)
    }

    #[test]
    fn a_resize_adds_cpus_or_leaves_some() {
        let resized = |requests: &[usize], now| verdict(RESIZES, "4-5", requests, "", now);
        assert_eq!(resized(&[2, 3], "4-6"), Verdict::Resized);
        assert_eq!(resized(&[2, 1], "5"), Verdict::Resized);
        assert_eq!(resized(&[2, 3], "4-5"), Verdict::Unchanged);
        // Others, another number, or nobody asked.
        for (requests, now) in [
            (&[2, 3][..], "5-7"),
            (&[2, 1], "6"),
            (&[2, 4], "4-6"),
            (&[2, 3], "4"),
            (&[2], "4-6"),
            (&[2], "5-6"),
            (&[2, 3], "5-6"),
        ] {
            assert_eq!(resized(requests, now), Verdict::Violation, "{requests:?} {now}");
        }
        // Down and up again between two passes: one CPU is the same.
        assert_eq!(resized(&[2, 1, 2], "5-6"), Verdict::Resized);
        assert_eq!(resized(&[2, 1, 2], "6-7"), Verdict::Violation);
    }

    #[test]
    fn a_shrunk_container_does_not_keep_its_cpus() {
        assert_eq!(verdict(RESIZES, "4-5", &[1], "", "4-5"), Verdict::Unchanged);
        assert_eq!(at_rest(RESIZES, "4-5", &[1], "", "4-5"), Verdict::Violation);
        // It asked while there was no plugin, and others have all CPUs.
        assert_eq!(at_rest(RESIZES, "4-5", &[3], "", "4-5"), Verdict::Unchanged);
    }

    #[test]
    fn only_offline_cpus_are_replaced() {
        let replaced = |lost, now| verdict(HOTPLUG, "4-5", &[2], lost, now);
        assert_eq!(replaced("5", "4,6"), Verdict::Replaced);
        assert_eq!(replaced("4-5", "6-7"), Verdict::Replaced);
        assert_eq!(replaced("5", "4"), Verdict::Underway);
        for (lost, now) in [("", "4,6"), ("5", "5-6"), ("5", "6-7"), ("5", "5"), ("5", "6")] {
            assert_eq!(replaced(lost, now), Verdict::Violation, "{lost} {now}");
        }
        // The partition has the old ones and the new one for a moment.
        assert_eq!(replaced("5", "4-6"), Verdict::Underway);
        assert_eq!(at_rest(HOTPLUG, "4-5", &[2], "5", "4-6"), Verdict::Violation);
        // There was none for it.
        assert_eq!(at_rest(HOTPLUG, "4-5", &[2], "5", "4"), Verdict::Underway);
    }

    #[test]
    fn a_resize_may_meet_an_offline_cpu() {
        let resized = |requests: &[usize], now| verdict(ALL, "4-5", requests, "5", now);
        assert_eq!(resized(&[2, 3], "4,6-7"), Verdict::Resized);
        assert_eq!(resized(&[2, 1], "4"), Verdict::Underway);
        assert_eq!(resized(&[2, 1], "6"), Verdict::Resized);
    }

    #[test]
    fn a_move_has_both_sets_for_a_moment() {
        let moved = |now| verdict(REBALANCE, "4-5", &[2], "", now);
        assert_eq!(moved("4-5,8-9"), Verdict::Underway);
        assert_eq!(moved("8-9"), Verdict::Rebalanced);
        assert_eq!(moved("8"), Verdict::Violation);
        assert_eq!(at_rest(REBALANCE, "4-5", &[2], "", "4-5,8-9"), Verdict::Violation);
        // Together with a resize.
        assert_eq!(verdict(ALL, "4-5", &[2, 3], "", "8-10"), Verdict::Rebalanced);
        assert_eq!(verdict(ALL, "4-5", &[2, 3], "", "8-11"), Verdict::Violation);
    }
}
