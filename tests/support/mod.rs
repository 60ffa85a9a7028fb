//! Shared by several tests: daemons with fake files, fake machines, random numbers.

pub(crate) mod commands;
pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod expected;
pub(crate) mod fake_sysfs;
pub(crate) mod json_names;
pub(crate) mod logged;
pub(crate) mod observed;
pub(crate) mod random;
