//! `nri-cpu-manager noise`: what ran or fired on exclusive CPUs besides their containers.
//!
//! The running plugin says which container has which CPUs, and `/proc` has the counters. It changes
//! nothing. Without the host's pid namespace it sees no threads, and says so.

use super::NamespaceArgs;
use super::client;
use super::explain;
use super::output::{Output, show};
use crate::view::explanation::matches;
use crate::view::status::{ContainerStatus, NodeStatus, Status, full_name};
use clap::{Args, value_parser};
use cpuset::{CgroupPath, CpuSet};
use kernel::{Kernel, Linux};
use noise::{Noise, Observation, Owner, Roots, Sample, SampleError, VERSION, Verdict, Visibility};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Between two samples. Threads that come and go in between are not seen.
const PAUSE: Duration = Duration::from_millis(250);
/// A container keeps its CPUs when it has ended, and nothing of it runs on them.
const ENDED: &str = "ended";

#[derive(Debug, Clone, Args)]
pub struct NoiseArgs {
    /// POD, NAMESPACE/POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER; without it, all containers
    /// with exclusive CPUs are observed
    #[arg(value_name = "POD[/CONTAINER]", value_parser = explain::name)]
    pub of: Option<String>,
    #[command(flatten)]
    pub namespaces: NamespaceArgs,
    /// How long to observe, 1 to 3600 seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = value_parser!(u64).range(1..=3600)
    )]
    pub seconds: u64,
    /// The plugin's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_root: PathBuf,
    /// In a container: where the host's /proc/interrupts is mounted (overlay quiet), which is
    /// masked in --proc-root. Not used if it does not exist
    #[arg(long, value_name = "DIR", default_value = "/host/proc")]
    pub host_proc: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl NoiseArgs {
    fn includes(&self, one: &ContainerStatus) -> bool {
        let is_named = match &self.of {
            Some(of) => matches(of, &one.namespace, &one.pod, &one.container),
            None => true,
        };
        is_named && one.state != ENDED && self.namespaces.includes(&one.namespace)
    }
}

/// CPUs on which something unexpected ran or fired.
#[derive(Debug, thiserror::Error)]
#[error("noise on {}", wording::cpus(.0))]
pub struct Noisy(CpuSet);

/// Writes the report to `out`, and what could not be observed to `warnings`.
///
/// # Errors
/// [`Noisy`], after the report, if a CPU is not quiet.
pub fn run(
    args: &NoiseArgs,
    out: &mut dyn Write,
    warnings: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let Watched { owners, unknown } = Watched::ask(args)?;
    for name in &unknown {
        let _ = writeln!(
            warnings,
            "warning: {name} is not observed: the runtime has not reported its cgroup"
        );
    }
    if let Some(of) = &args.of
        && owners.is_empty()
        && unknown.is_empty()
    {
        return Err(format!("no container of {of} has exclusive CPUs now").into());
    }
    let noise = observe(&Linux, args, &owners)?;
    if Watched::ask(args)?.owners != owners {
        let _ = writeln!(
            warnings,
            "warning: containers started, ended or changed their CPUs meanwhile: observe again"
        );
    }
    let text = match args.output {
        Output::Text if owners.is_empty() => "no container to observe\n".to_owned(),
        Output::Text => noise.text(),
        Output::Json => serde_json::to_string_pretty(&noise)? + "\n",
    };
    show(out, &text)?;
    let noisy = noisy(&noise);
    if noisy.is_empty() { Ok(()) } else { Err(Noisy(noisy).into()) }
}

/// Containers and own pools to observe.
#[derive(Debug, Default)]
struct Watched {
    owners: Vec<Owner>,
    /// Names of those whose cgroup is not known: their own threads would count as noise.
    unknown: Vec<String>,
}

impl Watched {
    fn ask(args: &NoiseArgs) -> Result<Watched, Box<dyn Error>> {
        let answer = client::ask(&args.state_dir, "/status")?;
        let status: Status = client::read(&answer)?;
        let node = status.node.ok_or("the plugin has no configuration yet")?;
        Ok(Watched::of(&node, args))
    }

