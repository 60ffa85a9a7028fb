//! Measures the duration of calls.

use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The least time over which a request is sampled.
const ENOUGH: Duration = Duration::from_millis(100);

/// Nanoseconds per call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timing {
    #[serde(rename = "min_ns")]
    pub(crate) min: u64,
    #[serde(rename = "median_ns")]
    pub(crate) median: u64,
}

/// Times calls in rounds that are long against the clock's resolution.
pub(crate) fn time<T>(mut call: impl FnMut() -> T) -> Timing {
    let mut round = |calls: u32| {
        let started = Instant::now();
        (0..calls).for_each(|_| drop(black_box(call())));
        started.elapsed()
    };
    round(3);
    let once = round(1).max(Duration::from_nanos(50));
    let calls = (20_000 / once.as_nanos()).clamp(1, 400) as u32;
    sample(|| round(calls) / calls)
}

/// Times calls one by one, each on a new state, which is made and dropped outside the measured
/// time. Reading the clock is included, a few dozen nanoseconds.
pub(crate) fn time_each<S, T>(
    mut make: impl FnMut() -> S,
    mut call: impl FnMut(&mut S) -> T,
) -> Timing {
    sample(|| {
        let mut state = make();
        let started = Instant::now();
        let answer = black_box(call(black_box(&mut state)));
        let elapsed = started.elapsed();
        drop((answer, state));
        elapsed
    })
}

/// Takes samples for [`ENOUGH`], at least ten.
fn sample(mut one: impl FnMut() -> Duration) -> Timing {
    let started = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < 10 || started.elapsed() < ENOUGH {
        samples.push(u64::try_from(one().as_nanos()).unwrap_or(u64::MAX));
    }
    samples.sort_unstable();
    Timing { min: samples[0], median: samples[samples.len() / 2] }
}
