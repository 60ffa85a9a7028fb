use super::*;
use proptest::prelude::*;

/// A machine with CPUs 0-15, of which 0-1 are reserved, and these containers: `POD/NAME` in namespace `n`
/// with their exclusive CPUs (`-`: none). `POD#X/NAME` is in another pod with the same name. Later ones
/// are newer.
fn known(containers: &[(&str, &str)]) -> Known {
    let mut pods: Vec<(&str, Pod)> = Vec::new();
    for (serial, (name, cpus)) in containers.iter().enumerate() {
        let (uid, name) = name.split_once('/').unwrap();
        let (pod_name, _) = uid.split_once('#').unwrap_or((uid, ""));
        if pods.last().is_none_or(|(last, _)| *last != uid) {
            let pod = Pod {
                namespace: "n".to_owned(),
                name: pod_name.to_owned(),
                runs: true,
                ..Pod::default()
            };
            pods.push((uid, pod));
        }
        let pod = &mut pods.last_mut().unwrap().1;
        pod.created_at = Some(serial as i64);
        let exclusive = if *cpus == "-" { None } else { Some(cpus.parse().unwrap()) };
        pod.containers.push(Container { name: name.to_owned(), exclusive, memory: Vec::new() });
    }
    let pods = pods.into_iter().map(|(_, pod)| pod).collect();
    let allocatable = "2-15".parse().unwrap();
    Known { assigns: true, allocatable, allocatable_memory: None, pods }
}

fn field(number: u64, content: &[&[u8]]) -> Vec<u8> {
    let mut field = Vec::new();
    write_bytes(number, &content.concat(), &mut field);
    field
}

fn ids(number: u64, list: &str) -> Vec<u8> {
    let mut field = Vec::new();
    write_cpus(number, &list.parse().unwrap(), &mut field);
    field
}

/// Unknown fields of all wire types: varint, fixed64, bytes, a group, fixed32.
const UNKNOWN: &[u8] = &[
    0xa0, 0x06, 0x96, 0x01, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa2, 0x06, 1, b'x', 0xa3, 0x06,
    0x08, 0x05, 0xa4, 0x06, 0xa5, 0x06, 1, 2, 3, 4,
];

/// A container as the kubelet encodes it, with devices on NUMA node 1, memory, a claim of dynamic
/// resources, and unknown fields in each message.
fn container(name: &str, cpus: &str) -> Vec<u8> {
    let numa = field(3, &[&field(1, &[&[0x08, 0x01], UNKNOWN])]);
    let devices =
        field(2, &[&field(1, &[b"nvidia.com/gpu"]), &field(2, &[b"GPU-1"]), UNKNOWN, &numa]);
    let memory = field(4, &[&field(1, &[b"memory"]), &[0x10, 0x80, 0x80, 0x80, 0x80, 0x04], &numa]);
    let claim = field(1, &[&field(1, &[&field(1, &[b"x/y=z"])]), &field(2, &[b"gpu"]), UNKNOWN]);
    let dynamic = field(5, &[&field(2, &[b"claim"]), &field(3, &[b"n"]), &claim]);
    let name = field(1, &[name.as_bytes()]);
    field(3, &[&name, UNKNOWN, &devices, &ids(3, cpus), &memory, &dynamic, UNKNOWN])
}

fn pod(name: &str, containers: &[Vec<u8>]) -> Vec<u8> {
    let name = field(1, &[name.as_bytes()]);
    let containers = containers.concat();
    // The fields 4 and 5 since Kubernetes 1.37: CPUs and memory of the pod.
    let later = [ids(4, "3"), field(5, &[b""])].concat();
    field(1, &[&name, &field(2, &[b"n"]), UNKNOWN, &containers, &later])
}

fn bare(name: &str, cpus: &str) -> Vec<u8> {
    field(3, &[&field(1, &[name.as_bytes()]), &ids(3, cpus)])
}

fn bare_pod(name: &str, containers: &[Vec<u8>]) -> Vec<u8> {
    field(1, &[&field(1, &[name.as_bytes()]), &field(2, &[b"n"]), &containers.concat()])
}

