//! Documents for programs: the names at their top are those of their version.

use crate::support::commands::{busy, command, cpuctl};
use crate::support::events::local;
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/status.md");

/// Runs a command that needs no plugin.
fn output(arguments: &[&str]) -> String {
    cpuctl(&[arguments, &["-o", "json"]].concat()).unwrap().0
}

/// A name that is removed here, or on the page, breaks programs: that takes the next version.
#[tokio::test]
async fn documents_have_the_names_of_their_version() {
    local(async {
        let daemon = busy("").await;
        let ask = async |arguments: &[&str]| {
            let arguments = [arguments, &["-o", "json"]].concat();
            command(&daemon.paths.state_dir, &arguments).await.unwrap()
        };
        let example =
            |file: &str| format!("{}/examples/simulate/{file}", env!("CARGO_MANIFEST_DIR"));
        let (config, pods) = (example("packed.yaml"), example("pods.yaml"));
        let machine = ["--topology", "kep-4800"];
        let simulated = ["--config", &config, "--workload", &pods];
        let documents = [
            (
                "status",
                ask(&["status"]).await,
                "version plugin_version node_name at ready health runtime node",
            ),
            (
                "explain",
                ask(&["explain", "db"]).await,
                "namespace pod container state cpus why decision history",
            ),
            (
                "noise",
                ask(&["noise"]).await,
                "version seconds samples visibility threads_read threads_unread sample_milliseconds interrupts_error containers",
            ),
            (
                "topology",
                output(&["topology", "--from", "kep-4800"]),
                "version cpus numa_nodes smt isolated online offline",
            ),
            (
                "simulate",
                output(&[&["simulate"], &machine[..], &simulated].concat()),
                "version machine cpus uncore_caches numa_nodes workload runs",
            ),
            (
                "check-config",
                output(&[&["check-config", &config], &machine[..]].concat()),
                "version file machine node settings warnings applied overrides outlook",
            ),
        ];
        let (_, section) = PAGE.split_once("\n## JSON for programs\n").unwrap();
        for (name, text, names) in documents {
            let document: Value = serde_json::from_str(&text).unwrap();
            let top = document.get(0).unwrap_or(&document).as_object().unwrap();
            let expect: BTreeSet<&str> = names.split(' ').collect();
            assert_eq!(top.keys().map(String::as_str).collect::<BTreeSet<_>>(), expect, "{name}");
            if document.is_object() {
                assert_eq!(document["version"], 1, "{name}");
            }
            let row = section.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let documented = row.unwrap().split('|').nth(3).unwrap();
            let documented: BTreeSet<&str> = documented.split('`').skip(1).step_by(2).collect();
            assert_eq!(documented, expect, "docs/status.md, {name}");
        }
    })
    .await;
}
