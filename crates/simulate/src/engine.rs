//! [`run`]: generates the events of a scheduler, a kubelet and a runtime while pods arrive and
//! depart.
//!
//! * Pods are admitted to the node in the order of their arrival, like by the scheduler: while the
//!   requests of all pods do not exceed the CPUs that are not reserved. Other pods wait or leave
//!   ([`NoRoom`]).
//! * Containers start in order. An init container runs to completion at once, before any other
//!   container of the pod starts. A refused container tries again after each departure of a pod
//!   (the kubelet retries every few seconds), or its pod leaves.
//! * At equal times, departures come before arrivals.

use crate::workload::{ContainerSpec, PodSpec, Time, Workload};
use cpuset::CpuSet;
use ledger::{
    Admission, Channel, ContainerId, ContainerKind, CpuSetting, Decision, Event, Ledger, MovePlan,
    NoPlan, Pod, Update,
};
use placement::Rejection;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// The reason when the requests of all pods would exceed the node, as the kubelet names it.
pub const OUT_OF_CPU: &str = "OutOfcpu";

/// What a pod does if the node has no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// It tries again after each departure of a pod.
    Wait,
    /// It leaves for good.
    Drop,
}

/// A step of a simulation.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Time passes from the first to the second moment without changes.
    Passes(Time, Time),
    /// The ledger has planned moves, if any gain something. The moves follow one by one.
    Planned(Option<&'a MovePlan>),
    /// The ledger has decided on a request.
    Decided(&'a Admission, &'a Result<Decision, Rejection>),
    /// The ledger has applied an event. The runtime gets these updates with the response.
    Recorded(&'a Event, &'a [Update]),
    /// The container is admitted.
    Placed { pod: &'a PodSpec, container: &'a ContainerSpec, exclusive: Option<CpuSet> },
    Refused {
        pod: &'a PodSpec,
        container: &'a ContainerSpec,
        why: &'a Rejection,
        /// Whether the container was refused before.
        again: bool,
    },
    /// The node has too few unrequested CPUs for a pod.
    Full {
        pod: &'a PodSpec,
        /// Whether the pod waits; otherwise it leaves.
        waits: bool,
    },
    /// A pod has left because one of its containers was refused.
    TurnedAway(&'a PodSpec),
    /// All containers of a pod are admitted.
    Complete(&'a PodSpec),
    /// A pod has arrived and is on the node, waits, or has left. This many have arrived so far.
    Arrived(usize),
}

pub trait StepObserver {
    /// Called at each step, after the ledger has changed.
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>);
}

/// Runs a workload until `end`, or until the last arrival if there is none. The ledger stays in the
/// state of that time.
pub fn run(
    ledger: &mut Ledger,
    workload: &Workload,
    no_room: NoRoom,
    end: Option<Time>,
    observer: &mut dyn StepObserver,
) {
    let room = ledger.topology().online() - ledger.settings().placement.reserved;
    let mut simulation = Simulation {
        ledger,
        workload,
        no_room,
        observer,
        now: 0,
        room: room.len() as u64 * 1000,
        queue: Vec::new(),
        admitted: BTreeMap::new(),
        departures: BinaryHeap::new(),
    };
    simulation.send(Event::Synchronize { pods: Vec::new(), containers: Vec::new() });
    for (number, pod) in workload.pods.iter().enumerate() {
        if end.is_some_and(|end| pod.arrive > end) {
            break;
        }
        simulation.until(pod.arrive);
        simulation.arrive(number);
        simulation.report(&Happening::Arrived(number + 1));
    }
    simulation.until(end.unwrap_or(simulation.now));
}

struct Simulation<'a> {
    ledger: &'a mut Ledger,
    workload: &'a Workload,
    no_room: NoRoom,
    observer: &'a mut dyn StepObserver,
    now: Time,
    /// Unrequested thousandths of a CPU: what the scheduler considers free.
    room: u64,
    /// Waiting pods in the order of their arrival.
    queue: Vec<usize>,
    /// Pods on the node, by number.
    admitted: BTreeMap<usize, AdmittedPod>,
    /// Times of departure and numbers of pods, the earliest on top.
    departures: BinaryHeap<Reverse<(Time, usize)>>,
}

struct AdmittedPod {
    pod: Pod,
    /// Containers that are not admitted yet, as positions in [`PodSpec::containers`].
    pending: Vec<usize>,
    /// Containers that were refused before.
    refused: BTreeSet<usize>,
    running: Vec<ContainerId>,
    /// The number of attempts to start a container, which makes container ids unique.
    attempts: usize,
}

