//! `cpuctl doctor`: what a node allows, what the plugin will do there, and what to change.
//!
//! It reads the node's files and introduces itself to the runtime as a plugin, which it leaves before
//! it gets any event. It changes nothing.

use crate::machine::{self, LoadedMachine, MachineError};
use cgroups::{CgroupVersion, Hierarchy, ProbeError, binding, probe};
use clap::Args;
use config::{Config, ConfigError, Mode};
use cpuset::{CpuSet, PartitionType};
use exclusivity::{Access, Exclusivity, IsolationFiles, quiet_roots};
use kernel::{Kernel, Linux};
use kubelet::StateFile;
use ledger::Policy;
use nri::{CallError, Configuration, Events, Identity, Plugin, Session};
use quantity::Quantity;
use serde::Serialize;
use state::files::read_regular;
use status::node::machine_line;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terminal::NodeArgs;
use terminal::output::{Output, show, stay};
use tokio::sync::Notify;
use wording::count;

/// Longest file that is read.
const LIMIT: usize = 1 << 20;
/// The configuration in `manifests/base/configmap.yaml`, which a test compares.
pub const DEFAULT_INSTALL: &str = "\
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  prefer-align-cpus-by-uncorecache: \"true\"
systemReserved: {cpu: \"2\"}
exclusivity: auto
";
/// The kubelet's configuration in its directory, where kubeadm and most distributions write it.
const KUBELET_CONFIG: &str = "config.yaml";
/// For the runtime to answer; it may be busy with another plugin.
const PATIENCE: Duration = Duration::from_secs(5);
/// The default socket. In a container a link from `/var/run` to `/run` leads out of the node's root.
const SOCKETS: [&str; 2] = ["/var/run/nri/nri.sock", "/run/nri/nri.sock"];

/// Configurations that a containerd reads, of its own package and of distributions. Files that these
/// import are not read.
const CONTAINERD: [&str; 3] = [
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
];

/// Programs that assign CPUs, by the first letters of their executables' names.
const OTHER_MANAGERS: [(&str, &str); 8] = [
    ("nri-resource-policy", "NRI reference plugins"),
    ("nri-topology-aware", "NRI reference plugins"),
    ("nri-balloons", "NRI reference plugins"),
    ("cri-resmgr", "CRI Resource Manager"),
    ("dracpu", "CPU DRA driver"),
    ("dra-driver-cpu", "CPU DRA driver"),
    ("koordlet", "Koordinator"),
    ("katalyst-agent", "Katalyst"),
];

#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// The plugin's configuration; without it, that of the default install is checked
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// The runtime's NRI socket; by default /var/run/nri/nri.sock
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The kubelet's directory (its --root-dir)
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Where cgroups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroup_root: PathBuf,
    /// In a container: where the node's root directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// In the plugin's container: the directory with the host's proc/irq, sys and run (overlay quiet)
    #[arg(long, value_name = "DIR", env = "HOST_ROOT")]
    pub host_root: Option<PathBuf>,
    /// Wait for SIGTERM or SIGINT after the report: for a DaemonSet, whose pods must not end
    #[arg(long)]
    pub stay: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The plugin would not run, or would not assign CPUs.
#[derive(Debug, thiserror::Error)]
#[error("{} on this node", count(*.0, "problem"))]
pub struct Problems(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    /// It works, and could be better or different.
    Note,
    /// The plugin would not run, or would not assign CPUs.
    Problem,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    subject: &'static str,
    severity: Severity,
    text: String,
    /// What to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Diagnosis {
    fn ok(subject: &'static str, text: impl Into<String>) -> Diagnosis {
        Diagnosis { subject, severity: Severity::Ok, text: text.into(), advice: None }
    }

    fn note(subject: &'static str, text: impl Into<String>, advice: &str) -> Diagnosis {
        let advice = if advice.is_empty() { None } else { Some(advice.to_owned()) };
        Diagnosis { subject, severity: Severity::Note, text: text.into(), advice }
    }

    fn problem(subject: &'static str, text: impl Into<String>, advice: &str) -> Diagnosis {
        Diagnosis { severity: Severity::Problem, ..Diagnosis::note(subject, text, advice) }
    }
}

/// Reports on `out`.
///
/// # Errors
/// If a finding is a problem.
pub fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let findings = Doctor::read(args).examine();
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&findings)? + "\n",
        Output::Text => text(&findings),
    };
    show(out, &text)?;
    if args.stay {
        return Ok(stay(out)?);
    }
    let problems = findings.iter().filter(|one| one.severity == Severity::Problem).count();
    if problems > 0 { Err(Problems(problems).into()) } else { Ok(()) }
}

