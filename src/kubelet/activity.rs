//! Whether the kubelet's own CPU manager is active.
//!
//! The kubelet's state file names its policy reliably: a kubelet refuses to start with the file of
//! another policy, so an administrator has to delete the file for a change, and the kubelet writes
//! a new one at once, also under policy none. The age of the file means nothing, as the kubelet
//! writes it only when an assignment changes.
//!
//! Without access to the file, requests show the policy: under the static policy the kubelet names
//! CPUs for every container that it creates, under policy none for no container. An NRI plugin that
//! the runtime calls earlier may name CPUs too. That is the same conflict with the same answer.

use super::{StateFile, StateFileReading};
use ledger::{Admission, Call, Event, KubeletClaim, Qos, Stance};
use std::fmt;

const STATIC: &str = "static";

#[derive(Debug, Clone)]
pub(crate) struct ActivityDetector {
    when_active: Stance,
    /// The policy in the state file; `None` without a file, or access to it.
    policy: Option<String>,
    /// Whether the last conclusive request named CPUs.
    names_cpus: bool,
    /// The kubelet's assignments, as last read.
    claims: Vec<KubeletClaim>,
    active: bool,
}

/// A change that the ledger needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The kubelet's CPU manager became active.
    Began(Sign),
    /// It is no longer active.
    Ended,
    /// It is still active, and its assignments or the configured stance changed.
    Assigned,
}

/// The evidence for an active CPU manager of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    File,
    Request,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sign::File => "its state file names the static policy",
            Sign::Request => {
                "a request for a pod's container names CPUs (or another NRI plugin set them)"
            }
        })
    }
}

impl ActivityDetector {
    /// `when_active` is the stance while the kubelet's CPU manager is active.
    pub(crate) fn new(when_active: Stance) -> ActivityDetector {
        ActivityDetector {
            when_active,
            policy: None,
            names_cpus: false,
            claims: Vec::new(),
            active: false,
        }
    }

    pub(crate) fn change_stance(&mut self, when_active: Stance) -> Option<Change> {
        let before = std::mem::replace(&mut self.when_active, when_active);
        if self.active && before != when_active { Some(Change::Assigned) } else { None }
    }

    /// Records what the state file says. An invalid file changes the policy at most.
    pub(crate) fn note_file(&mut self, file: StateFileReading) -> Option<Change> {
        let before = self.claims.clone();
        match file {
            StateFileReading::Missing => self.policy = None,
            StateFileReading::Bad { policy: None, .. } => {}
            StateFileReading::Bad { policy, .. } => self.policy = policy,
            StateFileReading::StateFile(StateFile { policy, claims, .. }) => {
                // After a change of the policy the ledger still has to take over the last assignments.
                if policy == STATIC {
                    self.claims = claims;
                }
                self.policy = Some(policy);
            }
        }
        if self.policy.as_ref().is_some_and(|policy| policy != STATIC) {
            self.names_cpus = false;
        }
        let change = self.judge();
        if change.is_none() && self.active && before != self.claims {
            Some(Change::Assigned)
        } else {
            change
        }
    }

    /// Records what a call shows, before the ledger handles it.
    pub(crate) fn note_call(&mut self, call: &Call) -> Option<Change> {
        let Call::Admission(admission) = call else { return None };
        match admission {
            Admission::Create { pod, container } if pod.qos != Qos::Unknown => {
                self.names_cpus = container.cpus.is_some();
            }
            // An update without CPUs is not conclusive: it may be about something else.
            Admission::Update { pod, requested, .. }
                if pod.qos != Qos::Unknown && requested.cpus.is_some() =>
            {
                self.names_cpus = true;
            }
            _ => return None,
        }
        self.judge()
    }