impl Simulation<'_> {
    fn arrive(&mut self, number: usize) {
        let pod = &self.workload.pods[number];
        if let Some(depart) = pod.depart {
            self.departures.push(Reverse((depart, number)));
        }
        // Waiting pods come first, but `try_again` has admitted all of them that fit.
        if self.room < pod.request() {
            let waits = self.no_room == NoRoom::Wait;
            self.report(&Happening::Full { pod, waits });
            if waits {
                self.queue.push(number);
            }
            return;
        }
        self.enter(number);
    }

    /// Lets time pass up to `moment`, with the departures until then.
    fn until(&mut self, moment: Time) {
        while let Some(&Reverse((depart, _))) = self.departures.peek() {
            if depart > moment {
                break;
            }
            self.pass(depart);
            let mut gone = false;
            while let Some(&Reverse((at, number))) = self.departures.peek() {
                if at != depart {
                    break;
                }
                self.departures.pop();
                gone |= self.leave(number);
            }
            if gone {
                self.try_again();
            }
        }
        self.pass(moment);
    }

    /// Lets time pass. Like the daemon, plans moves whenever a container has run long enough to
    /// move.
    fn pass(&mut self, to: Time) {
        while let Some(at) = self.next_movable().filter(|at| *at <= to) {
            self.advance(at);
            self.rebalance(self.ledger.plan_departure());
        }
        self.advance(to);
    }

    fn next_movable(&self) -> Option<Time> {
        u64::try_from(self.ledger.next_movable()?.as_millis()).ok()
    }

    fn advance(&mut self, to: Time) {
        if self.now < to {
            self.report(&Happening::Passes(self.now, to));
            self.now = to;
            if self.ledger.settings().rebalance.is_some() {
                self.send(Event::Time(Duration::from_millis(to)));
            }
        }
    }

    /// Admits a pod and starts its containers.
    fn enter(&mut self, number: usize) {
        let pod = &self.workload.pods[number];
        self.room = self.room.saturating_sub(pod.request());
        let reported = pod.as_reported(number);
        self.send(Event::RunPod(reported.clone()));
        let mut admitted = AdmittedPod {
            pod: reported,
            pending: (0..pod.containers.len()).collect(),
            refused: BTreeSet::new(),
            running: Vec::new(),
            attempts: 0,
        };
        self.start(number, &mut admitted);
        let refused = !admitted.pending.is_empty();
        self.admitted.insert(number, admitted);
        if refused && self.no_room == NoRoom::Drop {
            self.leave(number);
            self.report(&Happening::TurnedAway(pod));
        }
    }

    /// Starts the pending containers of a pod, in order, as far as they are admitted.
    fn start(&mut self, number: usize, admitted: &mut AdmittedPod) {
        let pod = &self.workload.pods[number];
        let pending = std::mem::take(&mut admitted.pending);
        for (tried, at) in pending.iter().copied().enumerate() {
            let container = &pod.containers[at];
            let id = ContainerId(format!("{number}-{at}-{}", admitted.attempts).into());
            admitted.attempts += 1;
            let instance = container.as_reported(id.clone(), admitted.pod.sandbox.clone());
            let create =
                Admission::Create { pod: admitted.pod.clone(), container: instance.clone() };
            self.rebalance(self.ledger.plan_arrival(&create));
            match self.admit(create) {
                Ok(exclusive) => {
                    self.report(&Happening::Placed { pod, container, exclusive });
                    self.send(Event::Started { pod: admitted.pod.clone(), container: instance });
                    if container.kind == ContainerKind::Init {
                        self.send(Event::Stop(id));
                    } else {
                        admitted.running.push(id);
                    }
                }
                Err(why) => {
                    let again = !admitted.refused.insert(at);
                    self.report(&Happening::Refused { pod, container, why: &why, again });
                    admitted.pending.push(at);
                    // Later containers wait for an init container, and none starts in a pod that
                    // leaves.
                    if container.kind != ContainerKind::App || self.no_room == NoRoom::Drop {
                        admitted.pending.extend(pending.iter().skip(tried + 1));
                        return;
                    }
                }
            }
        }
        if admitted.pending.is_empty() {
            self.report(&Happening::Complete(pod));
        }
    }

    /// Removes a pod from the node or the queue. Returns whether the node has more room now.
    fn leave(&mut self, number: usize) -> bool {
        let Some(AdmittedPod { pod, running, .. }) = self.admitted.remove(&number) else {
            self.queue.retain(|waiting| *waiting != number);
            return false;
        };
        for id in running {
            self.send(Event::Stop(id));
        }
        self.send(Event::StopPod(pod.sandbox.clone()));
        self.send(Event::RemovePod(pod.sandbox));
        self.room += self.workload.pods[number].request();
        self.rebalance(self.ledger.plan_departure());
        true
    }

    /// Carries a plan out, or only records it as suggested, as configured.
    fn rebalance(&mut self, plan: Result<MovePlan, NoPlan>) {
        self.report(&Happening::Planned(plan.as_ref().ok()));
        let Ok(plan) = plan else { return };
        if self.ledger.moves_containers() {
            plan.steps.into_iter().for_each(|step| self.send(Event::Move(step)));
        } else {
            self.send(Event::Suggested(plan));
        }
    }

    /// Tries waiting containers and pods again, in the order of the pods' arrival.
    fn try_again(&mut self) {
        let mut all = std::mem::take(&mut self.admitted);
        for (number, admitted) in &mut all {
            if !admitted.pending.is_empty() {
                self.start(*number, admitted);
            }
        }
        self.admitted = all;
        for number in std::mem::take(&mut self.queue) {
            if self.workload.pods[number].request() <= self.room {
                self.enter(number);
            } else {
                self.queue.push(number);
            }
        }
    }

    /// Asks the ledger for a decision, and applies it as answered at once. Returns the exclusive
    /// CPUs.
    fn admit(&mut self, create: Admission) -> Result<Option<CpuSet>, Rejection> {
        let decided = self.ledger.admit(create.clone());
        self.report(&Happening::Decided(&create, &decided));
        let decided = decided.map(|decision| {
            let setting = decision.setting();
            self.ledger.apply(Event::Answered(decision));
            let exclusive = setting.filter(CpuSetting::is_exclusive);
            exclusive.map(|setting| setting.exclusive_cpus())
        });
        // Notes are only for the log of a daemon.
        self.ledger.take_notes();
        decided
    }

    fn send(&mut self, event: Event) {
        self.ledger.apply(event.clone());
        if event.answer_has_updates() {
            let due = self.ledger.due(&Channel::Runtime);
            self.report(&Happening::Recorded(&event, &due.updates));
            self.ledger.apply(Event::Sent(due));
        } else {
            self.report(&Happening::Recorded(&event, &[]));
        }
        self.ledger.take_notes();
    }

    fn report(&mut self, happening: &Happening<'_>) {
        self.observer.see(self.now, self.ledger, happening);
    }
}
