//! `nri-cpu-manager explain`, over the socket of a daemon with decisions to explain.

use crate::support::commands::{busy, command, has};
use crate::support::events::{create, local, pod_and_container};
use crate::support::observed::{CONFIG, ObservedDaemon};
use ledger::model::{ContainerId, SandboxId};
use ledger::{Admission, Container, CpuRequest, Event, MilliCpu, Qos};
use machines::synthetic::Machine;
use placement::memory_manager::MemoryKind;
use std::path::Path;

/// Creates a container whose SMT siblings stay idle.
async fn create_isolated(daemon: &ObservedDaemon, name: &str, milli: u64) {
    let (mut pod, container) = pod_and_container(name, Qos::Guaranteed, milli);
    pod.annotations = [("smt.cpu-manager.nri.io", "isolate")].into_iter().collect();
    daemon.event(Admission::Create { pod, container }).await.unwrap();
}

/// Pod options that are granted, cannot be met, or are not allowed.
#[tokio::test]
async fn pod_options_are_explained() {
    local(async {
        let bounds = "namespaces: [{names: [ns], allow: {uncore: [require], smt: [isolate], cpus: [shared]}}]\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{bounds}")).await;
        for (name, milli, key, value) in [
            ("tight", 7000, "uncore", "require"),
            ("torn", 7000, "uncore", "require"),
            ("quiet", 2000, "smt", "isolate"),
            ("open", 2000, "cpus", "shared"),
            ("wrong", 2000, "numa", "single"),
        ] {
            let (mut pod, container) = pod_and_container(name, Qos::Guaranteed, milli);
            let pod_option = (format!("{key}.cpu-manager.nri.io"), value);
            pod.annotations = [pod_option].into_iter().collect();
            let _ = daemon.event(Admission::Create { pod, container }).await;
        }
        for (pod, parts) in [
            (
                "tight",
                &["Pod options: uncore: require.", "uncore: require: whole uncore caches first"][..],
            ),
            ("torn", &["Pod options: uncore: require.", "UncoreAlignmentError"]),
            ("quiet", &["Pod options: smt: isolate."]),
            ("open", &["asks for shared CPUs (cpus: shared)."]),
            ("wrong", &["PodOptionNotAllowedError", "may not use the pod option numa: single"]),
        ] {
            let text = command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
            println!("{text}");
            has(&text, parts);
        }
    })
    .await;
}

