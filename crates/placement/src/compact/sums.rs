//! [`Sums`]: which numbers of a list have the least sum that is large enough.

/// Subset sums by the number of summands, as bit sets. The buffers are kept between calls.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// For each number of summands, the sums that they can have: bit `s` stands for sum `s`.
    reached: Vec<u64>,
    /// For each number of summands and each sum, the last summand of the first way to reach it.
    last: Vec<u16>,
}

impl Sums {
    /// The positions of exactly `count` numbers with the least sum that is at least `needed`, and
    /// the sum; `None` if no `count` numbers reach it.
    pub(super) fn least(
        &mut self,
        numbers: &[usize],
        count: usize,
        needed: usize,
    ) -> Option<(usize, Vec<usize>)> {
        if count == numbers.len() {
            let sum = numbers.iter().sum();
            return if sum >= needed { Some((sum, (0..count).collect())) } else { None };
        }
        // The answer is at most this: from the least sum, replacing one number after the other by a
        // larger one adds at most the largest number each time.
        let mut ascending = numbers.to_vec();
        ascending.sort_unstable();
        let largest = *ascending.last()?;
        let limit = ascending.iter().take(count).sum::<usize>().max(needed) + largest;
        let words = limit / 64 + 1;
        self.reached.clear();
        self.reached.resize((count + 1) * words, 0);
        self.last.resize((count + 1) * (limit + 1), 0);
        self.reached[0] = 1;
        for (at, &number) in numbers.iter().enumerate() {
            for summands in (1..=count.min(at + 1)).rev() {
                self.add(at, number, summands, words, limit);
            }
        }
        let reached = &self.reached[count * words..];
        let sum = (needed..=limit).find(|sum| reached[sum / 64] >> (sum % 64) & 1 == 1)?;
        let mut chosen = Vec::with_capacity(count);
        let mut left = sum;
        for summands in (1..=count).rev() {
            let at = usize::from(self.last[summands * (limit + 1) + left]);
            chosen.push(at);
            left -= numbers[at];
        }
        Some((sum, chosen))
    }

    /// Adds the sums of `summands` numbers whose last one is `number`.
    fn add(&mut self, at: usize, number: usize, summands: usize, words: usize, limit: usize) {
        let (fewer, row) = self.reached.split_at_mut(summands * words);
        let fewer = &fewer[(summands - 1) * words..];
        let skip = number / 64;
        let shift = number % 64;
        for word in skip..words {
            let mut shifted = fewer[word - skip] << shift;
            if shift > 0 && word > skip {
                shifted |= fewer[word - skip - 1] >> (64 - shift);
            }
            let mut new = shifted & !row[word];
            row[word] |= new;
            while new != 0 {
                let sum = word * 64 + new.trailing_zeros() as usize;
                new &= new - 1;
                if sum <= limit {
                    self.last[summands * (limit + 1) + sum] = at as u16;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sums;
    use proptest::prelude::*;

    #[test]
    fn the_least_sufficient_sum_is_found() {
        let mut sums = Sums::default();
        assert_eq!(sums.least(&[8, 5, 3, 6], 2, 9), Some((9, vec![3, 2])));
        assert_eq!(sums.least(&[8, 5, 3, 6], 2, 15), None);
        assert_eq!(sums.least(&[8, 5], 2, 10), Some((13, vec![0, 1])));
    }

    proptest! {
        #[test]
        fn the_sum_is_the_least_of_all_subsets(
            numbers in prop::collection::vec(0..20usize, 1..9),
            count in 1..9usize,
            needed in 1..60usize,
        ) {
            let count = count.min(numbers.len());
            let sums = (0..1u32 << numbers.len()).filter(|set| set.count_ones() as usize == count);
            let sums = sums.map(|set| {
                numbers.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, n)| n).sum()
            });
            let least: Option<usize> = sums.filter(|sum| *sum >= needed).min();
            let actual = Sums::default().least(&numbers, count, needed);
            prop_assert_eq!(actual.as_ref().map(|(sum, _)| *sum), least);
            if let Some((sum, chosen)) = actual {
                prop_assert_eq!(chosen.len(), count);
                prop_assert_eq!(chosen.iter().map(|&at| numbers[at]).sum::<usize>(), sum);
                let mut once = chosen.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), count);
            }
        }
    }
}
