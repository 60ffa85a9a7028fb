//! [`monitor`]: observes exclusive CPUs as long as the daemon runs, for status, metrics and page.
//!
//! It decides nothing, and nothing waits for it. Like any client it asks how the node is, and it reads
//! `/proc` on a thread of the least priority.

use super::given_to;
use exclusivity::NoiseFiles;
use kernel::Linux;
use ledger::Stance;
use noise::{NoiseReport, Observation, Owner, Sample};
use serve::ViewSource;
use state::worker::Worker;
use status::noise::{NoiseFigures, Watched};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// From one sample to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// What was observed for so long is recent, and always what was observed last.
const RECENT: Duration = Duration::from_secs(60);
/// A sample that takes long, as with many thousands of threads, is followed by a pause of so many times
/// its duration: observing takes at most a fiftieth of a CPU.
const PAUSE: u32 = 50;

/// Publishes what was observed after each sample, until the daemon ends. `ask` asks the daemon.
pub(super) async fn monitor(
    ask: impl AsyncFn() -> Option<Asked>,
    files: NoiseFiles,
    reader: &Worker,
    figures: watch::Sender<Arc<NoiseFigures>>,
) {
    let mut history = NoiseHistory::default();
    loop {
        let mut took = Duration::ZERO;
        if let Some(before) = ask().await {
            if before.owners.is_empty() {
                history.pause();
            } else {
                let begin = Instant::now();
                let cpus = before.owners.iter().map(|owner| owner.cpus).collect();
                let files = files.clone();
                let read = given_to(reader, move || {
                    files.sample(&Linux, cpus).map(|sample| (sample, files.unmovable()))
                });
                // A panic of the thread is in the log.
                let Ok(read) = read.await else { return };
                took = begin.elapsed();
                match (read, ask().await) {
                    (Ok((sample, unmovable)), Some(after)) => {
                        // Of CPUs that changed hands meanwhile, nothing is certain.
                        let owners = steady(&before.owners, &after.owners);
                        let moment = OwnedSample { at: begin.into_std(), owners, sample };
                        history.add(moment, took, &(&unmovable | &after.refused));
                    }
                    // Whose CPUs these were is not known.
                    (Ok(_), None) => {}
                    (Err(error), _) => history.fail(error.to_string()),
                }
            }
            figures.send_replace(Arc::new(history.figures.clone()));
        }
        sleep(PERIOD.max(took * PAUSE)).await;
    }
}

/// What the daemon says.
#[derive(Debug, Default)]
pub(super) struct Asked {
    owners: Vec<Owner>,
    /// Interrupts that the kernel did not let move.
    refused: BTreeSet<u32>,
}

impl Asked {
    /// `None` while the daemon is too busy to answer.
    pub(super) async fn of(source: &ViewSource) -> Option<Asked> {
        let view = source.view().await.ok()?;
        let Ok(node) = &view.node else { return Some(Asked::default()) };
        let refused = node.parts.quiet.report.refused.iter();
        let figures = &node.view.figures;
        // An observer only decides about CPUs.
        let containers = node.view.containers.iter().filter(|_| figures.stance != Stance::Observe);
        Some(Asked {
            owners: Watched::of(containers, figures.mechanism, node.daemon.partition).owners,
            refused: refused.map(|refused| refused.interrupt.number).collect(),
        })
    }
}

/// The owners in both lists, with the CPUs that they have in both.
fn steady(before: &[Owner], after: &[Owner]) -> Vec<Owner> {
    let mut steady = Vec::new();
    for one in after {
        let same = before.iter().find(|other| other.is_same(one));
        let cpus = same.map(|other| other.cpus).unwrap_or_default();
        if !one.cpus.is_disjoint(&cpus) {
            steady.push(Owner { cpus: one.cpus & cpus, ..one.clone() });
        }
    }
    steady
}

/// A sample, and who had which CPUs while it was taken.
#[derive(Debug)]
struct OwnedSample {
    at: std::time::Instant,
    owners: Vec<Owner>,
    sample: Sample,
}

/// What was observed since the daemon's start.
#[derive(Debug, Default)]
struct NoiseHistory {
    last: Option<OwnedSample>,
    /// What grew between two samples, and how long it took; the oldest first.
    recent: VecDeque<(Observation, Duration)>,
    figures: NoiseFigures,
}

