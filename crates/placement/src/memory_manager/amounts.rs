//! [`MemoryKind`] and [`Amounts`]: what Kubernetes counts by NUMA node.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A type of memory that Kubernetes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    Memory,
    /// Pages of this many bytes.
    HugePages(u64),
}

/// Bytes by type. A type without an entry has none.
pub type Amounts = BTreeMap<MemoryKind, u64>;

/// One type of these amounts.
pub(super) fn only(kind: MemoryKind, amounts: &Amounts) -> Amounts {
    amounts.get(&kind).map(|bytes| (kind, *bytes)).into_iter().collect()
}

/// How the names of types of huge pages begin.
pub(super) const HUGE_PAGES: &str = "hugepages-";
/// Suffixes of Kubernetes' quantities, largest first.
const SUFFIXES: [(&str, u32); 6] =
    [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl fmt::Display for MemoryKind {
    /// Kubernetes' name: `memory`, `hugepages-2Mi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = match *self {
            MemoryKind::Memory => return f.write_str("memory"),
            MemoryKind::HugePages(size) => size,
        };
        write!(f, "{HUGE_PAGES}{}", binary(size.into()))
    }
}

/// By its name, also as a key of [`Amounts`].
#[cfg(feature = "serde")]
impl serde::Serialize for MemoryKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for MemoryKind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<MemoryKind, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A number with the largest suffix that keeps it whole.
pub(super) fn binary(number: u128) -> String {
    let fits = |(_, shift): &&(&str, u32)| number > 0 && number.is_multiple_of(1 << shift);
    match SUFFIXES.iter().find(fits) {
        Some((suffix, shift)) => format!("{}{suffix}", number >> shift),
        None => number.to_string(),
    }
}

/// Bytes in binary units: whole if that takes at most four digits, otherwise rounded down to a tenth.
pub fn amount(bytes: u64) -> String {
    in_tenths(bytes, |bytes, shift| bytes >> shift)
}

/// As [`amount`], but rounded up.
pub(super) fn amount_at_least(bytes: u64) -> String {
    in_tenths(bytes, |bytes, shift| bytes.div_ceil(1 << shift))
}

fn in_tenths(bytes: u64, divided: impl Fn(u128, u32) -> u128) -> String {
    if bytes == 0 {
        return "0".to_owned();
    }
    let whole = SUFFIXES.iter().find(|(_, shift)| bytes.is_multiple_of(1u64 << *shift));
    if let Some((suffix, shift)) = whole
        && bytes >> *shift < 10_000
    {
        return format!("{}{suffix}", bytes >> *shift);
    }
    let Some((suffix, shift)) = SUFFIXES.iter().find(|(_, shift)| bytes >> *shift > 0) else {
        return bytes.to_string();
    };
    let tenths = divided(u128::from(bytes) * 10, *shift);
    format!("{}.{}{suffix}", tenths / 10, tenths % 10)
}

/// It is no type of memory: neither `memory` nor `hugepages-` and the size of a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither memory nor hugepages-SIZE, such as hugepages-2Mi")]
pub struct UnknownKind(String);

impl FromStr for MemoryKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<MemoryKind, UnknownKind> {
        if text == "memory" {
            return Ok(MemoryKind::Memory);
        }
        let size = || {
            let size = text.strip_prefix(HUGE_PAGES)?;
            let suffix = SUFFIXES.iter().find(|(suffix, _)| size.ends_with(suffix));
            let (digits, shift) = match suffix {
                Some((suffix, shift)) => (size.strip_suffix(suffix)?, *shift),
                None => (size, 0),
            };
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let number = digits.parse::<u64>().ok().filter(|number| *number > 0)?;
            number.checked_mul(1 << shift)
        };
        size().map(MemoryKind::HugePages).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for MemoryKind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MemoryKind".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "`memory`, or `hugepages-` and a size." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    #[test]
    fn amounts_are_whole_or_have_one_decimal() {
        for (bytes, expect) in [
            (0, "0"),
            (512, "512"),
            (64 * GI, "64Gi"),
            (1536 << 20, "1536Mi"),
            (10_240 << 20, "10Gi"),
            (134_642_335_744, "125.3Gi"),
            (1025, "1.0Ki"),
            (u64::MAX, "15.9Ei"),
        ] {
            assert_eq!(amount(bytes), expect);
        }
        assert_eq!(amount_at_least(134_642_335_744), "125.4Gi");
        assert_eq!(amount_at_least(64 * GI), "64Gi");
    }

    #[test]
    fn names_are_those_of_kubernetes() {
        for (name, kind) in [
            ("memory", MemoryKind::Memory),
            ("hugepages-2Mi", MemoryKind::HugePages(2 << 20)),
            ("hugepages-1Gi", MemoryKind::HugePages(1 << 30)),
            ("hugepages-64Ki", MemoryKind::HugePages(64 << 10)),
            ("hugepages-100", MemoryKind::HugePages(100)),
        ] {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        assert_eq!("hugepages-2048Ki".parse(), Ok(MemoryKind::HugePages(2 << 20)));
        for name in ["", "cpu", "hugepages-", "hugepages-0", "hugepages-+1", "hugepages-16777216Ti"]
        {
            assert!(name.parse::<MemoryKind>().is_err(), "{name}");
        }
    }
}
