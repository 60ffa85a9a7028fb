//! Pod options, the environment of containers, and their devices: over the wire, with the plugin
//! as it ships.

use crate::node::Node;
use crate::runtime::{self, ALL, Generation};
use machines::synthetic::Machine;
use nri::wire;
use std::fs;
use std::os::unix::fs::symlink;
use wire::Event as Kind;

const CONFIG: &str = "cpuManagerPolicy: static
topologyManagerPolicy: best-effort
reservedSystemCPUs: \"0-1\"
kubeletStateDir: \"\"
exposeCPUs: environment
exclusiveMemoryNodes: follow-cpus
namespaces:
- names: [default]
  allow: {uncore: [require], smt: [isolate], cpus: [exclusive]}
";

/// Two sockets, in each a NUMA node and two uncore caches of two cores with two threads: 16 CPUs,
/// siblings adjacent.
fn machine() -> Machine {
    Machine { sockets: 2, caches: 2, cores: 4, threads: 2, ..Machine::default() }
}

/// Starts a pod with one annotation, and creates a container in it.
async fn create(
    node: &mut Node,
    name: &str,
    milli: i64,
    (annotation, value): (&str, &str),
    devices: Vec<wire::LinuxDevice>,
) -> Result<wire::ContainerAdjustment, String> {
    let mut pod = runtime::pod(name, milli);
    pod.annotations.insert(annotation.to_owned(), value.to_owned());
    pod.annotations.insert("kubernetes.io/config.source".into(), "api".into());
    node.runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
    let mut container = node.container(&pod, "c", name, milli);
    container.wire.linux.mut_or_insert_default().devices = devices;
    let answer = node.runtime.create(&pod, &container.wire).await;
    let adjust = answer.map_err(|status| status.message)?.adjust.unwrap();
    container.set(&adjust.linux.resources);
    let cpu = container.wire.linux.mut_or_insert_default().resources.mut_or_insert_default();
    cpu.cpu.mut_or_insert_default().mems.clone_from(&adjust.linux.resources.cpu.mems);
    node.pods.insert(pod.id.clone(), pod);
    node.containers.insert(name.to_owned(), container);
    node.started(name).await;
    Ok(adjust)
}

fn environment(adjust: &wire::ContainerAdjustment) -> Vec<String> {
    adjust.env.iter().map(|env| format!("{}={}", env.key, env.value)).collect()
}