#[test]
fn everything_but_cpu_ids_is_passed_on_byte_for_byte() {
    let known = known(&[("a/c", "4-5"), ("a/s", "-"), ("b/c", "8,300")]);
    let kubelet = [
        UNKNOWN,
        &pod("a", &[container("c", "9"), container("s", "10"), container("unknown", "11")]),
        &pod("unknown", &[container("c", "12")]),
        UNKNOWN,
        &pod("b", &[container("c", "")]),
    ];
    let expect = [
        UNKNOWN,
        &pod("a", &[container("c", "4-5"), container("s", ""), container("unknown", "11")]),
        &pod("unknown", &[container("c", "12")]),
        UNKNOWN,
        &pod("b", &[container("c", "8,300")]),
    ];
    assert_eq!(list(&known, &kubelet.concat()), Ok(expect.concat()));
    for (pod, name) in [(1, "a"), (2, "unknown"), (4, "b")] {
        let request = [field(1, &[name.as_bytes()]), field(2, &[b"n"])].concat();
        let kubelet = [kubelet[pod], UNKNOWN].concat();
        let expect = [expect[pod], UNKNOWN].concat();
        assert_eq!(get(&known, &request, &kubelet), Ok(Some(expect)));
    }
    let of = |cpus: &str| [field(1, &[b"", UNKNOWN]), ids(2, cpus), field(3, &[b""])].concat();
    let of = |cpus: &str| [UNKNOWN, &of(cpus), UNKNOWN].concat();
    assert_eq!(allocatable(&known, Some(&of("0-7"))), Ok(of("2-15")));
    assert_eq!(allocatable(&known, Some(&of(""))), Ok(of("2-15")));
}

#[test]
fn without_the_kubelets_answer_clients_get_the_known_pods() {
    let known = known(&[("a/c", "4-5"), ("a/s", "-"), ("b/c", "8")]);
    let a = bare_pod("a", &[bare("c", "4-5"), bare("s", "")]);
    let b = bare_pod("b", &[bare("c", "8")]);
    assert_eq!(list(&known, &[]), Ok([a.clone(), b].concat()));
    let request =
        |name: &[u8], namespace: &[u8]| [field(1, &[name]), field(2, &[namespace])].concat();
    assert_eq!(get(&known, &request(b"a", b"n"), &[]), Ok(Some(a)));
    assert_eq!(get(&known, &request(b"a", b"m"), &[]), Ok(None));
    assert_eq!(get(&known, &request(b"c", b"n"), &[]), Ok(None));
    assert_eq!(allocatable(&known, None), Ok(ids(2, "2-15")));
}

#[test]
fn pods_and_containers_that_the_kubelet_does_not_list_yet_are_added() {
    let known = known(&[("a/c", "4-5"), ("a/new", "6"), ("b/c", "8")]);
    let kubelet = bare_pod("a", &[bare("c", "")]);
    let a = bare_pod("a", &[bare("c", "4-5"), bare("new", "6")]);
    let b = bare_pod("b", &[bare("c", "8")]);
    assert_eq!(list(&known, &kubelet), Ok([a, b].concat()));
}

/// A StatefulSet's pod has the name of its predecessor, which may not have been removed yet.
#[test]
fn of_two_pods_with_one_name_the_running_one_is_the_kubelets() {
    let mut known = known(&[("a#old/c", "4-5"), ("a#older/c", "6"), ("a#present/c", "8")]);
    known.pods[0].runs = false;
    known.pods[1].runs = false;
    let kubelet = pod("a", &[container("c", "")]);
    let [older, old] = ["6", "4-5"].map(|cpus| bare_pod("a", &[bare("c", cpus)]));
    let expect = [pod("a", &[container("c", "8")]), older, old].concat();
    assert_eq!(list(&known, &kubelet), Ok(expect));
}

/// Exclusive CPUs that were assigned before are still shown.
#[test]
fn if_the_kubelets_cpu_manager_is_active_the_cpus_that_it_assigned_stay() {
    let mut known = known(&[("a/ours", "4-5"), ("a/c", "-")]);
    known.assigns = false;
    let of = |ours| pod("a", &[container("ours", ours), container("c", "8-9")]);
    assert_eq!(list(&known, &of("")), Ok(of("4-5")));
    assert_eq!(allocatable(&known, Some(&ids(2, "1-7"))), Ok(ids(2, "1-7")));
    assert_eq!(allocatable(&known, None), Ok(ids(2, "2-15")));
}

#[test]
fn if_no_cpu_can_be_exclusive_none_is_allocatable() {
    let mut known = known(&[]);
    known.allocatable = CpuSet::EMPTY;
    assert_eq!(allocatable(&known, Some(&ids(2, "0-7"))), Ok(Vec::new()));
}

