//! The plugin dies at every point of handling an event: before, between and after the steps of
//! writing the checkpoint, and before and after its answer, which may arrive or not. It starts
//! again from what is on disk and what the runtime has set.

use crate::node::{Node, RuntimeContainer};
use crate::runtime::{Generation, cpu};
use ledger::MilliCpu;
use nri::wire;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use wire::Event as Kind;

/// What happens on the node. Pods are known by their uid.
#[derive(Debug, Clone)]
enum Op {
    Run(String, i64),
    Create { pod: String, name: String, id: String, milli: i64 },
    Start(String),
    Resize(String, i64),
    Stop(String),
    Remove(String),
    End(String),
}

/// What the runtime knows.
#[derive(Clone)]
struct World {
    containers: BTreeMap<String, RuntimeContainer>,
    pods: BTreeMap<String, wire::PodSandbox>,
}

impl World {
    fn of(node: &Node) -> World {
        World { containers: node.containers.clone(), pods: node.pods.clone() }
    }

    fn into(self, node: &mut Node) {
        node.containers = self.containers;
        node.pods = self.pods;
    }

    fn set(&mut self, updates: &[wire::ContainerUpdate]) {
        for update in updates {
            if let Some(container) = self.containers.get_mut(&update.container_id) {
                container.set(&update.linux.resources);
            }
        }
    }
}

/// The possible states of the runtime after an event.
struct Outcome {
    /// It did not get the plugin's answer.
    unanswered: Vec<World>,
    /// It carried out more and more of the answer; the last state has all of it.
    answered: Vec<World>,
}

/// Reports an event to the plugin.
async fn report(node: &mut Node, op: &Op) -> Outcome {
    let mut world = World::of(node);
    match op {
        Op::Run(uid, milli) => {
            let pod = crate::runtime::pod(uid, *milli);
            node.runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
            world.pods.insert(pod.id.clone(), pod);
            plain(world)
        }
        Op::Create { pod, name, id, milli } => {
            let pod = node.pods[&format!("sandbox-{pod}")].clone();
            // A runtime has one instance of a container at a time.
            world
                .containers
                .retain(|_, other| (&other.pod.id, &other.wire.name) != (&pod.id, name));
            let mut container = node.container(&pod, name, id, *milli);
            let Ok(answer) = node.runtime.create(&pod, &container.wire).await else {
                return plain(world);
            };
            let mut open = world.clone();
            open.containers.insert(id.clone(), container.clone());
            let mut answered = partly(&world, &answer.update);
            if let Some(adjust) = answer.adjust.as_ref() {
                container.set(&adjust.linux.resources);
            }
            let mut all = answered.last().unwrap().clone();
            all.containers.insert(id.clone(), container);
            answered.push(all);
            // A runtime that gets no answer fails the creation, or continues as if there were no
            // plugin.
            Outcome { unanswered: vec![world, open], answered }
        }
        Op::Start(id) => {
            let RuntimeContainer { pod, wire, .. } = node.containers[id].clone();
            node.runtime.report(Kind::POST_START_CONTAINER, &pod, Some(&wire)).await.unwrap();
            plain(world)
        }
        Op::Resize(id, milli) => {
            let RuntimeContainer { pod, wire, .. } = node.containers[id].clone();
            let request = wire::UpdateContainerRequest {
                pod: Some(pod).into(),
                container: Some(wire).into(),
                linux_resources: Some(cpu(*milli)).into(),
                ..Default::default()
            };
            let answer =
                node.runtime.call::<wire::UpdateContainerResponse>("UpdateContainer", &request);
            let Ok(answer) = answer.await else { return plain(world) };
            let mut resized = world.clone();
            let container = resized.containers.get_mut(id).unwrap();
            let own =
                container.wire.linux.mut_or_insert_default().resources.mut_or_insert_default();
            own.cpu.mut_or_insert_default().shares = cpu(*milli).cpu.shares.clone();
            Outcome {
                unanswered: vec![world, resized.clone()],
                answered: partly(&resized, &answer.update),
            }
        }
        Op::Stop(id) => {
            let container = world.containers.get_mut(id).unwrap();
            container.alive = false;
            let answer = node.runtime.stop(&container.pod, &container.wire).await.unwrap();
            Outcome { answered: partly(&world, &answer.update), unanswered: vec![world] }
        }
        Op::Remove(id) => {
            let RuntimeContainer { pod, wire, .. } = world.containers.remove(id).unwrap();
            node.runtime.report(Kind::REMOVE_CONTAINER, &pod, Some(&wire)).await.unwrap();
            plain(world)
        }
        Op::End(uid) => {
            let pod = world.pods.remove(&format!("sandbox-{uid}")).unwrap();
            world.containers.retain(|_, container| container.pod.id != pod.id);
            node.runtime.report(Kind::STOP_POD_SANDBOX, &pod, None).await.unwrap();
            plain(world)
        }
    }
}

