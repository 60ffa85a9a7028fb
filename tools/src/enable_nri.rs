//! `cpuctl enable-nri`: enables NRI in containerd's configuration, for containerd 1.7, where
//! it is disabled by default.
//!
//! Everything else in the file stays as it is, comments and line ends included. The user has to
//! restart the runtime afterwards. A missing file is not created: containerd may read another one,
//! and a distribution that renders the file would replace it.

use clap::Args;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use terminal::output::cannot;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// containerd's name of the plugin, since version 2 of the file's format.
const NRI: &str = "io.containerd.nri.v1.nri";
/// Keys of its table. `disable_connections` lets only those plugins in that containerd launches.
const DISABLE: &str = "disable";
const DISABLE_CONNECTIONS: &str = "disable_connections";
/// NRI's default socket, which the DaemonSet uses.
const SOCKET: &str = "/var/run/nri/nri.sock";

/// The file that containerd reads unless its command line names another one.
const DEFAULT: &str = "etc/containerd/config.toml";

/// Distributions whose containerd reads a file that is rendered from a template at each start.
///
/// Sources: docs.k3s.io/advanced ("Configuring containerd"), docs.rke2.io/advanced, and the script
/// `run-containerd-with-args` of MicroK8s.
const DISTRIBUTIONS: [Distribution; 3] = [
    Distribution {
        name: "k3s",
        directory: "var/lib/rancher/k3s/agent/etc/containerd",
        rendered: "config.toml",
        templates: &["config-v3.toml.tmpl", "config.toml.tmpl"],
        missing: BASE,
        restart: "systemctl restart k3s (on an agent: k3s-agent)",
    },
    Distribution {
        name: "RKE2",
        directory: "var/lib/rancher/rke2/agent/etc/containerd",
        rendered: "config.toml",
        templates: &["config-v3.toml.tmpl", "config.toml.tmpl"],
        missing: BASE,
        restart: "systemctl restart rke2-server (on an agent: rke2-agent)",
    },
    Distribution {
        name: "MicroK8s",
        directory: "var/snap/microk8s/current/args",
        rendered: "containerd.toml",
        templates: &["containerd-template.toml"],
        missing: "MicroK8s installs it",
        restart: "snap restart microk8s.daemon-containerd",
    },
];

/// k3s and RKE2 call their own template "base".
const BASE: &str = "create it with the line {{ template \"base\" . }} and pass it with --config (with \
                    containerd 2, NRI is enabled without it)";

#[derive(Debug)]
struct Distribution {
    name: &'static str,
    /// Below the root directory.
    directory: &'static str,
    rendered: &'static str,
    /// The first that exists is used; the last is for containerd 1.7.
    templates: &'static [&'static str],
    /// What to do without a template.
    missing: &'static str,
    restart: &'static str,
}

#[derive(Debug, Clone, Args)]
pub struct EnableNriArgs {
    /// containerd's configuration file, or the template it is rendered from; by default the one that
    /// this node's containerd reads
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print what would change in the file as a unified diff, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Why a configuration cannot be changed safely.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsuitable {
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
    #[error(
        "it mentions {NRI}, but has no line \"disable\" in that plugin's table: set disable = false there"
    )]
    Template,
}

/// A configuration with NRI enabled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Enabled {
    /// `None` if NRI is enabled already.
    pub content: Option<String>,
    /// NRI's socket, if it is not the default one.
    pub socket: Option<String>,
    /// Files that containerd reads after this one.
    pub imports: Vec<String>,
}

/// Enables NRI in the file, and reports on `out` what it did and what the user has to do. After an
/// error the file is unchanged.
pub(crate) fn run(args: &EnableNriArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    run_below(Path::new("/"), args, out)
}

