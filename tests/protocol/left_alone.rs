//! Containers whose CPUs were set before the plugin sees them: by CRI-O for its workloads, by an NRI
//! plugin that the runtime asks earlier, or by the kubelet's own CPU manager.

use crate::node::{Node, RuntimeContainer};
use crate::runtime::{self, Generation, cpu};
use nri::wire;
use std::path::Path;

const ANNOTATION: &str = "target.workload.openshift.io/management";

/// What the kubelet's directory has.
#[derive(Debug, Clone, Copy)]
enum KubeletFile {
    NotVisible,
    PolicyNone,
}

/// A Burstable pod of this namespace.
async fn run_burstable(
    node: &mut Node,
    uid: &str,
    namespace: &str,
    annotations: &[&str],
) -> wire::PodSandbox {
    let mut pod = runtime::pod(uid, 20);
    pod.namespace = namespace.into();
    pod.linux.as_mut().unwrap().cgroup_parent = format!("/kubepods/burstable/pod{uid}");
    let value = || "{\"effect\": \"PreferredDuringScheduling\"}".to_owned();
    pod.annotations = annotations.iter().map(|name| ((*name).to_owned(), value())).collect();
    node.pods.insert(pod.id.clone(), pod.clone());
    node.runtime.report(wire::Event::RUN_POD_SANDBOX, &pod, None).await.unwrap();
    pod
}

/// Creates and starts a container with these CPUs in its specification; returns whether the plugin
/// has adjusted it.
async fn create_on(
    node: &mut Node,
    pod: &wire::PodSandbox,
    id: &str,
    container: Container,
) -> bool {
    let Container { milli, cpus, annotations } = container;
    let mut new: RuntimeContainer = node.container(pod, "main", id, milli);
    new.wire.annotations =
        annotations.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    let linux = new.wire.linux.as_mut().unwrap();
    linux.resources.as_mut().unwrap().cpu.as_mut().unwrap().cpus = cpus.into();
    let answer = node.runtime.create(pod, &new.wire).await.unwrap();
    node.apply(answer.update);
    let adjust = answer.adjust.as_ref().map(|adjust| adjust.linux.resources.clone());
    let is_adjusted = adjust.as_ref().is_some_and(|resources| !resources.cpu.cpus.is_empty());
    if let (Some(resources), true) = (adjust, is_adjusted) {
        new.set(&resources);
    }
    node.containers.insert(id.to_owned(), new);
    node.started(id).await;
    is_adjusted
}

#[derive(Debug, Clone, Copy)]
struct Container {
    milli: i64,
    cpus: &'static str,
    annotations: &'static [&'static str],
}

async fn start(extra: &str, kubelet: KubeletFile) -> (Node, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = |dir: &Path| dir.display().to_string();
    let watched = match kubelet {
        KubeletFile::NotVisible => String::new(),
        KubeletFile::PolicyNone => {
            let file = "{\"policyName\":\"none\",\"defaultCpuSet\":\"\",\"checksum\":1353318690}";
            std::fs::write(dir.path().join("cpu_manager_state"), file).unwrap();
            path(dir.path())
        }
    };
    let config = format!(
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nkubeletStateDir: \"{watched}\"\n{extra}"
    );
    (Node::start_with(Generation::V0_10, &config).await, dir)
}

/// Creates an exclusive container next to the shared one.
async fn create_exclusive(node: &mut Node) -> wire::PodSandbox {
    let pod = node.run_pod("db", 4000).await;
    assert_eq!(node.create(&pod, "main", "db", 4000).await.as_deref(), Ok("2-5"));
    assert_eq!(node.cpus("web"), "0-1,6-15");
    pod
}

/// The exclusive container is resized, and the shared one gets its CPUs when it ends, as on any node.
async fn check_that_others_are_managed(node: &mut Node, pod: &wire::PodSandbox) {
    node.update("db", cpu(6000)).await.unwrap();
    assert_eq!([node.cpus("db"), node.cpus("web")], ["2-7", "0-1,8-15"]);
    node.stop("db").await;
    assert_eq!(node.cpus("web"), "0-15");
    node.stop_pod(pod).await;
}

async fn create_shared(node: &mut Node, pool: &str) {
    let pod = run_burstable(node, "web", "default", &[]).await;
    let container = Container { milli: 20, cpus: "", annotations: &[] };
    assert!(create_on(node, &pod, "web", container).await);
    assert_eq!(node.cpus("web"), pool);
}

