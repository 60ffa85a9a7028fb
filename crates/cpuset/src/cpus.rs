//! [`CpuSet`]: CPUs as a set, with the kernel's two text formats.
//!
//! The kernel prints CPU sets as *lists* (`0-3,8`, files named `*_list`) and as *masks*
//! (`ff,00000101`, most files without that suffix). Both are described in the kernel's
//! `Documentation/core-api/printk-formats.rst` and parsed by its `lib/bitmap-str.c`; cpuset(7)
//! describes them for user space. Where the kernel reads a list, it accepts strides (`0-15:2/4`: the
//! first two of every four CPUs).

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub, SubAssign};
use std::str::FromStr;

const WORDS: usize = 32;

/// The limit of a [`CpuSet`]: CPU numbers are `0..MAX_CPUS`.
///
/// Linux on x86_64 has at most 8192 CPUs, but the largest machines with Kubernetes have fewer than
/// 2048.
pub const MAX_CPUS: usize = WORDS * 64;

/// A set of logical CPUs, by the kernel's CPU numbers.
///
/// Plain data of a fixed size: a copy costs a few nanoseconds and no allocation, so placement can try
/// many sets.
///
/// ```
/// use cpuset::CpuSet;
/// let free: CpuSet = "0-3,8".parse().unwrap();
/// let taken: CpuSet = "2-3".parse().unwrap();
/// assert_eq!((free - taken).to_string(), "0-1,8");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: [u64; WORDS],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error(
        "{part:?} is not a CPU number in CPU list {list:?}: expected numbers and ranges like 0-3,8"
    )]
    NotANumber { part: String, list: String },
    #[error("range {part:?} in CPU list {list:?} ends before it starts")]
    Reversed { part: String, list: String },
    #[error(
        "stride {part:?} in CPU list {list:?}: expected FIRST-LAST:USED/GROUP with 1 <= USED <= GROUP"
    )]
    Stride { part: String, list: String },
    #[error("CPU {cpu} in {text:?} is past the limit: CPU numbers up to {} are supported", MAX_CPUS - 1)]
    PastLimit { cpu: String, text: String },
    #[error(
        "{mask:?} is not a CPU mask: expected groups of up to eight hexadecimal digits like ff,00000101"
    )]
    Mask { mask: String },
}

/// A CPU number of [`MAX_CPUS`] or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("CPU {0} is past the limit: CPU numbers up to {max} are supported", max = MAX_CPUS - 1)]
pub struct PastLimit(pub usize);

