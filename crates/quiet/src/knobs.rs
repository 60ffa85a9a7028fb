//! Latency knobs of CPUs: idle states and frequencies, as files of sysfs.
//!
//! `Documentation/admin-guide/pm/` describes them. Containers ask for them with CRI-O's words
//! (`cpu-c-states.crio.io`, `cpu-freq-governor.crio.io`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where the kernel keeps the CPUs, relative to `/sys`.
pub(crate) const CPUS: &str = "devices/system/cpu";
pub(crate) const LATENCY: &str = "pm_qos_resume_latency_us";
pub(crate) const GOVERNOR: &str = "scaling_governor";
const MIN_FREQUENCY: &str = "scaling_min_freq";
const MAX_FREQUENCY: &str = "scaling_max_freq";

/// Whether this path, relative to `/sys`, names a knob. No other file below `/sys` is a knob's, whatever a link or the
/// record of an earlier process says.
pub(crate) fn is_knob(path: &str) -> bool {
    let Some(path) = path.strip_prefix(CPUS).and_then(|path| path.strip_prefix('/')) else {
        return false;
    };
    let is_frequency = |file| [GOVERNOR, MIN_FREQUENCY, MAX_FREQUENCY].contains(&file);
    match path.split('/').collect::<Vec<_>>()[..] {
        [cpu, "power", LATENCY] => is_numbered(cpu, "cpu"),
        // A CPU's directory may be a link to that of a policy.
        [cpu, "cpufreq", file] => is_numbered(cpu, "cpu") && is_frequency(file),
        ["cpufreq", policy, file] => is_numbered(policy, "policy") && is_frequency(file),
        _ => false,
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Which idle states a CPU may enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CStates {
    /// None: an idle CPU polls.
    Disable,
    /// Those from which it resumes within this time, in microseconds.
    MaxLatency(u32),
}

impl CStates {
    /// The kernel's word for `pm_qos_resume_latency_us`. Its `0` would mean no limit.
    pub(crate) fn word(self) -> String {
        match self {
            CStates::Disable => "n/a".to_owned(),
            CStates::MaxLatency(microseconds) => microseconds.to_string(),
        }
    }
}

/// Why the value of a knob cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    #[error(
        "c-states {0:?}: expected \"disable\" or \"max-latency:US\" with 1 to {max} microseconds, such as \"max-latency:10\"",
        max = i32::MAX - 1
    )]
    CStates(String),
    #[error("frequency-governor {0:?}: expected a governor's name, such as \"performance\"")]
    Governor(String),
    #[error("{key} {value:?}: expected kHz, or a number with MHz or GHz, such as \"2.4GHz\"")]
    Frequency { key: &'static str, value: String },
    #[error("min-frequency is {min} kHz, above max-frequency, which is {max} kHz")]
    Reversed { min: u64, max: u64 },
    #[error("{0}")]
    UnknownKey(String),
}

impl fmt::Display for CStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CStates::Disable => f.write_str("disable"),
            CStates::MaxLatency(microseconds) => write!(f, "max-latency:{microseconds}"),
        }
    }
}

impl FromStr for CStates {
    type Err = KnobError;

    fn from_str(word: &str) -> Result<CStates, KnobError> {
        let bad = || KnobError::CStates(wording::shortened(word, 64));
        if word == "disable" {
            return Ok(CStates::Disable);
        }
        let microseconds = word.strip_prefix("max-latency:").ok_or_else(bad)?;
        // The kernel reads a signed number; its largest one means no limit.
        match microseconds.parse::<i32>() {
            Ok(limit) if 0 < limit && limit < i32::MAX => {
                Ok(CStates::MaxLatency(limit.unsigned_abs()))
            }
            _ => Err(bad()),
        }
    }
}

/// What a container asks for; `null` leaves a file alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knobs {
    /// Which idle states its CPUs may enter.
    pub c_states: Option<CStates>,
    /// The CPUs' frequency governor.
    pub governor: Option<String>,
    /// The lowest frequency, in kHz.
    pub min_frequency_khz: Option<u64>,
    /// The highest frequency, in kHz.
    pub max_frequency_khz: Option<u64>,
}

