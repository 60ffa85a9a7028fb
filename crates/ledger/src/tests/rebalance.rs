//! Moves of running containers: plans, their steps, and which containers stay.

use super::*;
use crate::pod_option::PodOption;

fn rebalancing() -> Rebalance {
    Rebalance {
        mode: RebalanceMode::Move,
        moves_per_100_starts: 10,
        across_numa_nodes: true,
        min_stay: Duration::ZERO,
    }
}

fn with(rebalance: Rebalance) -> Settings {
    Settings { rebalance: Some(rebalance), ..settings() }
}

/// A container of two CPUs is in the cache that a container of eight would need.
fn fragmented(settings: Settings, annotations: &[(&str, &str)]) -> Node {
    let mut node = Node::with(settings, Vec::new());
    let six = guaranteed("six", 6000);
    assert_eq!(node.create(&six, "c", "six", 6000).unwrap(), "2-7");
    let mut two = guaranteed("two", 2000);
    two.annotations = annotations.iter().copied().collect();
    assert_eq!(node.create(&two, "c", "two", 2000).unwrap(), "8-9");
    node.stop("six");
    node.stop_pod(&six);
    node
}

fn eight() -> (Pod, Admission) {
    let pod = guaranteed("eight", 8000);
    let container = container(&pod, "c", "eight", 8000);
    (pod.clone(), Admission::Create { pod, container })
}

fn planned(node: &mut Node) -> Option<MovePlan> {
    let (pod, create) = eight();
    node.event(Event::RunPod(pod)).unwrap();
    node.ledger.plan_arrival(&create).ok()
}

#[test]
fn a_container_moves_so_that_a_new_one_fits_into_one_cache() {
    let mut node = fragmented(with(rebalancing()), &[]);
    let plan = planned(&mut node).unwrap();
    assert!(!plan.is_staged());
    let moves: Vec<_> =
        plan.steps.iter().map(|step| (&*step.container.0, step.to.to_string())).collect();
    assert_eq!(moves, [("two", "2-3".to_owned())]);
    node.ledger.take_notes();
    for step in plan.steps {
        node.event(Event::Move(step)).unwrap();
    }
    let notes: Vec<String> = node.ledger.take_notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "default/two/c: moved from exclusive CPUs 8-9 to 2-3: default/eight/c fits into one uncore cache"
        ]
    );
    assert_eq!(node.create(&eight().0, "c", "eight", 8000).unwrap(), "8-15");
    node.check("two", "2-3");
    let totals = node.ledger.move_totals();
    assert_eq!((totals.of(Occasion::Arrival, MoveOutcome::Done), totals.cpus), (1, 2));
    assert_eq!(totals.all(MoveOutcome::Staged), 0);
    assert_eq!(node.ledger.view().figures.moves.values().sum::<u64>(), 0, "no move by need");
}

#[test]
fn a_container_stays_if_its_pod_option_its_environment_or_its_affinity_requires_it() {
    let movable = "movable.cpu-manager.nri.io";
    let bounds = |pod_options: &[PodOption], defaults: &[PodOption]| {
        let bounds = Bounds {
            allow: pod_options.iter().copied().collect(),
            defaults: defaults.to_vec(),
            ..Bounds::default()
        };
        Namespaces::new(vec![(vec!["*".to_owned()], bounds)]).unwrap()
    };
    let stays = [PodOption::Movable(false)];
    let moves = |settings: Settings, annotations: &[(&str, &str)]| {
        planned(&mut fragmented(settings, annotations)).is_some()
    };
    assert!(moves(with(rebalancing()), &[]));
    assert!(!moves(settings(), &[]), "not configured");
    let namespaces = bounds(&stays, &[]);
    let allowed = Settings { namespaces, ..with(rebalancing()) };
    assert!(moves(allowed.clone(), &[]));
    assert!(!moves(allowed, &[(movable, "false")]));
    let by_default = Settings { namespaces: bounds(&[], &stays), ..with(rebalancing()) };
    assert!(!moves(by_default, &[]));
    let exposing = Settings { expose_cpus: Exposure::Environment, ..with(rebalancing()) };
    assert!(!moves(exposing, &[]), "its program knows its CPUs");

    let mut node = fragmented(with(rebalancing()), &[]);
    node.event(Event::BoundItself(ContainerId("two".into()))).unwrap();
    assert_eq!(planned(&mut node), None, "its threads have set their own affinities");

    let mut node = fragmented(with(rebalancing()), &[]);
    assert!(planned(&mut node).is_some());
    node.event(Event::Mechanism(Mechanism::Partitions)).unwrap();
    assert!(planned(&mut node).is_some(), "partitions");
}