fn text(findings: &[Diagnosis]) -> String {
    let mut text = String::new();
    for Diagnosis { subject, severity, text: what, advice } in findings {
        let mark = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "PROBLEM",
        };
        let _ = writeln!(text, "{mark:9}{subject:15}{what}");
        if let Some(advice) = advice {
            let _ = writeln!(text, "{:24}{advice}", "");
        }
    }
    text
}

struct Doctor<'a> {
    args: &'a DoctorArgs,
    kernel: Arc<dyn Kernel>,
    machine: Result<LoadedMachine, MachineError>,
    /// The default install's if the arguments name none.
    config: Result<Config, ConfigError>,
    /// Whether the kernel makes partitions, for a process with this one's rights.
    partitions: Result<Hierarchy, ProbeError>,
}

impl Doctor<'_> {
    fn read(args: &DoctorArgs) -> Doctor<'_> {
        let kernel: Arc<dyn Kernel> = Arc::new(Linux);
        Doctor {
            args,
            machine: machine::read(&at(&args.root, "/sys")),
            config: read_config(args),
            partitions: probe(&kernel, &args.cgroup_root),
            kernel,
        }
    }

    fn examine(&self) -> Vec<Diagnosis> {
        let mut findings = vec![
            self.machine(),
            self.isolated(),
            self.linux(),
            self.cgroups(),
            self.runtime(),
            self.other_managers(),
            self.kubelet(),
            self.devices(),
            self.config(),
            self.reservation(),
            self.exclusivity(),
            self.interrupts(),
        ];
        findings.extend(self.isolated_partitions());
        findings
    }

    /// A path of the node.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        at(&self.args.root, path)
    }

    /// Empty if it cannot be read.
    fn text(&self, path: impl AsRef<Path>) -> String {
        self.kernel.text(&self.at(path)).unwrap_or_default()
    }

    fn machine(&self) -> Diagnosis {
        match &self.machine {
            Err(error) => Diagnosis::problem("machine", error.to_string(), ""),
            Ok(LoadedMachine { topology, warnings, .. }) => {
                let text = machine_line(topology);
                match warnings.as_slice() {
                    [] => Diagnosis::ok("machine", text),
                    all => Diagnosis::note("machine", text, &all.join("; ")),
                }
            }
        }
    }

    fn isolated(&self) -> Diagnosis {
        const SUBJECT: &str = "isolated CPUs";
        let isolated = self.machine.as_ref().map(|machine| machine.topology.isolated());
        let isolated = isolated.unwrap_or_default().to_string();
        let nohz = self.text("/sys/devices/system/cpu/nohz_full");
        let parts: Vec<String> = [("isolcpus", isolated), ("nohz_full", nohz)]
            .into_iter()
            // Without the option, Linux 5.15 writes "(null)" into the file of nohz_full.
            .filter(|(_, cpus)| !cpus.is_empty() && !cpus.contains("null"))
            .map(|(option, cpus)| format!("{option}={cpus}"))
            .collect();
        if parts.is_empty() {
            return Diagnosis::ok(SUBJECT, "none");
        }
        let advice = "isolcpus: only containers that ask for them get these CPUs (isolatedCPUs)";
        Diagnosis::note(SUBJECT, parts.join(", "), advice)
    }

    fn linux(&self) -> Diagnosis {
        let release = self.text("/proc/sys/kernel/osrelease");
        match &self.partitions {
            Err(ProbeError::OldLinux(_)) => Diagnosis::note(
                "kernel",
                format!("Linux {release}: no cpuset partitions (they need 6.12.24 or 6.15)"),
                "",
            ),
            _ => Diagnosis::ok("kernel", format!("Linux {release}")),
        }
    }

    fn cgroups(&self) -> Diagnosis {
        let root = &self.args.cgroup_root;
        let Some(hierarchy) = Hierarchy::open_on(Arc::clone(&self.kernel), root) else {
            let text = format!("no hierarchy with cpuset at {}", root.display());
            return Diagnosis::problem("cgroups", text, "mount cgroup v2 there");
        };
        let driver = if root.join("kubepods.slice").exists() {
            ", systemd driver"
        } else if root.join("kubepods").exists() || root.join("cpuset/kubepods").exists() {
            ", cgroupfs driver"
        } else {
            ", no pods"
        };
        match hierarchy.version() {
            CgroupVersion::V2 => Diagnosis::ok("cgroups", format!("v2{driver}")),
            CgroupVersion::V1 => Diagnosis::note(
                "cgroups",
                format!("v1{driver}"),
                "with v2, the plugin keeps other containers off exclusive CPUs without updates by the runtime",
            ),
        }
    }

    fn runtime(&self) -> Diagnosis {
        let candidates = match &self.args.socket {
            Some(socket) => vec![socket.as_path()],
            None => SOCKETS.map(Path::new).to_vec(),
        };
        let found = candidates.iter().find(|socket| self.at(socket).exists());
        let shown = found.unwrap_or(&candidates[0]).display();
        let socket = self.at(found.unwrap_or(&candidates[0]));
        if found.is_none() {
            return Diagnosis::problem(
                "runtime",
                format!(
                    "{shown} does not exist: NRI is disabled, the runtime is not running, or has it elsewhere"
                ),
                "containerd 1.7: cpuctl enable-nri; CRI-O: enable_nri = true; elsewhere: --socket",
            );
        }
        match introduce(&socket) {
            Ok(runtime) => Diagnosis::ok("runtime", runtime),
            Err(why) => Diagnosis::problem(
                "runtime",
                format!("{shown}: {why}"),
                "see the log of the runtime for plugins",
            ),
        }
    }

    fn other_managers(&self) -> Diagnosis {
        const SUBJECT: &str = "CPU managers";
        let mut found = BTreeSet::new();
        let mut is_running = false;
        for entry in fs::read_dir(self.at("/proc")).into_iter().flatten().flatten() {
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            let program = words.next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            is_running |=
                name == "nri-cpu-manager" && words.next().is_some_and(|word| word == "run");
            let other = OTHER_MANAGERS.iter().find(|(prefix, _)| name.starts_with(prefix));
            found.extend(other.map(|(_, project)| format!("{name} ({project})")));
        }
        for entry in fs::read_dir(self.at("/opt/nri/plugins")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with("cpu-manager") {
                found.insert(format!("{name} (launched by the runtime)"));
            }
        }
        if found.is_empty() {
            let own = if is_running { "this plugin is running" } else { "none" };
            return Diagnosis::ok(SUBJECT, own);
        }
        let names: Vec<String> = found.into_iter().collect();
        Diagnosis::note(
            SUBJECT,
            names.join(", "),
            "only one program may assign a container's CPUs: the runtime refuses a container for which two do",
        )
    }

    fn kubelet(&self) -> Diagnosis {
        let directory = self.at(&self.args.kubelet_dir);
        let settings = self.kubelet_settings().unwrap_or_default();
        let setting = |name: &str| settings.get(name).and_then(|value| value.as_str());
        let topology = setting("topologyManagerPolicy").filter(|policy| *policy != "none");
        let policy = match read_regular(&directory.join("cpu_manager_state"), LIMIT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Diagnosis::note("kubelet", error.to_string(), ""),
            Ok(bytes) => match StateFile::parse(&bytes) {
                Ok(file) => Some(file.policy),
                Err(error) => error.policy().map(str::to_owned),
            },
        };
        let policy = policy.or_else(|| setting("cpuManagerPolicy").map(str::to_owned));
        match (policy.as_deref(), topology) {
            (Some("static"), _) => {
                let observes = |config: &Config| config.mode() == Mode::Observe;
                let stance = if self.config.as_ref().is_ok_and(observes) {
                    "only observe"
                } else {
                    "refuse containers that ask for exclusive CPUs"
                };
                Diagnosis::problem(
                    "kubelet",
                    format!(
                        "its CPU manager assigns CPUs (policy static): the plugin would {stance}"
                    ),
                    "migrate the node to policy none: docs/migrating.md",
                )
            }
            (_, Some(topology)) => Diagnosis::note(
                "kubelet",
                format!("topologyManagerPolicy: {topology} without CPUs to align"),
                "set topologyManagerPolicy in the plugin's configuration instead; devices stay the kubelet's",
            ),
            (Some(policy), None) => {
                Diagnosis::ok("kubelet", format!("CPU manager policy {policy}"))
            }
            (None, None) => Diagnosis::ok("kubelet", "no CPU manager state"),
        }
    }

    fn kubelet_settings(&self) -> io::Result<serde_yaml::Value> {
        let file = self.at(&self.args.kubelet_dir).join(KUBELET_CONFIG);
        let text = read_regular(&file, LIMIT)?;
        Ok(serde_yaml::from_slice(&text).unwrap_or_default())
    }

    /// Whether the kubelet reserves as many CPUs as the plugin: the scheduler counts all others.
    fn reservation(&self) -> Diagnosis {
        const SUBJECT: &str = "reservation";
        let (Ok(config), Ok(LoadedMachine { topology, .. })) = (&self.config, &self.machine) else {
            return Diagnosis::note(SUBJECT, "unknown", "");
        };
        let reserved = match config.resolve(topology) {
            Ok(settings) if settings.policy == Policy::Static => settings.placement.reserved,
            _ => CpuSet::EMPTY,
        };
        if reserved.is_empty() || reserved == topology.online() {
            return Diagnosis::ok(SUBJECT, "the kubelet needs none: nothing is assigned here");
        }
        let file = self.args.kubelet_dir.join(KUBELET_CONFIG);
        let here = format!("{} ({})", count(reserved.len(), "CPU"), reserved);
        let needed = reserved.len() as u64 * 1000;
        let (text, own) = match self.kubelet_settings() {
            Err(error) => (format!("{here}; that of the kubelet is unknown: {error}"), 0),
            Ok(settings) => {
                let KubeletReservation { listed, system, kube } = KubeletReservation::of(&settings);
                let reserved = listed.unwrap_or(system.saturating_add(kube));
                if reserved >= needed {
                    return Diagnosis::ok(SUBJECT, format!("{here}, and in the kubelet as many"));
                }
                (format!("{here}, but {} in the kubelet", cpus(reserved)), kube)
            }
        };
        let missing = cpus(needed.saturating_sub(own));
        let advice = format!(
            "otherwise the scheduler sends pods for CPUs that no container gets. In {}: systemReserved: \
             {{cpu: \"{missing}\"}}; then restart the kubelet, which rejects pods that no longer fit: drain a full node first",
            file.display()
        );
        Diagnosis::note(SUBJECT, text, &advice)
    }

    fn devices(&self) -> Diagnosis {
        let gpus = topology::sysfs::gpus(&*self.kernel, &self.at("/proc"), &self.at("/sys"));
        let socket = self.at(&self.args.kubelet_dir).join("pod-resources/kubelet.sock");
        let has_socket = if socket.exists() { "" } else { "no " };
        let gpus = match gpus.len() {
            0 => String::new(),
            number => format!("{}, ", count(number, "NVIDIA GPU")),
        };
        let text = format!("{gpus}{has_socket}podresources socket of the kubelet");
        if gpus.is_empty() {
            return Diagnosis::ok("devices", text);
        }
        Diagnosis::note(
            "devices",
            text,
            "the overlay or chart value devices lets the plugin see which pod has which device",
        )
    }

    fn config(&self) -> Diagnosis {
        let config = match &self.config {
            Err(error) => return Diagnosis::problem("configuration", error.to_string(), ""),
            Ok(config) => config,
        };
        let fits = if self.args.config.is_some() {
            "fits this node"
        } else {
            "that of the default install fits this node; --config FILE checks another"
        };
        let resolved = match &self.machine {
            Ok(machine) => config.resolve(&machine.topology).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
        let machine = self.machine.as_ref().ok();
        let nothing = machine.and_then(|machine| config.nothing_to_assign(&machine.topology));
        warnings.extend(nothing.map(|warning| warning.to_string()));
        let counts_memory = resolved.as_ref().is_ok_and(|settings| settings.memory.is_some());
        if counts_memory
            && self.has_huge_pages()
            && let Some(file) = self.hides_huge_pages()
        {
            warnings.push(format!(
                "huge pages of new containers are not counted: {file} lacks disable_hugetlb_controller = false"
            ));
        }
        match resolved {
            Err(why) => Diagnosis::problem("configuration", why, ""),
            Ok(_) if warnings.is_empty() => Diagnosis::ok("configuration", fits),
            Ok(_) => Diagnosis::note("configuration", fits, &warnings.join("; ")),
        }
    }

    /// Whether interrupts can be kept off exclusive CPUs, with this process's rights and mounts.
    fn interrupts(&self) -> Diagnosis {
        let host = self.args.host_root.as_deref();
        let roots = quiet_roots(host, &self.at("/proc"), &self.at("/sys"));
        let access = Access::read(&*self.kernel, &roots);
        match advice_for(&access) {
            "" => Diagnosis::ok("interrupts", access.to_string()),
            advice => Diagnosis::note("interrupts", access.to_string(), advice),
        }
    }

    /// What the kernel keeps away from isolated partitions, if the configuration asks for them.
    fn isolated_partitions(&self) -> Option<Diagnosis> {
        let Ok(config) = &self.config else { return None };
        if config.partition() != PartitionType::Isolated {
            return None;
        }
        let files = IsolationFiles {
            cgroups: self.args.cgroup_root.clone(),
            sys: self.at("/sys"),
            proc: self.at("/proc"),
        };
        let facts = files.read(&*self.kernel).facts();
        Some(Diagnosis::ok("isolation", facts.join("; ")))
    }

    fn has_huge_pages(&self) -> bool {
        let pools = "/sys/kernel/mm/hugepages";
        let mut sizes = self.kernel.entries(&self.at(pools)).into_iter().flatten();
        sizes.any(|(size, _)| {
            let pages = self.text(format!("{pools}/{size}/nr_hugepages"));
            pages.parse::<u64>().is_ok_and(|pages| pages > 0)
        })
    }

    /// The file of a containerd that keeps limits of huge pages of new containers from plugins, which
    /// is its default. `None` without containerd: CRI-O passes them on.
    fn hides_huge_pages(&self) -> Option<&'static str> {
        CONTAINERD.into_iter().filter(|file| self.at(file).exists()).find(|file| {
            let text = self.text(file);
            let mut settings = text.lines().filter_map(|line| line.split_once('='));
            !settings.any(|(key, value)| {
                key.trim() == "disable_hugetlb_controller" && value.trim().starts_with("false")
            })
        })
    }

    /// What the plugin will use, as shipped and with the overlay `kernel-exclusivity`.
    fn exclusivity(&self) -> Diagnosis {
        const SUBJECT: &str = "exclusivity";
        let root = &self.args.cgroup_root;
        let configured = match &self.config {
            Ok(config) => config.exclusivity(),
            Err(_) => Exclusivity::Auto,
        };
        let groups = binding(&self.kernel, root);
        let kernel_can = matches!(self.partitions, Ok(_) | Err(ProbeError::NoCapability));
        let name = configured.name();
        match configured {
            Exclusivity::Kernel if !kernel_can => {
                let why = self.partitions.as_ref().err().map(ToString::to_string);
                let why = why.unwrap_or_default();
                Diagnosis::problem(SUBJECT, format!("{name}: {why}"), "exclusivity: auto or groups")
            }
            Exclusivity::Kernel => Diagnosis::ok(SUBJECT, "kernel: cpuset partitions"),
            Exclusivity::Runtime => Diagnosis::note(
                SUBJECT,
                "runtime: a container that shares CPUs may run on exclusive ones until it is updated",
                "exclusivity: auto",
            ),
            Exclusivity::Auto | Exclusivity::Groups => match groups {
                Err(why @ ProbeError::ReadOnly { .. }) if !rustix::process::geteuid().is_root() => {
                    Diagnosis::note(SUBJECT, "unknown", &format!("run this command as root: {why}"))
                }
                Err(why) => Diagnosis::note(SUBJECT, format!("{name} becomes runtime: {why}"), ""),
                Ok(_) if configured == Exclusivity::Auto && kernel_can => Diagnosis::ok(
                    SUBJECT,
                    "auto becomes groups; partitions with the overlay kernel-exclusivity (SYS_ADMIN)",
                ),
                Ok(_) => Diagnosis::ok(SUBJECT, format!("{name} becomes groups")),
            },
        }
    }
}

