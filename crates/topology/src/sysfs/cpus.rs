//! Which CPUs are online, offline and isolated.

use super::tree::{Format, Lookup, ReadError, SysfsTree};
use super::warning::{Fact, Problem, Warnings};
use cpuset::{CpuSet, ParseError};

const DIR: &str = "devices/system/cpu";

pub(super) struct Population {
    pub(super) online: CpuSet,
    /// Present, but not online. The kernel's file `offline` is not used: it also has CPUs that
    /// could be plugged in later, and numbers that the machine cannot have.
    pub(super) offline: CpuSet,
    pub(super) isolated: CpuSet,
}

pub(super) fn read(tree: &SysfsTree<'_>, warnings: &mut Warnings) -> Result<Population, ReadError> {
    let listed = list(tree, "online")?;
    let online = match listed.value {
        Some(online) if !online.is_empty() => online,
        empty => {
            let why = if empty.is_some() { "names no CPU" } else { "no such file" };
            let example = listed.trouble.unwrap_or_else(|| format!("{DIR}/online: {why}"));
            warnings.machine(Fact::Online, Problem::Missing, example);
            online_by_directory(tree)?
        }
    };
    if online.is_empty() {
        return Err(ReadError::NoCpus { path: tree.path(DIR) });
    }
    let present = match warnings.value(Fact::Present, list(tree, "present")?) {
        Some(present) => present,
        None => directories(tree)?,
    };
    let isolated = tree.cpus(DIR, &[("isolated", Format::List)]);
    let isolated = warnings.value(Fact::Isolated, isolated).unwrap_or_default();
    Ok(Population { online, offline: present - online, isolated })
}

/// Reads a list that defines the machine. A CPU past the limit is an error, because without it a
/// part of the machine would be missing.
fn list(tree: &SysfsTree<'_>, file: &str) -> Result<Lookup<CpuSet>, ReadError> {
    let path = format!("{DIR}/{file}");
    let Lookup { value, trouble } = tree.text(&path);
    match value.map(|text| text.parse()) {
        Some(Ok(set)) => Ok(Lookup { value: Some(set), trouble }),
        Some(Err(error @ ParseError::PastLimit { .. })) => {
            Err(ReadError::TooLarge { path: tree.path(&path), what: error.to_string() })
        }
        Some(Err(error)) => Ok(Lookup { value: None, trouble: Some(format!("{path}: {error}")) }),
        None => Ok(Lookup { value: None, trouble }),
    }
}

fn directories(tree: &SysfsTree<'_>) -> Result<CpuSet, ReadError> {
    let mut set = CpuSet::EMPTY;
    for cpu in tree.numbered(DIR, "cpu").value.unwrap_or_default() {
        set.insert(cpu).map_err(|limit| ReadError::TooLarge {
            path: tree.path(DIR),
            what: limit.to_string(),
        })?;
    }
    Ok(set)
}

/// The CPUs with a directory, except those with a 0 in its file `online`. CPUs that cannot go
/// offline have no such file.
fn online_by_directory(tree: &SysfsTree<'_>) -> Result<CpuSet, ReadError> {
    let mut set = directories(tree)?;
    for cpu in &set.clone() {
        if tree.text(&format!("{DIR}/cpu{cpu}/online")).value.as_deref() == Some("0") {
            set.remove(cpu);
        }
    }
    Ok(set)
}
