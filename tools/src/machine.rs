//! The machine that a command works on: this one, a saved or described one, a preset.

use kernel::Linux;
use machines::picture::bytes;
use machines::presets::{Preset, preset, presets, similar};
use machines::synthetic::{DescriptionError, Machine};
use status::machine_file::{MachineFile, MachineFileError};
use std::io;
use std::path::{Path, PathBuf};
use terminal::input;
use topology::sysfs::{self, Reading};
use topology::{Sizes, Topology, TopologyError};

#[derive(Debug)]
pub struct LoadedMachine {
    pub topology: Topology,
    pub sizes: Sizes,
    /// The reader's warnings, a line each.
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(
        "unknown machine {0:?}: not a file, not a sysfs directory, not a preset; \
         `cpuctl topology --list` shows the presets{near}, and a description looks like \
         \"pack:2 numa:2 l3:6 core:8 pu:2\"",
        near = near(.0)
    )]
    Unknown(String),
    #[error(
        "unknown machine {0:?}: not a file, not a sysfs directory, not a preset; the presets of this \
         kind are {names}",
        names = .1.join(", ")
    )]
    UnknownVariant(String, Vec<String>),
    #[error(transparent)]
    Description(#[from] DescriptionError),
    #[error(transparent)]
    Read(#[from] sysfs::ReadError),
    #[error("{0} does not describe a machine: {1}")]
    Build(PathBuf, TopologyError),
    #[error("cannot read {0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0} is not a machine saved by `cpuctl topology --save`: {1}")]
    Form(PathBuf, serde_yaml::Error),
    /// A snapshot contradicts itself.
    #[error("{0}: {1}")]
    MachineFile(PathBuf, MachineFileError),
}

/// Finds a machine: `what` is a file (`-` is standard input), a directory, a preset's name, or a
/// description.
pub fn load(what: &str) -> Result<LoadedMachine, MachineError> {
    let path = Path::new(what);
    if path.is_dir() {
        return read(path);
    }
    if path.exists() || input::is_standard(path) {
        return saved(path);
    }
    let machine = match preset(what) {
        Some(machine) => machine,
        None if what.contains(':') => what.parse::<Machine>()?,
        None => {
            let similar = similar(what);
            return Err(if similar.is_empty() {
                MachineError::Unknown(what.to_owned())
            } else {
                MachineError::UnknownVariant(what.to_owned(), similar)
            });
        }
    };
    Ok(LoadedMachine {
        topology: machine.topology()?,
        sizes: machine.sizes(),
        warnings: Vec::new(),
    })
}

/// ` (did you mean --from NAME?)` if this is a preset or nearly one, otherwise empty.
pub(super) fn hint(what: &str) -> String {
    if preset(what).is_some() {
        return format!(" (did you mean --from {what}?)");
    }
    near(what).replace("mean ", "mean --from ")
}

fn near(what: &str) -> String {
    let names: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
    wording::nearest(what, &names)
}

/// Reads a sysfs directory.
pub fn read(root: &Path) -> Result<LoadedMachine, MachineError> {
    let Reading { facts, sizes, warnings } = sysfs::read(&Linux, root)?;
    let topology =
        Topology::build(facts).map_err(|error| MachineError::Build(root.to_owned(), error))?;
    let topology = topology.with_memory(&sizes);
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(LoadedMachine { topology, sizes, warnings })
}

fn saved(path: &Path) -> Result<LoadedMachine, MachineError> {
    let name = || PathBuf::from(input::name(path));
    let text = input::text(path).map_err(|error| MachineError::File(name(), error))?;
    let file: MachineFile =
        serde_yaml::from_str(&text).map_err(|error| MachineError::Form(name(), error))?;
    let (topology, sizes) =
        file.read().map_err(|error| MachineError::MachineFile(name(), error))?;
    Ok(LoadedMachine { topology, sizes, warnings: Vec::new() })
}

/// The presets by name, a line each with the ends of names of its variants.
pub fn list() -> String {
    let mut presets = presets();
    presets.sort_by(|a, b| wording::natural_order(a.name, b.name));
    let width = presets.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    let line = |preset: &Preset| {
        let Preset { name, about, machine } = preset;
        let memory = machine.memory.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
        let suffixes = preset.suffixes();
        let variants = if suffixes.is_empty() {
            String::new()
        } else {
            format!("; variants {}", suffixes.join(", "))
        };
        format!("{name:width$}  {about}{memory}{variants}\n")
    };
    presets.iter().map(line).collect()
}
