//! A configuration that changes while the plugin runs, as the kubelet changes a mounted ConfigMap,
//! and how status, health and metrics report it.

use crate::support::commands::{command, has};
use crate::support::events::{create, local};
use crate::support::logged::warnings;
use crate::support::observed::{CONFIG, ObservedDaemon};
use edge::Response;
use ledger::model::ContainerId;
use ledger::{Admission, Event, MoveReason, Qos, Stance};
use nri_cpu_manager::status::text;
use serve::endpoint;
use state::checkpoint;
use status::config_state::ConfigState;
use status::picture::text::Style;
use status::snapshot::{Container, Snapshot};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Wide enough for every line.
const WIDE: Style = Style { width: 400, colour: false };

/// Longer than any change takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a status for which this holds.
async fn until(daemon: &ObservedDaemon, holds: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let change = async {
        loop {
            let status = daemon.status().await;
            if holds(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, change).await {
        Ok(status) => status,
        Err(_) => panic!("the status never became as expected"),
    }
}

fn source(status: &Snapshot) -> &ConfigState {
    &status.node.as_ref().unwrap().parts.config_source
}

fn rejected(status: &Snapshot) -> bool {
    source(status).fault.is_some()
}

fn in_force(status: &Snapshot) -> bool {
    source(status).fault.is_none() && source(status).waiting.is_empty()
}

/// The line of the fault, and what it says.
fn fault(status: &Snapshot) -> (Option<usize>, &str) {
    let fault = source(status).fault.as_ref().unwrap();
    (fault.line, &fault.why)
}

fn reserved(status: &Snapshot) -> String {
    status.node.as_ref().unwrap().figures.cpus.reserved.to_string()
}

/// The updates of existing containers in the next answer that can carry them.
async fn sent(daemon: &ObservedDaemon) -> Vec<String> {
    let Response { updates, .. } =
        daemon.event(Event::Stop(ContainerId("unknown".into()))).await.unwrap();
    updates.iter().map(|update| format!("{} {}", update.container, update.setting.cpus())).collect()
}

/// The updates that follow new claims: the status shows them first, and then the file.
async fn sent_after_saving(daemon: &ObservedDaemon) -> Vec<String> {
    loop {
        let updates = sent(daemon).await;
        if !updates.is_empty() {
            return updates;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn on_disk(daemon: &ObservedDaemon) -> Vec<String> {
    let bytes = fs::read(daemon.paths.state_dir.join("checkpoint.json")).unwrap();
    let claims = checkpoint::decode(&bytes).unwrap().cpus;
    claims.iter().map(|claim| format!("{} {}", claim.pod, claim.cpus)).collect()
}

/// The status code and the body of an answer.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn listen(daemon: &ObservedDaemon) -> SocketAddr {
    let listener = endpoint::listen("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(endpoint::serve(listener, daemon.observer.clone(), daemon.pages.clone()));
    address
}

const KUBELET: &str = "kubeletStateDir: \"\"\n";

/// Both at the start and after a change.
#[tokio::test]
async fn fields_of_the_kubelet_that_are_not_used_are_named_in_the_log() {
    local(async {
        assert_eq!(warnings("no such file"), [""; 0]);
        let daemon = ObservedDaemon::following(&format!("port: 1\n{CONFIG}")).await;
        let name = daemon.paths.config.clone().unwrap().display().to_string();
        let not_used = |field: &str| format!("{name}, line 1: {field}: not used here");
        assert_eq!(warnings(&name), [not_used("port")]);
        daemon.swap_config(&format!("maxPods: 9\n{CONFIG}"));
        while warnings(&name).len() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(warnings(&name), [not_used("port"), not_used("maxPods")]);
    })
    .await;
}

#[tokio::test]
async fn a_change_is_applied_and_moves_no_container_needlessly() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        assert_eq!(daemon.create("web", Qos::Burstable, 500).await.unwrap(), "0-15");
        assert_eq!(daemon.create("a", Qos::Guaranteed, 2000).await.unwrap(), "2-3");
        assert_eq!(daemon.create("b", Qos::Guaranteed, 2000).await.unwrap(), "4-5");
        assert_eq!(sent(&daemon).await, [""; 0]);
        daemon.swap_config(&format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1,6-7\"\n{KUBELET}\
             cpuManagerPolicyOptions: {{strict-cpu-reservation: \"true\", full-pcpus-only: \"true\"}}\n"
        ));
        let status = until(&daemon, |status| reserved(status) == "0-1,6-7").await;
        let node = status.node.unwrap();
        assert_eq!(node.figures.cpus.shared.to_string(), "8-15");
        has(&node.config.cpu_manager_policy_options, &["strict-cpu-reservation", "full-pcpus-only"]);
        assert_eq!(sent(&daemon).await, ["id-web 8-15"]);
        assert_eq!(on_disk(&daemon), ["a 2-3", "b 4-5"]);
        // New containers follow the change.
        assert_eq!(daemon.create("c", Qos::Guaranteed, 2000).await.unwrap(), "8-9");

        // The CPUs of container a become reserved, and it alone moves.
        daemon.swap_config(&format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-3\"\n{KUBELET}"
        ));
        let status = until(&daemon, |status| reserved(status) == "0-3").await;
        assert_eq!(status.node.unwrap().figures.moves.get(&MoveReason::Reserved), Some(&1));
        assert_eq!(sent_after_saving(&daemon).await, ["id-a 6-7", "id-web 0-3,10-15"]);
        assert_eq!(on_disk(&daemon), ["a 6-7", "b 4-5", "c 8-9"]);

        // With policy none, containers keep their CPUs, and new ones get none.
        daemon.swap_config(KUBELET);
        let none = |status: &Snapshot| {
            status.node.as_ref().unwrap().config.cpu_manager_policy == "none"
        };
        until(&daemon, none).await;
        assert_eq!(on_disk(&daemon), ["a 6-7", "b 4-5", "c 8-9"]);
        assert_eq!(daemon.create("d", Qos::Guaranteed, 2000).await.unwrap(), "0-3,10-15");
    })
    .await;
}