impl CpuSet {
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS] };

    /// # Errors
    /// If `cpu` is [`MAX_CPUS`] or more.
    pub fn of(cpu: usize) -> Result<CpuSet, PastLimit> {
        let mut set = CpuSet::EMPTY;
        set.insert(cpu)?;
        Ok(set)
    }

    /// # Errors
    /// If `cpu` is [`MAX_CPUS`] or more. The set is not changed.
    pub fn insert(&mut self, cpu: usize) -> Result<(), PastLimit> {
        let word = self.words.get_mut(cpu / 64).ok_or(PastLimit(cpu))?;
        *word |= 1 << (cpu % 64);
        Ok(())
    }

    pub fn remove(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// The `n` lowest CPUs, or all of them if there are fewer.
    pub fn lowest(&self, n: usize) -> CpuSet {
        let mut left = n;
        let mut set = *self;
        for word in &mut set.words {
            let ones = word.count_ones() as usize;
            if ones <= left {
                left -= ones;
                continue;
            }
            // A copy without its `left` lowest CPUs has the CPUs to remove.
            let mut rest = *word;
            for _ in 0..left {
                rest &= rest - 1;
            }
            *word &= !rest;
            left = 0;
        }
        set
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// The number of CPUs in both sets, without building their intersection.
    pub fn common(&self, other: &CpuSet) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Ascending.
    pub fn iter(&self) -> Iter {
        Iter { words: self.words, word: 0 }
    }

    /// Reads a mask as sysfs prints it: `f`, `ff,00000101`, also with a leading `0x`.
    ///
    /// Groups have 32 bits, the most significant group first. White space around the text is ignored.
    pub fn from_mask(mask: &str) -> Result<CpuSet, ParseError> {
        let bad = || ParseError::Mask { mask: mask.to_owned() };
        let text = mask.trim();
        let text = text.strip_prefix("0x").unwrap_or(text);
        let mut set = CpuSet::EMPTY;
        for (index, group) in text.rsplit(',').enumerate() {
            let digits = group.bytes().all(|digit| digit.is_ascii_hexdigit());
            if !digits || group.is_empty() || group.len() > 8 {
                return Err(bad());
            }
            let bits = u64::from(u32::from_str_radix(group, 16).map_err(|_| bad())?);
            match set.words.get_mut(index / 2) {
                Some(word) => *word |= bits << (32 * (index % 2)),
                None if bits == 0 => {}
                None => {
                    let cpu = index * 32 + bits.trailing_zeros() as usize;
                    return Err(ParseError::PastLimit {
                        cpu: cpu.to_string(),
                        text: mask.to_owned(),
                    });
                }
            }
        }
        Ok(set)
    }

    /// Adds `first..=last`, which must be within the limit.
    fn insert_range(&mut self, first: usize, last: usize) {
        for index in first / 64..=last / 64 {
            let low = if index == first / 64 { first % 64 } else { 0 };
            let high = if index == last / 64 { last % 64 } else { 63 };
            if let Some(word) = self.words.get_mut(index) {
                *word |= (u64::MAX >> (63 - high)) & (u64::MAX << low);
            }
        }
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;

    /// Reads a list as the kernel prints and accepts it: `0-3,8`, `0-15:2/4`, or nothing for the
    /// empty set.
    fn from_str(list: &str) -> Result<CpuSet, ParseError> {
        let mut set = CpuSet::EMPTY;
        if list.trim().is_empty() {
            return Ok(set);
        }
        for part in list.trim().split(',') {
            let part = part.trim();
            let number = |text: &str| -> Result<usize, ParseError> {
                if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
                    let part = part.to_owned();
                    let list = list.to_owned();
                    return Err(ParseError::NotANumber { part, list });
                }
                // The text has only digits, so an error means that the number is too large for the type.
                match text.parse() {
                    Ok(cpu) if cpu < MAX_CPUS => Ok(cpu),
                    _ => Err(ParseError::PastLimit { cpu: text.to_owned(), text: list.to_owned() }),
                }
            };
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, Some(stride)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if last < first {
                return Err(ParseError::Reversed { part: part.to_owned(), list: list.to_owned() });
            }
            let Some(stride) = stride else {
                set.insert_range(first, last);
                continue;
            };
            let bad = || ParseError::Stride { part: part.to_owned(), list: list.to_owned() };
            let (used, group) = stride.split_once('/').ok_or_else(bad)?;
            let used = number(used)?;
            let group = number(group)?;
            if used == 0 || used > group || !range.contains('-') {
                return Err(bad());
            }
            for start in (first..=last).step_by(group) {
                set.insert_range(start, last.min(start + used - 1));
            }
        }
        Ok(set)
    }
}

impl fmt::Display for CpuSet {
    /// Writes the kernel's list format: ascending, ranges merged, `0-3,8`. The empty set is an empty text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl Default for CpuSet {
    fn default() -> CpuSet {
        CpuSet::EMPTY
    }
}

#[derive(Debug, Clone)]
pub struct Iter {
    words: [u64; WORDS],
    word: usize,
}

impl Iterator for Iter {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some(word) = self.words.get_mut(self.word) {
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(self.word * 64 + bit);
            }
            self.word += 1;
        }
        None
    }
}

impl IntoIterator for &CpuSet {
    type Item = usize;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// Implements an operator and its assigning form from a formula on machine words.
macro_rules! operator {
    ($trait:ident, $method:ident, $assign:ident, $assign_method:ident, $a:ident, $b:ident => $formula:expr) => {
        impl $assign for CpuSet {
            fn $assign_method(&mut self, other: CpuSet) {
                for ($a, $b) in self.words.iter_mut().zip(other.words) {
                    *$a = $formula;
                }
            }
        }
        impl $trait for CpuSet {
            type Output = CpuSet;
            fn $method(mut self, other: CpuSet) -> CpuSet {
                $assign::$assign_method(&mut self, other);
                self
            }
        }
    };
}

operator!(BitOr, bitor, BitOrAssign, bitor_assign, a, b => *a | b);
operator!(BitAnd, bitand, BitAndAssign, bitand_assign, a, b => *a & b);
operator!(Sub, sub, SubAssign, sub_assign, a, b => *a & !b);

impl FromIterator<CpuSet> for CpuSet {
    /// The union.
    fn from_iter<I: IntoIterator<Item = CpuSet>>(sets: I) -> CpuSet {
        sets.into_iter().fold(CpuSet::EMPTY, BitOr::bitor)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<CpuSet, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for CpuSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "CPUs as a list in the kernel's format, such as 0-3,8; empty without any." })
    }
}

#[cfg(test)]
mod tests;
