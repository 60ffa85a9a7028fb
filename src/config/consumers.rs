//! `consumers`: pods that read the kubelet's files, and where they get the plugin's files instead.

use super::given::Given;
use super::namespaces;
use super::source::{ConfigError, Source};
use super::values::{Text, path_without_parents};
use ledger::pattern::Patterns;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories in which no runtime mounts anything, or a mount would hide files of the system.
const NEVER: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Where the files of `exposeCpus: file` are mounted; it is read-only.
const EXPOSED: &str = "/run/nri-cpu-manager";

/// The administrator's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumers(Arc<[Consumer]>);

/// Some pods, and what their containers get. Paths are those in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    namespaces: Patterns,
    pods: Patterns,
    /// A directory with a `cpu_manager_state`.
    pub state_dir: Option<PathBuf>,
    /// A `cpu_manager_state` alone.
    pub state_file: Option<PathBuf>,
    /// The directory with the plugin's podresources socket.
    pub pod_resources: Option<PathBuf>,
}

impl Consumers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first entry for this pod.
    pub fn find(&self, namespace: &str, pod: &str) -> Option<&Consumer> {
        self.0.iter().find(|consumer| {
            consumer.namespaces.match_name(namespace) && consumer.pods.match_name(pod)
        })
    }
}

/// The list is one value, as that of `namespaces`.
pub(super) fn read(given: &Given<'_>, consumers: &mut Consumers) -> Result<(), ConfigError> {
    let entries: Vec<ConsumerEntry> = given.parse()?;
    *consumers = resolve(given.source, &entries)?;
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConsumerEntry {
    /// Names, or patterns with `*` and `?`.
    namespaces: Vec<Text>,
    /// Names or patterns, too; all pods there without the field.
    pods: Option<Vec<Text>>,
    state_dir: Option<Text>,
    state_file: Option<Text>,
    pod_resources: Option<Text>,
}

fn resolve(source: &Source, entries: &[ConsumerEntry]) -> Result<Consumers, ConfigError> {
    let mut consumers = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        consumers.push(entry.consumer().map_err(|why| source.at_item("consumers", at, why))?);
    }
    Ok(Consumers(consumers.into()))
}

impl ConsumerEntry {
    fn consumer(&self) -> Result<Consumer, String> {
        if self.namespaces.is_empty() {
            let why = "entry without namespaces: expected names like [\"kubevirt\", \"team-*\"]";
            return Err(why.to_owned());
        }
        let pods = match &self.pods {
            None => vec!["*".to_owned()],
            Some(names) if names.is_empty() => {
                let why = "empty list of pods: expected names like [\"virt-handler-*\"], or no field for all";
                return Err(why.to_owned());
            }
            Some(names) => namespaces::checked_pods(names)?,
        };
        let consumer = Consumer {
            namespaces: Patterns::new(namespaces::checked(&self.namespaces)?),
            pods: Patterns::new(pods),
            state_dir: target("stateDir", self.state_dir.as_ref())?,
            state_file: target("stateFile", self.state_file.as_ref())?,
            pod_resources: target("podResources", self.pod_resources.as_ref())?,
        };
        consumer.check()?;
        Ok(consumer)
    }
}

