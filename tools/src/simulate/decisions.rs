//! Every decision of a simulation as a table.

use super::report::RefusalReport;
use ledger::Ledger;
use simulate::{ContainerSpec, Happening, OUT_OF_CPU, PodSpec, Recorder, StepObserver, Time};
use status::memory;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use terminal::input;
use terminal::output::cannot;

/// Records the figures and refusals, and writes decisions to a file if one is given.
pub(super) struct DecisionTable<'a> {
    recorder: Recorder,
    refusals: Vec<RefusalReport>,
    writer: Option<(csv::Writer<Box<dyn Write + 'a>>, &'a Path)>,
    /// Whether the table has a column for memory: only where it is counted.
    memory: bool,
    /// The first failed write.
    failed: Option<csv::Error>,
}

impl<'a> DecisionTable<'a> {
    pub(super) fn new(
        recorder: Recorder,
        file: Option<&'a Path>,
        out: &'a mut dyn Write,
        memory: bool,
    ) -> Result<DecisionTable<'a>, String> {
        let writer = match file {
            Some(path) => {
                let file: Box<dyn Write> = if input::is_standard(path) {
                    Box::new(out)
                } else {
                    Box::new(File::create(path).map_err(cannot("write", path))?)
                };
                Some((csv::Writer::from_writer(file), path))
            }
            None => None,
        };
        let mut table =
            DecisionTable { recorder, refusals: Vec::new(), writer, memory, failed: None };
        table.line(["time", "namespace", "pod", "container", "outcome", "cpus", "why"], "memory");
        Ok(table)
    }

    /// Writes the rest and returns the figures and refusals.
    pub(super) fn finish(self) -> Result<(Recorder, Vec<RefusalReport>), String> {
        if let Some((mut writer, path)) = self.writer {
            let flushed = writer.flush().map_err(csv::Error::from);
            self.failed.map_or(flushed, Err).map_err(cannot("write", path))?;
        }
        Ok((self.recorder, self.refusals))
    }

    fn line(&mut self, cells: [&str; 7], memory: &str) {
        let memory = if self.memory { Some(memory) } else { None };
        if let Some((writer, _)) = &mut self.writer
            && let Err(error) = writer.write_record(cells.into_iter().chain(memory))
        {
            self.failed.get_or_insert(error);
        }
    }
}

impl StepObserver for DecisionTable<'_> {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        self.recorder.see(now, ledger, happening);
        self.refusals.extend(refusal(now, happening));
        if self.writer.is_none() {
            return;
        }
        let (pod, container, outcome, cpus, why) = match happening {
            Happening::Placed { pod, container, exclusive: Some(cpus) } => {
                (pod, container.name.as_str(), "exclusive", cpus.to_string(), String::new())
            }
            Happening::Placed { pod, container, exclusive: None } => {
                (pod, container.name.as_str(), "shared", String::new(), String::new())
            }
            Happening::Refused { pod, container, why, .. } => {
                (pod, container.name.as_str(), "refused", String::new(), why.to_string())
            }
            Happening::Full { pod, waits } => {
                let outcome = if *waits { "waits" } else { "turned away" };
                (pod, "", outcome, String::new(), OUT_OF_CPU.to_owned())
            }
            Happening::TurnedAway(pod) => (pod, "", "turned away", String::new(), String::new()),
            Happening::Passes(..)
            | Happening::Planned(_)
            | Happening::Decided(..)
            | Happening::Recorded(..)
            | Happening::Complete(_)
            | Happening::Arrived(_) => return,
        };
        let time = format!("{}.{:03}", now / 1000, now % 1000);
        let memory = match happening {
            Happening::Placed { pod, container, .. } if self.memory => {
                memory_of(ledger, pod, container)
            }
            _ => String::new(),
        };
        self.line([&time, &pod.namespace, &pod.name, container, outcome, &cpus, &why], &memory);
    }
}

fn refusal(now: Time, happening: &Happening<'_>) -> Option<RefusalReport> {
    let (pod, container, why) = match happening {
        Happening::Refused { pod, container, why, again: false } => {
            (pod, container.name.as_str(), why.to_string())
        }
        Happening::Full { pod, .. } => {
            let why = format!(
                "{OUT_OF_CPU}: all pods together would request more CPUs than the node has"
            );
            (pod, "", why)
        }
        _ => return None,
    };
    Some(RefusalReport {
        time: now as f64 / 1000.0,
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.to_owned(),
        why,
    })
}

/// The memory of a container that was admitted; empty if it is not counted.
fn memory_of(ledger: &Ledger, pod: &PodSpec, container: &ContainerSpec) -> String {
    let view = ledger.view();
    let name = (&pod.namespace, &pod.name, &container.name);
    let mut containers = view.containers.iter();
    let found = containers.find(|one| (&one.pod.namespace, &one.pod.name, &one.name) == name);
    let memory = found.and_then(|one| view.memory_of(one));
    memory.map(memory::short).unwrap_or_default()
}
