//! The text of a configuration, and errors that point at its lines.

use super::not_used::NOT_USED;
use super::policy_options::todays_name;
use super::yaml::{Key, YamlMistake, YamlNode, YamlValue};
use placement::options::OptionError;
use placement::topology_manager::TopologyManagerError;
use placement::{Options, SettingsError, TopologyManager};
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use wording::{self, nearest};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read configuration {path}: {source}. {advice}, or set another file with --config", path = path.display(), advice = advice(source))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{name}, line {line}: {why}. Nothing was changed")]
    Wrong {
        name: String,
        /// Counted from 1.
        line: usize,
        why: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "Create it",
        io::ErrorKind::PermissionDenied => "Make it readable for this user",
        io::ErrorKind::FileTooLarge => "Remove what is not configuration",
        _ => "Put a regular file there",
    }
}

impl ConfigError {
    /// Counted from 1; `None` if there is no text.
    pub fn line(&self) -> Option<usize> {
        match self {
            ConfigError::Unreadable { .. } => None,
            ConfigError::Wrong { line, .. } => Some(*line),
        }
    }
}

/// Why a text is no configuration: at least one mistake.
#[derive(Debug, thiserror::Error)]
pub struct Mistakes {
    /// Found first, which is not always the first in the file.
    first: ConfigError,
    others: Vec<ConfigError>,
}

impl Mistakes {
    /// The most that are shown: a file with more is no configuration.
    const SHOWN: usize = 20;

    pub(super) fn none_of(mistakes: Vec<ConfigError>) -> Result<(), Mistakes> {
        let mut mistakes = mistakes.into_iter();
        match mistakes.next() {
            None => Ok(()),
            Some(first) => Err(Mistakes { first, others: mistakes.collect() }),
        }
    }
}

impl IntoIterator for Mistakes {
    type Item = ConfigError;
    type IntoIter = std::iter::Chain<std::iter::Once<ConfigError>, std::vec::IntoIter<ConfigError>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.others)
    }
}

impl From<ConfigError> for Mistakes {
    fn from(first: ConfigError) -> Mistakes {
        Mistakes { first, others: Vec::new() }
    }
}

impl From<Mistakes> for ConfigError {
    /// For a reader with one line: what was mistakes first.
    fn from(mistakes: Mistakes) -> ConfigError {
        mistakes.first
    }
}

impl Display for Mistakes {
    /// A line each, in the order of the file.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut all: Vec<&ConfigError> = std::iter::once(&self.first).chain(&self.others).collect();
        all.sort_by_key(|mistake| mistake.line());
        // A field that is wrong in the file is wrong again where an entry of `nodes` has it.
        let mut lines: Vec<String> = all.iter().map(ToString::to_string).collect();
        lines.dedup();
        let more = lines.len().saturating_sub(Mistakes::SHOWN);
        lines.truncate(Mistakes::SHOWN);
        if more > 0 {
            lines.push(format!("and {}", wording::count(more, "more mistake")));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// A valid field without the effect that it seems to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Counted from 1.
    pub line: usize,
    /// With the field.
    pub text: String,
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// A text, its name, and where fields are searched.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) root: Arc<YamlNode>,
    /// Searched in this order.
    scopes: Vec<SearchScope>,
}

#[derive(Debug, Clone, Copy)]
enum SearchScope {
    /// Without its overrides.
    File,
    /// The override at this position in `nodes`.
    Entry(usize),
}

impl Source {
    /// The text without its overrides.
    pub(super) fn new(name: &str, text: &str) -> Result<Source, ConfigError> {
        let mut root = YamlNode::parse(text).map_err(|mistake| mistaken(name, &mistake))?;
        // An empty document, or one of comments only, is null to YAML.
        if root.is_null() {
            root.value = YamlValue::Map(Vec::new());
        }
        let scopes = vec![SearchScope::File];
        Ok(Source { name: name.into(), text: text.into(), root: Arc::new(root), scopes })
    }

    /// The fields that are searched first: the file's, or those of an override.
    pub(super) fn scope(&self) -> &YamlNode {
        match self.scopes.first() {
            Some(SearchScope::Entry(at)) => self.entry_node(*at).unwrap_or(&self.root),
            Some(SearchScope::File) | None => &self.root,
        }
    }

    /// The same text with one of its overrides, which is searched first.
    pub(super) fn with_entry(mut self, at: usize) -> Source {
        self.scopes.insert(0, SearchScope::Entry(at));
        self
    }

    pub(super) fn entry(&self, at: usize) -> Source {
        Source { scopes: vec![SearchScope::Entry(at)], ..self.clone() }
    }

    fn entry_node(&self, at: usize) -> Option<&YamlNode> {
        let (_, entries) = self.root.field("nodes")?;
        entries.items().get(at)
    }

    /// The first line of the search, counted from 1.
    pub(super) fn first_line(&self) -> usize {
        match self.scopes.first() {
            Some(SearchScope::Entry(at)) => self.entry_node(*at).map_or(1, |entry| entry.line),
            Some(SearchScope::File) | None => 1,
        }
    }

    /// An error about a field.
    pub(super) fn at(&self, field: &str, why: impl Display) -> ConfigError {
        self.wrong(self.line_of(field), &format!("{field}: {why}"))
    }

