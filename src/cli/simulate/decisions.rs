//! Every decision of a simulation as a table.

use super::error::SimulateError;
use crate::ledger::Ledger;
use crate::simulate::engine::OUT_OF_CPU;
use crate::simulate::{Happening, Observer, Recorder, Time};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Records the figures, and writes decisions to a file.
pub(super) struct Watched {
    recorder: Recorder,
    table: Option<(csv::Writer<File>, PathBuf)>,
    /// The first failed write.
    failed: Option<csv::Error>,
}

impl Watched {
    /// Writes to `file`, if it is given.
    pub(super) fn new(
        recorder: Recorder,
        file: Option<&PathBuf>,
    ) -> Result<Watched, SimulateError> {
        let open = |path: &PathBuf| match File::create(path) {
            Ok(file) => Ok((csv::Writer::from_writer(file), path.clone())),
            Err(error) => Err(SimulateError::File("write", path.clone(), error)),
        };
        let mut watched = Watched { recorder, table: file.map(open).transpose()?, failed: None };
        watched.line(&["time", "namespace", "pod", "container", "outcome", "cpus", "why"]);
        Ok(watched)
    }

    /// Writes the rest and returns the figures.
    pub(super) fn finish(self) -> Result<Recorder, SimulateError> {
        let Some((mut table, path)) = self.table else { return Ok(self.recorder) };
        let flushed = table.flush();
        match self.failed.map_or(flushed, |error| Err(io::Error::from(error))) {
            Ok(()) => Ok(self.recorder),
            Err(error) => Err(SimulateError::File("write", path, error)),
        }
    }

    fn line(&mut self, cells: &[&str]) {
        if let Some((table, _)) = &mut self.table
            && let Err(error) = table.write_record(cells)
        {
            self.failed.get_or_insert(error);
        }
    }
}

impl Observer for Watched {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        self.recorder.see(now, ledger, happening);
        if self.table.is_none() {
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
            Happening::Passes(..) | Happening::Decided(..) | Happening::Complete(_) => return,
        };
        let time = format!("{}.{:03}", now / 1000, now % 1000);
        self.line(&[&time, &pod.namespace, &pod.name, container, outcome, &cpus, &why]);
    }
}