#[tokio::test(start_paused = true)]
async fn pod_options_decide_cpus_memory_nodes_and_environment() {
    for generation in ALL {
        let mut node = Node::start_on(generation, CONFIG, &machine()).await;
        let require = ("uncore.cpu-manager.nri.io/container.c", "require");
        let a = create(&mut node, "a", 3000, require, Vec::new()).await.unwrap();
        assert_eq!((&*a.linux.resources.cpu.cpus, &*a.linux.resources.cpu.mems), ("4-6", "0"));
        assert_eq!(
            environment(&a),
            [
                "NRI_CPU_MANAGER_CPUS=4-6",
                "NRI_CPU_MANAGER_NUMA_NODES=0",
                "NRI_CPU_MANAGER_UNCORE_CACHES=4-6"
            ]
        );
        let isolate = ("smt.cpu-manager.nri.io/pod", "isolate");
        let b = create(&mut node, "b", 3000, isolate, Vec::new()).await.unwrap();
        assert_eq!((&*b.linux.resources.cpu.cpus, &*b.linux.resources.cpu.mems), ("8,10,12", "1"));
        assert_eq!(environment(&b)[2], "NRI_CPU_MANAGER_UNCORE_CACHES=8,10;12");
        // Four CPUs are free, in three uncore caches.
        let refused = create(&mut node, "d", 3000, require, Vec::new()).await.unwrap_err();
        assert_eq!(
            refused,
            "UncoreAlignmentError: Uncore Alignment Error: requested 3 cpus must be in 1 uncore cache, as few as can be on \
             this machine; at most 2 are free in so few"
        );
        node.restart().await;
        assert_eq!((node.cpus("a"), node.cpus("b")), ("4-6".into(), "8,10,12".into()));
        let refused = create(&mut node, "e", 6000, require, Vec::new()).await.unwrap_err();
        assert!(refused.contains("at most 4 are free"), "idle siblings are not free: {refused}");
        node.check();
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_and_forbidden_pod_options_are_refused() {
    let mut node = Node::start_on(Generation::V0_10, CONFIG, &machine()).await;
    for (annotation, value, expect) in [
        (
            "uncor.cpu-manager.nri.io/pod",
            "require",
            "PodOptionUnknownError: annotation uncor.cpu-manager.nri.io/pod: \"uncor\" is unknown, expected cpus or uncore or numa \
             or smt or placement or isolated-cpus or movable or interrupts or c-states or frequency-governor or min-frequency or max-frequency (did you mean uncore?)",
        ),
        (
            "uncore.cpu-manager.nri.io",
            "prefer",
            "PodOptionNotAllowedError: pods of namespace \"default\" may not use the pod option uncore: prefer; the administrator of the node \
             allows it in the plugin's configuration, in the entry for this namespace: \
             namespaces: [{names: [default], allow: {uncore: [prefer]}}]",
        ),
    ] {
        let refused = create(&mut node, "a", 2000, (annotation, value), Vec::new()).await;
        assert_eq!(refused.unwrap_err(), expect);
    }
    let other = ("uncore.cpu-manager.nri.io/container.other", "prefer");
    let a = create(&mut node, "a", 2000, other, Vec::new()).await.unwrap();
    assert_eq!(a.linux.resources.cpu.cpus, "2-3", "the pod option is of another container");
}

#[tokio::test(start_paused = true)]
async fn annotations_for_crio_count_where_the_configuration_says_so() {
    let crio = ("irq-load-balancing.crio.io/c", "housekeeping");
    let allowing = CONFIG.replace("cpus: [exclusive]", "interrupts: [housekeeping]");
    let both = ["NRI_CPU_MANAGER_HOUSEKEEPING_CPUS=2-3", "OPENSHIFT_HOUSEKEEPING_CPUS=2-3"];
    for (config, expect) in
        [(allowing.clone(), &[][..]), (format!("{allowing}compatibility: [crio]\n"), &both)]
    {
        let mut node = Node::start_on(Generation::V0_12, &config, &machine()).await;
        let a = create(&mut node, "a", 4000, crio, Vec::new()).await.unwrap();
        assert_eq!(a.linux.resources.cpu.cpus, "2-5");
        let mut housekeeping = environment(&a);
        housekeeping.retain(|variable| variable.contains("HOUSEKEEPING"));
        assert_eq!(housekeeping, expect);
    }
    let forbidding = format!("{CONFIG}compatibility: [crio]\n");
    let mut node = Node::start_on(Generation::V0_12, &forbidding, &machine()).await;
    let refused = create(&mut node, "a", 4000, crio, Vec::new()).await.unwrap_err();
    let why = "PodOptionNotAllowedError: pods of namespace \"default\" may not use the pod option interrupts: housekeeping;";
    assert!(refused.starts_with(why), "{refused}");
}

/// The refusal is short however many annotations a pod has, and other pods are not affected.
#[tokio::test(start_paused = true)]
async fn too_many_pod_options_are_refused_without_repeating_them() {
    let mut node = Node::start_on(Generation::V0_12, CONFIG, &machine()).await;
    for count in [64, 65, 6096] {
        let mut pod = runtime::pod("many", 2000);
        // The labels come first on the wire, and do not count.
        pod.labels = [("uid", "many"), ("name", "pod-many"), ("namespace", "default")]
            .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()))
            .into();
        for number in 0..count {
            let name = format!("uncore.cpu-manager.nri.io/container.{number}");
            pod.annotations.insert(name, "require".to_owned());
            pod.annotations.insert(format!("example.org/{number}"), "x".repeat(100));
        }
        node.runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
        let container = node.container(&pod, "c", "many", 2000);
        let answer = node.runtime.create(&pod, &container.wire).await;
        let refused = answer.err().map(|status| status.message);
        let too_many = "PodOptionNotAllowedError: the pod has more than 64 annotations KEY.cpu-manager.nri.io; use \
                        KEY.cpu-manager.nri.io/pod for what applies to all of its containers";
        assert_eq!(refused.as_deref(), (count > 64).then_some(too_many), "{count}");
        node.runtime.report(Kind::REMOVE_POD_SANDBOX, &pod, None).await.unwrap();
    }
    let a = create(&mut node, "a", 2000, ("example.org/note", ""), Vec::new()).await.unwrap();
    assert_eq!(a.linux.resources.cpu.cpus, "2-3");
}

#[tokio::test(start_paused = true)]
async fn cpus_are_near_the_devices_of_the_container() {
    let mut node = Node::start_on(Generation::V0_8, CONFIG, &machine()).await;
    let root = node.paths.sysfs_root.clone();
    let function = root.join("devices/pci0000:40/0000:41:00.0");
    fs::create_dir_all(&function).unwrap();
    fs::write(function.join("numa_node"), "1\n").unwrap();
    fs::create_dir_all(root.join("dev/char")).unwrap();
    symlink("../../devices/pci0000:40/0000:41:00.0", root.join("dev/char/242:7")).unwrap();
    let device =
        |major, minor| wire::LinuxDevice { type_: "c".into(), major, minor, ..Default::default() };
    let none = ("example.org/note", "");
    let near =
        create(&mut node, "a", 2000, none, vec![device(242, 7), device(1, 3)]).await.unwrap();
    assert_eq!(near.linux.resources.cpu.cpus, "8-9");
    let privileged = vec![device(242, 7), device(1, 11)];
    let anywhere = create(&mut node, "b", 2000, none, privileged).await.unwrap();
    assert_eq!(anywhere.linux.resources.cpu.cpus, "2-3");
}