/// The outcome of an event with an empty answer: it has happened in any case.
fn plain(world: World) -> Outcome {
    Outcome { unanswered: vec![world.clone()], answered: vec![world] }
}

/// The runtime carries out updates one after another, and may die after any of them.
fn partly(world: &World, updates: &[wire::ContainerUpdate]) -> Vec<World> {
    let part = |count: usize| {
        let mut world = world.clone();
        world.set(&updates[..count]);
        world
    };
    (0..=updates.len()).map(part).collect()
}

/// The two files of the state directory: the checkpoint, and the new one while it is written.
type Disk = (Option<Vec<u8>>, Option<Vec<u8>>);

fn checkpoint(node: &Node) -> Option<Vec<u8>> {
    fs::read(node.paths.state_dir.join("checkpoint.json")).ok()
}

/// Restarts the plugin with this disk, in this world, and checks the result.
async fn restart_with(node: &mut Node, (old, new): &Disk, world: &World) {
    node.kill().await;
    for (name, content) in [("checkpoint.json", old), ("checkpoint.json.new", new)] {
        let path = node.paths.state_dir.join(name);
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }
    world.clone().into(node);
    node.restart().await;
    node.check();
    for (id, was) in world.containers.iter().filter(|(_, container)| container.alive) {
        let is = &node.containers[id];
        assert!(!is.cpus().is_empty(), "{id} was left without CPUs");
        if was.exclusive && is.cpus() != was.cpus() {
            // A resize without the plugin's answer is completed: the container grows or shrinks.
            let requested = requested(&was.wire);
            let was = was.cpus();
            let is = is.cpus();
            let nested = was.is_subset(&is) || is.is_subset(&was);
            let shared = requested.is_none();
            assert!(
                shared || nested && Some(is.len()) == requested,
                "{id} moved from {was} to {is}"
            );
        }
    }
    for claim in node.on_disk() {
        assert!(node.pods.values().any(|pod| *pod.uid == *claim.pod_uid.0), "lost: {claim:?}");
    }
}

/// The CPUs that a container requests, if they are whole.
fn requested(container: &wire::Container) -> Option<usize> {
    MilliCpu::from_shares(container.linux.resources.cpu.shares.value)?.whole_cpus()
}

