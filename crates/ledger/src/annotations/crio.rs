//! CRI-O's annotations for its high-performance handlers, as far as they mean something here. They
//! count only with `compatibility: [crio]`.
//!
//! Source: `internal/runtimehandlerhooks` of CRI-O. The form for one container, `KEY/CONTAINER`, is
//! cri-o#9989.

use super::Asked;
use quiet::{InterruptMode, Knobs};
use wording::unknown;

pub(crate) const IRQ: &str = "irq-load-balancing.crio.io";
pub(crate) const QUOTA: &str = "cpu-quota.crio.io";
pub(crate) const BALANCING: &str = "cpu-load-balancing.crio.io";
const C_STATES: &str = "cpu-c-states.crio.io";
const GOVERNOR: &str = "cpu-freq-governor.crio.io";

const KEYS: [&str; 5] = [IRQ, QUOTA, BALANCING, C_STATES, GOVERNOR];

/// The key, and the container that the annotation names; `None` if it is not one of these.
pub(super) fn parts(name: &str) -> Option<(&str, Option<&str>)> {
    let (key, container) = match name.split_once('/') {
        Some((key, container)) => (key, Some(container)),
        None => (name, None),
    };
    if KEYS.contains(&key) { Some((key, container)) } else { None }
}

impl Asked {
    /// Adds what one of CRI-O's annotations asks for.
    ///
    /// # Errors
    /// Why the value is wrong: nothing has changed.
    pub(super) fn set_crio(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            IRQ => self.interrupts = Some(interrupts(value)?),
            QUOTA => self.lifts_quota = is_disabled(value)?,
            BALANCING => self.stops_balancing = is_disabled(value)?,
            // CRI-O sets what a CPU has without a limit.
            C_STATES if value == "enable" => self.knobs.c_states = None,
            C_STATES => {
                let limit = value.replacen("max_latency:", "max-latency:", 1);
                self.knobs.c_states = knob("c-states", &limit)
                    .map_err(|_| {
                        let value = wording::shortened(value, 64);
                        format!("{value:?}: expected \"disable\", \"enable\" or \"max_latency:US\"")
                    })?
                    .c_states;
            }
            GOVERNOR => self.knobs.governor = knob("frequency-governor", value)?.governor,
            _ => return Err(unknown(key, &KEYS)),
        }
        Ok(())
    }
}

/// `true` is CRI-O's older word for `disable`.
fn interrupts(value: &str) -> Result<InterruptMode, String> {
    match value {
        "disable" | "true" => Ok(InterruptMode::Away),
        "enable" => Ok(InterruptMode::Leave),
        "housekeeping" => Ok(InterruptMode::Housekeeping),
        _ => Err(unknown(value, &["disable", "enable", "housekeeping"])),
    }
}

fn is_disabled(value: &str) -> Result<bool, String> {
    match value {
        "disable" | "true" => Ok(true),
        "enable" => Ok(false),
        _ => Err(unknown(value, &["disable", "enable"])),
    }
}

fn knob(key: &str, value: &str) -> Result<Knobs, String> {
    let mut knobs = Knobs::NONE;
    knobs.set(key, value).map_err(|error| error.to_string())?;
    Ok(knobs)
}
