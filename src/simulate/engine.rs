//! The events of a scheduler, a kubelet and a runtime while pods arrive and depart.
//!
//! * The node admits pods as the scheduler does: in the order of their arrival, as long as the
//!   requests of all its pods are no more than its CPUs without the reserved ones. Other pods wait,
//!   or leave for good ([`Waiting`]).
//! * Containers start in order: init containers run to their end at once, and no other container of
//!   a pod starts before. A refused container tries again after each departure of a pod, as the
//!   kubelet does every few seconds, or its pod leaves for good.
//! * Departures come before arrivals at the same moment.

use super::workload::{ContainerSpec, PodSpec, Time, Workload};
use crate::cpuset::CpuSet;
use crate::ledger::{Admission, Call, ContainerId, ContainerKind, Decision, Event, Ledger, Pod};
use crate::placement::Rejection;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The scheduler's reason for a refusal: the node has too few CPUs left.
pub const OUT_OF_CPU: &str = "OutOfcpu";

/// The behaviour of pods without room on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// They try again after each departure of a pod, until their own.
    Retry,
    /// They leave for good.
    Drop,
}

/// Something that happens in a simulation.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Time passes from one moment to another without changes.
    Passes(Time, Time),
    /// The ledger has decided.
    Decided(&'a Call, &'a Result<Decision, Rejection>),
    /// A container is admitted, with exclusive CPUs or without.
    Placed {
        /// Its pod.
        pod: &'a PodSpec,
        /// The container.
        container: &'a ContainerSpec,
        /// Its exclusive CPUs.
        exclusive: Option<CpuSet>,
    },
    /// A container is refused.
    Refused {
        /// Its pod.
        pod: &'a PodSpec,
        /// The container.
        container: &'a ContainerSpec,
        /// Why.
        why: &'a Rejection,
        /// Whether the container was refused before.
        again: bool,
    },
    /// The node has too few CPUs left for a pod.
    Full {
        /// The pod.
        pod: &'a PodSpec,
        /// Whether it waits; otherwise it leaves for good.
        waits: bool,
    },
    /// All containers of a pod are admitted.
    Complete(&'a PodSpec),
}

/// A recipient of all happenings.
pub trait Observer {
    /// `happening` is at `now`; the ledger has its result.
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>);
}

/// Runs a workload until the last arrival, or until `end`, and leaves the ledger in that state.
/// `progress` gets the number of pods after each arrival.
pub fn run(
    ledger: &mut Ledger,
    workload: &Workload,
    waiting: Waiting,
    end: Option<Time>,
    observer: &mut dyn Observer,
    progress: &mut dyn FnMut(usize),
) {
    let room = ledger.topology().online() - ledger.settings().placement.reserved;
    let mut engine = Engine {
        ledger,
        workload,
        waiting,
        observer,
        now: 0,
        room: room.len() as u64 * 1000,
        queue: Vec::new(),
        guests: BTreeMap::new(),
        departures: BinaryHeap::new(),
    };
    engine.tell(Event::Synchronize { pods: Vec::new(), containers: Vec::new() });
    for (number, pod) in workload.pods.iter().enumerate() {
        if end.is_some_and(|end| pod.arrive > end) {
            break;
        }
        engine.until(pod.arrive);
        engine.arrive(number, pod);
        progress(number + 1);
    }
    engine.until(end.unwrap_or(engine.now));
}

struct Engine<'a> {
    ledger: &'a mut Ledger,
    workload: &'a Workload,
    waiting: Waiting,
    observer: &'a mut dyn Observer,
    now: Time,
    /// Free thousandths of a CPU, by the requests of the pods on the node.
    room: u64,
    /// Waiting pods in the order of their arrival.
    queue: Vec<usize>,
    /// Pods on the node.
    guests: BTreeMap<usize, Guest>,
    departures: BinaryHeap<Reverse<(Time, usize)>>,
}

/// A pod on the node.
struct Guest {
    pod: Pod,
    /// The containers that are not admitted yet, as positions in its description.
    left: Vec<usize>,
    /// The containers that were refused at some time.
    refused: BTreeSet<usize>,
    running: Vec<ContainerId>,
    /// The number of attempts to start a container.
    attempts: usize,
}

