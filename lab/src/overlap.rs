//! Whether containers met on an exclusive CPU while other steps were played: reads repeatedly where
//! the kernel lets each run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use cpuset::CpuSet;

use crate::node::Node;
use crate::plugin::PluginFiles;
use crate::{command, process};

const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Watched {
    /// Readings of all containers.
    pub readings: u64,
    /// The longest time between two readings, in milliseconds.
    pub longest: u64,
    /// The first overlap: the containers and their CPUs.
    pub met: Option<String>,
}

#[derive(Debug)]
pub struct Member {
    name: String,
    exclusive: bool,
    /// Its first process. What counts is where the kernel lets it run: when a partition ends, Linux
    /// 6.12 shows other CPUs in its cgroup for a moment, on which nothing ever runs.
    pid: u32,
}

/// Running containers with the plugin's decisions.
pub fn members(node: &Node, plugin: &PluginFiles) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for running in node.pods() {
        for container in &running.containers {
            let (pod, name) = (&running.pod.name, &container.name);
            members.push(Member {
                name: format!("{pod}/{name}"),
                exclusive: plugin.claimed(pod, name)?.is_some(),
                pid: container.pid,
            });
        }
    }
    Ok(members)
}

/// Reads the containers' CPUs until `work` is done.
pub fn watch(members: &[Member], work: impl FnOnce() -> Result<()>) -> Result<Watched> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(members, &done));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let watched = reader.join().map_err(|_| anyhow!("the watching thread panicked"))?;
        worked.map(|()| watched).context("during a watch")
    })
}

fn read_until(members: &[Member], done: &AtomicBool) -> Watched {
    let mut watched = Watched::default();
    let (mut before, mut last) = (read_all(members), Instant::now());
    while !done.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
        let now = read_all(members);
        if watched.met.is_none() {
            watched.met = met(members, &before, &now);
        }
        watched.readings += 1;
        let passed = command::millis(last.elapsed());
        watched.longest = watched.longest.max(passed);
        (before, last) = (now, Instant::now());
    }
    watched
}

/// None for a container that has ended.
fn read_all(members: &[Member]) -> Vec<Option<CpuSet>> {
    members.iter().map(|member| process::allowed(member.pid).ok()).collect()
}

/// Containers are read one after the other, so two readings need not belong to the same moment.
/// They do if one container has the same value before and after the other's reading.
fn met(members: &[Member], before: &[Option<CpuSet>], now: &[Option<CpuSet>]) -> Option<String> {
    let owners = members.iter().enumerate().filter(|(_, member)| member.exclusive);
    for (at, owner) in owners {
        let Some(own) = before[at].filter(|own| now[at] == Some(*own)) else { continue };
        for (other_at, other) in members.iter().enumerate().filter(|(other, _)| *other != at) {
            let between = if other_at > at { before[other_at] } else { now[other_at] };
            let Some(others) = between.filter(|others| !others.is_disjoint(&own)) else { continue };
            return Some(format!(
                "CPUs {own} are exclusive to {}, but {} might run on {others}",
                owner.name, other.name
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet as Affinity, sched_setaffinity};
    use nix::unistd::{Pid, gettid};
    use std::sync::mpsc;

    #[test]
    fn only_readings_of_one_moment_count() {
        let member = |name: &str, exclusive| Member { name: name.to_owned(), exclusive, pid: 0 };
        let parse = |lists: [&str; 2]| lists.map(|list| list.parse::<CpuSet>().ok());
        let met = |names: [(&str, bool); 2], before, now| {
            let members = names.map(|(name, exclusive)| member(name, exclusive));
            met(&members, &parse(before), &parse(now))
        };
        let db_first = [("db", true), ("web", false)];
        let web_first = [("web", false), ("db", true)];
        // The owner leaves before the other one comes, but the readings overlap.
        assert_eq!(met(db_first, ["2-3", "0-3"], ["4-5", "0-3"]), None);
        assert_eq!(met(web_first, ["0-1", "2-3"], ["0-3", "4-5"]), None);
        // It stays.
        let expected = Some("CPUs 2-3 are exclusive to db, but web might run on 0-3".to_owned());
        assert_eq!(met(db_first, ["2-3", "0-3"], ["2-3", "0-1"]), expected);
        assert_eq!(met(web_first, ["0-1", "2-3"], ["0-3", "2-3"]), expected);
        // Shared containers may meet, and one that has ended meets none.
        assert_eq!(met([("a", false), ("b", false)], ["0", "0"], ["0", "0"]), None);
        assert_eq!(met(db_first, ["2-3", "gone"], ["2-3", "gone"]), None);
    }

    /// The id of a thread that ends when the sender does.
    fn sleeper() -> (u32, mpsc::Sender<()>) {
        let (id, ids) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            id.send(gettid()).unwrap();
            let _ = ended.recv();
        });
        (u32::try_from(ids.recv().unwrap().as_raw()).unwrap(), end)
    }

    #[test]
    fn overlaps_during_the_work_are_found() {
        let all = process::allowed(std::process::id()).unwrap();
        let (one, other) = (all.lowest(1), all - all.lowest(1));
        let [(db, _ends), (web, _also)] = [sleeper(), sleeper()];
        let members = [("db", db, true), ("web", web, false)]
            .map(|(name, pid, exclusive)| Member { name: name.to_owned(), exclusive, pid });
        let bind = |thread: u32, cpus: CpuSet| -> Result<()> {
            let mut mask = Affinity::new();
            cpus.iter().try_for_each(|cpu| mask.set(cpu))?;
            sched_setaffinity(Pid::from_raw(thread.cast_signed()), &mask)?;
            thread::sleep(Duration::from_millis(50));
            Ok(())
        };
        bind(db, one).unwrap();
        bind(web, other).unwrap();
        let watched = watch(&members, || bind(web, all)).unwrap();
        assert!(watched.readings > 1 && watched.met.is_some(), "{watched:?}");
        bind(web, other).unwrap();
        let watched = watch(&members, || Ok(())).unwrap();
        assert_eq!(watched.met, None);
    }
}