fn run_below(root: &Path, args: &EnableNriArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let config = match &args.config {
        Some(config) => config.clone(),
        None => read_by_containerd(root)?,
    };
    // `replace` must replace the file behind a symbolic link, not the link.
    let path = match config.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("{}: no such file. Nothing was changed", config.display());
            let instead = match read_by_containerd(root) {
                Ok(read) => format!("containerd on this node reads {}", read.display()),
                Err(advice) => advice,
            };
            return Err(format!("{why}. {instead}").into());
        }
        target => target.map_err(cannot("find", &config))?,
    };
    let old = fs::read_to_string(&path).map_err(cannot("read", &path))?;
    let shown = path.display();
    let distribution = DISTRIBUTIONS.iter().find(|one| one.has(root, &path));
    if let Some(why) = rendered(distribution, root, &path, &old) {
        return Err(format!("{shown}: {why}. Nothing was changed").into());
    }
    let is_template = path.extension().is_some_and(|extension| extension == "tmpl");
    let enabled = if is_template { enable_in_template(&old) } else { enable(&old) };
    let enabled = enabled.map_err(|why| format!("{shown}: {why}. Nothing was changed"))?;
    match &enabled.content {
        None => writeln!(out, "{shown}: NRI is enabled already, nothing was changed")?,
        Some(content) => {
            let restart = match distribution {
                Some(one) => one.restart,
                None if is_template => "by the service that renders this template",
                None => "systemctl restart containerd",
            };
            if args.dry_run {
                let difference = difference(&old, content);
                write!(out, "--- {shown}\n+++ {shown}\n{difference}")?;
                write!(out, "{shown}: nothing was changed (--dry-run). With this change, ")?;
                writeln!(out, "restart containerd: {restart} (containers keep running)")?;
            } else {
                let kept = replace(&path, content)?;
                let kept = kept.display();
                write!(out, "{shown}: changed, NRI is enabled. The old file is {kept}. ")?;
                writeln!(out, "Restart containerd: {restart} (containers keep running)")?;
            }
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

impl Distribution {
    /// Whether this distribution's containerd has its configuration there.
    fn has(&self, root: &Path, config: &Path) -> bool {
        let directory = root.join(self.directory).canonicalize();
        directory.is_ok_and(|directory| config.parent() == Some(&directory))
    }

    /// The template in use.
    ///
    /// # Errors
    /// Without one: what to do.
    fn template(&self, root: &Path) -> Result<PathBuf, String> {
        let directory = root.join(self.directory);
        let mut templates = self.templates.iter().map(|name| directory.join(name));
        templates.find(|path| path.exists()).ok_or_else(|| {
            format!(
                "{} renders {} from {}, which does not exist: {}",
                self.name,
                directory.join(self.rendered).display(),
                self.templates.last().copied().unwrap_or_default(),
                self.missing
            )
        })
    }
}

/// The file that containerd on this node reads, or the template of that file.
///
/// # Errors
/// If there is none, or there are several: what to do.
fn read_by_containerd(root: &Path) -> Result<PathBuf, String> {
    let default = root.join(DEFAULT);
    let installed = |one: &&Distribution| root.join(one.directory).join(one.rendered).exists();
    let mut found: Vec<_> =
        DISTRIBUTIONS.iter().filter(installed).map(|one| one.template(root)).collect();
    if default.exists() {
        found.push(Ok(default.clone()));
    }
    match found.len() {
        0 => {
            let default = default.display();
            Err(format!(
                "found no configuration of containerd: write its defaults to a file \
                 (`containerd config default >{default}`), or pass the file that containerd's \
                 --config names"
            ))
        }
        1 => found.remove(0),
        _ => {
            let names: Vec<String> = found
                .into_iter()
                .map(|one| one.map_or_else(|why| why, |path| path.display().to_string()))
                .collect();
            Err(format!(
                "several containerds are configured: choose with --config: {}",
                names.join("; ")
            ))
        }
    }
}

/// Why containerd's file must not be changed: it is rendered at each start.
fn rendered(
    distribution: Option<&Distribution>,
    root: &Path,
    path: &Path,
    text: &str,
) -> Option<String> {
    if let Some(one) = distribution
        && path.file_name().is_some_and(|name| name == one.rendered)
    {
        let instead = one.template(root).map(|path| format!("change {}", path.display()));
        let instead = instead.unwrap_or_else(|advice| advice);
        return Some(format!("{} replaces this file at each start: {instead}", one.name));
    }
    // k3s and RKE2 with another data directory. A template may have the line as well, copied.
    let head = text.lines().find(|line| line.starts_with('#') && line.contains("DO NOT EDIT"))?;
    let is_template = path.extension().is_some_and(|extension| extension == "tmpl");
    if is_template {
        None
    } else {
        Some(format!("it says {:?}", head.trim_start_matches(['#', ' '])))
    }
}
pub(crate) fn enable(text: &str) -> Result<Enabled, Unsuitable> {
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
    let flag = |key| match nri.get(key) {
        None => Ok(None),
        Some(value) => value.as_bool().map(Some).ok_or(Unsuitable::Kind(key)),
    };
    // Without `disable`, containerd 1.7 disables NRI.
    let disabled = flag(DISABLE)?.unwrap_or(true);
    let refuses_plugins = flag(DISABLE_CONNECTIONS)?.unwrap_or(false);
    let enabled = !disabled && !refuses_plugins;
    let socket = match nri.get("socket_path") {
        None => None,
        Some(path) => Some(path.as_str().ok_or(Unsuitable::Kind("socket_path"))?.to_owned()),
    };
    if disabled {
        set(nri, DISABLE, false);
    }
    if refuses_plugins {
        set(nri, DISABLE_CONNECTIONS, false);
    }
    let content = if enabled { None } else { Some(with_line_ends(text, &document.to_string())) };
    Ok(Enabled {
        content,
        socket: socket.filter(|path| !path.is_empty() && path != SOCKET),
        imports,
    })
}

/// Enables NRI in a Go template of a configuration, which is no TOML: in the plugin's table, or in a
/// new one at the end.
fn enable_in_template(text: &str) -> Result<Enabled, Unsuitable> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let names_plugin = |line: &&str| !line.trim_start().starts_with('#') && line.contains(NRI);
    let content = match lines.iter().position(|line| is_header(line) && names_plugin(line)) {
        None if lines.iter().any(names_plugin) => return Err(Unsuitable::Template),
        None => {
            let gap = if text.is_empty() || text.ends_with('\n') { "\n" } else { "\n\n" };
            let table = format!("{text}{gap}[plugins.\"{NRI}\"]\n  {DISABLE} = false\n");
            Some(with_line_ends(text, &table))
        }
        Some(header) => {
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let mut says_whether = false;
            for line in changed[header + 1..].iter_mut().take_while(|line| !is_header(line)) {
                let Some((key, value)) = line.split_once('=') else { continue };
                let (key, value) = (key.trim(), value.trim_start());
                if ![DISABLE, DISABLE_CONNECTIONS].contains(&key) {
                    continue;
                }
                says_whether |= key == DISABLE;
                if value.starts_with("true") {
                    *line = line.replacen("true", "false", 1);
                } else if !value.starts_with("false") {
                    return Err(Unsuitable::Template);
                }
            }
            if !says_whether {
                return Err(Unsuitable::Template);
            }
            let changed = changed.concat();
            (changed != text).then_some(changed)
        }
    };
    Ok(Enabled { content, socket: None, imports: Vec::new() })
}

/// The new text with the line ends of the old one, which may be mixed: TOML's writer has only one
/// kind. Equal lines at the beginning and at the end are taken from the old text.
fn with_line_ends(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let end = if old.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
    let split = |line: &str| {
        let bare = line.trim_end_matches(['\r', '\n']);
        (bare.to_owned(), bare.len() < line.len())
    };
    let (before, after) = equal_ends(&old, &new, |a, b| split(a) == split(b));
    let changed = new[before..new.len() - after].iter().map(|line| {
        let (bare, has_end) = split(line);
        if has_end { bare + end } else { bare }
    });
    [old[..before].concat(), changed.collect(), old[old.len() - after..].concat()].concat()
}

/// How many lines of two texts are the same at the beginning, and at the end without those.
fn equal_ends(old: &[&str], new: &[&str], same: impl Fn(&str, &str) -> bool) -> (usize, usize) {
    let count_same = |ends: &mut dyn Iterator<Item = (&&str, &&str)>| {
        ends.take_while(|(a, b)| same(a, b)).count()
    };
    let before = count_same(&mut old.iter().zip(new));
    let most = old.len().min(new.len()) - before;
    let after = count_same(&mut old.iter().rev().zip(new.iter().rev()).take(most));
    (before, after)
}

/// Unchanged lines around the changed ones in a unified diff.
const CONTEXT: usize = 3;

/// The changed lines as one hunk of a unified diff. Between the first and the last of them, a text with as many lines
/// as before has each changed line in its place.
fn difference(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let (before, after) = equal_ends(&old, &new, |a, b| a == b);
    let (first, last) = (before.saturating_sub(CONTEXT), after.saturating_sub(CONTEXT));
    let mut hunk = Vec::new();
    hunk.extend(old[first..before].iter().map(|line| (' ', *line)));
    let (gone, come) = (&old[before..old.len() - after], &new[before..new.len() - after]);
    if gone.len() == come.len() {
        for (gone, come) in gone.iter().zip(come) {
            if gone == come {
                hunk.push((' ', gone));
            } else {
                hunk.extend([('-', *gone), ('+', *come)]);
            }
        }
    } else {
        hunk.extend(gone.iter().map(|line| ('-', *line)));
        hunk.extend(come.iter().map(|line| ('+', *line)));
    }
    hunk.extend(old[old.len() - after..old.len() - last].iter().map(|line| (' ', *line)));
    let range = |all: usize| {
        let lines = all - first - last;
        // The numbers of lines count from 1; an empty range is after its line.
        format!("{},{lines}", if lines == 0 { first } else { first + 1 })
    };
    let mut text = format!("@@ -{} +{} @@\n", range(old.len()), range(new.len()));
    for (sign, line) in hunk {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
    text
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

/// A file next to another one. No pattern of configurations, such as `*.toml`, finds it.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Gives the file a second name that no earlier copy has, for the time when the first one is another file's.
fn keep(path: &Path) -> io::Result<PathBuf> {
    let mut copy = 1;
    loop {
        let suffix = if copy == 1 { String::new() } else { format!("-{copy}") };
        let kept = beside(path, &format!(".before-enable-nri{suffix}"));
        match fs::hard_link(path, &kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            other => return other.map(|()| kept),
        }
    }
}

/// Replaces the file atomically; the new one has the old one's owner and permissions. Returns the new name of the old
/// file.
fn replace(path: &Path, content: &str) -> Result<PathBuf, String> {
    let new = beside(path, ".enable-nri");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(content.as_bytes())?;
        let old = fs::metadata(path)?;
        if (old.uid(), old.gid()) != (file.metadata()?.uid(), file.metadata()?.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.sync_all()?;
        let kept = keep(path)?;
        if let Err(error) = fs::rename(&new, path) {
            let _ = fs::remove_file(kept);
            return Err(error);
        }
        let directory = path.parent().filter(|d| !d.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(kept)
    };
    write().map_err(|source| {
        // The first error matters; this only leaves no temporary file behind.
        let _ = fs::remove_file(&new);
        cannot("replace", path)(source)
    })
}

#[cfg(test)]
mod tests;
