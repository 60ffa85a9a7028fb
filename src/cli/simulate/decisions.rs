//! Every decision of a simulation as a table.

use crate::cli::output::cannot;
use ledger::Ledger;
use simulate::{Happening, OUT_OF_CPU, Recorder, StepObserver, Time};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Records the figures, and writes decisions to a file if one is given.
pub(super) struct DecisionTable<'a> {
    recorder: Recorder,
    writer: Option<(csv::Writer<File>, &'a Path)>,
    /// The first failed write.
    failed: Option<csv::Error>,
}

impl<'a> DecisionTable<'a> {
    pub(super) fn new(
        recorder: Recorder,
        file: Option<&'a PathBuf>,
    ) -> Result<DecisionTable<'a>, String> {
        let writer = match file {
            Some(path) => {
                let file = File::create(path).map_err(cannot("write", path))?;
                Some((csv::Writer::from_writer(file), path.as_path()))
            }
            None => None,
        };
        let mut table = DecisionTable { recorder, writer, failed: None };
        table.line(&["time", "namespace", "pod", "container", "outcome", "cpus", "why"]);
        Ok(table)
    }

    /// Writes the rest and returns the figures.
    pub(super) fn finish(self) -> Result<Recorder, String> {
        if let Some((mut writer, path)) = self.writer {
            let flushed = writer.flush().map_err(csv::Error::from);
            self.failed.map_or(flushed, Err).map_err(cannot("write", path))?;
        }
        Ok(self.recorder)
    }

    fn line(&mut self, cells: &[&str]) {
        if let Some((writer, _)) = &mut self.writer
            && let Err(error) = writer.write_record(cells)
        {
            self.failed.get_or_insert(error);
        }
    }
}

impl StepObserver for DecisionTable<'_> {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        self.recorder.see(now, ledger, happening);
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
        self.line(&[&time, &pod.namespace, &pod.name, container, outcome, &cpus, &why]);
    }
}
