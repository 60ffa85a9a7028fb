//! `nri-cpu-manager noise`: what ran or fired on exclusive CPUs besides their containers.
//!
//! The running plugin says which container has which CPUs, and `/proc` has the counters. It changes
//! nothing. Without the host's pid namespace it sees no threads, and says so.

use super::NamespaceArgs;
use super::explain;
use clap::{Args, value_parser};
use cpuset::CpuSet;
use exclusivity::NoiseFiles;
use kernel::{Kernel, Linux};
use noise::{NoiseReport, Observation, Owner, VERSION, Verdict, Visibility};
use status::Snapshot;
use status::explanation::matches;
use status::noise::Watched;
use status::snapshot::Container;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use terminal::client;
use terminal::output::{Color, Output, show};

/// Between two samples. Threads that come and go in between are not seen.
const PAUSE: Duration = Duration::from_millis(250);

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
    /// Whether to colour noisy CPUs
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl NoiseArgs {
    fn includes(&self, one: &Container) -> bool {
        let is_named = match &self.of {
            Some(of) => matches(of, &one.pod.namespace, &one.pod.name, &one.name),
            None => true,
        };
        is_named && self.namespaces.includes(&one.pod.namespace)
    }
}

/// CPUs on which something unexpected ran or fired.
#[derive(Debug, thiserror::Error)]
#[error("noise on {}", wording::cpus(.0))]
pub(crate) struct Noisy(CpuSet);

/// Writes the report to `out`, and what could not be observed to `warnings`.
///
/// # Errors
/// [`Noisy`], after the report, if a CPU is not quiet.
pub(crate) fn run(
    args: &NoiseArgs,
    out: &mut dyn Write,
    warnings: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let Watched { owners, unknown } = watched(args)?;
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
        return Err(format!(
            "no running container of {of} has exclusive CPUs on this node now. Why, or where it runs: nri-cpu-manager explain {of}"
        )
        .into());
    }
    let noise = observe(&Linux, args, &owners)?;
    if watched(args)?.owners != owners {
        let _ = writeln!(
            warnings,
            "warning: containers started, ended or changed their CPUs meanwhile: observe again"
        );
    }
    let text = match args.output {
        Output::Text if owners.is_empty() => "no container to observe\n".to_owned(),
        Output::Text => noise.text(args.color.style().colour),
        Output::Json => serde_json::to_string_pretty(&noise)? + "\n",
    };
    show(out, &text)?;
    let noisy = noise.with_verdict(Verdict::Noisy);
    if noisy.is_empty() { Ok(()) } else { Err(Noisy(noisy).into()) }
}

/// What the running plugin says.
fn watched(args: &NoiseArgs) -> Result<Watched, Box<dyn Error>> {
    let answer = client::ask(&args.state_dir, "/status")?;
    let snapshot: Snapshot = client::read(&answer)?;
    let node = snapshot.node.ok_or("the plugin has no configuration yet")?;
    let containers = node.containers.iter().filter(|one| args.includes(one));
    let containers = containers.map(|one| &one.view);
    Ok(Watched::of(containers, node.figures.mechanism, node.config.partition()))
}

fn observe(
    kernel: &dyn Kernel,
    args: &NoiseArgs,
    owners: &[Owner],
) -> Result<NoiseReport, Box<dyn Error>> {
    if owners.is_empty() {
        return Ok(NoiseReport {
            version: VERSION,
            seconds: 0.0,
            samples: 0,
            visibility: Visibility::InterruptsOnly,
            threads_read: 0,
            threads_unread: 0,
            sample_milliseconds: None,
            interrupts_error: None,
            containers: Vec::new(),
        });
    }
    let files = NoiseFiles::new(&args.proc_root, Some(&args.host_proc));
    let cpus = owners.iter().map(|owner| owner.cpus).collect::<CpuSet>();
    let duration = Duration::from_secs(args.seconds);
    let mut observation = Observation::new(owners.to_vec());
    let mut earlier = files.sample(kernel, cpus)?;
    let begin = Instant::now();
    let mut elapsed = Duration::ZERO;
    while elapsed < duration {
        thread::sleep(PAUSE.min(duration - elapsed));
        elapsed = begin.elapsed();
        let later = files.sample(kernel, cpus)?;
        observation.add(&earlier, &later);
        earlier = later;
    }
    Ok(observation.noise(elapsed, &files.unmovable()))
}