impl Engine<'_> {
    fn arrive(&mut self, number: usize, pod: &PodSpec) {
        if let Some(depart) = pod.depart {
            self.departures.push(Reverse((depart, number)));
        }
        // Waiting pods had their chance before: `try_again` admits all that fit.
        if self.room < pod.request() {
            let waits = self.waiting == Waiting::Retry;
            self.see(&Happening::Full { pod, waits });
            if waits {
                self.queue.push(number);
            }
            return;
        }
        self.enter(number, pod);
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

    fn pass(&mut self, to: Time) {
        if self.now < to {
            self.see(&Happening::Passes(self.now, to));
            self.now = to;
        }
    }

    /// Admits a pod and starts its containers.
    fn enter(&mut self, number: usize, pod: &PodSpec) {
        self.room = self.room.saturating_sub(pod.request());
        let reported = pod.as_reported(number);
        self.tell(Event::RunPod(reported.clone()));
        let left = (0..pod.containers.len()).collect();
        let (refused, running) = (BTreeSet::new(), Vec::new());
        let mut guest = Guest { pod: reported, left, refused, running, attempts: 0 };
        self.start(number, pod, &mut guest);
        let refused = !guest.left.is_empty();
        self.guests.insert(number, guest);
        if refused && self.waiting == Waiting::Drop {
            self.leave(number);
        }
    }

    fn start(&mut self, number: usize, pod: &PodSpec, guest: &mut Guest) {
        let left = std::mem::take(&mut guest.left);
        for (tried, at) in left.iter().copied().enumerate() {
            let Some(container) = pod.containers.get(at) else { continue };
            let id = ContainerId(format!("{number}-{at}-{}", guest.attempts));
            guest.attempts += 1;
            let instance = container.as_reported(id.clone(), guest.pod.sandbox.clone());
            let create = Admission::Create { pod: guest.pod.clone(), container: instance.clone() };
            match self.ask(create) {
                Ok(decision) => {
                    let adjustment =
                        decision.adjustment.filter(crate::ledger::Adjustment::is_exclusive);
                    let exclusive = adjustment.map(|adjustment| adjustment.cpus());
                    self.see(&Happening::Placed { pod, container, exclusive });
                    self.tell(Event::Started { pod: guest.pod.clone(), container: instance });
                    if container.kind == ContainerKind::Init {
                        self.tell(Event::Stop(id));
                    } else {
                        guest.running.push(id);
                    }
                }
                Err(why) => {
                    let again = !guest.refused.insert(at);
                    self.see(&Happening::Refused { pod, container, why: &why, again });
                    guest.left.push(at);
                    // Later containers wait for an init container.
                    if container.kind != ContainerKind::App {
                        guest.left.extend(left.iter().skip(tried + 1));
                        return;
                    }
                }
            }
        }
        if guest.left.is_empty() {
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
            self.tell(Event::Stop(id));
        }
        self.tell(Event::StopPod(pod.sandbox.clone()));
        self.tell(Event::RemovePod(pod.sandbox));
        self.room += self.workload.pods.get(number).map_or(0, PodSpec::request);
        true
    }

    /// Waiting containers and pods try again, in the order of the pods' arrival.
    fn try_again(&mut self) {
        let workload = self.workload;
        let unfinished: Vec<usize> = self
            .guests
            .iter()
            .filter(|(_, guest)| !guest.left.is_empty())
            .map(|(at, _)| *at)
            .collect();
        for number in unfinished {
            let (Some(pod), Some(mut guest)) =
                (workload.pods.get(number), self.guests.remove(&number))
            else {
                continue;
            };
            self.start(number, pod, &mut guest);
            self.guests.insert(number, guest);
        }
        let waiting = std::mem::take(&mut self.queue);
        for number in waiting {
            match workload.pods.get(number) {
                Some(pod) if pod.request() <= self.room => self.enter(number, pod),
                _ => self.queue.push(number),
            }
        }
    }

    /// Sends the ledger an event that it never refuses.
    fn tell(&mut self, event: Event) {
        let _ = self.ask(event);
    }

    fn ask(&mut self, call: impl Into<Call>) -> Result<Decision, Rejection> {
        let call = call.into();
        let answer = self.ledger.handle(call.clone());
        // Notes are for the log, and follow from the decision.
        self.ledger.take_notes();
        self.see(&Happening::Decided(&call, &answer));
        answer
    }

    fn see(&mut self, happening: &Happening<'_>) {
        self.observer.see(self.now, self.ledger, happening);
    }
}