/// Why the container of two CPUs stays, as the status shows it.
fn stays(node: &Node) -> Option<StayReason> {
    let view = node.ledger.view();
    view.containers.iter().find(|one| &*one.id.0 == "two").unwrap().stays
}

#[test]
fn a_container_stays_for_min_stay_after_its_start_and_after_a_move() {
    let (second, stay) = (Duration::from_secs(1), Duration::from_millis(90_500));
    let mut node = Node::with(with(Rebalance { min_stay: stay, ..rebalancing() }), Vec::new());
    let time = |node: &mut Node, now| node.event(Event::Time(now)).unwrap();
    time(&mut node, 100 * second);
    let six = guaranteed("six", 6000);
    node.create(&six, "c", "six", 6000).unwrap();
    let two = guaranteed("two", 2000);
    node.create(&two, "c", "two", 2000).unwrap();
    node.stop("six");
    node.stop_pod(&six);
    assert_eq!(stays(&node), Some(StayReason::MinStay(stay)));
    assert_eq!(node.ledger.next_movable(), Some(100 * second + stay));

    time(&mut node, 100 * second + stay - Duration::from_millis(1));
    let left = StayReason::MinStay(Duration::from_millis(1));
    assert_eq!(stays(&node), Some(left));
    assert_eq!(left.to_string(), "1 s of minStay left");
    assert_eq!(planned(&mut node), None);
    // The runtime connects again and repeats the start.
    let listed =
        Container { cpus: Some("8-9".parse().unwrap()), ..container(&two, "c", "two", 2000) };
    node.event(Event::Started { pod: two.clone(), container: listed.clone() }).unwrap();
    let list = Event::Synchronize { pods: vec![two.clone()], containers: vec![listed] };
    node.event(list).unwrap();
    assert_eq!(stays(&node), Some(left));

    // Time never goes back.
    time(&mut node, 100 * second + stay);
    time(&mut node, second);
    assert_eq!((stays(&node), node.ledger.next_movable()), (None, None));
    let plan = planned(&mut node).unwrap();
    for step in plan.steps {
        node.event(Event::Move(step)).unwrap();
    }
    assert_eq!(stays(&node), Some(StayReason::MinStay(stay)), "after its move");
    // A shorter time counts at once.
    let shorter = with(Rebalance { min_stay: Duration::ZERO, ..rebalancing() });
    node.event(Event::Settings(shorter)).unwrap();
    assert_eq!(stays(&node), None);
}

/// The runtime may list a container before it starts.
#[test]
fn min_stay_begins_at_the_start_of_a_container_that_was_listed_before() {
    let min_stay = Duration::from_secs(60);
    let mut node = Node::with(with(Rebalance { min_stay, ..rebalancing() }), Vec::new());
    let two = guaranteed("two", 2000);
    let new = container(&two, "c", "two", 2000);
    node.event(Admission::Create { pod: two.clone(), container: new.clone() }).unwrap();
    let listed = Container { cpus: Some("2-3".parse().unwrap()), ..new };
    let list = Event::Synchronize { pods: vec![two.clone()], containers: vec![listed] };
    node.event(list).unwrap();
    node.start(&two, "c", "two", 2000);
    assert_eq!(stays(&node), Some(StayReason::MinStay(min_stay)));
}

/// Found by random histories: if all reserved CPUs are offline the lowest free CPU stays shared,
/// and the first step of a plan may free a lower one that the second step needs.
#[test]
fn a_step_may_use_cpus_of_an_earlier_one_when_all_reserved_cpus_are_offline() {
    let mut node = Node::with(with(rebalancing()), Vec::new());
    let (a, b) = (guaranteed("a", 2000), guaranteed("b", 2000));
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
    assert_eq!(node.create(&b, "c", "b", 2000).unwrap(), "4-5");
    node.event(Event::Machine(super::hotplug::machine_without("0-1"))).unwrap();
    let step = |id: &str, from: &str, to: &str| Move {
        occasion: Occasion::Departure,
        container: ContainerId(id.into()),
        from: cpus(from),
        to: cpus(to),
        outcome: MoveOutcome::Done,
        why: String::new(),
    };
    assert!(node.ledger.apply(Event::Move(step("a", "2-3", "10-11"))).moved);
    assert!(node.ledger.apply(Event::Move(step("b", "4-5", "2-3"))).moved);
    assert_eq!(node.ledger.free().to_string(), "5-9,12-15");
}

