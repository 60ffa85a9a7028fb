//! `nri-cpu-manager enable-nri`: enables NRI in containerd's configuration, for containerd 1.7, where
//! it is disabled by default.
//!
//! Everything else in the file stays as it is, comments included. The user has to restart the
//! runtime afterwards.

use super::output::cannot;
use clap::Args;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// containerd's name of the plugin, since version 2 of the file's format.
const NRI: &str = "io.containerd.nri.v1.nri";
/// NRI's default socket, which the DaemonSet uses.
const SOCKET: &str = "/var/run/nri/nri.sock";

#[derive(Debug, Clone, Args)]
pub struct EnableNriArgs {
    /// containerd's configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/containerd/config.toml")]
    pub config: PathBuf,
}

/// Why a configuration cannot be changed safely.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    #[error("invalid TOML, which containerd cannot read either: {0}")]
    Syntax(String),
    /// Plugins have other names in other versions of the format.
    #[error(
        "unsupported format version {0} (a file without one has version 1). Convert it to version 2 first: \
         `containerd config migrate` prints the result"
    )]
    Version(String),
    #[error(
        "disabled_plugins lists \"{NRI}\": NRI is disabled on purpose. Remove the entry to enable it"
    )]
    Disabled,
    #[error("unexpected type of {0}")]
    Kind(&'static str),
}

/// A configuration with NRI enabled.
#[derive(Debug, PartialEq, Eq)]
pub struct Enabled {
    /// `None` if NRI is enabled already.
    pub content: Option<String>,
    /// NRI's socket, if it is not the default one.
    pub socket: Option<String>,
    /// Files that containerd reads after this one.
    pub imports: Vec<String>,
}

/// Enables NRI in the file, and reports on `out` what it did and what the user has to do. After an
/// error the file is unchanged.
pub fn run(args: &EnableNriArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // `replace` must replace the file behind a symbolic link, not the link.
    let path = match args.config.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => args.config.clone(),
        target => target.map_err(cannot("find", &args.config))?,
    };
    let old = match fs::read_to_string(&path) {
        // containerd also runs without a file, with all settings at their defaults.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read.map_err(cannot("read", &path))?),
    };
    let enabled = enable(old.as_deref().unwrap_or("version = 2\n"))
        .map_err(|why| format!("{}: {why}. Nothing was changed", path.display()))?;
    let shown = path.display();
    match &enabled.content {
        None => writeln!(out, "{shown}: NRI is enabled already, nothing was changed")?,
        Some(content) => {
            replace(&path, content)?;
            let what = if old.is_some() { "changed" } else { "created" };
            writeln!(
                out,
                "{shown}: {what}, NRI is enabled. Restart containerd: systemctl restart containerd \
                 (containers keep running)"
            )?;
        }
    }
    if let Some(socket) = &enabled.socket {
        writeln!(
            out,
            "warning: NRI listens at {socket}, not at {SOCKET}: run the plugin with --socket"
        )?;
    }
    if !enabled.imports.is_empty() {
        let imports = enabled.imports.join(", ");
        writeln!(
            out,
            "warning: {shown} imports {imports}, which can disable NRI again; not checked"
        )?;
    }
    Ok(())
}

/// Enables NRI in the text of a configuration.
pub fn enable(text: &str) -> Result<Enabled, Unsuitable> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Unsuitable::Syntax(error.to_string()))?;
    match document.get("version").map(|version| (version.as_integer(), version)) {
        Some((Some(2 | 3), _)) => {}
        Some((_, other)) => return Err(Unsuitable::Version(other.to_string().trim().to_owned())),
        None => return Err(Unsuitable::Version("1".to_owned())),
    }
    if strings(&document, "disabled_plugins")?.iter().any(|plugin| plugin == NRI) {
        return Err(Unsuitable::Disabled);
    }
    let imports = strings(&document, "imports")?;

    let plugins = table_in(document.as_table_mut(), "plugins")?;
    let nri = table_in(plugins, NRI)?;
    let enabled = match nri.get("disable") {
        None => false,
        Some(disable) => !disable.as_bool().ok_or(Unsuitable::Kind("disable"))?,
    };
    let socket = match nri.get("socket_path") {
        None => None,
        Some(path) => Some(path.as_str().ok_or(Unsuitable::Kind("socket_path"))?.to_owned()),
    };
    if !enabled {
        set(nri, "disable", false);
    }
    Ok(Enabled {
        content: if enabled { None } else { Some(document.to_string()) },
        socket: socket.filter(|path| !path.is_empty() && path != SOCKET),
        imports,
    })
}

/// The strings of a top-level list.
fn strings(document: &DocumentMut, key: &'static str) -> Result<Vec<String>, Unsuitable> {
    let Some(item) = document.get(key) else { return Ok(Vec::new()) };
    let list = item.as_array().ok_or(Unsuitable::Kind(key))?;
    let texts: Option<Vec<String>> = list.iter().map(|v| v.as_str().map(str::to_owned)).collect();
    texts.ok_or(Unsuitable::Kind(key))
}

/// A table in a table; a missing one gets into the file only once it has a key.
fn table_in<'t>(
    parent: &'t mut dyn TableLike,
    key: &'static str,
) -> Result<&'t mut dyn TableLike, Unsuitable> {
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_like_mut().ok_or(Unsuitable::Kind(key))
}

/// Sets a key. Text around the old value, such as a comment, stays.
fn set(table: &mut dyn TableLike, key: &str, new: bool) {
    let mut new = Value::from(new);
    match table.get_mut(key) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *new.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(new);
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

/// Replaces the file atomically; the new one has the old one's owner and permissions.
fn replace(path: &Path, content: &str) -> Result<(), String> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".enable-nri");
    let new = path.with_file_name(name);
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(content.as_bytes())?;
        let mode = match fs::metadata(path) {
            Ok(old) => {
                if (old.uid(), old.gid()) != (file.metadata()?.uid(), file.metadata()?.gid()) {
                    fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
                old.mode() & 0o7777
            }
            Err(_) => 0o644,
        };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let directory = path.parent().filter(|d| !d.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|source| {
        // The first error matters; this only leaves no temporary file behind.
        let _ = fs::remove_file(&new);
        cannot("replace", path)(source)
    })
}

#[cfg(test)]
mod tests;
