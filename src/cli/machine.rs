//! The machine that a command is about: this one, a saved one, a copy of a /sys, a preset, or a
//! described one.

use crate::snapshot::{Snapshot, SnapshotError};
use crate::topology::Sizes;
use crate::topology::presets::{preset, presets};
use crate::topology::synthetic::{DescriptionError, Machine};
use crate::topology::sysfs::{self, Reading};
use crate::topology::{Topology, TopologyError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A machine with its sizes and warnings.
#[derive(Debug)]
pub struct Loaded {
    /// The machine.
    pub topology: Topology,
    /// The known sizes of its caches and memories.
    pub sizes: Sizes,
    /// The reader's warnings, a line each.
    pub warnings: Vec<String>,
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Nothing of that name.
    #[error(
        "{0:?} is no machine: there is no such file, no directory that stands for /sys, and no preset of that name; \
         `nri-cpu-manager topology --from list` shows the presets, and \"pack:2 numa:2 l3:6 core:8 pu:2\" describes a machine"
    )]
    Unknown(String),
    /// A description is wrong.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A directory holds no machine.
    #[error(transparent)]
    Read(#[from] sysfs::ReadError),
    /// The files in a directory do not describe a machine.
    #[error("the machine in {0} cannot be understood: {1}")]
    Build(PathBuf, TopologyError),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    File(PathBuf, io::Error),
    /// A file is no snapshot.
    #[error("{0} is no machine that `nri-cpu-manager topology --save` has written: {1}")]
    Form(PathBuf, serde_yaml::Error),
    /// A snapshot contradicts itself.
    #[error("{0}: {1}")]
    Snapshot(PathBuf, SnapshotError),
}

/// Finds a machine: `what` is a file, a directory, a preset's name, or a description in words.
///
/// # Errors
/// If it is none of them, or not in order.
pub fn load(what: &str) -> Result<Loaded, MachineError> {
    let described = |machine: &Machine| -> Result<Loaded, MachineError> {
        let topology = machine.topology()?;
        Ok(Loaded { topology, sizes: Sizes::default(), warnings: Vec::new() })
    };
    let path = Path::new(what);
    if path.is_dir() {
        return read(path);
    }
    if path.exists() {
        return saved(path);
    }
    if let Some(machine) = preset(what) {
        return described(&machine);
    }
    if what.contains(':') {
        return described(&what.parse()?);
    }
    Err(MachineError::Unknown(what.to_owned()))
}

/// Reads a directory that stands for /sys.
///
/// # Errors
/// If there is no machine in it.
pub fn read(root: &Path) -> Result<Loaded, MachineError> {
    let Reading { facts, sizes, warnings } = sysfs::read(root)?;
    let topology =
        Topology::build(facts).map_err(|error| MachineError::Build(root.to_owned(), error))?;
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(Loaded { topology, sizes, warnings })
}

fn saved(path: &Path) -> Result<Loaded, MachineError> {
    let text =
        fs::read_to_string(path).map_err(|error| MachineError::File(path.to_owned(), error))?;
    let snapshot: Snapshot =
        serde_yaml::from_str(&text).map_err(|error| MachineError::Form(path.to_owned(), error))?;
    let (topology, sizes) =
        snapshot.read().map_err(|error| MachineError::Snapshot(path.to_owned(), error))?;
    Ok(Loaded { topology, sizes, warnings: Vec::new() })
}

/// The presets, a line each.
pub fn list() -> String {
    let presets = presets();
    let width = presets.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    let line = |preset: &crate::topology::presets::Preset| {
        format!("{:width$}  {}\n", preset.name, preset.about)
    };
    presets.iter().map(line).collect()
}