#[test]
fn min_stay_begins_at_the_start_and_not_at_the_creation() {
    let stay = Duration::from_secs(5);
    let mut node = Node::with(with(Rebalance { min_stay: stay, ..rebalancing() }), Vec::new());
    let pod = guaranteed("two", 2000);
    node.event(Event::RunPod(pod.clone())).unwrap();
    let container = container(&pod, "c", "two", 2000);
    let create = Admission::Create { pod: pod.clone(), container: container.clone() };
    node.event(create).unwrap();
    assert_eq!(stays(&node), Some(StayReason::Changing));
    node.event(Event::Time(stay)).unwrap();
    node.event(Event::Started { pod, container }).unwrap();
    assert_eq!(stays(&node), Some(StayReason::MinStay(stay)));
    assert_eq!(node.ledger.next_movable(), Some(2 * stay));
}

#[test]
fn a_missing_plan_names_its_reason() {
    let why = |node: &mut Node| {
        let (pod, create) = eight();
        node.event(Event::RunPod(pod)).unwrap();
        node.ledger.plan_arrival(&create).unwrap_err()
    };
    assert_eq!(why(&mut fragmented(settings(), &[])), NoPlan::Off);
    let mut node = fragmented(with(rebalancing()), &[]);
    node.event(Event::BoundItself(ContainerId("two".into()))).unwrap();
    assert_eq!((why(&mut node), stays(&node)), (NoPlan::AllStay, Some(StayReason::OwnAffinity)));
    assert_eq!(node.ledger.plan_departure(), Err(NoPlan::AllStay));
    let exposing = Settings { expose_cpus: Exposure::Environment, ..with(rebalancing()) };
    let mut node = fragmented(exposing, &[]);
    assert_eq!((why(&mut node), stays(&node)), (NoPlan::AllStay, Some(StayReason::Environment)));
    let noticed = Settings { notice_seconds: 5, ..with(rebalancing()) };
    assert_eq!(why(&mut fragmented(noticed, &[])), NoPlan::Notice);
    let mut node = fragmented(with(rebalancing()), &[]);
    node.event(Event::Stance { stance: Stance::Refuse, claims: Vec::new() }).unwrap();
    assert_eq!(why(&mut node), NoPlan::NotAssigning);
    let node = fragmented(with(rebalancing()), &[]);
    assert_eq!(node.ledger.plan_departure(), Err(NoPlan::NoGain));
    let shared = guaranteed("shared", 500);
    let create =
        Admission::Create { container: container(&shared, "c", "shared", 500), pod: shared };
    assert_eq!(node.ledger.plan_arrival(&create), Err(NoPlan::NoNeed));
}

#[test]
fn moves_use_up_the_budget_and_starts_refill_it() {
    let mut node = fragmented(with(Rebalance { moves_per_100_starts: 1, ..rebalancing() }), &[]);
    let step = planned(&mut node).unwrap().steps.remove(0);
    node.event(Event::Move(step.clone())).unwrap();
    let back = step.clone().undone("no reason".to_owned());
    node.event(Event::Move(back)).unwrap();
    node.check("two", "8-9");
    assert_eq!(node.ledger.move_totals().all(MoveOutcome::Undone), 1);
    assert_eq!(planned(&mut node), None, "one move for 100 starts");
    let one = guaranteed("one", 1000);
    for id in 0..100 {
        assert_eq!(node.ledger.plan_arrival(&eight().1), Err(NoPlan::BudgetUsedUp), "start {id}");
        node.create(&one, "c", &format!("one{id}"), 1000).unwrap();
        node.stop(&format!("one{id}"));
        node.stop_pod(&one);
    }
    assert!(node.ledger.plan_arrival(&eight().1).is_ok());
}

/// A step may come late or twice, or after its container has gone.
#[test]
fn a_step_that_does_not_fit_changes_nothing() {
    let mut node = fragmented(with(rebalancing()), &[]);
    let step = planned(&mut node).unwrap().steps.remove(0);
    let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
    for wrong in [
        Move { container: ContainerId("unknown".into()), ..step.clone() },
        Move { from: cpus("10-11"), ..step.clone() },
        Move { to: cpus("2-4"), ..step.clone() },
        Move { to: cpus("0-1"), ..step.clone() },
        Move { to: cpus("2,99"), ..step.clone() },
        Move { to: CpuSet::EMPTY, ..step.clone() },
    ] {
        node.event(Event::Move(wrong.clone())).unwrap();
        assert_eq!(node.ledger.target(&step.container).unwrap().setting.cpus(), cpus("8-9"));
        assert_eq!(*node.ledger.move_totals(), MoveTotals::default(), "{wrong:?}");
    }
    node.create(&guaranteed("three", 3000), "c", "three", 3000).unwrap();
    node.event(Event::Move(step)).unwrap();
    assert_eq!(*node.ledger.move_totals(), MoveTotals::default(), "another container has CPU 2");
}