impl Knobs {
    pub const KEYS: [&str; 4] =
        ["c-states", "frequency-governor", "min-frequency", "max-frequency"];

    /// No knob: leaves every file alone.
    pub const NONE: Knobs =
        Knobs { c_states: None, governor: None, min_frequency_khz: None, max_frequency_khz: None };

    /// Reads one knob in the words of a configuration.
    ///
    /// ```
    /// let mut knobs = quiet::Knobs::default();
    /// knobs.set("c-states", "max-latency:10")?;
    /// knobs.set("min-frequency", "2.4GHz")?;
    /// assert_eq!(knobs.min_frequency_khz, Some(2_400_000));
    /// # Ok::<(), quiet::KnobError>(())
    /// ```
    ///
    /// # Errors
    /// If the key or the value is invalid, or the frequencies exclude each other: nothing has changed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KnobError> {
        let mut changed = self.clone();
        match key {
            "c-states" => changed.c_states = Some(value.parse()?),
            "frequency-governor" => changed.governor = Some(governor(value)?),
            "min-frequency" => changed.min_frequency_khz = Some(khz("min-frequency", value)?),
            "max-frequency" => changed.max_frequency_khz = Some(khz("max-frequency", value)?),
            _ => return Err(KnobError::UnknownKey(wording::unknown(key, &Knobs::KEYS))),
        }
        if let (Some(min), Some(max)) = (changed.min_frequency_khz, changed.max_frequency_khz)
            && max < min
        {
            return Err(KnobError::Reversed { min, max });
        }
        *self = changed;
        Ok(())
    }

    /// The keys and values of these knobs, as [`Knobs::set`] reads them.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let [c_states, governor, min_frequency, max_frequency] = Knobs::KEYS;
        let mut words = Vec::new();
        words.extend(self.c_states.map(|limit| (c_states, limit.to_string())));
        words.extend(self.governor.clone().map(|name| (governor, name)));
        words.extend(self.min_frequency_khz.map(|khz| (min_frequency, frequency(khz))));
        words.extend(self.max_frequency_khz.map(|khz| (max_frequency, frequency(khz))));
        words
    }

    /// The target files of `cpufreq`.
    pub(crate) fn frequencies(&self) -> Vec<(&'static str, String)> {
        let mut files = Vec::new();
        files.extend(self.governor.clone().map(|name| (GOVERNOR, name)));
        files.extend(self.min_frequency_khz.map(|khz| (MIN_FREQUENCY, khz.to_string())));
        files.extend(self.max_frequency_khz.map(|khz| (MAX_FREQUENCY, khz.to_string())));
        files
    }
}

/// A governor's name; the kernel has at most 15 characters.
fn governor(name: &str) -> Result<String, KnobError> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 15 || !name.bytes().all(is_word) {
        return Err(KnobError::Governor(wording::shortened(name, 64)));
    }
    Ok(name.to_owned())
}

/// In the largest unit without a fraction.
pub fn frequency(khz: u64) -> String {
    if khz.is_multiple_of(1_000_000) {
        format!("{}GHz", khz / 1_000_000)
    } else if khz.is_multiple_of(1000) {
        format!("{}MHz", khz / 1000)
    } else {
        format!("{khz}kHz")
    }
}

