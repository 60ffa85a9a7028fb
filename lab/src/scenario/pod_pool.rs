//! `podLevelResources: own-pool`: the containers of a pod without resources of their own share CPUs
//! that no other pod has.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cpuset::CpuSet;

use super::shape::Shape;
use super::{guaranteed, milli};
use crate::invariants::parse;
use crate::pod::{MIB, Pod};
use crate::testbed::Testbed;
use crate::view::View;

const CONFIG: &str =
    "podLevelResources: own-pool\ntopologyManagerPolicy: best-effort\ntopologyManagerScope: pod";
const POD: &str = "pod";
/// CPUs of the pod.
const CPUS: usize = 4;
/// CPUs of its container that has resources of its own.
const OWN: usize = 2;
const MEMORY: i64 = 192 * MIB;

/// For running containers to leave the CPUs of a new one.
const SETTLED: Duration = Duration::from_secs(10);

/// The CPUs of the pod's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    /// Of those without resources of their own.
    pool: CpuSet,
    own: CpuSet,
}

pub(super) fn pod_pool(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start_plugin(&shape.config(CONFIG))?;
    testbed.shared("web")?;
    testbed.exclusive("before", 1)?;
    testbed.start(&pod())?;
    let parts = settled(testbed, shape)?;
    testbed.kill_plugin()?;
    let restarted = settled(testbed, shape)?;
    ensure!(restarted == parts, "after a crash {restarted:?}, before {parts:?}");
    testbed.exclusive("after", 1)?;
    let joined = settled(testbed, shape)?;
    ensure!(joined == parts, "after another pod {joined:?}, before {parts:?}");
    testbed.remove("before")?;
    testbed.remove("after")?;
    testbed.remove(POD)?;
    testbed.expect(&[("web", shape.online)])?;
    Ok(())
}

/// The kubelet sends the amounts of the pod for `app` and `sidecar`.
fn pod() -> Pod {
    let [app, sidecar] = ["app", "sidecar"].map(|name| guaranteed(name, CPUS).with_memory(MEMORY));
    let own = guaranteed("own", OWN);
    Pod::new(POD, [app, sidecar, own]).within(milli(CPUS)).within_memory(MEMORY)
}

/// Checks all containers until they are right: those that run follow a new one late.
fn settled(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<Parts> {
    testbed.begin("check the pod with a pool");
    let deadline = Instant::now() + SETTLED;
    loop {
        let checked = check(&testbed.look()?, shape);
        if checked.is_ok() || Instant::now() > deadline {
            return checked;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Not by the invariants: the pod's containers request more CPUs than they get.
fn check(view: &View, shape: &Shape) -> Result<Parts> {
    let of = |container: &str| -> Result<CpuSet> {
        let found = view.containers.iter().find(|c| c.pod == POD && c.container == container);
        let found = found.with_context(|| format!("container {container} does not run"))?;
        Ok(parse(&found.allowed))
    };
    let pool = of("app")?;
    let sidecar = of("sidecar")?;
    let own = of("own")?;
    ensure!(pool == sidecar, "app may run on {pool}, sidecar on {sidecar}");
    ensure!(pool.len() == CPUS - OWN, "app may run on {pool}, expected {} CPUs", CPUS - OWN);
    ensure!(own.len() == OWN, "own may run on {own}, expected {OWN} CPUs");
    ensure!(pool.is_disjoint(&own), "app may run on {pool}, own on {own}");
    let all = pool | own;
    ensure!(all.is_disjoint(&shape.reserved), "the pod may run on reserved CPUs: {all}");
    for other in view.containers.iter().filter(|c| c.pod != POD) {
        let cpus = parse(&other.allowed);
        ensure!(cpus.is_disjoint(&all), "{} may run on {cpus}, the pod on {all}", other.pod);
    }
    Ok(Parts { pool, own })
}
