//! Runs the cells of the table: each mode, alone and next to neighbours, several times in random order,
//! so that a change of the machine's other load does not meet one mode only.

use std::env;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cgroups::{CgroupVersion, Hierarchy};
use serde::Serialize;

use crate::Interrupted;
use crate::affinity;
use crate::machine::{self, Spent};
use crate::measured::Measured;
use crate::neighbour;
use crate::tree::{self, Cpus, Mode, Tree};

/// Set by a signal: the program ends as soon as it has removed its cgroups.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Between two checks of a child.
const POLL: Duration = Duration::from_millis(20);
/// What a measurement may take in addition to its time, also on emulated processors.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    pub(crate) mode: Mode,
    pub(crate) neighbours: bool,
}

/// One run of a cell.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) cell: Cell,
    pub(crate) measured: Measured,
    /// CPUs that the neighbours used, and that they would have used with nothing else running.
    pub(crate) neighbours_used: f64,
    pub(crate) neighbours_expected: f64,
    /// CPUs that other programs used.
    pub(crate) others_used: f64,
    /// The part of the machine's CPU time that the hypervisor gave to other machines.
    pub(crate) stolen: f64,
}

#[derive(Debug)]
pub(crate) struct Experiment<'a> {
    /// Arguments before those of a child.
    pub(crate) command: &'a [&'static str],
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) cpus: Cpus,
    pub(crate) neighbours: usize,
    /// Of each of the two measurements in a run.
    pub(crate) time: Duration,
    pub(crate) runs: usize,
}

/// A mode that this machine cannot do, and why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Skipped {
    pub(crate) mode: Mode,
    pub(crate) reason: String,
}

impl Experiment<'_> {
    /// Tries each mode without a program in it.
    pub(crate) fn possible(&self, modes: &[Mode]) -> (Vec<Mode>, Vec<Skipped>) {
        let mut possible = Vec::new();
        let mut skipped = Vec::new();
        for mode in modes.iter().copied() {
            match self.try_mode(mode) {
                Ok(()) => possible.push(mode),
                Err(error) => skipped.push(Skipped { mode, reason: format!("{error:#}") }),
            }
        }
        (possible, skipped)
    }

    fn try_mode(&self, mode: Mode) -> Result<()> {
        let root = Path::new(tree::ROOT);
        match mode {
            Mode::None => {}
            Mode::Runtime => ensure!(
                self.hierarchy.version() == CgroupVersion::V1,
                "on cgroup v2 neighbours run on the same CPUs as with groups"
            ),
            Mode::Groups => drop(cgroups::binding(&tree::linux(), root)?),
            // The plugin's own condition: older kernels return CPUs late.
            Mode::Kernel | Mode::Isolated => drop(cgroups::probe(&tree::linux(), root)?),
        }
        Tree::new(self.hierarchy, mode, self.cpus, 1)?;
        Ok(())
    }

    /// Runs every cell of the modes, and reports progress.
    pub(crate) fn run(
        &self,
        modes: &[Mode],
        progress: impl Fn(usize, usize, Cell),
    ) -> Result<Vec<Run>> {
        let cells: Vec<Cell> = modes
            .iter()
            .flat_map(|mode| [false, true].map(|neighbours| Cell { mode: *mode, neighbours }))
            .collect();
        let total = cells.len() * self.runs;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let mut round = cells.clone();
            fastrand::shuffle(&mut round);
            for cell in round {
                progress(runs.len() + 1, total, cell);
                let run = self.run_cell(cell);
                runs.push(run.with_context(|| format!("measuring {}", cell.mode.label()))?);
            }
        }
        Ok(runs)
    }

    fn run_cell(&self, cell: Cell) -> Result<Run> {
        let count = if cell.neighbours { self.neighbours } else { 0 };
        // The machine's requests do not depend on who runs.
        let tree = Tree::new(self.hierarchy, cell.mode, self.cpus, self.neighbours)?;
        let neighbours = self.start_neighbours(&tree, count)?;
        let room = if cell.mode.pins() { self.cpus.shared() } else { self.cpus.all };
        for child in &neighbours.children {
            let allowed = affinity::of(child.id())?;
            ensure!(
                allowed.is_subset(&room),
                "a neighbour may run on CPUs {allowed}, and not only on {room}"
            );
        }
        let before = (Spent::now()?, neighbours.ticks()?);
        let measured = self.measure(&tree, cell.mode)?;
        let spent = Spent::now()?.since(before.0);
        let neighbours_ticks = neighbours.ticks()?.saturating_sub(before.1);

        let share = |ticks: u64| ticks as f64 / spent.total as f64;
        let online = spent.cpus as f64;
        let seconds = 2.0 * self.time.as_secs_f64();
        let neighbours_used = share(neighbours_ticks) * online;
        let others = share(spent.busy) * online - neighbours_used - measured.used / seconds;
        Ok(Run {
            cell,
            neighbours_used,
            neighbours_expected: (count as f64 * neighbour::USE).min(room.len() as f64),
            others_used: others.max(0.0),
            stolen: share(spent.stolen),
            measured,
        })
    }

    /// Returns when all are ready.
    pub(crate) fn start_neighbours(&self, tree: &Tree<'_>, count: usize) -> Result<Neighbours> {
        let mut neighbours = Neighbours::default();
        for number in 0..count {
            let mut command = role(self.command, "neighbour", &tree.neighbour_files(number)?)?;
            command.arg("--cpus").arg(self.cpus.all.to_string());
            let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut child = child.context("cannot start a neighbour")?;
            neighbours.inputs.extend(child.stdin.take());
            neighbours.children.push(child);
        }
        for child in &mut neighbours.children {
            let mut ready = [0];
            let output = child.stdout.as_mut().context("no output")?;
            output.read_exact(&mut ready).context("a neighbour ended")?;
        }
        Ok(neighbours)
    }

    fn measure(&self, tree: &Tree<'_>, mode: Mode) -> Result<Measured> {
        let cpus = if mode.pins() { self.cpus.exclusive } else { self.cpus.all };
        let mut command = role(self.command, "measure", &tree.measured_files()?)?;
        command.arg("--cpus").arg(cpus.to_string());
        command.arg("--seconds").arg(self.time.as_secs_f64().to_string());
        if mode.pins() {
            command.arg("--pinned");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("cannot start the measured program")?;
        let result = finish(&mut child, 4 * self.time + PATIENCE);
        if result.is_err() {
            end(&mut child);
        }
        serde_json::from_str(&result?).context("the measured program printed something else")
    }
}

/// The output of a child, which is less than a pipe holds.
pub(crate) fn finish(child: &mut Child, patience: Duration) -> Result<String> {
    let deadline = Instant::now() + patience;
    let status = loop {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        ensure!(Instant::now() < deadline, "the measured program does not end");
        thread::sleep(POLL);
    };
    ensure!(status.success(), "the measured program failed: {status}");
    let mut text = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut text)?;
    Ok(text)
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// This program in another role. It enters its cgroup itself. A signal from the terminal does not reach it:
/// the parent ends it.
pub(crate) fn role(before: &[&str], name: &str, process_files: &[PathBuf]) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(before).arg(name).process_group(0);
    for file in process_files {
        command.arg("--enter").arg(file);
    }
    Ok(command)
}

/// They end with this value, and with this process.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    children: Vec<Child>,
    /// Kept open: neighbours end with their standard input.
    inputs: Vec<ChildStdin>,
}

impl Neighbours {
    fn ticks(&self) -> Result<u64> {
        self.children.iter().map(|child| machine::ticks(child.id())).sum()
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.inputs.clear();
        self.children.iter_mut().for_each(end);
    }
}
