//! What a scheduler, a kubelet and a runtime do to a node while pods come and go, as far as a
//! plugin hears of it.
//!
//! * Pods are let onto the node as the scheduler does: in the order in which they came, as long as
//!   the requests of all pods on it are no more than its CPUs without the reserved ones. Others
//!   wait, or are turned away ([`Waiting`]).
//! * Containers are started in order: init containers run to their end at once, and nothing of a
//!   pod starts before its init containers have run. A container that is refused is tried again
//!   whenever a pod has gone, like a kubelet does every few seconds, or its pod is given up.
//! * At one moment pods go before others come.

use super::workload::{ContainerSpec, PodSpec, Time, Workload};
use crate::cpuset::CpuSet;
use crate::ledger::{ContainerId, ContainerKind, Decision, Event, Ledger, Pod};
use crate::placement::Rejection;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The name of a refusal that is not the plugin's: the node has too few CPUs left, whichever they
/// are.
pub const OUT_OF_CPU: &str = "OutOfcpu";

/// What becomes of pods for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// They are tried again whenever a pod has gone, until they go themselves.
    Retry,
    /// They are turned away for good.
    Drop,
}

/// Something that happens in a simulation.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Time goes on, and nothing changes meanwhile.
    Passes(Time, Time),
    /// The ledger has decided.
    Decided(&'a Event, &'a Result<Decision, Rejection>),
    /// A container is let in: with CPUs for itself, or without.
    Placed {
        /// Its pod.
        pod: &'a PodSpec,
        /// The container.
        container: &'a ContainerSpec,
        /// Its exclusive CPUs.
        exclusive: Option<CpuSet>,
    },
    /// A container is not let in.
    Refused {
        /// Its pod.
        pod: &'a PodSpec,
        /// The container.
        container: &'a ContainerSpec,
        /// Why.
        why: &'a Rejection,
        /// Whether that has happened to it before.
        again: bool,
    },
    /// A pod is not let onto the node: too few CPUs are left.
    Full {
        /// The pod.
        pod: &'a PodSpec,
        /// Whether it waits; it is turned away for good else.
        waits: bool,
    },
    /// All containers of a pod have been let in.
    Complete(&'a PodSpec),
}

/// Who looks on.
pub trait Observer {
    /// Something has happened at this moment; the ledger is as it was left.
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>);
}

/// Lets the pods of a workload come and go until the last one has come, or until `end`; the ledger
/// is left as it is then.
///
/// `progress` hears now and then how many pods have come.
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
    /// Thousandths of a CPU that pods on the node may still ask for.
    room: u64,
    /// Pods that are not on the node, in the order in which they came.
    queue: Vec<usize>,
    /// Pods that are on it.
    guests: BTreeMap<usize, Guest>,
    departures: BinaryHeap<Reverse<(Time, usize)>>,
}

/// A pod on the node.
struct Guest {
    told: Pod,
    /// The containers that have not been let in, as positions in its description.
    left: Vec<usize>,
    /// Those that have been refused.
    refused: BTreeSet<usize>,
    running: Vec<ContainerId>,
    /// How often containers were tried.
    attempts: usize,
}

impl Engine<'_> {
    fn arrive(&mut self, number: usize, pod: &PodSpec) {
        if let Some(depart) = pod.depart {
            self.departures.push(Reverse((depart, number)));
        }
        // No pod overtakes another: one that came earlier and waits gets in first, if it fits.
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

    /// Lets time pass up to a moment; pods that end until then go.
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

    /// A pod comes onto the node, and its containers are started as far as they are let in.
    fn enter(&mut self, number: usize, pod: &PodSpec) {
        self.room = self.room.saturating_sub(pod.request());
        let told = pod.told(number);
        self.tell(Event::RunPod(told.clone()));
        let left = (0..pod.containers.len()).collect();
        let (refused, running) = (BTreeSet::new(), Vec::new());
        let mut guest = Guest { told, left, refused, running, attempts: 0 };
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
            let instance = container.told(id.clone(), guest.told.sandbox.clone());
            let create = Event::Create { pod: guest.told.clone(), container: instance.clone() };
            match self.ask(create) {
                Ok(decision) => {
                    let adjustment =
                        decision.adjustment.filter(crate::ledger::Adjustment::is_exclusive);
                    let exclusive = adjustment.map(|adjustment| adjustment.cpus());
                    self.see(&Happening::Placed { pod, container, exclusive });
                    self.tell(Event::Started { pod: guest.told.clone(), container: instance });
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
                    // What comes after an init container waits for it.
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

    /// A pod goes, wherever it is; whether there is more room now.
    fn leave(&mut self, number: usize) -> bool {
        let Some(Guest { told, running, .. }) = self.guests.remove(&number) else {
            self.queue.retain(|waiting| *waiting != number);
            return false;
        };
        for id in running {
            self.tell(Event::Stop(id));
        }
        self.tell(Event::StopPod(told.sandbox.clone()));
        self.tell(Event::RemovePod(told.sandbox));
        self.room += self.workload.pods.get(number).map_or(0, PodSpec::request);
        true
    }

    /// Pods that wait try again, in the order in which they came.
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

    /// Tells the ledger something that cannot be refused.
    fn tell(&mut self, event: Event) {
        let _ = self.ask(event);
    }

    fn ask(&mut self, event: Event) -> Result<Decision, Rejection> {
        let answer = self.ledger.handle(event.clone());
        // They are for the log; what they say follows from the decision.
        self.ledger.take_notes();
        self.see(&Happening::Decided(&event, &answer));
        answer
    }

    fn see(&mut self, happening: &Happening<'_>) {
        self.observer.see(self.now, self.ledger, happening);
    }
}
