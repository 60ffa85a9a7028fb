//! `cpuManagerPolicyOptions` and `topologyManagerPolicyOptions`: an override's options are merged by
//! name, as Helm and kustomize merge maps.
//!
//! Names and values are checked under every policy. Whether the options of several entries go
//! together shows only where they are in force.

use super::field::{Field, Given};
use super::fields::Values;
use super::source::ConfigError;
use super::values::Pairs;
use placement::{Options, TopologyManager};

pub(super) struct CpuManagerOptions;

impl Field for CpuManagerOptions {
    fn name(&self) -> &'static str {
        "cpuManagerPolicyOptions"
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), ConfigError> {
        let options: Pairs = given.parse()?;
        Options::parse(options.borrowed()).map_err(|error| given.source.cpu_option(&error))?;
        values.cpu_manager_options.merge(options);
        Ok(())
    }
}

pub(super) struct TopologyManagerOptions;

impl Field for TopologyManagerOptions {
    fn name(&self) -> &'static str {
        "topologyManagerPolicyOptions"
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), ConfigError> {
        let options: Pairs = given.parse()?;
        TopologyManager::parse_options(options.borrowed())
            .map_err(|error| given.source.topology_manager(&error))?;
        values.topology_manager_options.merge(options);
        Ok(())
    }
}