#[tokio::test]
async fn an_invalid_file_changes_nothing_and_is_reported_everywhere() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        let address = listen(&daemon).await;
        assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
        daemon.create("web", Qos::Burstable, 500).await.unwrap();
        daemon.create("a", Qos::Guaranteed, 4000).await.unwrap();
        daemon.swap_config("cpuManagerPolicy: static\n\nreservedSystemCPUs: \"0-99\"\n");
        let status = until(&daemon, rejected).await;
        let why = "config.yaml, line 3: reservedSystemCPUs: CPUs 16-99 do not exist; online CPUs: 0-15. Nothing was changed";
        has(fault(&status).1, &[why]);
        assert_eq!(fault(&status).0, Some(3));
        assert_eq!((status.health.is_ready(), &*reserved(&status)), (true, "0-1"));
        has(&text(&status, WIDE, false), &["warning: config: configuration rejected, the last good one stays in force: ", why]);
        for path in ["/healthz", "/readyz"] {
            let (code, body) = get(address, path).await;
            assert_eq!(code, 200);
            has(&body, &["ok\nwarning: configuration rejected, the last good one stays in force", why]);
        }
        let (_, metrics) = get(address, "/metrics").await;
        has(
            &metrics,
            &[
                "\nnri_cpu_manager_config_last_reload_successful 0\n",
                "\nnri_cpu_manager_config_error_line 3\n",
                "\nnri_cpu_manager_config_reloads_total{result=\"rejected\"} 1\n",
                "\nnri_cpu_manager_config_reloads_total{result=\"applied\"} 0\n",
            ],
        );
        assert_eq!(sent(&daemon).await, [""; 0]);
        assert_eq!(daemon.create("b", Qos::Guaranteed, 2000).await.unwrap(), "6-7");

        // Another invalid file, then a missing one.
        daemon.swap_config("cpuManagerPolicy: sttic\n");
        let status = until(&daemon, |status| fault(status).0 == Some(1)).await;
        has(fault(&status).1, &["did you mean static?"]);
        let file = daemon.paths.config.as_deref().unwrap();
        fs::remove_file(file).unwrap();
        let status = until(&daemon, |status| fault(status).0.is_none()).await;
        has(fault(&status).1, &["config.yaml", "No such file"]);

        // The repaired file equals the configuration in force.
        fs::write(file, CONFIG).unwrap();
        until(&daemon, in_force).await;
        assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
        let (_, metrics) = get(address, "/metrics").await;
        has(
            &metrics,
            &[
                "\nnri_cpu_manager_config_last_reload_successful 1\n",
                "\nnri_cpu_manager_config_error_line 0\n",
                "\nnri_cpu_manager_config_reloads_total{result=\"rejected\"} 3\n",
                "\nnri_cpu_manager_config_reloads_total{result=\"unchanged\"} 1\n",
            ],
        );
        assert_eq!(on_disk(&daemon), ["a 2-5", "b 6-7"]);
    })
    .await;
}

