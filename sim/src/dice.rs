//! [`Dice`]: every choice of a history follows from a seed.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Dice(fastrand::Rng);

impl Default for Dice {
    fn default() -> Dice {
        Dice::new(0)
    }
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(fastrand::Rng::with_seed(seed))
    }

    /// Dice for one subject: rolls of other dice do not change their results.
    pub fn of(seed: u64, subject: u64) -> Dice {
        Dice::new(seed ^ subject.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn seed(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.usize(..end) }
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        self.0.u64(first..=last)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.0.u64(0..100) < chance
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn millis(&mut self, first: u64, last: u64) -> Duration {
        self.micros(first * 1000, last * 1000)
    }

    pub fn micros(&mut self, first: u64, last: u64) -> Duration {
        Duration::from_micros(self.between(first, last))
    }
}
