//! Counts of durations in logarithmic buckets. A bucket is 3 % wide, so percentiles are 3 % too high at
//! most; the maximum is exact.

use serde::{Deserialize, Serialize};

/// Buckets per power of two.
const STEPS: u64 = 32;
/// log2 of [`STEPS`].
const STEPS_LOG2: u32 = STEPS.ilog2();
/// Longer durations are in the last bucket: 18 minutes.
const LONGEST_NS: u64 = (1 << 40) - 1;

/// Durations in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    max_ns: u64,
}

/// A histogram in JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    max_ns: u64,
    /// The longest duration of each bucket that is not empty, and the number of durations.
    buckets: Vec<(u64, u64)>,
}

impl From<Histogram> for Written {
    fn from(histogram: Histogram) -> Self {
        Written { max_ns: histogram.max_ns, buckets: histogram.buckets().collect() }
    }
}

impl From<Written> for Histogram {
    fn from(written: Written) -> Self {
        let mut histogram = Histogram::default();
        for (longest, count) in written.buckets {
            histogram.add(index(longest), count);
        }
        histogram.max_ns = written.max_ns;
        histogram
    }
}

impl Histogram {
    /// With memory for all buckets: `record` does not allocate.
    pub(crate) fn new() -> Histogram {
        Histogram { counts: vec![0; index(LONGEST_NS) + 1], max_ns: 0 }
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.add(index(ns), 1);
        self.max_ns = self.max_ns.max(ns);
    }

    fn add(&mut self, index: usize, count: u64) {
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += count;
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (index, count) in other.counts.iter().enumerate() {
            self.add(index, *count);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that a share of the samples does not exceed; 0 without samples.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.samples() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (longest, count) in self.buckets() {
            seen += count;
            if rank <= seen {
                return longest.min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// The longest duration and the count of each bucket that is not empty, ascending.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(index, count)| (longest(index), *count))
    }
}

fn index(ns: u64) -> usize {
    let ns = ns.min(LONGEST_NS);
    let shift = ns.max(STEPS).ilog2() - STEPS_LOG2;
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The longest duration of a bucket.
fn longest(index: usize) -> u64 {
    let index = index as u64;
    // Each index below 2 * STEPS is a duration.
    let shift = (index / STEPS).saturating_sub(1);
    ((index - shift * STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_one_to_a_thousand_microseconds() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.samples(), histogram.percentile(99.0)), (0, 0));
        for us in 1..=1000 {
            histogram.record(us * 1000);
        }
        for (percent, exact) in [(50.0, 500_000), (99.0, 990_000), (99.9, 999_000)] {
            let found = histogram.percentile(percent);
            assert!(exact <= found && found <= exact + exact / 31, "p{percent}: {found}");
        }
        assert_eq!(histogram.percentile(100.0), 1_000_000);
        assert_eq!(histogram.max_ns(), 1_000_000);
    }

    #[test]
    fn a_rare_long_duration_is_above_the_percentile_that_it_exceeds() {
        let mut histogram = Histogram::new();
        for _ in 0..999 {
            histogram.record(10);
        }
        histogram.record(5_000_000);
        assert_eq!(histogram.percentile(99.9), 10);
        assert_eq!(histogram.percentile(99.95), 5_000_000);
    }

    #[test]
    fn a_duration_beyond_the_last_bucket_counts_there_and_the_maximum_is_exact() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(LONGEST_NS, 1)]);
        assert_eq!(histogram.max_ns(), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_bucket_is_3_percent_wide(ns in 0..LONGEST_NS / 2) {
            let longest = longest(index(ns));
            prop_assert!(ns <= longest && longest - ns <= ns / STEPS);
            prop_assert_eq!(index(longest), index(ns));
            prop_assert_eq!(index(longest + 1), index(ns) + 1);
        }

        #[test]
        fn json_and_merging_keep_all_counts(
            first in proptest::collection::vec(any::<u64>(), 0..50),
            second in proptest::collection::vec(0_u64..10_000, 0..50),
        ) {
            let of = |durations: &[u64]| {
                let mut histogram = Histogram::new();
                durations.iter().for_each(|ns| histogram.record(*ns));
                histogram
            };
            let mut merged = of(&first);
            merged.merge(&of(&second));
            let both = of(&[first, second].concat());
            prop_assert_eq!(&merged, &both);
            let text = serde_json::to_string(&both).unwrap();
            let read: Histogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.buckets().collect::<Vec<_>>(), both.buckets().collect::<Vec<_>>());
            prop_assert_eq!(read.max_ns(), both.max_ns());
        }
    }
}
