//! Events that describe their container or pod incompletely or wrongly.

use super::*;

/// The edge's description of a pod if an event has only its sandbox id, which is then also its uid.
fn stub(pod: &Pod) -> Pod {
    Pod {
        sandbox: pod.sandbox.clone(),
        uid: PodUid(pod.sandbox.0.clone()),
        namespace: String::new(),
        name: String::new(),
        qos: Qos::Unknown,
        budget: None,
        limits: Default::default(),
        own_resources: None,
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    }
}

#[test]
fn a_pod_named_by_its_sandbox_alone_is_the_same_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let event = Admission::Create { pod: a.clone(), container: container(&a, "c", "1", 4000) };
    node.event(event).unwrap();
    let before = node.ledger.claims().collect::<Vec<_>>();
    node.start(&stub(&a), "c", "1", 4000);
    node.event(Event::RunPod(stub(&a))).unwrap();
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    assert_eq!(node.ledger.view().figures.pods, 1);
    node.stop_pod(&a);
    assert_eq!((node.ledger.view().figures.pods, node.ledger.exclusive()), (0, CpuSet::EMPTY));
}

#[test]
fn an_event_without_a_pod_is_matched_by_its_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "1", 4000).unwrap();
    let unnamed = Pod {
        sandbox: SandboxId(String::new().into()),
        uid: PodUid(String::new().into()),
        ..stub(&a)
    };
    node.start(&unnamed, "another name", "1", 4000);
    let update = Admission::Update {
        pod: unnamed,
        container: container(&a, "c", "1", 4000),
        requested: RequestedUpdate { sets_quota: true, ..RequestedUpdate::default() },
    };
    node.set.clear();
    node.event(update).unwrap();
    node.check("1", "2-5");
    assert_eq!(node.ledger.view().figures.pods, 1);
}

#[test]
fn a_pod_described_in_full_only_later_is_the_same_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let nameless = Pod { qos: Qos::Guaranteed, budget: a.budget, ..stub(&a) };
    node.create(&nameless, "c", "1", 4000).unwrap();
    node.start(&a, "c", "1", 4000);
    let claims = node.ledger.claims().collect::<Vec<_>>();
    assert_eq!((&*claims[0].pod_uid.0, &*claims[0].pod), ("uid-a", "a"));
    assert_eq!((claims.len(), node.ledger.view().figures.pods), (1, 1));
    node.stop("1");
    assert_eq!(node.create(&a, "c", "2", 4000).unwrap(), "2-5");
}

/// Found by a fuzzer: one event ended two pods, or none. No known runtime reuses ids.
#[test]
fn an_id_belongs_to_the_last_container_that_an_event_names() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    for (pod, name, milli) in [(&a, "c", 4000), (&b, "c", 2000), (&b, "other", 2000)] {
        let cpus = node.create(pod, name, "1", milli).unwrap();
        assert_eq!(node.ledger.exclusive().to_string(), cpus);
    }
    let listed = [(&a, "c", "1", 4000), (&b, "c", "1", 2000)];
    node.event(node.running(&listed)).unwrap();
    assert_eq!(node.ledger.claims().count(), 1);
}

/// Found by a fuzzer: an event named a container of one pod with another pod's sandbox.
#[test]
fn a_known_container_stays_in_its_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    node.create(&a, "c", "1", 4000).unwrap();
    node.create(&b, "c", "2", 4000).unwrap();
    let mixed = Pod { sandbox: a.sandbox.clone(), ..b.clone() };
    node.start(&mixed, "c", "2", 4000);
    assert_eq!((node.ledger.claims().count(), node.ledger.view().figures.pods), (2, 2));
    node.stop_pod(&b);
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
}

/// After a reboot each pod has a dead sandbox in addition to that of its containers, and runtimes
/// list both in any order.
#[test]
fn a_pod_ends_with_the_sandbox_that_has_its_containers() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let dead = Pod { sandbox: SandboxId("dead".into()), ..a.clone() };
    for pods in [[dead.clone(), a.clone()], [a.clone(), dead.clone()]] {
        for created_at in [None, Some(7)] {
            let mut node = Node::new();
            let running = Container {
                cpus: Some("2-5".parse().unwrap()),
                created_at,
                ..container(&a, "c", "a", 4000)
            };
            let event = Event::Synchronize { pods: pods.to_vec(), containers: vec![running] };
            node.event(event).unwrap();
            assert_eq!(node.ledger.exclusive().to_string(), "2-5");
            node.stop_pod(&dead);
            assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "8-11");
            node.stop_pod(&a);
            assert_eq!(node.ledger.exclusive().to_string(), "8-11");
        }
    }
}
