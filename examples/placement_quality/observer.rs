//! [`Observer`]: collects the figures while the simulation runs.

use super::figures::Figures;
use super::machines::NamedMachine;
use super::workload::Length;
use ledger::{Admission, Ledger};
use placement::quality::Scorer;
use simulate::{Happening, StepObserver, Time};
use std::time::Instant;

pub(super) struct Observer {
    scorer: Scorer,
    figures: Figures,
    capacity: usize,
    warm_up: usize,
    /// Pods that have arrived, without the one that is arriving.
    arrived: usize,
    /// The end of the last step, from which a decision is timed.
    ended: Instant,
}

impl Observer {
    pub(super) fn new(machine: &NamedMachine, length: Length) -> Observer {
        Observer {
            scorer: Scorer::new(&machine.topology),
            figures: Figures::default(),
            capacity: machine.capacity(),
            warm_up: length.warm_up,
            arrived: 0,
            ended: Instant::now(),
        }
    }

    pub(super) fn figures(self) -> Figures {
        self.figures
    }

    fn score(&mut self, ledger: &Ledger, happening: &Happening<'_>) {
        let refused = &mut self.figures.refused;
        match happening {
            Happening::Decided(Admission::Create { .. }, _) => {
                self.figures.decision_times.add(self.ended.elapsed());
            }
            Happening::Planned(plan) => {
                self.figures.plan_times.add(self.ended.elapsed());
                for step in plan.iter().flat_map(|plan| &plan.steps) {
                    self.figures.moved.containers += 1;
                    self.figures.moved.cpus += step.to.len() as u64;
                }
            }
            Happening::Refused { container, .. } => {
                if container.request <= ledger.free().len() as u64 * 1000 {
                    refused.enough += 1;
                } else {
                    refused.too_few += 1;
                }
            }
            Happening::Full { .. } => refused.too_few += 1,
            Happening::Arrived(_) => {
                let live = ledger.live_exclusive();
                self.scorer.sample(ledger.topology(), live, &mut self.figures.live);
                self.figures.use_of(ledger.exclusive().len(), self.capacity);
            }
            _ => {}
        }
    }
}

impl StepObserver for Observer {
    fn see(&mut self, _: Time, ledger: &Ledger, happening: &Happening<'_>) {
        if self.arrived >= self.warm_up {
            self.score(ledger, happening);
        }
        if let Happening::Arrived(number) = happening {
            self.arrived = *number;
        }
        self.ended = Instant::now();
    }
}