#[test]
fn a_dry_run_moves_no_container() {
    let mut node =
        fragmented(with(Rebalance { mode: RebalanceMode::Suggest, ..rebalancing() }), &[]);
    let plan = planned(&mut node).unwrap();
    assert!(!node.ledger.moves_containers());
    node.ledger.take_notes();
    node.event(Event::Suggested(plan)).unwrap();
    let notes: Vec<String> = node.ledger.take_notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "default/two/c: would move from exclusive CPUs 8-9 to 2-3: default/eight/c fits into one uncore cache"
        ]
    );
    node.check("two", "8-9");
    assert_eq!(node.ledger.move_totals().all(MoveOutcome::Suggested), 1);
}

#[test]
fn a_container_across_caches_moves_into_one_when_others_end() {
    let mut node = Node::with(with(rebalancing()), Vec::new());
    let four = guaranteed("four", 4000);
    assert_eq!(node.create(&four, "c", "four", 4000).unwrap(), "2-5");
    let six = guaranteed("six", 6000);
    assert_eq!(node.create(&six, "c", "six", 6000).unwrap(), "8-13");
    let split = guaranteed("split", 4000);
    assert_eq!(node.create(&split, "c", "split", 4000).unwrap(), "6-7,14-15");
    assert_eq!(node.ledger.plan_departure(), Err(NoPlan::NoGain));
    node.stop("six");
    node.stop_pod(&six);
    let plan = node.ledger.plan_departure().unwrap();
    for step in plan.steps {
        node.event(Event::Move(step)).unwrap();
    }
    let now = node.ledger.target(&ContainerId("split".into())).unwrap().setting.cpus();
    assert!(now.is_subset(&"8-15".parse().unwrap()), "{now}");
    assert_eq!(node.ledger.move_totals().of(Occasion::Departure, MoveOutcome::Done), 1);
    assert_eq!(node.ledger.plan_departure(), Err(NoPlan::BudgetKept), "one of two moves is left");
}

/// As long as claims are only remembered, the ledger does not know which containers run where.
#[test]
fn no_container_moves_while_claims_are_only_remembered_or_under_policy_none() {
    let remembered = vec![claim(&guaranteed("x", 2000), "x", "2-3")];
    let node = Node::with(with(rebalancing()), remembered);
    assert_eq!(node.ledger.plan_departure(), Err(NoPlan::NotAssigning));
    let none = Settings { policy: Policy::None, ..with(rebalancing()) };
    assert_eq!(Node::with(none, Vec::new()).ledger.plan_departure(), Err(NoPlan::NotAssigning));
}

#[test]
fn a_container_that_lacks_a_cpu_stays() {
    let mut node = fragmented(with(rebalancing()), &[]);
    node.create(&guaranteed("rest", 12_000), "c", "rest", 12_000).unwrap();
    node.event(Event::Machine(super::hotplug::machine_without("9"))).unwrap();
    assert_eq!(stays(&node), Some(StayReason::Changing));
}

/// The CPUs that it reuses are not free for other containers.
#[test]
fn no_container_moves_for_one_that_reuses_its_pods_cpus() {
    let mut node = fragmented(with(rebalancing()), &[]);
    let (pod, create) = eight();
    node.event(Event::RunPod(pod.clone())).unwrap();
    node.create(&pod, "first", "first", 8000).unwrap();
    node.stop("first");
    assert_eq!(node.ledger.plan_arrival(&create), Err(NoPlan::NoNeed));
}

/// A staged move leads to temporary CPUs: the next step completes it.
#[test]
fn a_staged_move_uses_no_budget_and_begins_no_min_stay() {
    let min_stay = Duration::from_secs(5);
    let slow = Rebalance { moves_per_100_starts: 1, min_stay, ..rebalancing() };
    let mut node = fragmented(with(slow), &[]);
    let step = |from: &str, to: &str, outcome| Move {
        occasion: Occasion::Arrival,
        container: ContainerId("two".into()),
        from: cpus(from),
        to: cpus(to),
        outcome,
        why: String::new(),
    };
    node.event(Event::Move(step("8-9", "2-3", MoveOutcome::Staged))).unwrap();
    assert_eq!(stays(&node), None);
    assert_eq!(planned(&mut node), None, "the other cache is free");
    assert_eq!(node.ledger.plan_arrival(&eight().1), Err(NoPlan::NoGain));
    node.event(Event::Move(step("2-3", "8-9", MoveOutcome::Done))).unwrap();
    assert_eq!(stays(&node), Some(StayReason::MinStay(min_stay)));
    assert_eq!(node.ledger.plan_arrival(&eight().1), Err(NoPlan::BudgetUsedUp));
}

#[test]
fn an_ended_container_does_not_move() {
    let mut node = fragmented(with(rebalancing()), &[]);
    let step = planned(&mut node).unwrap().steps.remove(0);
    node.stop("two");
    assert!(!node.ledger.apply(Event::Move(step)).moved);
}