/// What a kubelet's configuration reserves, in thousandths of a CPU.
struct KubeletReservation {
    /// The size of its list of CPUs, which takes precedence over the amounts.
    listed: Option<u64>,
    system: u64,
    kube: u64,
}

impl KubeletReservation {
    fn of(settings: &serde_yaml::Value) -> KubeletReservation {
        let amount = |field: &str| {
            let cpu = settings.get(field).and_then(|amounts| amounts.get("cpu"))?;
            let text = match cpu {
                serde_yaml::Value::String(text) => text.clone(),
                serde_yaml::Value::Number(number) => number.to_string(),
                _ => return None,
            };
            Quantity::parse(&text).ok().map(Quantity::milli)
        };
        let list = settings.get("reservedSystemCPUs").and_then(|list| list.as_str());
        let list = list.and_then(|list| list.parse::<CpuSet>().ok());
        KubeletReservation {
            listed: list.filter(|cpus| !cpus.is_empty()).map(|cpus| cpus.len() as u64 * 1000),
            system: amount("systemReserved").unwrap_or(0),
            kube: amount("kubeReserved").unwrap_or(0),
        }
    }
}

/// Thousandths of a CPU, as a quantity of Kubernetes.
fn cpus(milli: u64) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

fn read_config(args: &DoctorArgs) -> Result<Config, ConfigError> {
    let config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::parse("configuration of the default install", DEFAULT_INSTALL)?,
    };
    args.node.pick(&config)
}

