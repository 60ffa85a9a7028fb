//! The events of a scheduler, a kubelet and a runtime while pods arrive and depart.
//!
//! * The node admits pods as the scheduler does: in the order of their arrival, as long as the
//!   requests of all its pods are no more than its CPUs without the reserved ones. Other pods wait
//!   or leave ([`NoRoom`]).
//! * Containers start in order: init containers run to completion at once, before any other
//!   container of the pod starts. A refused container tries again after each departure of a pod, as
//!   the kubelet does every few seconds, or its pod leaves.
//! * Departures come before arrivals at the same moment.

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

/// The scheduler's reason for a refusal: too few unrequested CPUs.
pub const OUT_OF_CPU: &str = "OutOfcpu";

/// What pods do for which the node has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Retry after each departure of a pod.
    Wait,
    /// Leave, without another try.
    Drop,
}

/// A step of a simulation.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Time passes from one moment to another without changes.
    Passes(Time, Time),
    /// The ledger has looked for moves that are worth it; they follow, one by one.
    Planned(Option<&'a MovePlan>),
    /// The ledger has decided about a request.
    Decided(&'a Admission, &'a Result<Decision, Rejection>),
    /// The ledger has recorded an event; the runtime gets these updates with the answer.
    Recorded(&'a Event, &'a [Update]),
    /// A container is admitted.
    Placed { pod: &'a PodSpec, container: &'a ContainerSpec, exclusive: Option<CpuSet> },
    Refused {
        pod: &'a PodSpec,
        container: &'a ContainerSpec,
        why: &'a Rejection,
        /// The container was refused before.
        again: bool,
    },
    /// The node has too few CPUs left for a pod.
    Full {
        pod: &'a PodSpec,
        /// It waits; otherwise it leaves.
        waits: bool,
    },
    /// A pod has left with all that it had, because a container of it was refused.
    TurnedAway(&'a PodSpec),
    /// All containers of a pod are admitted.
    Complete(&'a PodSpec),
    /// A pod has arrived: it is on the node, waits, or has left. So many have arrived with it.
    Arrived(usize),
}

pub trait StepObserver {
    /// `happening` is at `now`; the ledger has its result.
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>);
}

/// Runs a workload until the last arrival, or until `end`, and leaves the ledger in that state.
pub fn run(
    ledger: &mut Ledger,
    workload: &Workload,
    no_room: NoRoom,
    end: Option<Time>,
    observer: &mut dyn StepObserver,
) {
    let room = ledger.topology().online() - ledger.settings().placement.reserved;
    let mut engine = Simulation {
        ledger,
        workload,
        no_room,
        observer,
        now: 0,
        room: room.len() as u64 * 1000,
        queue: Vec::new(),
        guests: BTreeMap::new(),
        departures: BinaryHeap::new(),
    };
    engine.send(Event::Synchronize { pods: Vec::new(), containers: Vec::new() });
    for (number, pod) in workload.pods.iter().enumerate() {
        if end.is_some_and(|end| pod.arrive > end) {
            break;
        }
        engine.until(pod.arrive);
        engine.arrive(number);
        engine.see(&Happening::Arrived(number + 1));
    }
    engine.until(end.unwrap_or(engine.now));
}

struct Simulation<'a> {
    ledger: &'a mut Ledger,
    workload: &'a Workload,
    no_room: NoRoom,
    observer: &'a mut dyn StepObserver,
    now: Time,
    /// Free thousandths of a CPU, by the requests of the pods on the node.
    room: u64,
    /// Waiting pods in the order of their arrival.
    queue: Vec<usize>,
    /// Pods on the node.
    guests: BTreeMap<usize, Guest>,
    departures: BinaryHeap<Reverse<(Time, usize)>>,
}

struct Guest {
    pod: Pod,
    /// The containers that are not admitted yet, as positions in its description.
    pending: Vec<usize>,
    /// The containers that were refused at some time.
    refused: BTreeSet<usize>,
    running: Vec<ContainerId>,
    /// To start a container; makes container ids unique.
    attempts: usize,
}