#[tokio::test]
async fn fields_that_need_a_restart_are_reported_and_others_applied() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        let address = listen(&daemon).await;
        let more = "strict: true\nexclusivity: runtime\ncpusetPartition: isolated\n";
        daemon.swap_config(&format!("{}{more}", CONFIG.replace("0-1", "0-3")));
        let status = until(&daemon, |status| !source(status).waiting.is_empty()).await;
        let waiting = ["exclusivity", "cpusetPartition", "strict"];
        assert_eq!(source(&status).waiting, waiting);
        let config = &status.node.as_ref().unwrap().config;
        assert_eq!((config.strict, &*config.exclusivity), (false, "runtime"));
        assert_eq!(reserved(&status), "0-3");
        has(
            &text(&status, WIDE, false),
            &["\nwarning: config: configuration changed, restart the plugin to apply exclusivity, cpusetPartition, strict\n"],
        );
        let (_, metrics) = get(address, "/metrics").await;
        has(&metrics, &["\nnri_cpu_manager_config_fields_waiting_for_restart 3\n"]);
        has(
            &get(address, "/healthz").await.1,
            &["ok\nwarning: ", "restart the plugin to apply excl"],
        );

        daemon.swap_config(CONFIG);
        until(&daemon, in_force).await;
        // A configuration with which the plugin could not start is rejected at once.
        daemon.swap_config(&format!("{CONFIG}exclusivity: kernel\n"));
        let status = until(&daemon, rejected).await;
        assert_eq!(fault(&status).0, Some(4));
        has(fault(&status).1, &["the kernel cannot enforce exclusivity"]);
    })
    .await;
}

/// `kubeletStateDir` and `mode` change.
#[tokio::test]
async fn the_plugin_follows_the_kubelet_that_the_changed_file_names() {
    const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0-7,12-15","entries":{"uid-k":{"c":"8-11"}},"checksum":0}"#;
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        let kubelet = daemon.paths.state_dir.parent().unwrap().join("kubelet");
        fs::create_dir(&kubelet).unwrap();
        fs::write(kubelet.join("cpu_manager_state"), STATIC).unwrap();
        let stance = |stance: Stance| {
            move |status: &Snapshot| status.node.as_ref().unwrap().figures.stance == stance
        };
        let base = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n";
        let with_kubelet = format!("{base}kubeletStateDir: {}\n", kubelet.display());
        daemon.swap_config(&with_kubelet);
        until(&daemon, stance(Stance::Refuse)).await;
        daemon.swap_config(&format!("{with_kubelet}mode: observe\n"));
        until(&daemon, stance(Stance::Observe)).await;
        let mut named = create("k", Qos::Guaranteed, 4000);
        if let Admission::Create { container, .. } = &mut named {
            container.cpus = "8-11".parse().ok();
        }
        assert_eq!(daemon.event(named).await.unwrap().setting, None);
        // The plugin saves what it takes over.
        daemon.event(create("s", Qos::Burstable, 500)).await.unwrap();
        fs::remove_file(daemon.paths.state_dir.join("checkpoint.json")).unwrap();
        daemon.swap_config(CONFIG);
        let saved = daemon.paths.state_dir.join("checkpoint.json");
        // The file follows the status.
        until(&daemon, |status| stance(Stance::Assign)(status) && saved.exists()).await;
        assert_eq!(on_disk(&daemon), ["k 8-11"]);
        assert_eq!(daemon.create("a", Qos::Guaranteed, 2000).await.unwrap(), "12-13");
    })
    .await;
}

