//! Kubernetes' quantities: `2`, `1.5`, `500m`, `1Gi`, `12e3`.
//!
//! ```
//! use quantity::Quantity;
//!
//! let half = Quantity::parse("500m")?;
//! assert_eq!(half.milli(), 500);
//! assert!(half < Quantity::parse("1")?);
//! assert_eq!(Quantity::parse("1Gi"), Quantity::parse("1073741824"));
//! # Ok::<(), String>(())
//! ```
//!
//! An amount is not negative, and rounded up to a billionth. One that is too large is an error.

/// An amount in billionths, the precision of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(u128);

/// One in [`Quantity`]'s unit.
const ONE: u128 = 1_000_000_000;

impl Quantity {
    /// # Errors
    /// A message with the text and the expected format.
    pub fn parse(text: &str) -> Result<Quantity, String> {
        let bad = || format!("invalid quantity {text:?}: expected one like 2, 1.5, 500m or 1Gi");
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(bad());
        }
        let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| bad())?;
        let (times, parts) = scale(suffix).ok_or_else(bad)?;
        let places = u32::try_from(fraction.len()).map_err(|_| bad())?;
        let parts = 10u128.checked_pow(places).and_then(|tens| tens.checked_mul(parts));
        let amount = digits.checked_mul(times).ok_or_else(bad)?;
        // Rounded up: a fraction below a billionth counts as a billionth, as in Kubernetes.
        Ok(Quantity(amount.div_ceil(parts.ok_or_else(bad)?)))
    }

    /// The amount in thousandths, rounded up; at most `u64::MAX`.
    pub fn milli(self) -> u64 {
        u64::try_from(self.0.div_ceil(ONE / 1000)).unwrap_or(u64::MAX)
    }

    /// The amount in whole units, rounded up; at most `u64::MAX`.
    pub fn whole(self) -> u64 {
        u64::try_from(self.0.div_ceil(ONE)).unwrap_or(u64::MAX)
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_add(other.0))
    }
}

/// The meaning of a suffix, as a multiple of [`ONE`] and a divisor.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    let binary = |power: u32| Some((ONE << (10 * power), 1));
    let decimal = |power: u32| Some((ONE * 10u128.pow(power), 1));
    match suffix {
        "" => decimal(0),
        "n" => Some((1, 1)),
        "u" => Some((1000, 1)),
        "m" => Some((1_000_000, 1)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            if power.unsigned_abs() > 18 {
                return None;
            }
            let tens = 10u128.pow(power.unsigned_abs());
            Some(if power < 0 { (ONE, tens) } else { (ONE * tens, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_values_that_kubernetes_gives_them() {
        for (text, milli) in [
            ("2", 2000),
            ("1.5", 1500),
            ("500m", 500),
            (".5", 500),
            ("2.", 2000),
            ("0", 0),
            ("1u", 1),
            ("1.0001", 1001),
            ("12e3", 12_000_000),
            ("5e-1", 500),
            ("1k", 1_000_000),
            ("1Ki", 1_024_000),
            ("9Ei", u64::MAX),
        ] {
            assert_eq!(Quantity::parse(text).map(Quantity::milli), Ok(milli), "{text}");
        }
        for bad in [
            "",
            ".",
            "-1",
            "1x",
            "1.2.3",
            "m",
            "1 Gi",
            "1e99",
            "e3",
            "99999999999999999999999999999999999999999",
        ] {
            assert!(Quantity::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Quantity::parse("1Gi"), Quantity::parse("1073741824"));
        for (text, whole) in [("1Gi", 1 << 30), ("1500m", 2), ("0", 0), ("16Ei", u64::MAX)] {
            assert_eq!(Quantity::parse(text).map(Quantity::whole), Ok(whole), "{text}");
        }
    }
}
