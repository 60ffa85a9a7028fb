//! Whether the kubelet's own CPU manager is active.
//!
//! The kubelet's state file names its policy reliably: a kubelet refuses to start with the file of
//! another policy, so an administrator has to delete the file for a change, and the kubelet writes
//! a new one at once, also under policy none. The age of the file means nothing, as the kubelet
//! writes it only when an assignment changes.
//!
//! Without access to the file, requests show the policy: under the static policy the kubelet names
//! CPUs for every container that it creates, under policy none for no container. Other programs that
//! the runtime asks earlier may name CPUs too, for some containers: CRI-O itself for those of its
//! workloads, and other NRI plugins. CPUs that [`Settings::explains`] say nothing about the kubelet.
//! All others are a sign of it if two pods have them. The container of the first one is left alone.

use super::{StateFile, StateFileReading};
use config::Mode;
use cpuset::CpuSet;
use ledger::{
    Admission, Call, Container, Event, KubeletClaim, LeftAlone, Pod, PodUid, Qos, Settings, Stance,
};
use std::fmt;

const STATIC: &str = "static";

#[derive(Debug, Clone)]
pub struct ActivityDetector {
    mode: Mode,
    /// The policy in the state file; `None` without a file, or access to it.
    policy: Option<String>,
    requests: Requests,
    /// The kubelet's assignments, as last read.
    claims: Vec<KubeletClaim>,
    active: bool,
}

/// The pods for which the last requests named unexplained CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requests {
    /// None: the last creation named no CPUs.
    NoPod,
    OnePod(PodUid),
    SeveralPods,
}

impl Requests {
    fn with(self, uid: &PodUid) -> Requests {
        match self {
            Requests::NoPod => Requests::OnePod(uid.clone()),
            Requests::OnePod(known) if known == *uid => Requests::OnePod(known),
            Requests::OnePod(_) | Requests::SeveralPods => Requests::SeveralPods,
        }
    }
}

/// A change that the ledger needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The kubelet's CPU manager became active.
    Began(Sign),
    /// It is no longer active.
    Ended,
    /// Its assignments, or the configured mode, changed.
    Assigned,
}

/// The evidence for an active CPU manager of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    File,
    Requests,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sign::File => "its state file names the static policy",
            Sign::Requests => {
                "requests for containers of two pods name CPUs (or another NRI plugin set them)"
            }
        })
    }
}

impl ActivityDetector {
    pub fn new(mode: Mode) -> ActivityDetector {
        ActivityDetector {
            mode,
            policy: None,
            requests: Requests::NoPod,
            claims: Vec::new(),
            active: false,
        }
    }

    pub fn change_mode(&mut self, mode: Mode) -> Option<Change> {
        let before = std::mem::replace(&mut self.mode, mode);
        (before != mode).then_some(Change::Assigned)
    }

    /// Records what the state file says. An invalid file changes the policy at most.
    pub fn note_file(&mut self, file: StateFileReading) -> Option<Change> {
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
            self.requests = Requests::NoPod;
        }
        let change = self.judge();
        if change.is_none() && self.active && before != self.claims {
            Some(Change::Assigned)
        } else {
            change
        }
    }

    /// Records what a call shows, before the ledger handles it, and which of its containers is left
    /// alone.
    pub fn note_call(&mut self, call: &mut Call, settings: &Settings) -> Option<Change> {
        match call {
            Call::Admission(Admission::Create { pod, container }) if pod.qos != Qos::Unknown => {
                match container.cpus {
                    Some(cpus) => self.note_cpus(pod, container, &cpus, settings),
                    None => {
                        self.requests = Requests::NoPod;
                        self.judge()
                    }
                }
            }
            Call::Admission(Admission::Update { pod, container, requested })
                if pod.qos != Qos::Unknown =>
            {
                // An update without CPUs is not conclusive: it may be about something else.
                self.note_cpus(pod, container, &requested.cpus?, settings)
            }
            Call::Event(Event::Synchronize { containers, .. }) => {
                containers.iter_mut().for_each(|one| leave_existing_alone(one, settings));
                None
            }
            // The ledger may not know the container: the list can lack it.
            Call::Event(Event::Starting { container, .. } | Event::Started { container, .. }) => {
                leave_existing_alone(container, settings);
                None
            }
            Call::Admission(_) | Call::Event(_) => None,
        }
    }

    fn note_cpus(
        &mut self,
        pod: &Pod,
        container: &mut Container,
        cpus: &CpuSet,
        settings: &Settings,
    ) -> Option<Change> {
        if let Some(why) = settings.explains(pod, container, cpus) {
            // The kubelet's manager sets the CPUs of all others.
            let is_left_alone = !self.active || why == LeftAlone::Workload;
            container.left_alone = is_left_alone.then_some(why);
            return None;
        }
        let before = std::mem::replace(&mut self.requests, Requests::NoPod);
        self.requests = before.with(&pod.uid);
        let change = self.judge();
        // The state file is the better sign: if it names another policy, the kubelet sets no CPUs.
        if self.policy.is_none() && !self.active {
            container.left_alone = Some(LeftAlone::Unexplained);
        }
        change
    }

    fn judge(&mut self) -> Option<Change> {
        let sign = match self.policy.as_deref() {
            Some(STATIC) => Some(Sign::File),
            None if self.requests == Requests::SeveralPods => Some(Sign::Requests),
            _ => None,
        };
        let was = std::mem::replace(&mut self.active, sign.is_some());
        match sign {
            Some(sign) if !was => Some(Change::Began(sign)),
            None if was => Some(Change::Ended),
            _ => None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.active
    }

    pub fn stance(&self) -> Stance {
        match self.mode {
            Mode::Observe => Stance::Observe,
            Mode::Enforce if self.active => Stance::Refuse,
            Mode::Enforce => Stance::Assign,
        }
    }

    /// The event for the ledger after a change.
    pub fn event(&self) -> Event {
        Event::Stance { stance: self.stance(), claims: self.claims.clone() }
    }
}