/// A pod of six CPUs: a container on two of them, and one that shares the others.
#[tokio::test]
async fn an_own_pool_is_shown_and_explained() {
    local(async {
        let own_pool = "topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\n\
                        podLevelResources: own-pool\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{own_pool}")).await;
        for (name, milli) in [("own", 2000), ("half", 500)] {
            let (pod, _) = pod_and_container("a", Qos::Guaranteed, 6000);
            let amount = Some(MilliCpu(milli));
            let cpu = CpuRequest { request: amount, limit: amount };
            let id = ContainerId(format!("id-{name}").into());
            let container = Container::new(id, pod.sandbox.clone(), name, cpu);
            daemon.event(Admission::Create { pod, container }).await.unwrap();
        }
        let node = daemon.status().await.node.unwrap();
        // In order of their names.
        let [half, own] = &node.containers[..] else { panic!("{:?}", node.containers) };
        assert_eq!((half.exclusive, half.own_pool.len()), (None, 4));
        assert_eq!(half.runs_on, half.own_pool);
        assert!(half.pool_badge.is_some() && half.badge.is_none());
        assert_eq!((own.exclusive_cpus().len(), own.own_pool.len()), (2, 0));
        assert_eq!((node.figures.cpus.exclusive & *half.own_pool).len(), 4);
        let text = command(&daemon.paths.state_dir, &["status"]).await.unwrap();
        println!("{text}");
        has(&text, &["podLevelResources own-pool", "  own pool  "]);
        let text = command(&daemon.paths.state_dir, &["explain", "a"]).await.unwrap();
        println!("{text}");
        let shares = format!("It shares CPUs {} with containers of its pod only", half.own_pool);
        let all = *half.own_pool | own.exclusive_cpus();
        let chosen = format!("All CPUs of its pod were chosen together: CPUs {all}.");
        has(&text, &[&shares, &chosen, "It requests 2 whole CPUs in a Guaranteed pod"]);
        assert!(!text.contains("no longer exists"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_placement_is_explained() {
    local(async {
        let daemon = busy(
            "topologyManagerPolicy: best-effort\n\
                           cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n",
        )
        .await;
        let text = command(&daemon.paths.state_dir, &["explain", "ns/db"]).await.unwrap();
        println!("{text}");
        has(
            &text,
            &[
                "ns/db/c: exclusive, CPUs 8-15\n",
                "It requests 8 whole CPUs in a Guaranteed pod",
                "Free at that time: 14 CPUs (2-15).",
                "topologyManagerPolicy best-effort: NUMA node 1, as good as any could be.",
                "prefer-align-cpus-by-uncorecache: whole uncore caches first",
                "CPUs 8-15 are in NUMA node 1 and uncore cache 8; they are whole cores.",
                "Runtime updates keep other containers off them.",
                "1           8     narrowest  chosen\n",
                "0,1         14\n",
                "8             8-15  fits all  8\n",
                "exclusive CPUs 8-15 (NUMA affinity 1)",
            ],
        );
    })
    .await;
}

/// Settings change while containers run; earlier decisions were made by the old settings.
#[tokio::test]
async fn an_old_decision_is_explained_by_the_settings_of_its_time() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        daemon.create("db", Qos::Guaranteed, 8000).await.unwrap();
        daemon.create("late", Qos::Guaranteed, 8000).await.unwrap_err();
        let explain =
            async |pod| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        let db = explain("db").await;
        has(&db, &["Free at that time: 14 CPUs (2-15).", "topologyManagerPolicy none"]);
        let late = explain("late").await;
        has(&late, &["Free at that time: 6 CPUs (2-7)", "Free now: 6 CPUs (2-7)."]);
        let more = "topologyManagerPolicy: restricted\n";
        daemon.swap_config(&(CONFIG.replace("\"0-1\"", "\"0-3\"") + more));
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !explain("late").await.contains("Free now: 4 CPUs (4-7).") {
            assert!(std::time::Instant::now() < limit, "the change is not followed");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(explain("db").await, db);
        has(&explain("late").await, &["Free at that time: 6 CPUs (2-7)"]);
    })
    .await;
}

/// A container with idle siblings needs whole cores. Sets of NUMA nodes are not listed on a machine
/// with many nodes.
#[tokio::test]
async fn caches_are_counted_in_cores_if_siblings_stay_idle() {
    local(async {
        let machine = Machine { caches: 2, cores: 8, threads: 2, ..Machine::default() };
        let bounds = "namespaces: [{names: [ns], allow: {smt: [isolate]}}]\n";
        let daemon = ObservedDaemon::connected_on(&machine, &format!("{CONFIG}{bounds}")).await;
        create_isolated(&daemon, "quiet", 4000).await;
        let text = command(&daemon.paths.state_dir, &["explain", "quiet"]).await.unwrap();
        println!("{text}");
        has(&text, &["0             2-7             3\n", "8             8-15  fits all  1\n"]);
        let status = command(&daemon.paths.state_dir, &["status", "--color", "never"]).await;
        has(&status.unwrap(), &["│ - A A A", "│ - z z z", "z idle: SMT siblings"]);
        let node = daemon.status().await.node.unwrap();
        let one = &node.containers[0];
        assert_eq!(
            [one.exclusive_cpus(), *one.idle].map(|cpus| cpus.to_string()),
            ["2,4,6,8", "3,5,7,9"]
        );

        let machine = Machine { nodes: 16, caches: 16, cores: 32, ..Machine::default() };
        let policy = "topologyManagerPolicy: single-numa-node\n";
        let daemon = ObservedDaemon::connected_on(&machine, &format!("{CONFIG}{policy}")).await;
        daemon.create("wide", Qos::Guaranteed, 3000).await.unwrap_err();
        let text = command(&daemon.paths.state_dir, &["explain", "wide"]).await.unwrap();
        println!("{text}");
        has(&text, &["TopologyAffinityError", "It requested 3 CPUs."]);
        assert!(!text.contains("Sets of NUMA nodes"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn an_ended_container_is_explained_with_what_became_of_its_cpus() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        daemon.create("db", Qos::Guaranteed, 2000).await.unwrap();
        daemon.create("web", Qos::Burstable, 500).await.unwrap();
        for pod in ["db", "web"] {
            daemon.event(Event::Stop(ContainerId(format!("id-{pod}").into()))).await.unwrap();
        }
        let explained = async |pod| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        let text = explained("db").await;
        println!("{text}");
        let kept = "  It has ended. Its CPUs 2-3 are lent to the shared pool until it starts again or its pod ends";
        has(&text, &["ns/db/c: ended\n", kept]);
        let text = explained("web").await;
        println!("{text}");
        has(&text, &["ns/web/c: ended\n", "It has ended, and keeps no exclusive CPUs"]);
        for word in ["shares", "so it gets", "keep other containers off"] {
            assert!(!text.contains(word), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_explained_until_the_container_is_admitted() {
    local(async {
        let daemon = busy("topologyManagerPolicy: single-numa-node\n").await;
        let text = command(&daemon.paths.state_dir, &["explain", "big"]).await.unwrap();
        println!("{text}");
        has(
            &text,
            &[
                "ns/big/c: refused\n",
                "It was refused: TopologyAffinityError: Resources cannot be allocated",
                "It requested 7 CPUs. Free at that time: 6 CPUs (2-7), at most 6 in one NUMA node and 6 in",
                "Free now: 6 CPUs (2-7). The kubelet retries by itself.",
            ],
        );
        daemon.event(Event::Stop(ContainerId("id-db".into()))).await.unwrap();
        daemon.event(Event::StopPod(SandboxId("sandbox-db".into()))).await.unwrap();
        daemon.create("big", Qos::Guaranteed, 7000).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "big/c"]).await.unwrap();
        has(
            &text,
            &["ns/big/c: exclusive", "refused: TopologyAffinityError", "exclusive CPUs 8-14"],
        );
        daemon.event(Event::Stop(ContainerId("id-big".into()))).await.unwrap();
        daemon.event(Event::StopPod(SandboxId("sandbox-big".into()))).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "big/c"]).await.unwrap();
        has(&text, &["ns/big/c: gone\n", "It no longer exists.", "TopologyAffinityError"]);
        assert!(!text.contains("retries"), "{text}");
        let text = command(&daemon.paths.state_dir, &["explain", "ns/db/c"]).await.unwrap_err();
        has(
            &text,
            &[
                "no record of ns/db/c: it is not on node node, not created yet, or its refusal is too long ago. To find its node, and ask there:\n",
                "\nkubectl get pod -A -o wide | grep -E ' db '\nkubectl -n kube-system exec -i $(kubectl",
                " --field-selector spec.nodeName=NODE -o ",
                "') -- /nri-cpu-manager explain ns/db/c",
            ],
        );
        // The pod may be either.
        let text = command(&daemon.paths.state_dir, &["explain", "ns/db"]).await.unwrap_err();
        has(&text, &["| grep -E ' (ns|db) '\n"]);
    })
    .await;
}

/// A request that can never fit is not one that must wait. The sizes that would fit are those that
/// the engine accepts on the empty node.
#[tokio::test]
async fn requests_that_can_never_fit_are_explained_with_sizes_that_would() {
    local(async {
        let smt = Machine { nodes: 2, caches: 2, cores: 8, threads: 2, ..Machine::default() };
        for (more, cpus, outlook) in [
            ("cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n", 3, "2 or 4 would fit."),
            // CPUs 0-1 are a reserved core.
            ("cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n", 15, "14 would fit."),
            ("", 15, "14 would fit."),
            ("", 400, "14 would fit."),
            ("topologyManagerPolicy: single-numa-node\n", 9, "8 would fit."),
            ("topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n", 9, "8 would fit."),
            ("placement: compact\ntopologyManagerPolicy: single-numa-node\n", 9, "8 would fit."),
        ] {
            let daemon = ObservedDaemon::connected_on(&smt, &format!("{CONFIG}{more}")).await;
            daemon.create("never", Qos::Guaranteed, cpus * 1000).await.unwrap_err();
            let text = command(&daemon.paths.state_dir, &["explain", "never"]).await.unwrap();
            let never = format!(
                "{cpus} CPUs can never fit on this node as it is configured, even without other containers: {outlook}"
            );
            has(&text, &[&never]);
            assert!(!text.contains("retries"), "{text}");
        }
        // These requests must wait.
        for more in ["", "topologyManagerPolicy: single-numa-node\n"] {
            let daemon = ObservedDaemon::connected_on(&smt, &format!("{CONFIG}{more}")).await;
            daemon.create("first", Qos::Guaranteed, 8000).await.unwrap();
            daemon.create("second", Qos::Guaranteed, 7000).await.unwrap_err();
            let text = command(&daemon.paths.state_dir, &["explain", "second"]).await.unwrap();
            has(&text, &["The kubelet retries by itself."]);
        }
        let one = "topologyManagerPolicy: single-numa-node\nreservedSystemCPUs: \"0-1\"\n";
        let wide = Machine { nodes: 16, caches: 16, cores: 32, ..Machine::default() };
        let daemon = ObservedDaemon::connected_on(&wide, &format!("cpuManagerPolicy: static\n{one}")).await;
        daemon.create("wide", Qos::Guaranteed, 29_000).await.unwrap_err();
        let start = std::time::Instant::now();
        let text = command(&daemon.paths.state_dir, &["explain", "wide"]).await.unwrap();
        has(&text, &["29 CPUs can never fit", ": 2 would fit."]);
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
    })
    .await;
}

/// The pod of a service mesh: its sidecar makes it Burstable.
#[tokio::test]
async fn the_fields_that_make_a_pod_burstable_are_named_by_container() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let (pod, mut app) = pod_and_container("app", Qos::Burstable, 2000);
        app.limits = [(MemoryKind::Memory, 1 << 30)].into();
        let cpu = CpuRequest { request: Some(MilliCpu(100)), limit: None };
        let id = ContainerId("proxy".into());
        let proxy = Container::new(id, pod.sandbox.clone(), "istio-proxy", cpu);
        let cpu = CpuRequest { request: Some(MilliCpu(500)), limit: Some(MilliCpu(1000)) };
        let id = ContainerId("log".into());
        let mut log = Container::new(id, pod.sandbox.clone(), "log", cpu);
        log.limits.clone_from(&app.limits);
        for container in [app, proxy, log] {
            daemon.event(Admission::Create { pod: pod.clone(), container }).await.unwrap();
        }
        let text = command(&daemon.paths.state_dir, &["explain", "app/c"]).await.unwrap();
        println!("{text}");
        let fields = "Its pod is Burstable: container istio-proxy has no CPU limit, container istio-proxy has no \
                      memory limit, container log requests 500m CPUs and its limit is 1. Only";
        has(&text, &[fields]);
    })
    .await;
}

#[tokio::test]
async fn a_container_that_is_left_alone_is_explained() {
    local(async {
        let reserved = "reservedNamespaces: [system]\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{reserved}")).await;
        for (name, namespace, cpus, why) in [
            ("a", "ns", "0", "they are reserved."),
            ("b", "system", "4-5", "its namespace is one of reservedNamespaces."),
            (
                "c",
                "ns",
                "6-7",
                "by the kubelet's own CPU manager, or another NRI plugin. If another",
            ),
        ] {
            let (mut pod, mut container) = pod_and_container(name, Qos::Guaranteed, 2000);
            pod.namespace = namespace.to_owned();
            container.cpus = Some(cpus.parse().unwrap());
            daemon.event(Admission::Create { pod, container }).await.unwrap();
            let text = command(&daemon.paths.state_dir, &["explain", name]).await.unwrap();
            println!("{text}");
            let on = wording::cpus(cpus);
            has(
                &text,
                &[
                    &format!("{namespace}/{name}/c: left alone, {on}\n"),
                    &format!("It stays on {on}, as set before the plugin saw it: {why}"),
                ],
            );
            let count = text.lines().skip(1).take_while(|line| !line.is_empty()).count();
            assert_eq!(count, 2, "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn shared_containers_are_explained() {
    local(async {
        let daemon = busy("").await;
        let explain =
            async |pod: &str| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        has(
            &explain("web").await,
            &[
                "shared, CPUs 0-7",
                "Its pod is Burstable: container c has no memory limit. Only",
                "shares CPUs 0-7",
            ],
        );
        has(&explain("half").await, &["It requests 1500m CPUs: only whole numbers"]);
    })
    .await;
    local(async {
        let defaults = "namespaces: [{names: [ns], defaults: {cpus: exclusive}}]\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{defaults}")).await;
        daemon.event(create("half", Qos::Burstable, 1500)).await.unwrap();
        daemon.event(create("none", Qos::BestEffort, 0)).await.unwrap();
        let explain =
            async |pod: &str| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        has(&explain("half").await, &["It requests 1500m CPUs: only whole numbers"]);
        has(
            &explain("none").await,
            &["Its pod is BestEffort: no container has a request or a limit. Only"],
        );
    })
    .await;
    local(async {
        let daemon = ObservedDaemon::connected("kubeletStateDir: \"\"\n").await;
        // With policy none the plugin sets nothing.
        daemon.event(create("db", Qos::Guaranteed, 2000)).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "db"]).await.unwrap();
        has(&text, &["cpuManagerPolicy is none", "CPUs 0-15"]);
    })
    .await;
}

