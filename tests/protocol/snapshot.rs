//! What a user reads of a node is what the runtime was told.

use crate::memory::get;
use crate::process::PluginProcess;
use crate::runtime::{Generation, container, pod};
use status::Snapshot;

#[tokio::test]
async fn the_snapshot_shows_what_the_runtime_was_told() {
    let mut plugin = PluginProcess::start(Generation::V0_12).await;
    let stream = plugin.runtime.send("Synchronize", &[]).await;
    plugin.runtime.reply(stream).await.unwrap();
    let db = pod("db", 4000);
    let told = plugin.runtime.create(&db, &container("id-db", "db", 4000)).await.unwrap();
    let told = told.adjust.linux.resources.cpu.cpus.clone();
    let web = pod("web", 0);
    plugin.runtime.create(&web, &container("id-web", "web", 0)).await.unwrap();
    plugin
        .runtime
        .create(&pod("big", 64_000), &container("id-big", "big", 64_000))
        .await
        .unwrap_err();

    let answer = get(&plugin.state_dir().join("status.sock"), "/status");
    let (head, json) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let snapshot: Snapshot = serde_json::from_str(json).unwrap();
    assert!(snapshot.runtime.to_string().ends_with(", connected"), "{}", snapshot.runtime);
    let node = snapshot.node.unwrap();
    let of = |id: &str| node.containers.iter().find(|one| &*one.id.0 == id);
    let db = of("id-db").unwrap();
    assert_eq!((db.runs_on.to_string(), db.exclusive), (told.clone(), told.parse().ok()));
    assert_eq!(of("id-web").unwrap().exclusive, None);
    assert!(of("id-big").is_none());
    let refused: Vec<&str> = node.refusals.iter().map(|one| one.pod.as_str()).collect();
    assert_eq!(refused, ["pod-big"]);
}
