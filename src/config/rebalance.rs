//! `rebalance`: how running containers move to better CPUs.

use super::source::{ConfigError, Source};
use super::values::Text;
use ledger::{Rebalance, RebalanceMode};
use serde::Deserialize;
use std::time::Duration;

const MIN_STAY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Fields {
    mode: Option<Text>,
    #[serde(rename = "movesPer100Starts")]
    moves_per_100_starts: Option<Text>,
    across_numa_nodes: Option<Text>,
    min_stay: Option<Text>,
}

/// `None` without moves.
pub(super) fn resolve(
    source: &Source,
    fields: Option<&Fields>,
) -> Result<Option<Rebalance>, ConfigError> {
    let Some(fields) = fields else { return Ok(None) };
    let modes = [
        ("move", Some(RebalanceMode::Move)),
        ("suggest", Some(RebalanceMode::Suggest)),
        ("off", None),
    ];
    let mode = match &fields.mode {
        None => Some(RebalanceMode::Move),
        Some(_) => source.one_of("mode", &fields.mode, &modes)?,
    };
    let Some(Text(moves)) = &fields.moves_per_100_starts else {
        let why = "expected a number of containers like {movesPer100Starts: 10}".to_owned();
        return if mode.is_none() { Ok(None) } else { Err(source.at("rebalance", why)) };
    };
    let number = moves.parse().ok().filter(|moves| (1..=100).contains(moves));
    let moves_per_100_starts = number.ok_or_else(|| {
        let why = format!("{moves:?} is no number from 1 to 100; mode: off ends all moves");
        source.at("movesPer100Starts", why)
    })?;
    let booleans = [("true", Some(true)), ("false", Some(false))];
    let across = source.one_of("acrossNumaNodes", &fields.across_numa_nodes, &booleans)?;
    let min_stay = match &fields.min_stay {
        None => MIN_STAY,
        Some(Text(text)) => duration(text).ok_or_else(|| {
            source.at(
                "minStay",
                format!("{text:?} is no time like \"0s\", \"90s\", \"5m\" or \"1h\""),
            )
        })?,
    };
    let settings = |mode| Rebalance {
        mode,
        moves_per_100_starts,
        across_numa_nodes: across.unwrap_or(true),
        min_stay,
    };
    Ok(mode.map(settings))
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_written() {
        for (text, seconds) in [("0s", 0), ("1s", 1), ("90s", 90), ("5m", 300), ("1h", 3600)] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "-1s", "1d", "1.5m", "99999999999999999999s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