/// One name can mean several containers.
#[tokio::test]
async fn json_is_a_list_of_explanations() {
    let help = command(Path::new(""), &["explain", "--help"]).await.unwrap_err();
    has(&help, &["For programs: one JSON document\n"]);
    local(async {
        let daemon = busy("").await;
        let text = command(&daemon.paths.state_dir, &["explain", "db", "--output", "json"]).await;
        let json: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(json[0]["pod"], "db");
    })
    .await;
}

#[tokio::test]
async fn invalid_names_are_rejected() {
    local(async {
        let daemon = busy("").await;
        for name in ["", "a b", "/x", "a/b/c/d", "a?b", "x\r\ny"] {
            let error = command(&daemon.paths.state_dir, &["explain", name]).await.unwrap_err();
            has(&error, &["NAMESPACE/POD/CONTAINER"]);
        }
    })
    .await;
}

/// CPUs that the pod holds are candidates beside free ones, and are taken where they are no worse.
#[tokio::test]
async fn a_container_that_reuses_cpus_chooses_among_free_ones_too() {
    local(async {
        let daemon =
            ObservedDaemon::connected(&format!("{CONFIG}topologyManagerPolicy: best-effort\n"))
                .await;
        let (pod, container) = pod_and_container("db", Qos::Guaranteed, 4000);
        daemon.event(create("db", Qos::Guaranteed, 4000)).await.unwrap();
        daemon.event(Event::Stop(container.id.clone())).await.unwrap();
        let id = ContainerId("id-next".into());
        let name = "next".to_owned();
        let next = ledger::Container { id, name, ..container };
        daemon.event(Admission::Create { pod, container: next }).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "db/next"]).await.unwrap();
        println!("{text}");
        has(
            &text,
            &[
                "CPUs 2-5",
                "Reusable from ended containers of its pod: CPUs 2-5.",
                "0           6     narrowest  chosen",
            ],
        );
        has(&text, &["0             2-7   fits all  4\n", "8             8-15  fits all\n"]);
    })
    .await;
}

/// As in the decision itself.
#[tokio::test]
async fn numa_nodes_are_counted_in_cores_if_siblings_stay_idle() {
    local(async {
        let machine = Machine { nodes: 2, caches: 2, cores: 8, threads: 2, ..Machine::default() };
        let bounds = "topologyManagerPolicy: best-effort\nnamespaces: [{names: [ns], allow: {smt: [isolate]}}]\n";
        let daemon = ObservedDaemon::connected_on(&machine, &format!("{CONFIG}{bounds}")).await;
        create_isolated(&daemon, "quiet", 3000).await;
        create_isolated(&daemon, "wide", 4000).await;
        for pod in ["quiet", "wide"] {
            let text = command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
            println!("{text}");
        }
        let text = command(&daemon.paths.state_dir, &["explain", "quiet"]).await.unwrap();
        has(&text, &["0           3     narrowest", "1           4     narrowest"]);
    })
    .await;
}
