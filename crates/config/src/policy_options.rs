//! `cpuManagerPolicyOptions` and `topologyManagerPolicyOptions`: an override's options are merged by
//! name, as Helm and kustomize merge maps.
//!
//! Names and values are checked under every policy. Whether the options of several entries go
//! together shows only where they are in force.

use super::given::Given;
use super::source::Mistakes;
use super::values::Pairs;
use placement::{Options, TopologyManager};

/// Names that options had in drafts of KEPs, and what they are called now.
pub(super) const DRAFTS: [(&str, &str, &str); 9] = [
    ("reject-non-smt-aligned", "KEP-2625", FULL_CORES),
    ("smtaware", "KEP-2625", FULL_CORES),
    ("smtalign", "KEP-2625", FULL_CORES),
    ("smtisolate", "KEP-2625", "the annotation smt.cpu-manager.nri.io with isolate"),
    ("align-by-uncorecache", "KEP-4800", UNCORE),
    ("prefer-align-by-uncorecache", "KEP-4800", UNCORE),
    ("prefer-align-cpus-by-uncore-cache", "KEP-4800", UNCORE),
    ("spread-physical-cpus-preferred", "KEP-4176", ACROSS_CORES),
    ("distribute-cores-across-cpus", "KEP-4176", ACROSS_CORES),
];
const FULL_CORES: &str = "full-pcpus-only";
const UNCORE: &str = "prefer-align-cpus-by-uncorecache";
const ACROSS_CORES: &str = "distribute-cpus-across-cores";

/// The KEP whose draft had this option, and the option's name now.
pub(super) fn todays_name(draft: &str) -> Option<(&'static str, &'static str)> {
    DRAFTS.iter().find(|(name, ..)| *name == draft).map(|(_, kep, today)| (*kep, *today))
}

pub(super) fn read_cpu(given: &Given<'_>, options: &mut Pairs) -> Result<(), Mistakes> {
    let more: Pairs = given.parse()?;
    Options::parse(more.borrowed()).map_err(|error| given.source.cpu_option(&error))?;
    options.merge(more);
    Ok(())
}

pub(super) fn read_topology(given: &Given<'_>, options: &mut Pairs) -> Result<(), Mistakes> {
    let more: Pairs = given.parse()?;
    TopologyManager::parse_options(more.borrowed())
        .map_err(|error| given.source.topology_manager(&error))?;
    options.merge(more);
    Ok(())
}