    fn of(node: &NodeStatus, args: &NoiseArgs) -> Watched {
        let mut watched = Watched::default();
        for one in node.containers.iter().filter(|one| args.includes(one)) {
            let cgroup = one.cgroup.as_deref().and_then(CgroupPath::new);
            if !one.own_pool.is_empty() {
                let pod = full_name(&one.namespace, &one.pod, "");
                let group = cgroup.as_ref().and_then(CgroupPath::parent);
                watched.add(format!("{pod} (own pool)"), group, one.own_pool);
            }
            if one.exclusive {
                watched.add(one.full_name(), cgroup, (one.cpus - one.shared) | one.idle);
            }
        }
        watched
    }

    fn add(&mut self, name: String, cgroup: Option<CgroupPath>, cpus: CpuSet) {
        // Containers that share an own pool have the same one.
        if self.owners.iter().any(|owner| owner.name == name) || self.unknown.contains(&name) {
            return;
        }
        match cgroup {
            Some(cgroup) => self.owners.push(Owner { name, cgroup, cpus }),
            None => self.unknown.push(name),
        }
    }
}

fn observe(
    kernel: &dyn Kernel,
    args: &NoiseArgs,
    owners: &[Owner],
) -> Result<Noise, Box<dyn Error>> {
    if owners.is_empty() {
        return Ok(Noise {
            version: VERSION,
            seconds: 0.0,
            samples: 0,
            visibility: Visibility::InterruptsOnly,
            containers: Vec::new(),
        });
    }
    let roots = roots(args);
    let cpus = owners.iter().map(|owner| owner.cpus).collect::<CpuSet>();
    let duration = Duration::from_secs(args.seconds);
    let first = sample(kernel, &roots, cpus)?;
    let begin = Instant::now();
    let mut observation = Observation::new(owners.to_vec(), first);
    let mut elapsed = Duration::ZERO;
    while elapsed < duration {
        thread::sleep(PAUSE.min(duration - elapsed));
        elapsed = begin.elapsed();
        observation.add(sample(kernel, &roots, cpus)?);
    }
    Ok(observation.noise(elapsed, &unmovable(&args.proc_root)))
}

fn roots(args: &NoiseArgs) -> Roots {
    let mounted = args.host_proc.join("interrupts");
    let interrupts = if mounted.exists() { mounted } else { args.proc_root.join("interrupts") };
    Roots {
        interrupts,
        softirqs: args.proc_root.join("softirqs"),
        processes: args.proc_root.clone(),
        cgroup_namespace: None,
    }
}

fn sample(kernel: &dyn Kernel, roots: &Roots, cpus: CpuSet) -> Result<Sample, String> {
    Sample::take(kernel, roots, cpus).map_err(|error| {
        let (SampleError::Unreadable { path, .. } | SampleError::NoHeader { path }) = &error;
        if *path == roots.interrupts {
            format!(
                "{error}. In a container the kubelet masks this file: add the overlay quiet, or run this command on the node"
            )
        } else {
            error.to_string()
        }
    })
}

/// Interrupts that the kernel manages itself: their affinity has no mode for writing. Kernels that
/// only fail the write (EIO) are not recognised, as trying it would change the node.
fn unmovable(proc_root: &Path) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(proc_root.join("irq")).into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let file = fs::metadata(entry.path().join("smp_affinity_list"));
        if let (Some(number), Ok(file)) = (number, file)
            && file.permissions().mode() & 0o222 == 0
        {
            numbers.insert(number);
        }
    }
    numbers
}

fn noisy(noise: &Noise) -> CpuSet {
    let by_cpu = noise.containers.iter().flat_map(|container| &container.by_cpu);
    let noisy = by_cpu.filter(|one| one.verdict == Verdict::Noisy);
    // The numbers come from a set.
    noisy.filter_map(|one| CpuSet::of(one.cpu).ok()).collect()
}