/// The disks that a death can leave while `after` replaces `before`, with the new file cut after
/// every `step` bytes.
fn torn(before: &Option<Vec<u8>>, after: &Option<Vec<u8>>, step: usize) -> Vec<Disk> {
    let whole = after.clone().unwrap_or_default();
    let mut disks: Vec<Disk> = (0..whole.len())
        .step_by(step)
        .map(|length| (before.clone(), Some(whole[..length].to_vec())))
        .collect();
    disks.push((before.clone(), after.clone()));
    disks.push((before.clone(), None));
    disks
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_point_of_any_event_loses_nothing() {
    let mut node = Node::start(Generation::V0_8).await;
    let create = |pod: &str, name: &str, id: &str, milli| Op::Create {
        pod: pod.into(),
        name: name.into(),
        id: id.into(),
        milli,
    };
    let story = [
        Op::Run("s".into(), 500),
        create("s", "one", "s1", 200),
        Op::Start("s1".into()),
        create("s", "two", "s2", 300),
        Op::Run("a".into(), 4000),
        create("a", "c", "a1", 4000),
        Op::Start("a1".into()),
        Op::Run("b".into(), 6000),
        create("b", "init", "b1", 6000),
        Op::Stop("b1".into()),
        create("b", "app", "b2", 6000),
        Op::Start("b2".into()),
        Op::Resize("a1".into(), 6000),
        Op::Resize("a1".into(), 4000),
        Op::Stop("a1".into()),
        create("a", "c", "a2", 4000),
        Op::Stop("a2".into()),
        Op::Remove("a2".into()),
        Op::End("a".into()),
        Op::End("b".into()),
    ];
    let mut deaths = 0;
    for (at, op) in story.iter().enumerate() {
        let before = checkpoint(&node);
        let outcome = report(&mut node, op).await;
        let after = checkpoint(&node);
        // The longest checkpoint is cut at every byte, the others only here and there.
        let step = if at == 15 { 1 } else { 97 };
        let worlds = outcome.unanswered.iter().cycle();
        for (disk, world) in torn(&before, &after, step).iter().zip(worlds) {
            restart_with(&mut node, disk, world).await;
            deaths += 1;
        }
        for world in outcome.unanswered.iter().chain(&outcome.answered) {
            restart_with(&mut node, &(after.clone(), None), world).await;
            deaths += 1;
        }
        // The first loop has not combined each world with the old checkpoint.
        for world in &outcome.unanswered {
            restart_with(&mut node, &(before.clone(), None), world).await;
            deaths += 1;
        }
        restart_with(&mut node, &(after, None), outcome.answered.last().unwrap()).await;
    }
    assert!(node.on_disk().is_empty());
    assert_eq!(node.cpus("s1"), "0-15");
    assert!(deaths > 400, "{deaths}");
}

/// A step of a random history: what happens, and the point of the plugin's death, if any. Numbers
/// are taken modulo the number of choices.
#[derive(Debug, Clone)]
struct Step {
    what: u8,
    which: usize,
    size: i64,
    death: Option<(usize, usize)>,
}

fn step() -> impl Strategy<Value = Step> {
    let death = prop::option::weighted(0.4, (0..1000_usize, 0..1000_usize));
    (0..14_u8, 0..1000_usize, 0..7_i64, death).prop_map(|(what, which, size, death)| Step {
        what,
        which,
        size,
        death,
    })
}

fn op(node: &Node, step: &Step, serial: usize) -> Option<Op> {
    let pods: Vec<&String> = node.pods.values().map(|pod| &pod.uid).collect();
    let containers: Vec<(&String, &RuntimeContainer)> = node.containers.iter().collect();
    let pod = || pods.get(step.which % pods.len().max(1)).map(|uid| (*uid).clone());
    let container = |alive: bool| {
        let fit: Vec<_> =
            containers.iter().filter(|(_, container)| container.alive == alive).collect();
        fit.get(step.which % fit.len().max(1)).map(|(id, _)| (*id).clone())
    };
    let milli = step.size * 1000 + if step.which.is_multiple_of(5) { 500 } else { 0 };
    Some(match step.what {
        0..=1 => Op::Run(format!("p{serial}"), milli + 1000),
        2..=5 => {
            let name = format!("c{}", step.size % 2);
            Op::Create { pod: pod()?, name, id: format!("i{serial}"), milli }
        }
        6..=7 => Op::Start(container(true)?),
        8..=9 => Op::Stop(container(true)?),
        10 => Op::Resize(container(true)?, milli.max(100)),
        11 => Op::Remove(container(false)?),
        _ => Op::End(pod()?),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_death_in_a_random_history_loses_nothing(steps in prop::collection::vec(step(), 1..40)) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        clock.block_on(async {
            let mut node = Node::start(Generation::V0_10).await;
            for (serial, step) in steps.iter().enumerate() {
                let Some(op) = op(&node, step, serial) else { continue };
                let before = checkpoint(&node);
                let outcome = report(&mut node, &op).await;
                let after = checkpoint(&node);
                let Some((point, world)) = step.death else {
                    outcome.answered.last().unwrap().clone().into(&mut node);
                    node.check();
                    continue;
                };
                let disks = torn(&before, &after, 40);
                match disks.get(point % (disks.len() * 2)) {
                    Some(disk) => {
                        let world = &outcome.unanswered[world % outcome.unanswered.len()];
                        restart_with(&mut node, disk, world).await;
                    }
                    None => {
                        let worlds: Vec<_> =
                            outcome.unanswered.iter().chain(&outcome.answered).collect();
                        restart_with(&mut node, &(after, None), worlds[world % worlds.len()]).await;
                    }
                }
            }
            for pod in node.pods.clone().into_values() {
                node.stop_pod(&pod).await;
            }
            prop_assert_eq!(node.held_after_next_write().await, 0);
            Ok(())
        })?;
    }
}

/// Every write of the checkpoint really fails: everything else goes on, and the plugin restarts
/// with the old checkpoint.
#[tokio::test(start_paused = true)]
async fn a_failing_disk_refuses_only_new_exclusive_containers() {
    let mut node = Node::start(Generation::V0_12).await;
    let a = node.run_pod("a", 4000).await;
    let s = node.run_pod("s", 500).await;
    node.create(&a, "c", "a1", 4000).await.unwrap();
    node.create(&s, "c", "s1", 500).await.unwrap();
    let r = node.run_pod("r", 2000).await;
    let mut restarted = "r".to_owned();
    node.create(&r, "c", &restarted, 2000).await.unwrap();
    let next = node.paths.state_dir.join("checkpoint.json.new");
    fs::create_dir(&next).unwrap();
    for round in 0..2 {
        let b = node.run_pod("b", 4000).await;
        let refused = node.create(&b, "c", &format!("b{round}"), 4000).await.unwrap_err();
        assert!(refused.contains("checkpoint.json.new: File exists"), "{refused}");
        node.create(&s, &format!("d{round}"), &format!("s2-{round}"), 500).await.unwrap();
        node.update("a1", cpu(4000)).await.unwrap();
        assert_eq!((node.cpus("a1"), node.cpus("s1")), ("2-5".into(), "0-1,8-15".into()));
        // A container that has CPUs in the old checkpoint may return to them.
        let again = format!("r{round}");
        node.stop(&restarted).await;
        node.create(&r, "c", &again, 2000).await.unwrap();
        assert_eq!(node.cpus(&again), "6-7");
        restarted = again;
        node.check();
        // A pod can end although that cannot be saved.
        node.stop_pod(&b).await;
        let old = fs::read(node.paths.state_dir.join("checkpoint.json")).unwrap();
        node.restart().await;
        assert_eq!(fs::read(node.paths.state_dir.join("checkpoint.json")).unwrap(), old);
        assert_eq!((node.cpus("a1"), node.cpus("s1")), ("2-5".into(), "0-1,8-15".into()));
    }
    node.stop("a1").await;
    node.stop_pod(&a).await;
    node.stop(&restarted).await;
    node.stop_pod(&r).await;
    node.restart().await;
    assert_eq!(node.cpus("s1"), "0-15", "the stale checkpoint keeps nothing");
    fs::remove_dir(&next).unwrap();
    let c = node.run_pod("c", 10_000).await;
    node.create(&c, "c", "c1", 10_000).await.unwrap();
    assert_eq!(node.held(), 10);
    node.check();
}
