//! What changes for the whole node while containers run.

mod hotplug;
mod reconfigure;
pub(super) mod standby;

pub(super) use hotplug::hotplug;
pub(super) use reconfigure::reconfigure;