/// Each decision counts for the next one, though nobody carries it out.
#[tokio::test]
async fn a_node_observes_enforces_and_observes_again() {
    local(async {
        let daemon = ObservedDaemon::following(&format!("{CONFIG}mode: observe\n")).await;
        let stance = |stance: Stance| {
            move |status: &Snapshot| status.node.as_ref().unwrap().figures.stance == stance
        };
        for name in ["a", "b"] {
            let created = daemon.event(create(name, Qos::Guaranteed, 2000)).await.unwrap();
            assert_eq!(created.setting, None);
        }
        // It would be refused.
        assert_eq!(daemon.event(create("c", Qos::Guaranteed, 20_000)).await.unwrap().setting, None);
        let status = daemon.status().await;
        let node = status.node.as_ref().unwrap();
        let exclusive = |one: &Container| one.exclusive_cpus().to_string();
        let cpus: Vec<String> = node.containers.iter().map(exclusive).collect();
        assert_eq!(cpus, ["2-3", "4-5", ""]);
        assert_eq!(sent(&daemon).await, [""; 0]);
        let state_dir = &daemon.paths.state_dir;
        has(
            &command(state_dir, &["status"]).await.unwrap(),
            &["warning: stance: mode: observe: the plugin changes nothing, and shows what it would decide\n"],
        );
        has(
            &command(state_dir, &["explain", "b"]).await.unwrap(),
            &["mode: observe: the plugin changes nothing", "observing, not done: exclusive CPUs 4-5"],
        );
        has(
            &command(state_dir, &["explain", "c"]).await.unwrap(),
            &["It qualifies for 20 exclusive CPUs and would have none: it would be refused", "observing, not done: refused: UnexpectedAdmissionError: Allocate failed due to not enough cpus available"],
        );

        daemon.swap_config(CONFIG);
        until(&daemon, stance(Stance::Assign)).await;
        let mut set = sent_after_saving(&daemon).await;
        set.sort();
        assert_eq!(set, ["id-a 2-3", "id-b 4-5", "id-c 0-1,6-15"]);
        assert_eq!(on_disk(&daemon), ["a 2-3", "b 4-5"]);

        daemon.swap_config(&format!("{CONFIG}mode: observe\n"));
        until(&daemon, stance(Stance::Observe)).await;
        assert_eq!(on_disk(&daemon), ["a 2-3", "b 4-5"]);
        assert_eq!(daemon.event(create("d", Qos::Guaranteed, 2000)).await.unwrap().setting, None);
        assert_eq!(sent(&daemon).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn changed_overrides_for_the_node_are_applied() {
    local(async {
        let daemon = ObservedDaemon::following(CONFIG).await;
        let with = |name: &str| {
            format!("{CONFIG}nodes:\n- names: [{name}]\n  reservedSystemCPUs: \"0-3\"\n")
        };
        daemon.swap_config(&with("other"));
        until(&daemon, |status| source(status).fault.is_none()).await;
        daemon.swap_config(&with("\"no*\""));
        let status = until(&daemon, |status| reserved(status) == "0-3").await;
        assert_eq!(source(&status).overrides, [5]);
        has(&text(&status, WIDE, false), &[", with the override on line 5, read at "]);
    })
    .await;
}
