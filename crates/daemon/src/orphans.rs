//! Reports ends of containers and pods that the runtime has not reported. After some failures
//! runtimes do not, and their CPUs would be lost until the next start.
//!
//! An end shows by a cgroup that has vanished. Only a cgroup that existed at an earlier check can
//! vanish: where the hierarchy is not mounted as expected, no container ends.

use exclusivity::verify::{Presence, Verifier};
use ledger::{ContainerId, Deserted, Event, Holder, Subject};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time between two [`Event::QuietPeriod`]: after two of them an ended container lends its
/// CPUs. The kubelet tries several times in this period to start it again.
const QUIET_PERIOD: Duration = Duration::from_secs(30);

/// How long a cgroup must be gone. No step of a runtime or a kubelet takes so long.
const GONE: Duration = Duration::from_secs(120);

/// The kind of an unreported end in metrics, which count it like a drift.
pub(super) const KIND: &str = "vanished";

/// A container with exclusive CPUs, and what its cgroup shows.
pub(super) type Sighting = (Holder, Presence);

#[derive(Debug)]
pub(super) struct Orphans {
    /// Containers with exclusive CPUs whose cgroups existed at some check, and since when these are
    /// gone; `None` if they exist.
    gone_since: HashMap<ContainerId, Option<Instant>>,
    /// Unreported ends since the start.
    pub(super) count: u64,
    quiet_until: Instant,
}

pub(super) fn observe(verifier: &Verifier, holders: Vec<Holder>) -> Vec<Sighting> {
    let presence = |holder: Holder| {
        let presence = verifier.presence(&holder);
        (holder, presence)
    };
    holders.into_iter().map(presence).collect()
}

impl Orphans {
    pub(super) fn new(now: Instant) -> Orphans {
        Orphans { gone_since: HashMap::new(), count: 0, quiet_until: now + QUIET_PERIOD }
    }

    pub(super) fn quiet_until(&self) -> Instant {
        self.quiet_until
    }

    pub(super) fn quiet_period_ended(&mut self, now: Instant) -> Event {
        self.quiet_until = now + QUIET_PERIOD;
        Event::QuietPeriod
    }

    /// The ends that a check pass shows, as if the runtime had reported them, and the names of the pods and
    /// containers.
    pub(super) fn ended(&mut self, sightings: Vec<Sighting>, now: Instant) -> Vec<(String, Event)> {
        let mut before = std::mem::take(&mut self.gone_since);
        let mut ends = Vec::new();
        for (Holder { subject, sandbox, ended, .. }, presence) in sightings {
            let id = subject.id.clone();
            let end = match presence {
                Presence::PodGone => {
                    let pod = Subject { container: String::new(), ..subject };
                    (pod.to_string(), Event::StopPod(sandbox))
                }
                Presence::Ended if !ended => (subject.to_string(), Event::Stop(id.clone())),
                Presence::Ended | Presence::Lives => {
                    self.gone_since.insert(id, None);
                    continue;
                }
            };
            let Some(gone_since) = before.remove(&id) else { continue };
            let since = gone_since.unwrap_or(now);
            if now - since >= GONE && !ends.contains(&end) {
                self.count += 1;
                ends.push(end);
            }
            self.gone_since.insert(id, Some(since));
        }
        ends
    }
}

pub(super) fn treated_as_ended(name: &str) -> String {
    format!(
        "{name}: cgroup gone for {} s without a report from the runtime: treated as ended",
        GONE.as_secs()
    )
}

/// The pods that have ended: those that have no container left and whose cgroup is gone. If cgroups cannot be
/// read, or the runtime does not report the pod's, the removal of its last container is enough.
/// The cgroup of a pod that never had a container was never read: it counts as gone only if its
/// topmost ancestor exists, as otherwise the hierarchy is not mounted as expected.
pub(super) fn deserted_pods(verifier: Option<&Verifier>, deserted: Vec<Deserted>) -> Vec<Deserted> {
    let is_over = |pod: &Deserted| match (verifier, &pod.group) {
        (Some(verifier), Some(group)) => {
            let visible = || group.top().is_some_and(|top| verifier.has(&top));
            !verifier.has(group) && (pod.removed || visible())
        }
        _ => pod.removed,
    };
    deserted.into_iter().filter(is_over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpuset::CgroupPath;
    use ledger::SandboxId;

    /// Containers of one pod, with this presence each.
    fn sightings(ids: &[&str], presence: Presence) -> Vec<Sighting> {
        let holder = |id: &&str| Holder {
            subject: Subject {
                namespace: "ns".to_owned(),
                pod: "pod".to_owned(),
                container: (*id).to_owned(),
                id: ContainerId((*id).into()),
            },
            sandbox: SandboxId("sandbox".into()),
            group: None,
            pod_group: CgroupPath::new("kubepods/pod").unwrap(),
            ended: false,
        };
        ids.iter().map(|id| (holder(id), presence)).collect()
    }

    #[test]
    fn a_pod_whose_cgroup_has_vanished_ends_once_and_after_a_while() {
        let start = Instant::now();
        let mut orphans = Orphans::new(start);
        let mut after = |seconds, presence| {
            let now = start + Duration::from_secs(seconds);
            orphans.ended(sightings(&["a", "b"], presence), now)
        };
        assert_eq!(after(0, Presence::PodGone), [], "its cgroup never existed");
        assert_eq!(after(10, Presence::Lives), []);
        for seconds in [20, 60, 100, 139] {
            assert_eq!(after(seconds, Presence::PodGone), [], "{seconds}");
        }
        let end = ("ns/pod".to_owned(), Event::StopPod(SandboxId("sandbox".into())));
        assert_eq!(after(140, Presence::PodGone), [end]);
        assert_eq!(after(150, Presence::Lives), []);
        assert_eq!(after(160, Presence::PodGone), [], "it was there again");
    }
}
