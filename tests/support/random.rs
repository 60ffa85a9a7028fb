//! Pseudo-random numbers, the same in every run.

use placement::{Options, UncoreOrder};

/// Xorshift (Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        Random(88_172_645_463_325_252)
    }

    /// A number in `0..end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Policy options that may be used together.
    pub(crate) fn options(&mut self) -> Options {
        loop {
            let options = Options {
                scale_delay: None,
                full_pcpus_only: self.coin(),
                strict_cpu_reservation: self.coin(),
                prefer_align_cpus_by_uncorecache: self.coin(),
                distribute_cpus_across_numa: self.below(4) == 0,
                align_by_socket: self.coin(),
                distribute_cpus_across_cores: self.below(4) == 0,
                uncore_order: if self.coin() {
                    UncoreOrder::Numerical
                } else {
                    UncoreOrder::FewestFree
                },
            };
            if options.check_exclusive().is_ok() {
                return options;
            }
        }
    }
}
