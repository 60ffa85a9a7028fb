//! `rebalance`: how running containers move to better CPUs.

use super::given::{Given, boolean_word, one_of};
use super::source::{Mistakes, Source};
use super::values::Text;
use ledger::{Rebalance, RebalanceMode};
use serde::Deserialize;
use std::time::Duration;

const DEFAULT_MIN_STAY: Duration = Duration::from_secs(60);

pub(super) fn read(given: &Given<'_>, rebalance: &mut Option<Rebalance>) -> Result<(), Mistakes> {
    *rebalance = resolve(given.source, &given.parse()?)?;
    Ok(())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RebalanceFields {
    mode: Option<Text>,
    #[serde(rename = "movesPer100Starts")]
    moves_per_100_starts: Option<Text>,
    across_numa_nodes: Option<Text>,
    min_stay: Option<Text>,
}

const MODES: [Option<RebalanceMode>; 3] =
    [Some(RebalanceMode::Move), Some(RebalanceMode::Suggest), None];

fn mode_word(mode: Option<RebalanceMode>) -> &'static str {
    match mode {
        Some(RebalanceMode::Move) => "move",
        Some(RebalanceMode::Suggest) => "suggest",
        None => "off",
    }
}

/// `None` with `mode: off`.
fn resolve(source: &Source, fields: &RebalanceFields) -> Result<Option<Rebalance>, Mistakes> {
    let mode = match &fields.mode {
        None => Ok(Some(RebalanceMode::Move)),
        Some(Text(text)) => one_of(text, &MODES, mode_word).map_err(|why| source.at("mode", why)),
    };
    let moves = match &fields.moves_per_100_starts {
        None if matches!(mode, Ok(None)) => Ok(1),
        None => {
            let why = "expected a number of containers like {movesPer100Starts: 10}";
            Err(source.at("rebalance", why))
        }
        Some(Text(moves)) => {
            let number = moves.parse().ok().filter(|moves| (1..=100).contains(moves));
            number.ok_or_else(|| {
                let why = format!("{moves:?} is no number from 1 to 100; mode: off ends all moves");
                source.at("movesPer100Starts", why)
            })
        }
    };
    let across = match &fields.across_numa_nodes {
        None => Ok(true),
        Some(Text(text)) => one_of(text, &[true, false], boolean_word)
            .map_err(|why| source.at("acrossNumaNodes", why)),
    };
    let min_stay = match &fields.min_stay {
        None => Ok(DEFAULT_MIN_STAY),
        Some(Text(text)) => duration(text).ok_or_else(|| {
            source.at(
                "minStay",
                format!("{text:?} is no time like \"0s\", \"90s\", \"5m\" or \"1h\""),
            )
        }),
    };
    match (mode, moves, across, min_stay) {
        (Ok(mode), Ok(moves_per_100_starts), Ok(across_numa_nodes), Ok(min_stay)) => {
            Ok(mode.map(|mode| Rebalance {
                mode,
                moves_per_100_starts,
                across_numa_nodes,
                min_stay,
            }))
        }
        (mode, moves, across, min_stay) => {
            let mistakes = [mode.err(), moves.err(), across.err(), min_stay.err()];
            Mistakes::none_of(mistakes.into_iter().flatten().collect())?;
            Ok(None)
        }
    }
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
    fn a_duration_is_a_number_with_a_unit() {
        for (text, seconds) in [("0s", 0), ("1s", 1), ("90s", 90), ("5m", 300), ("1h", 3600)] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "-1s", "1d", "1.5m", "99999999999999999999s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
