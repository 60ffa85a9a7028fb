//! A second engine, for tests: the lowest free CPUs, whatever the machine is like.

use super::{Engine, Hint, NotEnough, Placement, Rejection, Request, Running, Weighed};
use crate::cpuset::CpuSet;
use crate::topology::Topology;

pub(super) struct FirstFree;

impl Engine for FirstFree {
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
        let cpus = self.resize(machine, request, &Running::Shared)?;
        Ok(Placement { cpus, hint: Hint::ANY })
    }

    fn resize(&self, machine: &Topology, r: &Request, held: &Running) -> Result<CpuSet, Rejection> {
        let held = held.held();
        let free = ((r.free | r.reuse.cpus()) & machine.online()) - r.settings.reserved - held;
        let cpus = held.lowest(r.cpus) | free.lowest(r.cpus.saturating_sub(held.len()));
        let short = NotEnough { requested: r.cpus, available: cpus.len() };
        if cpus.len() == r.cpus { Ok(cpus) } else { Err(short.into()) }
    }

    fn explain(&self, _: &Topology, _: &Request, _: Option<&Placement>) -> Weighed {
        Weighed { reasons: vec!["The first free CPUs.".to_owned()], ..Weighed::default() }
    }
}