/// What to do where interrupts cannot be moved.
fn advice_for(access: &Access) -> &'static str {
    match access {
        Access::Writable { interrupts, movable } if movable < interrupts => {
            "the kernel manages the others itself: most are of storage queues, and fire for I/O of their CPU only"
        }
        Access::Writable { .. } => "",
        Access::Unwritable(_) if !rustix::process::geteuid().is_root() => {
            "run this command as root on the node"
        }
        Access::Unwritable(_) => {
            "containers with the pod option to have no interrupts on their CPUs need the overlay quiet; outside of \
             containers, root may write this file"
        }
    }
}

/// A path of a node whose root directory is there.
fn at(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Leaves when the runtime has introduced itself.
#[derive(Debug, Default)]
struct Visitor {
    runtime: OnceLock<String>,
    introduced: Notify,
}

impl Plugin for Visitor {
    async fn configure(&self, configuration: Configuration) -> Result<Events, CallError> {
        let Configuration { runtime, capabilities, .. } = configuration;
        let nri = match capabilities.nri {
            Some(version) if runtime.nri_version.is_empty() => format!(" (NRI {version} or newer)"),
            _ => String::new(),
        };
        let _ = self.runtime.set(format!("{runtime}{nri}"));
        self.introduced.notify_one();
        // The runtime takes a plugin that fails here for none, and sends it nothing.
        Err(CallError::Refused("only asked for the runtime's version".to_owned()))
    }
}

/// The runtime's name and version, from the runtime.
fn introduce(socket: &Path) -> Result<String, Box<dyn Error>> {
    let identity = Identity::new("doctor", "00")?;
    let visitor = Visitor::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let trunk = tokio::net::UnixStream::connect(socket).await?;
        let stop = tokio::time::timeout(PATIENCE, visitor.introduced.notified());
        let ended = nri::run_session(trunk, Session(0), &identity, &visitor, stop).await;
        ended.map_err(Box::<dyn Error>::from)
    });
    match (visitor.runtime.into_inner(), ended) {
        (Some(runtime), _) => Ok(runtime),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err("the runtime does not answer".into()),
    }
}