    fn judge(&mut self) -> Option<Change> {
        let sign = match self.policy.as_deref() {
            Some(STATIC) => Some(Sign::File),
            None if self.names_cpus => Some(Sign::Request),
            _ => None,
        };
        let was = std::mem::replace(&mut self.active, sign.is_some());
        match sign {
            Some(sign) if !was => Some(Change::Began(sign)),
            None if was => Some(Change::Ended),
            _ => None,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    pub(crate) fn stance(&self) -> Stance {
        if self.active { self.when_active } else { Stance::Assign }
    }

    /// The event for the ledger after a change.
    pub(crate) fn event(&self) -> Event {
        Event::Kubelet { stance: self.stance(), claims: self.claims.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpuset::CpuSet;
    use ledger::model::{ContainerId, PodUid, SandboxId};
    use ledger::{Container, CpuRequest, Named, Pod, RequestedUpdate};

    fn file(policy: &str, claims: usize) -> StateFileReading {
        let claim = |at: usize| KubeletClaim {
            of: Named::Container(PodUid("p".to_owned()), at.to_string()),
            cpus: at.to_string().parse().unwrap(),
        };
        let claims = (0..claims).map(claim).collect();
        let policy = policy.to_owned();
        StateFileReading::StateFile(StateFile {
            policy,
            shared: CpuSet::EMPTY,
            claims,
            pods: Vec::new(),
        })
    }

    fn bad(policy: Option<&str>) -> StateFileReading {
        let policy = policy.map(str::to_owned);
        StateFileReading::Bad { policy, why: String::new() }
    }

    fn event(qos: Qos, cpus: Option<&str>, update: bool) -> Call {
        let cpus = cpus.map(|list| list.parse().unwrap());
        let sandbox = SandboxId("s".to_owned());
        let pod = Pod {
            sandbox: sandbox.clone(),
            uid: PodUid("p".to_owned()),
            namespace: String::new(),
            name: String::new(),
            qos,
            budget: None,
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        };
        let container = Container {
            cpus: if update { None } else { cpus },
            ..Container::new(ContainerId("c".to_owned()), sandbox, "c", CpuRequest::default())
        };
        let admission = if update {
            Admission::Update {
                pod,
                container,
                requested: RequestedUpdate { cpus, ..RequestedUpdate::default() },
            }
        } else {
            Admission::Create { pod, container }
        };
        Call::from(admission)
    }

    fn create(cpus: Option<&str>) -> Call {
        event(Qos::Burstable, cpus, false)
    }

    #[test]
    fn the_policy_in_the_state_file_decides() {
        let mut guard = ActivityDetector::new(Stance::Refuse);
        assert_eq!(guard.note_file(StateFileReading::Missing), None);
        assert_eq!(guard.note_file(file("static", 1)), Some(Change::Began(Sign::File)));
        assert_eq!(guard.note_file(file("static", 1)), None);
        assert_eq!(guard.note_file(file("static", 2)), Some(Change::Assigned));
        // A kubelet restarts, and creates a container without CPUs at that time.
        assert_eq!(guard.note_call(&create(None)), None);
        assert_eq!(guard.note_file(file("none", 0)), Some(Change::Ended));
        // What it assigned is still to be taken over.
        let Event::Kubelet { stance: Stance::Assign, claims } = guard.event() else { panic!() };
        assert_eq!(claims.len(), 2);
        // CPUs in a request now come from another plugin.
        assert_eq!(guard.note_call(&create(Some("2"))), None);
        assert_eq!(guard.note_file(StateFileReading::Missing), Some(Change::Began(Sign::Request)));
    }

    #[test]
    fn an_invalid_file_still_names_a_policy() {
        let mut guard = ActivityDetector::new(Stance::Observe);
        assert_eq!(guard.note_file(bad(None)), None);
        assert_eq!(guard.note_file(bad(Some("static"))), Some(Change::Began(Sign::File)));
        assert_eq!(guard.note_file(bad(None)), None, "a torn file changes nothing");
        assert!(matches!(guard.event(), Event::Kubelet { stance: Stance::Observe, .. }));
        assert_eq!(guard.note_file(StateFileReading::Missing), Some(Change::Ended));
    }

    #[test]
    fn without_the_file_requests_show_the_policy() {
        let mut guard = ActivityDetector::new(Stance::Refuse);
        for (call, expect) in [
            (create(None), None),
            (event(Qos::Unknown, Some("2"), false), None),
            (create(Some("0-3")), Some(Change::Began(Sign::Request))),
            (create(Some("2")), None),
            (event(Qos::Guaranteed, None, true), None),
            (Event::Stop(ContainerId("c".to_owned())).into(), None),
            (create(None), Some(Change::Ended)),
            (event(Qos::Guaranteed, Some("2"), true), Some(Change::Began(Sign::Request))),
        ] {
            assert_eq!(guard.note_call(&call), expect, "{call:?}");
        }
        assert!(guard.is_active());
    }
}
