//! `nri-cpu-manager explain`, asked of a daemon that has decided things, over its socket.

use crate::support::asked::{busy, command, has};
use crate::support::events::{create, local};
use crate::support::observed::{CONFIG, Observed};
use ledger::model::{ContainerId, SandboxId};
use ledger::{Admission, Event, Qos};
use nri_cpu_manager::view::status::ContainerStatus;
use std::path::Path;
use topology::synthetic::Machine;

/// A container with a wish, and what is not allowed to wish.
#[tokio::test]
async fn wishes_are_explained() {
    local(async {
        let bounds = "namespaces: [{names: [ns], allow: {uncore: [require], smt: [isolate], cpus: [shared]}}]\n";
        let daemon = Observed::connected(&format!("{CONFIG}{bounds}")).await;
        for (name, milli, key, value) in [
            ("tight", 7000, "uncore", "require"),
            ("torn", 7000, "uncore", "require"),
            ("quiet", 2000, "smt", "isolate"),
            ("open", 2000, "cpus", "shared"),
            ("wrong", 2000, "numa", "single"),
        ] {
            let mut event = create(name, Qos::Guaranteed, milli);
            if let Admission::Create { pod, .. } = &mut event {
                let wish = (format!("{key}.cpu-manager.nri.io"), value);
                pod.annotations = [wish].into_iter().collect();
            }
            let _ = daemon.event(event).await;
        }
        for (pod, parts) in [
            (
                "tight",
                &["Wishes: uncore: require.", "uncore: require: whole uncore caches first"][..],
            ),
            ("torn", &["Wishes: uncore: require.", "UncoreAlignmentError"]),
            ("quiet", &["Wishes: smt: isolate."]),
            ("open", &["wishes for shared CPUs (cpus: shared)."]),
            ("wrong", &["WishNotAllowedError", "may not wish for numa: single"]),
        ] {
            let text = command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
            println!("{text}");
            has(&text, parts);
        }
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

/// Settings change while containers run; what was decided before was decided by the old ones.
#[tokio::test]
async fn an_old_decision_is_explained_by_the_settings_of_its_time() {
    local(async {
        let daemon = Observed::following(CONFIG).await;
        daemon.create("db", Qos::Guaranteed, 8000).await.unwrap();
        daemon.create("late", Qos::Guaranteed, 8000).await.unwrap_err();
        let explain =
            async |pod| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        let before = (explain("db").await, explain("late").await);
        has(&before.0, &["Free at that time: 14 CPUs (2-15).", "topologyManagerPolicy none"]);
        has(&before.1, &["Free at that time: 6 CPUs (2-7)", "Free now: 6 CPUs (2-7)."]);
        let more = "topologyManagerPolicy: restricted\n";
        daemon.swap_config(&(CONFIG.replace("\"0-1\"", "\"0-3\"") + more));
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !explain("late").await.contains("Free now: 4 CPUs (4-7).") {
            assert!(std::time::Instant::now() < limit, "the change is not followed");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(explain("db").await, before.0);
        has(&explain("late").await, &["Free at that time: 6 CPUs (2-7)"]);
    })
    .await;
}

/// A container with idle siblings needs whole cores, and sets of many nodes are not counted where
/// they are not listed.
#[tokio::test]
async fn rooms_of_candidates_are_counted_in_cores_where_siblings_stay_idle() {
    local(async {
        let machine = Machine { caches: 2, cores: 8, threads: 2, ..Machine::default() };
        let bounds = "namespaces: [{names: [ns], allow: {smt: [isolate]}}]\n";
        let daemon = Observed::connected_on(&machine, &format!("{CONFIG}{bounds}")).await;
        let mut event = create("quiet", Qos::Guaranteed, 4000);
        if let Admission::Create { pod, .. } = &mut event {
            pod.annotations = [("smt.cpu-manager.nri.io", "isolate")].into_iter().collect();
        }
        daemon.event(event).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "quiet"]).await.unwrap();
        println!("{text}");
        has(&text, &["0             2-7             3\n", "8             8-15  fits all  1\n"]);
        let status = command(&daemon.paths.state_dir, &["status", "--color", "never"]).await;
        has(&status.unwrap(), &["│ - A A A", "│ - z z z", "z idle: SMT siblings"]);
        let node = daemon.status().await.node.unwrap();
        let ContainerStatus { cpus, idle, .. } = node.containers[0];
        assert_eq!([cpus, idle].map(|cpus| cpus.to_string()), ["2,4,6,8", "3,5,7,9"]);

        let machine = Machine { nodes: 16, caches: 16, cores: 32, ..Machine::default() };
        let policy = "topologyManagerPolicy: single-numa-node\n";
        let daemon = Observed::connected_on(&machine, &format!("{CONFIG}{policy}")).await;
        daemon.create("wide", Qos::Guaranteed, 3000).await.unwrap_err();
        let text = command(&daemon.paths.state_dir, &["explain", "wide"]).await.unwrap();
        println!("{text}");
        has(&text, &["TopologyAffinityError", "It requested 3 CPUs."]);
        assert!(!text.contains("Sets of NUMA nodes"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_explained_until_the_container_gets_in() {
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
        has(&text, &["no record of ns/db/c"]);
    })
    .await;
}

/// What cannot fit is told apart from what has to wait, and the sizes that would fit are those that
/// the engine accepts on the empty node.
#[tokio::test]
async fn requests_that_can_never_fit_get_the_sizes_that_would() {
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
            let daemon = Observed::connected_on(&smt, &format!("{CONFIG}{more}")).await;
            daemon.create("never", Qos::Guaranteed, cpus * 1000).await.unwrap_err();
            let text = command(&daemon.paths.state_dir, &["explain", "never"]).await.unwrap();
            let never = format!(
                "{cpus} CPUs can never fit on this node as it is configured, even without other containers: {outlook}"
            );
            has(&text, &[&never]);
            assert!(!text.contains("retries"), "{text}");
        }
        // These have to wait.
        for more in ["", "topologyManagerPolicy: single-numa-node\n"] {
            let daemon = Observed::connected_on(&smt, &format!("{CONFIG}{more}")).await;
            daemon.create("first", Qos::Guaranteed, 8000).await.unwrap();
            daemon.create("second", Qos::Guaranteed, 7000).await.unwrap_err();
            let text = command(&daemon.paths.state_dir, &["explain", "second"]).await.unwrap();
            has(&text, &["The kubelet retries by itself."]);
        }
        let one = "topologyManagerPolicy: single-numa-node\nreservedSystemCPUs: \"0-1\"\n";
        let wide = Machine { nodes: 16, caches: 16, cores: 32, ..Machine::default() };
        let daemon = Observed::connected_on(&wide, &format!("cpuManagerPolicy: static\n{one}")).await;
        daemon.create("wide", Qos::Guaranteed, 29_000).await.unwrap_err();
        let start = std::time::Instant::now();
        let text = command(&daemon.paths.state_dir, &["explain", "wide"]).await.unwrap();
        has(&text, &["29 CPUs can never fit", ": 2 would fit."]);
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
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
            &["shared, CPUs 0-7", "Its pod is Burstable", "shares CPUs 0-7"],
        );
        has(&explain("half").await, &["It requests 1500m CPUs: only whole numbers"]);
    })
    .await;
    local(async {
        let defaults = "namespaces: [{names: [ns], defaults: {cpus: exclusive}}]\n";
        let daemon = Observed::connected(&format!("{CONFIG}{defaults}")).await;
        daemon.event(create("half", Qos::Burstable, 1500)).await.unwrap();
        daemon.event(create("none", Qos::BestEffort, 0)).await.unwrap();
        let explain =
            async |pod: &str| command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
        has(&explain("half").await, &["It requests 1500m CPUs: only whole numbers"]);
        has(&explain("none").await, &["Its pod is BestEffort: only containers in Guaranteed"]);
    })
    .await;
    local(async {
        let daemon = Observed::connected("kubeletStateDir: \"\"\n").await;
        // Left alone: there is no setting.
        daemon.event(create("db", Qos::Guaranteed, 2000)).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "db"]).await.unwrap();
        has(&text, &["cpuManagerPolicy is none", "CPUs 0-15"]);
    })
    .await;
}

