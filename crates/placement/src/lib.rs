//! Which CPUs: pure functions of a machine and of what is free.
//!
//! An answer depends on the machine and on a [`Request`], and on nothing else. [`place()`] and
//! [`explain()`] give the request to the engine that its [`PlacementSettings`] name; the plugin
//! calls engines only by these. [`resize()`] changes running containers in one way, with the costs
//! of `compact`. Each engine is a folder and uses the types of the files here; these files use no
//! engine:
//!
//! * [`kubelet`] answers as the kubelet's CPU Manager and Topology Manager do, wherever their
//!   answers are legal; its files say where they are not;
//! * `compact` takes the fewest NUMA nodes and uncore caches.
//!
//! [`moves`] calls the engines: it plans which running containers move to make room for others.
//!
//! ```
//! use cpuset::CpuSet;
//! use placement::{DeviceNodes, EngineKind, Request, Reuse, PlacementSettings, PodOptions, place};
//! use machines::presets::preset;
//!
//! // Four uncore caches of eight CPUs. Each of the first two has six left, the others have none.
//! let machine = preset("kep-4800").ok_or("no such machine")?.topology()?;
//! let first = machine.uncores()[0].cpus.lowest(6);
//! let second = machine.uncores()[1].cpus.lowest(6);
//! let request = Request {
//!     cpus: 6,
//!     free: first | second,
//!     reuse: Reuse::NONE,
//!     promised: 0,
//!     pod: None,
//!     pod_options: PodOptions::NONE,
//!     devices: DeviceNodes::NONE,
//!     memory: None,
//!     settings: PlacementSettings { engine: EngineKind::Compact, ..PlacementSettings::default() },
//! };
//! assert_eq!(place(&machine, &request)?.cpus, first);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here keeps state, reads a file or a clock, or logs: the ledger knows which container
//! holds what.

pub mod caches;
mod combinations;
mod compact;
pub mod cores;
mod devices;
mod engine;
mod hint;
mod isolated;
pub mod kubelet;
#[cfg(test)]
mod machines;
pub mod memory;
pub mod memory_manager;
pub mod moves;
pub mod options;
pub mod pod_options;
pub mod quality;
mod rejection;
mod request;
mod settings;
mod sizes;
mod strategy;
pub mod topology_manager;

pub use devices::DeviceNodes;
pub use engine::{CacheCandidate, Engine, NumaCandidate, Placement, Weighed};
pub use hint::{Distances, Hint, NumaNodes};
pub use kubelet::configuration::{CpuManagerConfig, Reservation, ReserveError, SettingsError};
pub use options::Options;
pub use pod_options::PodOptions;
pub use rejection::{NotEnough, Reason, Rejection};
pub use request::{PodDemand, Request, Reuse, Running};
pub use settings::{EngineConflict, EngineKind, IsolatedCpus, PlacementSettings};
use sizes::Fitting;
pub use sizes::OddSizes;
pub use strategy::{Distribution, Strategy, UncoreOrder};
pub use topology_manager::{NodeLimit, Scope, TopologyManager, TopologyPolicy};

use compact::{Compact, complete, grow, shrink};
use cpuset::CpuSet;
use isolated::first_that_fits;
use kubelet::Kubelet;
use topology::Topology;

fn engine_of(settings: &PlacementSettings) -> &'static dyn Engine {
    match settings.engine {
        EngineKind::Kubelet => &Kubelet,
        EngineKind::Compact => &Compact,
    }
}

/// Chooses the CPUs of a container that starts.
///
/// # Errors
/// The engine's rejection, or [`NotEnough`] if the answer would take CPUs that are promised to
/// another pod.
pub fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
    let engine = engine_of(&request.settings);
    let placement = first_that_fits(machine, request, &CpuSet::EMPTY, |request| {
        engine.place(machine, request)
    })?;
    check(machine, request, &placement.cpus, &CpuSet::EMPTY)?;
    Ok(placement)
}