impl Consumer {
    /// A mount within a read-only one fails, and the container with it.
    fn check(&self) -> Result<(), String> {
        let targets = [
            ("stateDir", &self.state_dir),
            ("stateFile", &self.state_file),
            ("podResources", &self.pod_resources),
        ];
        let targets: Vec<(&str, &Path)> =
            targets.iter().filter_map(|(field, path)| Some((*field, path.as_deref()?))).collect();
        if targets.is_empty() {
            let why = "entry that mounts nothing: expected stateDir, stateFile or podResources";
            return Err(why.to_owned());
        }
        for (field, path) in &targets {
            for (other, above) in &targets {
                if field != other && path.starts_with(above) {
                    return Err(format!(
                        "{field} {} lies within {other} {}, which is mounted read-only",
                        path.display(),
                        above.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

fn target(field: &str, text: Option<&Text>) -> Result<Option<PathBuf>, String> {
    let Some(Text(text)) = text else { return Ok(None) };
    let path = path_without_parents(text).map_err(|why| format!("{field}: {why}"))?;
    if path == Path::new("/") {
        return Err(format!("{field}: a mount at \"/\" would hide the whole container"));
    }
    if let Some(above) = NEVER.iter().find(|above| path.starts_with(above)) {
        return Err(format!(
            "{field}: {text:?} is within {above}, where a container cannot have it"
        ));
    }
    if path.starts_with(EXPOSED) || Path::new(EXPOSED).starts_with(&path) {
        return Err(format!(
            "{field}: {text:?} collides with {EXPOSED}, where exposeCpus: file mounts its files"
        ));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[track_caller]
    fn refuses(text: &str, expect: &str) {
        let error = Config::parse("config.yaml", text).unwrap_err().to_string();
        assert_eq!(error, format!("config.yaml, {expect}. Nothing was changed"), "{text}");
    }

    #[test]
    fn the_first_entry_for_a_pod_counts() {
        let text = "consumers:\n\
            - {namespaces: [kubevirt], pods: [\"virt-handler-*\"], stateFile: /a/cpu_manager_state}\n\
            - {namespaces: [\"kube*\"], stateDir: /b/, podResources: /c}\n";
        let config = Config::parse("c", text).unwrap();
        let of = |namespace, pod| {
            let consumer = config.consumers().find(namespace, pod)?;
            let places = [&consumer.state_file, &consumer.state_dir, &consumer.pod_resources];
            Some(places.map(|place| place.as_ref().map(|place| place.display().to_string())))
        };
        let path = |text: &str| Some(text.to_owned());
        let file = [path("/a/cpu_manager_state"), None, None];
        assert_eq!(of("kubevirt", "virt-handler-x2z"), Some(file));
        let others = [None, path("/b/"), path("/c")];
        assert_eq!(of("kubevirt", "virt-api"), Some(others.clone()));
        assert_eq!(of("kube-system", "exporter"), Some(others));
        assert_eq!(of("default", "virt-handler-x2z"), None);
        assert!(Config::parse("c", "").unwrap().consumers().is_empty());
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        for (fields, why) in [
            (
                "pods: [a]",
                "entry without namespaces: expected names like [\"kubevirt\", \"team-*\"]",
            ),
            (
                "namespaces: [Kube]",
                "invalid namespace \"Kube\": expected lower case letters, digits and -, or a pattern with * and ?",
            ),
            (
                "namespaces: [a], pods: [b_c]",
                "invalid pod \"b_c\": expected lower case letters, digits, - and ., or a pattern with * and ?",
            ),
            (
                "namespaces: [a], pods: []",
                "empty list of pods: expected names like [\"virt-handler-*\"], or no field for all",
            ),
            (
                "namespaces: [a]",
                "entry that mounts nothing: expected stateDir, stateFile or podResources",
            ),
            ("namespaces: [a], stateDir: var", "stateDir: \"var\" is not an absolute path"),
            (
                "namespaces: [a], stateFile: /a/../b",
                "stateFile: \"/a/../b\" has \"..\" in it: expected a path without",
            ),
            (
                "namespaces: [a], stateDir: //",
                "stateDir: a mount at \"/\" would hide the whole container",
            ),
            (
                "namespaces: [a], stateFile: /proc/1/root/var/lib/kubelet/cpu_manager_state",
                "stateFile: \"/proc/1/root/var/lib/kubelet/cpu_manager_state\" is within /proc, where a container cannot have it",
            ),
            (
                "namespaces: [a], podResources: /run",
                "podResources: \"/run\" collides with /run/nri-cpu-manager, where exposeCpus: file mounts its files",
            ),
            (
                "namespaces: [a], stateDir: /k, podResources: /k/pod-resources",
                "podResources /k/pod-resources lies within stateDir /k, which is mounted read-only",
            ),
            (
                "namespaces: [a], stateFile: /k, podResources: /k",
                "stateFile /k lies within podResources /k, which is mounted read-only",
            ),
        ] {
            let text = format!("strict: true\nconsumers:\n- {{{fields}}}\n");
            refuses(&text, &format!("line 3: consumers[0]: {why}"));
        }
        let error = Config::parse("c", "consumers: [{path: /x}]\n").unwrap_err().to_string();
        assert!(error.contains("unknown field \"path\""), "{error}");
    }
}