impl Simulation<'_> {
    fn arrive(&mut self, number: usize) {
        let pod = &self.workload.pods[number];
        if let Some(depart) = pod.depart {
            self.departures.push(Reverse((depart, number)));
        }
        // Pods that wait come first, but `try_again` has admitted all that fit.
        if self.room < pod.request() {
            let waits = self.no_room == NoRoom::Wait;
            self.see(&Happening::Full { pod, waits });
            if waits {
                self.queue.push(number);
            }
            return;
        }
        self.enter(number);
    }

    /// Lets time pass up to a moment, with the departures until then.
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

    /// As the daemon, looks for moves whenever a container has stayed for long enough.
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
            self.see(&Happening::Passes(self.now, to));
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
        let mut guest = Guest {
            pod: reported,
            pending: (0..pod.containers.len()).collect(),
            refused: BTreeSet::new(),
            running: Vec::new(),
            attempts: 0,
        };
        self.start(number, &mut guest);
        let refused = !guest.pending.is_empty();
        self.guests.insert(number, guest);
        if refused && self.no_room == NoRoom::Drop {
            self.leave(number);
            self.see(&Happening::TurnedAway(pod));
        }
    }

    fn start(&mut self, number: usize, guest: &mut Guest) {
        let pod = &self.workload.pods[number];
        let pending = std::mem::take(&mut guest.pending);
        for (tried, at) in pending.iter().copied().enumerate() {
            let container = &pod.containers[at];
            let id = ContainerId(format!("{number}-{at}-{}", guest.attempts));
            guest.attempts += 1;
            let instance = container.as_reported(id.clone(), guest.pod.sandbox.clone());
            let create = Admission::Create { pod: guest.pod.clone(), container: instance.clone() };
            self.rebalance(self.ledger.plan_arrival(&create));
            match self.admit(create) {
                Ok(exclusive) => {
                    self.see(&Happening::Placed { pod, container, exclusive });
                    self.send(Event::Started { pod: guest.pod.clone(), container: instance });
                    if container.kind == ContainerKind::Init {
                        self.send(Event::Stop(id));
                    } else {
                        guest.running.push(id);
                    }
                }
                Err(why) => {
                    let again = !guest.refused.insert(at);
                    self.see(&Happening::Refused { pod, container, why: &why, again });
                    guest.pending.push(at);
                    // Later containers wait for an init container, and none starts in a pod that leaves.
                    if container.kind != ContainerKind::App || self.no_room == NoRoom::Drop {
                        guest.pending.extend(pending.iter().skip(tried + 1));
                        return;
                    }
                }
            }
        }
        if guest.pending.is_empty() {
            self.see(&Happening::Complete(pod));
        }
    }

    /// Removes a pod from the node or the queue. Returns whether there is more room now.
    fn leave(&mut self, number: usize) -> bool {
        let Some(Guest { pod, running, .. }) = self.guests.remove(&number) else {
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

    /// Carries a plan out, or only counts it, as configured.
    fn rebalance(&mut self, plan: Result<MovePlan, NoPlan>) {
        self.see(&Happening::Planned(plan.as_ref().ok()));
        let Ok(plan) = plan else { return };
        if self.ledger.moves_containers() {
            plan.steps.into_iter().for_each(|step| self.send(Event::Move(step)));
        } else {
            self.send(Event::Suggested(plan));
        }
    }

    /// Waiting containers and pods try again, in the order of the pods' arrival.
    fn try_again(&mut self) {
        let mut guests = std::mem::take(&mut self.guests);
        for (number, guest) in &mut guests {
            if !guest.pending.is_empty() {
                self.start(*number, guest);
            }
        }
        self.guests = guests;
        for number in std::mem::take(&mut self.queue) {
            if self.workload.pods[number].request() <= self.room {
                self.enter(number);
            } else {
                self.queue.push(number);
            }
        }
    }

    /// Asks the ledger for a container. The runtime gets the answer at once. Returns the container's
    /// exclusive CPUs.
    fn admit(&mut self, create: Admission) -> Result<Option<CpuSet>, Rejection> {
        let decided = self.ledger.admit(create.clone());
        self.see(&Happening::Decided(&create, &decided));
        let decided = decided.map(|decision| {
            let setting = decision.setting();
            self.ledger.apply(Event::Answered(decision));
            let exclusive = setting.filter(CpuSetting::is_exclusive);
            exclusive.map(|setting| setting.exclusive_cpus())
        });
        // Notes are for the log, and follow from the decision.
        self.ledger.take_notes();
        decided
    }

    fn send(&mut self, event: Event) {
        self.ledger.apply(event.clone());
        if event.answer_has_updates() {
            let due = self.ledger.due(&Channel::Runtime);
            self.see(&Happening::Recorded(&event, &due.updates));
            self.ledger.apply(Event::Sent(due));
        } else {
            self.see(&Happening::Recorded(&event, &[]));
        }
        self.ledger.take_notes();
    }

    fn see(&mut self, happening: &Happening<'_>) {
        self.observer.see(self.now, self.ledger, happening);
    }
}