/// Chooses all CPUs of a running container whose request or CPUs have changed. One that grows keeps
/// its CPUs, one that shrinks a part of them, one that shared CPUs is placed like one that starts.
/// The topology manager decides where a container may start, so its policy refuses none of this.
///
/// # Errors
/// As for [`place()`].
pub fn resize(
    machine: &Topology,
    request: &Request,
    running: &Running,
) -> Result<CpuSet, Rejection> {
    let held = running.held();
    let cpus = first_that_fits(machine, request, &held, |request| match running {
        Running::Shared => {
            let request = request.on_any_nodes();
            Ok(engine_of(&request.settings).place(machine, &request)?.cpus)
        }
        Running::Exclusive(held) if request.cpus < held.len() => shrink(machine, request, held),
        Running::Exclusive(held) => grow(machine, &request.on_any_nodes(), held)
            .map_err(|refused| refused.of_resize(request.cpus, held.len())),
        Running::Reduced { left, broken } => {
            Ok(complete(machine, &request.on_any_nodes(), left, broken)?)
        }
    })?;
    check(machine, request, &cpus, &held)?;
    Ok(cpus)
}

/// Lists what the engine considered for a request to [`place()`]. `placement` was the engine's
/// answer; `None` if it refused.
pub fn explain(machine: &Topology, request: &Request, placement: Option<&Placement>) -> Weighed {
    isolated::explain(machine, request, placement, engine_of(&request.settings))
}

/// How many numbers of CPUs an explanation tries in each direction.
const TRIES: usize = 512;

/// The nearest smaller and larger numbers of CPUs that would fit on the empty machine, for a
/// request that does not. `None` if the request fits.
pub fn nearest_that_fit(machine: &Topology, request: &Request) -> Option<Vec<usize>> {
    let fits = |cpus: &usize| place(machine, &request.alone(machine, *cpus)).is_ok();
    if fits(&request.cpus) {
        return None;
    }
    let assignable = machine.online() - request.settings.reserved;
    // Devices and pod options refuse more numbers than cores and the policy do.
    let fitting = Fitting::new(machine, &request.settings, &assignable);
    let tried = |cpus: &usize| fitting.fits(*cpus);
    let most = assignable.len();
    let smaller = (1..request.cpus.min(most + 1)).rev().filter(tried).take(TRIES).find(fits);
    // Larger numbers fit where this one is no sum of whole cores, or needs fewer NUMA nodes than
    // the devices are on.
    let larger = (request.cpus + 1..=most).filter(tried).take(TRIES).find(fits);
    Some(smaller.into_iter().chain(larger).collect())
}

/// Checks an engine's answer for a container that holds `held`, so that a mistake of an engine
/// gives no container a CPU that it may not have.
fn check(
    machine: &Topology,
    request: &Request,
    cpus: &CpuSet,
    held: &CpuSet,
) -> Result<(), NotEnough> {
    let supply = || request.free | request.reuse.cpus | *held;
    let with_idle = request.footprint(machine, cpus);
    // The first test suffices for most requests and saves the unions of `supply`.
    let legal = (with_idle.is_subset(&request.free) || with_idle.is_subset(&supply()))
        && cpus.is_subset(&machine.online())
        && cpus.is_disjoint(&request.settings.reserved);
    debug_assert!(legal && cpus.len() == request.cpus, "{cpus} for {request:?}");
    if !legal || cpus.len() != request.cpus {
        return Err(NotEnough { requested: request.cpus, available: (supply() & *cpus).len() });
    }
    // The engine has already refused with the kubelet's reasons, so these take precedence.
    if request.promised == 0 {
        return Ok(());
    }
    let held = request.footprint(machine, held);
    // CPUs that the container holds already do not count against promises.
    let fresh = request.settings.isolated.allowed(machine, &request.free) - held;
    let taken = request.footprint(machine, cpus);
    let requested = (taken & fresh).len();
    let left = request.settings.isolated.allowed(machine, &(request.reuse.cpus - taken));
    let freed = left.len().saturating_sub(request.reuse.kept);
    let available = (fresh.len() + freed).saturating_sub(request.promised);
    if requested <= available { Ok(()) } else { Err(NotEnough { requested, available }) }
}