fn block(kind: &str, bytes: u64, nodes: &[usize]) -> ContainerMemory {
    ContainerMemory { kind: kind.to_owned(), bytes, nodes: nodes.iter().copied().collect() }
}

/// Memory `number` of 1 GiB on NUMA nodes 0 and 1, as the kubelet encodes it.
fn gigabyte(number: u64) -> Vec<u8> {
    let size: &[u8] = &[0x10, 0x80, 0x80, 0x80, 0x80, 0x04];
    let nodes = field(3, &[&field(1, &[]), &field(1, &[&[0x08, 0x01]])]);
    field(number, &[&field(1, &[b"memory"]), size, &nodes])
}

#[test]
fn counted_memory_replaces_the_kubelets() {
    let mut known = known(&[("a/c", "4-5"), ("a/s", "-")]);
    known.allocatable_memory = Some(vec![block("memory", 1 << 30, &[0, 1])]);
    known.pods[0].containers[0].memory = vec![block("memory", 1 << 30, &[0, 1])];
    let theirs = field(4, &[&field(1, &[b"memory"]), &[0x10, 7]]);
    let bare = |name: &str, cpus: &str, memory: &[u8]| {
        field(3, &[&field(1, &[name.as_bytes()]), &ids(3, cpus), memory, UNKNOWN])
    };
    let kubelet = bare_pod("a", &[bare("c", "", &theirs), bare("s", "", &theirs)]);
    let expect = bare_pod("a", &[bare("c", "4-5", &gigabyte(4)), bare("s", "", &[])]);
    assert_eq!(list(&known, &kubelet), Ok(expect));
    let kubelet = [ids(2, "0-7"), field(3, &[&field(1, &[b"memory"])])].concat();
    let expect = [ids(2, "2-15"), gigabyte(3)].concat();
    assert_eq!(allocatable(&known, Some(&kubelet)), Ok(expect.clone()));
    assert_eq!(allocatable(&known, None), Ok(expect));
    // While the kubelet assigns, only memory that was counted before is shown.
    known.assigns = false;
    let kubelet = bare_pod("a", &[bare("c", "", &theirs), bare("s", "", &theirs)]);
    let expect = bare_pod("a", &[bare("c", "4-5", &gigabyte(4)), bare("s", "", &theirs)]);
    assert_eq!(list(&known, &kubelet), Ok(expect));
}

#[test]
fn a_pod_that_the_kubelet_does_not_list_has_its_memory() {
    let mut known = known(&[("a/c", "4-5")]);
    known.allocatable_memory = Some(Vec::new());
    known.pods[0].containers[0].memory = vec![block("memory", 1 << 30, &[0, 1])];
    let container = field(3, &[&field(1, &[b"c"]), &ids(3, "4-5"), &gigabyte(4)]);
    assert_eq!(list(&known, &[]), Ok(bare_pod("a", &[container])));
}

#[test]
fn a_malformed_part_makes_the_answer_malformed() {
    let known = known(&[("a/c", "4-5")]);
    let broken = field(3, &[&field(1, &[b"c"]), &[0x0e]]);
    for kubelet in [&[0x0e][..], &field(1, &[&[0x0e]]), &bare_pod("a", &[broken])] {
        assert_eq!(list(&known, kubelet), Err(Malformed));
    }
    assert_eq!(allocatable(&known, Some(&[0x0e])), Err(Malformed));
    assert_eq!(get(&known, &[0x0e], &[]), Err(Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_answers_are_edited_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let known = known(&[("a/c", "4-5"), ("/", "6")]);
        let pod = field(1, &[&field(1, &[b"a"]), &field(2, &[b"n"]), &field(3, &[&bytes]), &bytes]);
        for kubelet in [&bytes, &pod] {
            let _ = list(&known, kubelet);
            let _ = get(&known, &bytes, kubelet);
            let _ = allocatable(&known, Some(kubelet));
        }
        let _ = requested_pod(&bytes);
    }

    #[test]
    fn answers_about_unknown_pods_are_not_changed(message in crate::wire::tests::message()) {
        let kubelet = [field(1, &[&message]), field(7, &[&message])].concat();
        prop_assert_eq!(list(&Known::default(), &kubelet), Ok(kubelet));
    }
}
