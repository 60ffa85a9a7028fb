//! [`PoolGroups`]: the shared pool, set for the groups above containers where these keep
//! exclusivity.
//!
//! The groups are looked at before each answer that a container waits for, and put right: a class's
//! group vanishes with its last pod, and comes back without CPUs.

use super::blocking::blocking;
use super::keeper::Keeper;
use crate::cpuset::CpuSet;
use crate::enforce::{PoolError, PoolReport, SharedPool, binding};
use crate::ledger::{CgroupPath, Event, Exclusivity, Layout, LayoutError, Settings, Stance};
use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long CPUs are left alone that a container is about to leave, between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How often another program may write into a group before it is left to it.
const FIGHTS: u32 = 5;
/// How long a fight is remembered.
const PEACE: Duration = Duration::from_secs(600);

/// Why groups cannot keep exclusivity.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Groups(#[from] PoolError),
    #[error("another program sets other CPUs for {0} again and again")]
    Fight(CgroupPath),
}

/// What groups are set to.
#[derive(Debug)]
pub(super) struct PoolGroups {
    way: Way,
    /// When to look again for CPUs that a container was about to leave.
    due: Option<Instant>,
    /// Why groups do not keep exclusivity, though they were to.
    pub(super) given_up: Option<String>,
    /// What other programs allow groups.
    bounds: BTreeMap<CgroupPath, CpuSet>,
    /// How often other programs have written into a group lately.
    fights: BTreeMap<CgroupPath, (u32, Instant)>,
    /// How many groups were written since the start.
    pub(super) written: u64,
}

#[derive(Debug)]
enum Way {
    /// By groups.
    Groups(SharedPool),
    /// Otherwise. What an earlier life left in groups is still to be taken out, where that is
    /// possible.
    Otherwise(Option<SharedPool>),
}

impl PoolGroups {
    /// Finds out whether groups can, if they shall: what is in force is in the settings then.
    pub(super) fn start(cgroup_root: &Path, settings: &mut Settings) -> PoolGroups {
        let able = binding(cgroup_root);
        let mut given_up = None;
        let way = match (settings.exclusivity, able) {
            (Exclusivity::Groups, Ok(hierarchy)) => Way::Groups(SharedPool::new(hierarchy)),
            (Exclusivity::Groups, Err(why)) => {
                log::warn!("exclusivity: the runtime keeps it here and not groups, because {why}");
                settings.exclusivity = Exclusivity::Runtime;
                given_up = Some(why.to_string());
                Way::Otherwise(None)
            }
            (_, able) => Way::Otherwise(able.ok().map(SharedPool::new)),
        };
        PoolGroups {
            way,
            due: None,
            given_up,
            bounds: BTreeMap::new(),
            fights: BTreeMap::new(),
            written: 0,
        }
    }

    /// Whether groups keep exclusivity.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.way, Way::Groups(_))
    }

    /// Makes all groups what they should be by now. Where they cannot keep exclusivity, the runtime
    /// does from now on; says so.
    pub(super) async fn follow(&mut self, keeper: &mut Keeper) -> bool {
        let Way::Groups(pool) = &self.way else { return false };
        let pool = pool.clone();
        if keeper.ledger.stance() != Stance::Assign {
            return false;
        }
        let applied = match keeper.ledger.layout() {
            Ok(layout) => apply(pool.clone(), layout).await.map_err(Failure::from),
            Err(error) => Err(error.into()),
        };
        let failure = match applied {
            Ok(report) => match self.take_note(report) {
                Ok(()) => return false,
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        log::error!("exclusivity: the runtime keeps it from now on and not groups: {failure}");
        self.given_up = Some(failure.to_string());
        self.way = Way::Otherwise(Some(pool));
        let settings = keeper.ledger.settings().clone();
        keeper.note(Event::Settings(Settings { exclusivity: Exclusivity::Runtime, ..settings }));
        true
    }

    fn take_note(&mut self, report: PoolReport) -> Result<(), Failure> {
        let PoolReport { written, withheld, bounds, foreign } = report;
        let now = Instant::now();
        self.due = (!withheld.is_empty()).then(|| now + PAUSE);
        self.written += written;
        for (group, cpus) in &bounds {
            if self.bounds.get(group) != Some(cpus) {
                log::info!("{group}: another program allows {cpus}: its containers keep to that");
            }
        }
        self.bounds = bounds;
        for (group, cpus) in foreign {
            match cpus.is_empty() {
                true => log::warn!("{group}: another program has cleared its CPUs"),
                false => log::warn!("{group}: another program has set CPUs {cpus}"),
            }
            let (times, last) = self.fights.get(&group).copied().unwrap_or((0, now));
            let times = if now - last > PEACE { 1 } else { times + 1 };
            if times > FIGHTS {
                return Err(Failure::Fight(group));
            }
            self.fights.insert(group, (times, now));
        }
        Ok(())
    }

    /// All containers are where they should be by other means: takes out of groups what an earlier
    /// life left there.
    pub(super) async fn let_go(&mut self, tops: impl IntoIterator<Item = CgroupPath>) {
        let Way::Otherwise(left) = &mut self.way else { return };
        let Some(pool) = left.take() else { return };
        let tops: Vec<CgroupPath> = tops.into_iter().collect();
        let released =
            blocking(move || tops.iter().map(|top| pool.release(top)).collect::<Vec<_>>());
        for result in released.await {
            match result {
                Ok(0) => {}
                Ok(groups) => log::info!("{groups} groups have the CPUs again that others set"),
                Err(error) => {
                    log::error!("a group stays bound to CPUs of the shared pool: {error}")
                }
            }
        }
    }

    /// What other programs allow groups, by path.
    pub(super) fn bounds(&self) -> Vec<(String, CpuSet)> {
        self.bounds.iter().map(|(group, cpus)| (group.to_string(), *cpus)).collect()
    }

    /// When it is time to look again. Cancel safe.
    pub(super) async fn next(&mut self) {
        let Some(due) = self.due else { return pending().await };
        sleep_until(due).await;
        self.due = None;
    }
}

async fn apply(pool: SharedPool, layout: Layout) -> Result<PoolReport, PoolError> {
    // A panic has no report.
    blocking(move || Some(pool.apply(&layout))).await.unwrap_or_else(|| Ok(PoolReport::default()))
}
