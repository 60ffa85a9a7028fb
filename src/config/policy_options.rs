//! `cpuManagerPolicyOptions` and `topologyManagerPolicyOptions`: an override's options are merged by
//! name, as Helm and kustomize merge maps.
//!
//! Names and values are checked under every policy. Whether the options of several entries go
//! together shows only where they are in force.

use super::given::Given;
use super::source::ConfigError;
use super::values::Pairs;
use placement::{Options, TopologyManager};

pub(super) fn read_cpu(given: &Given<'_>, options: &mut Pairs) -> Result<(), ConfigError> {
    let more: Pairs = given.parse()?;
    Options::parse(more.borrowed()).map_err(|error| given.source.cpu_option(&error))?;
    options.merge(more);
    Ok(())
}

pub(super) fn read_topology(given: &Given<'_>, options: &mut Pairs) -> Result<(), ConfigError> {
    let more: Pairs = given.parse()?;
    TopologyManager::parse_options(more.borrowed())
        .map_err(|error| given.source.topology_manager(&error))?;
    options.merge(more);
    Ok(())
}