impl NoiseHistory {
    /// Nobody has exclusive CPUs.
    fn pause(&mut self) {
        let totals = std::mem::take(&mut self.figures.totals);
        *self = NoiseHistory::default();
        self.figures.totals = totals;
    }

    fn fail(&mut self, why: String) {
        if self.figures.obstacle.as_ref() != Some(&why) {
            log::info!("noise: exclusive CPUs are not observed: {why}");
        }
        self.pause();
        self.figures.obstacle = Some(why);
    }

    /// `took`: how long the sample took. `unmovable` has the interrupts whose affinity the kernel manages.
    fn add(&mut self, later: OwnedSample, took: Duration, unmovable: &BTreeSet<u32>) {
        self.figures.obstacle = None;
        if let Some(earlier) = &self.last {
            let mut observation = Observation::new(steady(&earlier.owners, &later.owners));
            observation.add(&earlier.sample, &later.sample);
            let time = later.at.saturating_duration_since(earlier.at);
            let grown = observation.noise(time, unmovable);
            for one in grown.containers.iter().flat_map(|container| &container.by_cpu) {
                self.figures.totals.entry(one.cpu).or_default().add(one);
            }
            self.recent.push_back((observation, time));
            let mut time: Duration = self.recent.iter().map(|(_, time)| *time).sum();
            while time > RECENT
                && self.recent.len() > 1
                && let Some((_, oldest)) = self.recent.pop_front()
            {
                time -= oldest;
            }
            let mut recent = Observation::new(later.owners.clone());
            self.recent.iter().for_each(|(observation, _)| recent.merge(observation));
            let milliseconds = u64::try_from(took.as_millis()).ok();
            let recent = recent.noise(time, unmovable).without_expected();
            self.figures.recent = Some(NoiseReport { sample_milliseconds: milliseconds, ..recent });
        }
        self.last = Some(later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpuset::CgroupPath;
    use noise::{InForce, Kind, Verdict};
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Instant;

    fn owner(name: &str, cpus: &str) -> Owner {
        let cgroup = CgroupPath::new(&format!("kubepods/{name}")).unwrap();
        let in_force = InForce::default();
        Owner { name: name.to_owned(), cgroup, cpus: cpus.parse().unwrap(), in_force }
    }

    /// A node on which everything has counted up to `n`.
    fn sample(proc: &Path, n: u64) -> Sample {
        let interrupts = format!(
            "CPU2 CPU3\n41: 0 {n} PCI-MSI 3-edge nvme0q3\nLOC: {n} {n} Local timer interrupts\n"
        );
        fs::write(proc.join("interrupts"), interrupts).unwrap();
        fs::write(proc.join("softirqs"), "CPU2 CPU3\nTIMER: 0 0\n").unwrap();
        let files = NoiseFiles::new(proc, None);
        files.sample(&Linux, "2-3".parse().unwrap()).unwrap()
    }

    struct Node {
        proc: tempfile::TempDir,
        start: Instant,
        history: NoiseHistory,
    }

    impl Node {
        fn new() -> Node {
            let proc = tempfile::tempdir().unwrap();
            Node { proc, start: Instant::now(), history: NoiseHistory::default() }
        }

        /// A sample every ten seconds, with one count each.
        fn observe(&mut self, n: u64, owners: &[Owner]) -> &NoiseFigures {
            let sample = sample(self.proc.path(), n);
            let at = self.start + PERIOD * u32::try_from(n).unwrap();
            let later = OwnedSample { at, owners: owners.to_vec(), sample };
            self.history.add(later, Duration::from_millis(3), &BTreeSet::from([41]));
            &self.history.figures
        }
    }

    fn ticks(figures: &NoiseFigures, cpu: usize) -> u64 {
        figures.totals[&cpu].kinds[&Kind::Tick].count
    }

    #[test]
    fn recent_noise_is_that_of_a_minute_and_totals_never_fall() {
        let mut node = Node::new();
        let owners = [owner("db", "2-3")];
        assert_eq!(node.observe(0, &owners), &NoiseFigures::default());
        for n in 1..=9 {
            let figures = node.observe(n, &owners);
            let recent = figures.recent.as_ref().unwrap();
            let minute = n.min(6);
            assert_eq!(recent.seconds, 10.0 * minute as f64);
            assert_eq!(recent.samples as u64, minute + 1);
            let [_, noisy] = &recent.containers[0].by_cpu[..] else { panic!("{recent:?}") };
            assert_eq!((noisy.verdict, noisy.findings[0].count), (Verdict::Noisy, minute));
            assert_eq!(noisy.findings[0].advice, Some(noise::Advice::KernelManaged));
            assert!(noisy.expected.is_empty());
            assert_eq!(ticks(figures, 3), n);
            assert_eq!(figures.noisy().to_string(), "3");
        }
        // A sample may come late.
        assert_eq!(node.observe(30, &owners).recent.as_ref().unwrap().seconds, 210.0);
        assert_eq!(node.observe(31, &owners).recent.as_ref().unwrap().seconds, 10.0);
        node.history.pause();
        let figures = &node.history.figures;
        assert_eq!((figures.recent.is_none(), ticks(figures, 3)), (true, 31));
        // What happened while nobody had exclusive CPUs does not count.
        assert_eq!(node.observe(50, &owners).recent, None);
        assert_eq!(ticks(node.observe(51, &owners), 3), 32);
        node.history.fail("masked".to_owned());
        let figures = &node.history.figures;
        assert_eq!((figures.obstacle.as_deref(), figures.recent.is_none()), (Some("masked"), true));
        assert_eq!(node.observe(52, &owners).obstacle, None);
    }

    #[tokio::test(start_paused = true)]
    async fn samples_are_taken_and_published_while_somebody_has_exclusive_cpus() {
        let proc = tempfile::tempdir().unwrap();
        let has_owner = AtomicBool::new(true);
        let is_busy = AtomicBool::new(false);
        let ask = async || {
            let owners =
                if has_owner.load(Relaxed) { vec![owner("db", "2-3")] } else { Vec::new() };
            let is_busy = is_busy.swap(false, Relaxed);
            if is_busy { None } else { Some(Asked { owners, refused: BTreeSet::from([41]) }) }
        };
        let (publish, mut figures) = watch::channel(Arc::default());
        let reader = Worker::start("noise").unwrap();
        let monitored = monitor(ask, NoiseFiles::new(proc.path(), None), &reader, publish);
        let checked = async {
            let next = async |figures: &mut watch::Receiver<Arc<NoiseFigures>>| {
                figures.changed().await.unwrap();
                Arc::clone(&figures.borrow_and_update())
            };
            let first = next(&mut figures).await;
            assert!(
                first.obstacle.as_ref().unwrap().contains("/softirqs: No such file"),
                "{first:?}"
            );
            sample(proc.path(), 5);
            assert_eq!(*next(&mut figures).await, NoiseFigures::default());
            sample(proc.path(), 7);
            // No sample is taken, and the one before still counts.
            is_busy.store(true, Relaxed);
            let third = next(&mut figures).await;
            let recent = third.recent.as_ref().unwrap();
            let finding = &recent.containers[0].by_cpu[1].findings[0];
            assert_eq!((finding.count, finding.advice), (2, Some(noise::Advice::KernelManaged)));
            assert_eq!(recent.seconds, 2.0 * PERIOD.as_secs_f64());
            has_owner.store(false, Relaxed);
            assert_eq!(next(&mut figures).await.recent, None);
        };
        tokio::select! {
            () = monitored => panic!("it has ended"),
            () = checked => {}
        }
    }

    #[test]
    fn nothing_counts_on_a_cpu_that_changes_hands() {
        let mut node = Node::new();
        node.observe(0, &[owner("a", "2-3")]);
        node.observe(1, &[owner("a", "2-3")]);
        let figures = node.observe(2, &[owner("a", "2"), owner("b", "3")]);
        assert_eq!([2, 3].map(|cpu| ticks(figures, cpu)), [2, 1]);
        let recent = figures.recent.as_ref().unwrap();
        assert_eq!(recent.containers[1].by_cpu[0].verdict, Verdict::Unobserved);
        let figures = node.observe(3, &[owner("a", "2"), owner("b", "3")]);
        assert_eq!([2, 3].map(|cpu| ticks(figures, cpu)), [3, 2]);
        assert_eq!(figures.recent.as_ref().unwrap().containers[1].by_cpu[0].findings[0].count, 1);
    }

    #[test]
    fn owners_are_steady_on_the_cpus_that_they_keep() {
        let before = [owner("a", "2-3"), owner("b", "4"), owner("c", "5")];
        let restarted =
            Owner { cgroup: CgroupPath::new("kubepods/again").unwrap(), ..owner("c", "5") };
        let after = [owner("a", "3,6"), owner("b", "7"), restarted];
        assert_eq!(steady(&before, &after), [owner("a", "3")]);
    }
}