#[tokio::test(start_paused = true)]
async fn explained_cpus_stay_and_change_nothing_else() {
    let strict = "cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n";
    let namespaces = "reservedNamespaces: [\"openshift-*\"]\n";
    type Annotations = &'static [&'static str];
    let setups: [(&str, &str, Annotations, Annotations, &'static str); 6] = [
        ("a workload of CRI-O, by the pod", "", &[ANNOTATION], &[], "0-1"),
        ("a workload of CRI-O, by the container", "", &[], &[ANNOTATION], "0-1"),
        ("a workload on other CPUs", "", &[ANNOTATION], &[], "0,8-9"),
        ("a reserved namespace", namespaces, &[], &[], "0,9"),
        ("reserved CPUs", "", &[], &[], "1"),
        ("reserved CPUs, with strict reservation", strict, &[], &[], "0-1"),
    ];
    for (name, extra, on_pod, annotations, cpus) in setups {
        for kubelet in [KubeletFile::NotVisible, KubeletFile::PolicyNone] {
            let (mut node, _dir) = start(extra, kubelet).await;
            let is_strict = extra == strict;
            create_shared(&mut node, if is_strict { "2-15" } else { "0-15" }).await;
            let db = if is_strict { None } else { Some(create_exclusive(&mut node).await) };
            for uid in ["dns", "router"] {
                let pod = run_burstable(&mut node, uid, "openshift-dns", on_pod).await;
                let container = Container { milli: 20, cpus, annotations };
                let is_adjusted = create_on(&mut node, &pod, uid, container).await;
                assert!(!is_adjusted, "{name}, {kubelet:?}: {uid} gets {}", node.cpus(uid));
            }
            if let Some(db) = db {
                check_that_others_are_managed(&mut node, &db).await;
            }
            assert_eq!([node.cpus("dns"), node.cpus("router")], [cpus, cpus], "{name}");
            // An update of a container that is left alone, as OpenShift's kubelet makes it.
            node.update("dns", cpu(30)).await.unwrap();
            assert_eq!(node.cpus("dns"), cpus, "{name}");
            // The same plugin gets another list.
            node.reconnect().await;
            assert_eq!([node.cpus("dns"), node.cpus("router")], [cpus, cpus], "{name}");
        }
    }
}

/// Only the state file says who had set the CPUs of a running container.
#[tokio::test(start_paused = true)]
async fn cpus_of_others_stay_when_the_plugin_restarts() {
    let namespaces = "reservedNamespaces: [\"openshift-*\"]\n";
    for (extra, annotations, cpus) in [
        ("", &[ANNOTATION] as &[&str], "0-1"),
        ("", &[ANNOTATION], "0,8-9"),
        (namespaces, &[], "0,9"),
        ("", &[], "0-1"),
        ("", &[], "12-13"),
    ] {
        let (mut node, _dir) = start(extra, KubeletFile::NotVisible).await;
        create_shared(&mut node, "0-15").await;
        let pod = run_burstable(&mut node, "dns", "openshift-dns", annotations).await;
        let container = Container { milli: 20, cpus, annotations: &[] };
        create_on(&mut node, &pod, "dns", container).await;
        for _ in 0..2 {
            node.restart().await;
            assert_eq!([node.cpus("dns"), node.cpus("web")], [cpus, "0-15"], "{annotations:?}");
        }
    }
}

/// A plugin that the runtime asks earlier pins one pod.
#[tokio::test(start_paused = true)]
async fn one_pod_with_unexplained_cpus_holds_back_only_itself() {
    let (mut node, _dir) = start("", KubeletFile::NotVisible).await;
    create_shared(&mut node, "0-15").await;
    let pod = run_burstable(&mut node, "other", "default", &[]).await;
    let container = Container { milli: 20, cpus: "12-13", annotations: &[] };
    for id in ["one", "two"] {
        let db = create_exclusive(&mut node).await;
        assert!(!create_on(&mut node, &pod, id, container).await);
        node.update(id, cpu(30)).await.unwrap();
        check_that_others_are_managed(&mut node, &db).await;
        assert_eq!(node.cpus(id), "12-13");
    }
}

#[tokio::test(start_paused = true)]
async fn unexplained_cpus_of_two_pods_show_an_active_kubelet() {
    let (mut node, _dir) = start("", KubeletFile::NotVisible).await;
    create_shared(&mut node, "0-15").await;
    for uid in ["one", "two"] {
        let pod = run_burstable(&mut node, uid, "default", &[]).await;
        let container = Container { milli: 20, cpus: "0-11", annotations: &[] };
        assert!(!create_on(&mut node, &pod, uid, container).await);
    }
    let pod = node.run_pod("db", 4000).await;
    let mut new = node.container(&pod, "main", "db", 4000);
    new.wire.linux.as_mut().unwrap().resources.as_mut().unwrap().cpu.as_mut().unwrap().cpus =
        "12-15".into();
    let refused = node.runtime.create(&pod, &new.wire).await.unwrap_err().message;
    assert!(refused.contains("the kubelet's own CPU manager"), "{refused}");
    // A container without CPUs shows that the kubelet is not active: all others are taken over.
    assert_eq!(node.create(&pod, "main", "db2", 4000).await.as_deref(), Ok("2-5"));
    node.apply_unsolicited().await;
    assert_eq!(node.cpus("one"), "0-1,6-15");
}