    pub(super) fn warning(&self, field: &str, why: &str) -> Warning {
        Warning { line: self.line_of(field), text: format!("{field}: {why}") }
    }

    pub(super) fn at_item(&self, field: &str, item: usize, why: String) -> ConfigError {
        let value = self.find(field).map(|(_, value)| value);
        let item_node = value.and_then(|value| value.items().get(item));
        let line = item_node.map_or_else(|| self.line_of(field), |item| item.line);
        self.wrong(line, &format!("{field}[{item}]: {why}"))
    }

    pub(super) fn wrong(&self, line: usize, why: &str) -> ConfigError {
        wrong(&self.name, line, why)
    }

    /// An error about what is searched first.
    pub(super) fn mistaken(&self, mistake: YamlMistake) -> ConfigError {
        match self.scopes.first() {
            Some(SearchScope::Entry(at)) => {
                let mistake = mistake.on(self.first_line()).within(&format!("[{at}]"));
                mistaken(&self.name, &mistake.within("nodes"))
            }
            Some(SearchScope::File) | None => mistaken(&self.name, &mistake),
        }
    }

    /// The line of a field's name, counted from 1.
    fn line_of(&self, field: &str) -> usize {
        self.find(field).map_or(self.first_line(), |(key, _)| key.line)
    }

    fn find(&self, field: &str) -> Option<(&Key, &YamlNode)> {
        self.scopes.iter().find_map(|scope| {
            let fields = match scope {
                SearchScope::Entry(at) => self.entry_node(*at)?,
                SearchScope::File => &self.root,
            };
            fields.field(field).or_else(|| {
                let mut others = fields.fields().iter().filter(|(key, _)| is_searched(&key.name));
                others.find_map(|(_, value)| value.find(field))
            })
        })
    }

    /// An error about the CPU manager's options: about one of them in the kubelet's words.
    pub(super) fn cpu_option(&self, error: &OptionError) -> ConfigError {
        let words = SettingsError::from(error.clone());
        let why = match error {
            OptionError::Unknown(name) => format!("{words}{}", expected(name, Options::NAMES)),
            OptionError::Value(..) => format!("{words}{A_BOOLEAN}"),
            OptionError::Delay(..) => words.to_string(),
            OptionError::Exclusive(one, other) => format!(
                "{one} and {other} exclude each other: remove {other} if containers are to get {}, or {one} if they \
                 are to get {}",
                one.gives,
                other.gives,
                one = one.option,
                other = other.option
            ),
            OptionError::AlignBySocketPolicy => {
                "align-by-socket and topologyManagerPolicy: single-numa-node exclude each other: remove \
                 align-by-socket if containers are to get one NUMA node, or set restricted if they are to get the \
                 NUMA nodes of one socket"
                    .to_owned()
            }
            OptionError::AlignBySocketMachine => {
                "this machine has more sockets than NUMA nodes: remove align-by-socket, which needs at least one NUMA \
                 node in each socket"
                    .to_owned()
            }
        };
        self.at(error.option(), why)
    }

    /// An error about the topology manager, in the kubelet's words.
    pub(super) fn topology_manager(&self, error: &TopologyManagerError) -> ConfigError {
        let hint = match error {
            TopologyManagerError::UnknownOption(name) => expected(name, TopologyManager::OPTIONS),
            TopologyManagerError::Value(..) => A_BOOLEAN.to_owned(),
            TopologyManagerError::NotANumber(..) => " (expected a number like 8)".to_owned(),
            _ => String::new(),
        };
        let words = SettingsError::from(error.clone());
        self.at(error.field(), format!("{words}{hint}"))
    }
}

/// Whether errors can be about a field within this one. Entries of `nodes` are separate scopes.
fn is_searched(field: &str) -> bool {
    field != "nodes" && !NOT_USED.contains(&field)
}

/// The longest reason, in characters.
const MAX_WHY: usize = 1000;
const A_BOOLEAN: &str = " (expected \"true\" or \"false\")";

/// Today's name of a draft's option, the nearest known name, or all names.
fn expected(unknown: &str, known: &[&str]) -> String {
    if let Some((kep, name)) = todays_name(unknown) {
        return format!(" (a draft of {kep} had this name for {name}: use that)");
    }
    let near = nearest(unknown, known);
    if near.is_empty() { format!(" (expected one of {})", known.join(", ")) } else { near }
}

fn mistaken(name: &str, mistake: &YamlMistake) -> ConfigError {
    wrong(name, mistake.line.unwrap_or(1), &mistake.to_string())
}

/// `why` can have names and values from the text: of any length, and with any characters.
fn wrong(name: &str, line: usize, why: &str) -> ConfigError {
    let mut one_line = String::new();
    for c in wording::shortened(why, MAX_WHY).chars() {
        if c.is_control() { one_line.extend(c.escape_default()) } else { one_line.push(c) }
    }
    ConfigError::Wrong { name: name.to_owned(), line, why: one_line }
}

/// The file's content as text. UTF-8 is the encoding of everything in Kubernetes.
pub(super) fn decode(name: &str, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(wrong(name, 1, "the text is UTF-16: save it as UTF-8"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (valid, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let byte = rest.first().copied().unwrap_or_default();
        wrong(name, line, &format!("byte 0x{byte:02X} is not UTF-8: save the text as UTF-8"))
    })
}
