//! Short text for lists of cores and CPUs.

use cpuset::CpuSet;

/// The most characters of a CPU list. A longer list becomes runs.
const LONGEST_LIST: usize = 64;

/// The kernel's list format, or runs if the list is long and runs are shorter.
pub(super) fn list(cpus: &CpuSet) -> String {
    let list = cpus.to_string();
    if list.len() <= LONGEST_LIST {
        return list;
    }
    let single: Vec<CpuSet> = cpus.iter().flat_map(CpuSet::of).collect();
    let runs = joined_runs(&single);
    if runs.len() < list.len() { runs } else { list }
}

/// Cores as a list without SMT, otherwise as runs.
pub(super) fn runs(cores: &[CpuSet]) -> String {
    if cores.iter().all(|core| core.len() == 1) {
        return list(&cores.iter().copied().collect());
    }
    joined_runs(cores)
}

/// `0+8..3+11` for four cores if all numbers grow by one from core to core; `0+1 2+3..6+7` if they
/// grow by more.
fn joined_runs(cores: &[CpuSet]) -> String {
    let mut words = Vec::new();
    let mut rest = cores;
    while let [first, tail @ ..] = rest {
        let step = tail.first().and_then(|second| step(first, second));
        let mut last = first;
        let mut length = 1;
        for next in tail {
            if step.is_none() || self::step(last, next) != step {
                break;
            }
            last = next;
            length += 1;
        }
        // How many cores to write out before the `..`, and whether there is one.
        let (shown, dotted) = match (length, step) {
            (3.., Some(1)) => (1, true),
            // Two cores show the step.
            (4.., _) => (2, true),
            // Only the first core: the second one may start a run.
            _ => (1, false),
        };
        let mut word: Vec<String> = rest.iter().take(shown).map(joined).collect();
        if dotted && let Some(word) = word.last_mut() {
            *word = format!("{word}..{}", joined(last));
        }
        words.append(&mut word);
        rest = rest.get(if dotted { length } else { shown }..).unwrap_or_default();
    }
    words.join(" ")
}

/// The difference between the numbers of two cores, if it is the same for all threads.
fn step(a: &CpuSet, b: &CpuSet) -> Option<usize> {
    let mut steps = a.iter().zip(b).map(|(a, b)| b.checked_sub(a));
    let first = steps.next()??;
    let is_regular = a.len() == b.len() && steps.all(|step| step == Some(first));
    if is_regular { Some(first) } else { None }
}

/// The threads of a core: `0+64`.
pub(super) fn joined(core: &CpuSet) -> String {
    let cpus: Vec<String> = core.iter().map(|cpu| cpu.to_string()).collect();
    cpus.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cores` are lists of CPUs, separated by spaces.
    #[track_caller]
    fn check(cores: &str, expect: &str) {
        let cores: Vec<CpuSet> =
            cores.split_whitespace().map(|core| core.parse().unwrap()).collect();
        assert_eq!(runs(&cores), expect);
    }

    #[test]
    fn regular_cores_become_runs() {
        check("", "");
        check("0 1 2 3 8", "0-3,8");
        check("0-1", "0+1");
        check("0,8 1,9", "0+8 1+9");
        check("0,8 1,9 2,10", "0+8..2+10");
        check("0-1 2-3 4-5", "0+1 2+3 4+5");
        check("0-1 2-3 4-5 6-7", "0+1 2+3..6+7");
        check("0-3 4-7 8-11 12-15", "0+1+2+3 4+5+6+7..12+13+14+15");
        // A thread is offline, and the numbers jump after core 3.
        check("0 1,9 2,10 3,11 16,24 17,25", "0 1+9..3+11 16+24 17+25");
        // The numbers of the two threads grow by different steps.
        check("0,8 1,10 2,12", "0+8 1+10 2+12");
    }

    #[test]
    fn a_long_list_becomes_runs_and_a_short_one_does_not() {
        let every_second: CpuSet = "0-127:1/2".parse().unwrap();
        assert_eq!(list(&every_second), "0 2..126");
        assert_eq!(list(&"0-7:1/2".parse().unwrap()), "0,2,4,6");
    }
}