/// Programs get a list, as one name can mean several containers.
#[tokio::test]
async fn json() {
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

/// A container that has to use what its pod has left chooses of these alone, and not of all that is
/// free.
#[tokio::test]
async fn a_container_that_reuses_cpus_chooses_among_these_alone() {
    local(async {
        let daemon =
            Observed::connected(&format!("{CONFIG}topologyManagerPolicy: best-effort\n")).await;
        let first = create("db", Qos::Guaranteed, 4000);
        let Admission::Create { pod, container } = first.clone() else { panic!("{first:?}") };
        daemon.event(first).await.unwrap();
        daemon.event(Event::Stop(container.id.clone())).await.unwrap();
        let (id, name) = (ContainerId("id-next".to_owned()), "next".to_owned());
        let next = ledger::Container { id, name, ..container };
        daemon.event(Admission::Create { pod, container: next }).await.unwrap();
        let text = command(&daemon.paths.state_dir, &["explain", "db/next"]).await.unwrap();
        println!("{text}");
        has(
            &text,
            &[
                "CPUs 2-5",
                "Reusable from ended containers of its pod: CPUs 2-5.",
                "0           4     narrowest",
            ],
        );
        has(&text, &["0             2-5   fits all  4\n", "8             none\n"]);
    })
    .await;
}

/// Where siblings stay idle the decision counts cores, and so do the NUMA nodes that had room.
#[tokio::test]
async fn idle_siblings_are_counted_by_cores() {
    local(async {
        let machine = Machine { nodes: 2, caches: 2, cores: 8, threads: 2, ..Machine::default() };
        let bounds = "topologyManagerPolicy: best-effort\nnamespaces: [{names: [ns], allow: {smt: [isolate]}}]\n";
        let daemon = Observed::connected_on(&machine, &format!("{CONFIG}{bounds}")).await;
        let mut event = create("quiet", Qos::Guaranteed, 3000);
        if let Admission::Create { pod, .. } = &mut event {
            pod.annotations = [("smt.cpu-manager.nri.io", "isolate")].into_iter().collect();
        }
        daemon.event(event).await.unwrap();
        let mut event = create("wide", Qos::Guaranteed, 4000);
        if let Admission::Create { pod, .. } = &mut event {
            pod.annotations = [("smt.cpu-manager.nri.io", "isolate")].into_iter().collect();
        }
        daemon.event(event).await.unwrap();
        for pod in ["quiet", "wide"] {
            let text = command(&daemon.paths.state_dir, &["explain", pod]).await.unwrap();
            println!("{text}");
        }
        let text = command(&daemon.paths.state_dir, &["explain", "quiet"]).await.unwrap();
        has(&text, &["0           3     narrowest", "1           4     narrowest"]);
    })
    .await;
}