/// Leaves a container alone that exists already and whose CPUs are certainly CRI-O's. Those of others may be those
/// that this plugin has set, also the reserved CPUs, if all others were exclusive.
fn leave_existing_alone(container: &mut Container, settings: &Settings) {
    let Some(cpus) = container.cpus else { return };
    let is_of_crio = container.in_workload && cpus.is_subset(&settings.placement.reserved);
    container.left_alone = is_of_crio.then_some(LeftAlone::Workload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::model::{ContainerId, SandboxId};
    use ledger::pattern::Patterns;
    use ledger::{CpuRequest, Named, RequestedUpdate};

    fn file(policy: &str, claims: usize) -> StateFileReading {
        let claim = |at: usize| KubeletClaim {
            of: Named::Container(PodUid("p".into()), at.to_string()),
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

    /// A request for the container of this pod.
    fn event(uid: &str, qos: Qos, cpus: Option<&str>, update: bool) -> Call {
        let cpus = cpus.map(|list| list.parse().unwrap());
        let sandbox = SandboxId("s".into());
        let pod = Pod {
            sandbox: sandbox.clone(),
            uid: PodUid(uid.into()),
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
            ..Container::new(ContainerId("c".into()), sandbox, "c", CpuRequest::default())
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

    fn create(uid: &str, cpus: Option<&str>) -> Call {
        event(uid, Qos::Burstable, cpus, false)
    }

    /// CPUs 0-1 are reserved, and the namespaces of the system.
    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.placement.reserved = "0-1".parse().unwrap();
        settings.reserved_namespaces = Patterns::new(vec!["system-*".to_owned()]);
        settings
    }

    fn note(guard: &mut ActivityDetector, mut call: Call) -> (Option<Change>, Option<LeftAlone>) {
        let change = guard.note_call(&mut call, &settings());
        let (Call::Admission(Admission::Create { container, .. })
        | Call::Admission(Admission::Update { container, .. })) = call
        else {
            return (change, None);
        };
        (change, container.left_alone)
    }

    #[test]
    fn the_policy_in_the_state_file_decides() {
        let mut guard = ActivityDetector::new(Mode::Enforce);
        assert_eq!(guard.note_file(StateFileReading::Missing), None);
        assert_eq!(guard.note_file(file("static", 1)), Some(Change::Began(Sign::File)));
        assert_eq!(guard.note_file(file("static", 1)), None);
        assert_eq!(guard.note_file(file("static", 2)), Some(Change::Assigned));
        // A kubelet restarts, and creates a container without CPUs at that time.
        assert_eq!(note(&mut guard, create("p", None)), (None, None));
        assert_eq!(guard.note_file(file("none", 0)), Some(Change::Ended));
        // What it assigned is still to be taken over.
        let Event::Stance { stance: Stance::Assign, claims } = guard.event() else { panic!() };
        assert_eq!(claims.len(), 2);
        // CPUs in a request now come from another plugin.
        for uid in ["p", "q"] {
            assert_eq!(note(&mut guard, create(uid, Some("2"))), (None, None));
        }
        assert_eq!(guard.note_file(StateFileReading::Missing), Some(Change::Began(Sign::Requests)));
    }

    #[test]
    fn an_invalid_file_still_names_a_policy() {
        let mut guard = ActivityDetector::new(Mode::Observe);
        assert_eq!(guard.note_file(bad(None)), None);
        assert_eq!(guard.note_file(bad(Some("static"))), Some(Change::Began(Sign::File)));
        assert_eq!(guard.note_file(bad(None)), None, "a torn file changes nothing");
        assert!(matches!(guard.event(), Event::Stance { stance: Stance::Observe, .. }));
        assert_eq!(guard.note_file(StateFileReading::Missing), Some(Change::Ended));
    }

    #[test]
    fn without_the_file_requests_of_two_pods_show_the_policy() {
        let mut guard = ActivityDetector::new(Mode::Enforce);
        let alone = Some(LeftAlone::Unexplained);
        let (began, ended) = (Some(Change::Began(Sign::Requests)), Some(Change::Ended));
        for (call, expect) in [
            (create("a", None), (None, None)),
            (event("a", Qos::Unknown, Some("2"), false), (None, None)),
            (create("a", Some("0-3")), (None, alone)),
            (create("a", Some("2")), (None, alone)),
            (event("a", Qos::Guaranteed, Some("3"), true), (None, alone)),
            (create("b", Some("2")), (began, None)),
            (create("c", Some("2")), (None, None)),
            (event("c", Qos::Guaranteed, None, true), (None, None)),
            (Event::Stop(ContainerId("c".into())).into(), (None, None)),
            (create("d", None), (ended, None)),
            (event("a", Qos::Guaranteed, Some("2"), true), (None, alone)),
            (event("b", Qos::Guaranteed, Some("2"), true), (began, None)),
        ] {
            assert_eq!(note(&mut guard, call.clone()), expect, "{call:?}");
        }
        assert!(guard.is_active());
    }

    #[test]
    fn explained_cpus_are_no_sign_of_the_kubelet() {
        let in_workload = |mut call: Call| {
            let (Call::Admission(Admission::Create { container, .. })
            | Call::Admission(Admission::Update { container, .. })) = &mut call
            else {
                unreachable!()
            };
            container.in_workload = true;
            call
        };
        let of_system = |mut call: Call| {
            let (Call::Admission(Admission::Create { pod, .. })
            | Call::Admission(Admission::Update { pod, .. })) = &mut call
            else {
                unreachable!()
            };
            pod.namespace = "system-dns".to_owned();
            call
        };
        for reading in [StateFileReading::Missing, file("none", 0), file("static", 0)] {
            let mut guard = ActivityDetector::new(Mode::Enforce);
            guard.note_file(reading);
            let was_active = guard.is_active();
            for update in [false, true] {
                let event = |uid, cpus| event(uid, Qos::Burstable, Some(cpus), update);
                for (call, why) in [
                    (event("a", "0-1"), LeftAlone::Reserved),
                    (event("b", "1"), LeftAlone::Reserved),
                    (in_workload(event("c", "4-5")), LeftAlone::Workload),
                    (in_workload(event("d", "0")), LeftAlone::Workload),
                    (of_system(event("e", "4-5")), LeftAlone::Namespace),
                    (of_system(event("f", "6")), LeftAlone::Namespace),
                ] {
                    let why = (!was_active || why == LeftAlone::Workload).then_some(why);
                    assert_eq!(note(&mut guard, call.clone()), (None, why), "{call:?}");
                }
            }
            assert_eq!(guard.is_active(), was_active);
        }
    }

    /// A plugin that was away does not know which CPUs it had set itself.
    #[test]
    fn a_listed_container_is_left_alone_only_in_a_workload_on_reserved_cpus() {
        let mut guard = ActivityDetector::new(Mode::Enforce);
        for (in_workload, cpus, expect) in [
            (true, Some("0-1"), Some(LeftAlone::Workload)),
            (true, Some("0-3"), None),
            (true, None, None),
            (false, Some("0-1"), None),
        ] {
            let id = ContainerId("c".into());
            let container = Container {
                in_workload,
                cpus: cpus.map(|cpus| cpus.parse().unwrap()),
                ..Container::new(id, SandboxId("s".into()), "c", CpuRequest::default())
            };
            let list = Event::Synchronize { pods: Vec::new(), containers: vec![container] };
            let mut call = Call::Event(list);
            assert_eq!(guard.note_call(&mut call, &settings()), None);
            let Call::Event(Event::Synchronize { containers, .. }) = call else { unreachable!() };
            assert_eq!(containers[0].left_alone, expect, "{in_workload} {cpus:?}");
        }
    }
}
