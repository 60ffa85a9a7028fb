//! The file with the policy in force, and when the socket exists.

use super::{Node, config, until};
use crate::support::events::local;
use crate::support::observed::ObservedDaemon;
use config::PodResources;
use std::fs;

fn policy(node: &Node) -> String {
    fs::read_to_string(node.dir.path().join("pod-resources/config.yaml")).unwrap_or_default()
}

#[tokio::test]
async fn the_file_has_the_policy_in_force() {
    local(async {
        let node = Node::start().await;
        until(|| policy(&node).contains("reservedSystemCPUs: \"0-1\"\n")).await;
        assert!(policy(&node).contains("\ntopologyManagerPolicy: none\n"));
        // An override for this node is applied, an invalid configuration is not.
        let entry = "nodes: [{names: [node], topologyManagerPolicy: restricted}]\n";
        node.daemon.swap_config(&config(node.dir.path(), entry));
        until(|| policy(&node).contains("\ntopologyManagerPolicy: restricted\n")).await;
        node.daemon.swap_config("topologyManagerPolicy: wrong\n");
        let file = node.dir.path().join("pod-resources/config.yaml");
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
        assert!(policy(&node).contains("\ntopologyManagerPolicy: restricted\n"));
    })
    .await;
}

#[tokio::test]
async fn a_removed_field_takes_effect_after_a_restart() {
    local(async {
        let node = Node::start().await;
        node.daemon.swap_config("cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n");
        let waiting = || async {
            let status = node.daemon.status().await.node.unwrap();
            status.parts.config_source.waiting
        };
        while waiting().await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(waiting().await, ["podResources"]);
        super::client::call(&node.socket(), super::client::LIST, &[]).await.unwrap();
    })
    .await;
}

#[test]
fn the_socket_and_the_file_exist_only_with_the_field_and_while_the_plugin_runs() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("pod-resources/kubelet.sock");
    let file = dir.path().join("pod-resources/config.yaml");
    let run = |config: &str, expect: bool| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(local(async {
            let _daemon = ObservedDaemon::following(config).await;
            if expect {
                until(|| socket.exists() && file.exists()).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            assert_eq!((socket.exists(), file.exists()), (expect, expect));
        }));
        drop(runtime);
        assert!(!socket.exists());
        assert!(!file.exists(), "{} stays", file.display());
    };
    run(super::CONFIG, false);
    run(&config(dir.path(), ""), true);
}

/// The overlay sets the option of the command line by its environment variable.
#[tokio::test(flavor = "current_thread")]
async fn the_configuration_takes_precedence_over_the_command_line() {
    local(async {
        let dir = tempfile::tempdir().unwrap();
        let directory = |name: &str| dir.path().join(name).display().to_string();
        let by_line = PodResources::in_directory(&directory("line")).unwrap();
        let _first = ObservedDaemon::with_pod_resources(super::CONFIG, by_line.clone());
        until(|| by_line.socket().exists()).await;
        let listen = directory("file");
        let config = format!("{}podResources: {{listen: {listen}}}\n", super::CONFIG);
        let by_line = PodResources::in_directory(&directory("other")).unwrap();
        let _second = ObservedDaemon::with_pod_resources(&config, by_line.clone());
        until(|| dir.path().join("file/kubelet.sock").exists()).await;
        assert!(!by_line.socket().exists());
    })
    .await;
    for (wrong, why) in [
        ("run/x", "not an absolute path"),
        ("/var/lib/kubelet/pod-resources", "the kubelet's own socket"),
    ] {
        let error = PodResources::in_directory(wrong).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