/// `2400000`, `2400MHz` or `2.4GHz`, in kHz.
fn khz(key: &'static str, text: &str) -> Result<u64, KnobError> {
    let bad = || KnobError::Frequency { key, value: wording::shortened(text, 64) };
    // The number of decimals that a kHz has in the unit.
    let (number, decimals) = match text.strip_suffix("GHz") {
        Some(number) => (number, 6),
        None => match text.strip_suffix("MHz") {
            Some(number) => (number, 3),
            None => (text.strip_suffix("kHz").unwrap_or(text), 0),
        },
    };
    let number = number.trim_end();
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(bad()),
        None => (number, ""),
    };
    let is_decimal = format!("{whole}{fraction}").bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_decimal || fraction.len() > decimals {
        return Err(bad());
    }
    match format!("{whole}{fraction:0<decimals$}").parse() {
        Ok(khz @ 1..=u64::MAX) => Ok(khz),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_become_knobs() {
        let mut knobs = Knobs::default();
        for (key, value) in [
            ("c-states", "max-latency:10"),
            ("frequency-governor", "performance"),
            ("min-frequency", "800MHz"),
            ("max-frequency", "3.25 GHz"),
        ] {
            knobs.set(key, value).unwrap();
        }
        assert_eq!(knobs.c_states, Some(CStates::MaxLatency(10)));
        assert_eq!(knobs.governor.as_deref(), Some("performance"));
        assert_eq!(knobs.min_frequency_khz, Some(800_000));
        assert_eq!(knobs.max_frequency_khz, Some(3_250_000));
        knobs.set("c-states", "disable").unwrap();
        assert_eq!(knobs.c_states.map(CStates::word).as_deref(), Some("n/a"));
        assert_eq!(khz("", "2400000"), Ok(2_400_000));
        assert_eq!(khz("", "1kHz"), Ok(1));

        let before = knobs.clone();
        for (key, value) in [
            ("c-states", "enable"),
            ("c-states", "max-latency:0"),
            ("c-states", "max-latency:-1"),
            ("c-states", "max-latency:2147483647"),
            ("frequency-governor", ""),
            ("frequency-governor", "per formance"),
            ("frequency-governor", "a-governor-with-a-long-name"),
            ("min-frequency", "4GHz"),
            ("min-frequency", "0"),
            ("min-frequency", "-1"),
            ("min-frequency", "1."),
            ("min-frequency", "1.5"),
            ("min-frequency", ".5GHz"),
            ("min-frequency", "99999999999999999999"),
            ("c-state", "disable"),
        ] {
            knobs.set(key, value).unwrap_err();
            assert_eq!(knobs, before, "{key} {value}");
        }
    }

    #[test]
    fn only_the_files_of_knobs_are_knobs() {
        for path in [
            "devices/system/cpu/cpu4/power/pm_qos_resume_latency_us",
            "devices/system/cpu/cpu12/cpufreq/scaling_governor",
            "devices/system/cpu/cpufreq/policy0/scaling_min_freq",
            "devices/system/cpu/cpufreq/policy128/scaling_max_freq",
        ] {
            assert!(is_knob(path), "{path}");
        }
        for path in [
            "",
            "devices/system/cpu",
            "devices/system/cpu/online",
            "devices/system/cpu/cpu5/online",
            "devices/system/cpu/cpu/power/pm_qos_resume_latency_us",
            "devices/system/cpu/cpu-1/power/pm_qos_resume_latency_us",
            "devices/system/cpu/../power/pm_qos_resume_latency_us",
            "devices/system/cpu/cpu4/power/../online",
            "devices/system/cpu/cpu4/power/control",
            "devices/system/cpu/cpu4/power/scaling_governor",
            "devices/system/cpu/cpu4/cpufreq/scaling_setspeed",
            "devices/system/cpu/cpufreq/policy0/../../cpu4/online",
            "devices/system/cpu/cpufreq/boost",
            "/devices/system/cpu/cpu4/power/pm_qos_resume_latency_us",
            "kernel/mm/transparent_hugepage/enabled",
        ] {
            assert!(!is_knob(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_word_is_read(key in 0..4usize, value in "[0-9.a-zA-Z: é-]{0,24}") {
            let _ = Knobs::default().set(Knobs::KEYS[key], &value);
        }

        #[test]
        fn the_words_of_knobs_are_read_as_the_same_knobs(
            limit in 0..i32::MAX as u32,
            min in 1..u64::MAX / 1_000_000,
            unit in prop::sample::select(&[1, 1000, 1_000_000][..]),
        ) {
            let c_states = if limit == 0 { CStates::Disable } else { CStates::MaxLatency(limit) };
            let knobs = Knobs {
                c_states: Some(c_states),
                governor: Some("schedutil".to_owned()),
                min_frequency_khz: Some(min * unit),
                max_frequency_khz: Some(min * unit + 1),
            };
            let mut read = Knobs::NONE;
            for (key, value) in knobs.words() {
                read.set(key, &value).unwrap();
            }
            prop_assert_eq!(read, knobs);
        }
    }
}
