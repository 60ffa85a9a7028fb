//! `consumers`: the files that the plugin mounts into pods in place of the kubelet's.

use crate::support::daemon::{Daemon, in_group};
use crate::support::events::local;
use ledger::{Admission, Event, KubeletClaim, Named, Qos};
use nri_cpu_manager::kubelet::StateFile;
use std::fs;
use std::path::Path;
use std::time::Duration;

const CONSUMERS: &str = "consumers:\n\
    - {namespaces: [ns], pods: [exporter], stateDir: /var/lib/kubelet}\n\
    - {namespaces: [ns], pods: [\"virt-*\"], stateFile: /k/state, podResources: /k/sockets}\n";

/// Creates a container of the pod with this name; returns source and destination of its mounts.
async fn mounts(daemon: &Daemon, name: &str, cpus: u64) -> Vec<(String, String)> {
    let qos = if cpus == 0 { (Qos::Burstable, 500) } else { (Qos::Guaranteed, cpus * 1000) };
    let (mut pod, container) = in_group(daemon, name, qos, "0-15");
    pod.name = name.to_owned();
    let response = daemon.event(Admission::Create { pod, container }).await.unwrap();
    let mounts = response.mounts.into_iter();
    mounts.map(|mount| (mount.source, mount.destination)).collect()
}

/// Policy, shared CPUs, and exclusive CPUs by pod.
fn read_state(file: &Path) -> (String, String, Vec<(String, String)>) {
    let StateFile { policy, shared, claims, .. } =
        StateFile::parse(&fs::read(file).unwrap()).unwrap();
    let claims = claims.into_iter().map(|KubeletClaim { of, cpus }| match of {
        Named::Container(uid, _) => (uid.0, cpus.to_string()),
        Named::Id(id) => panic!("{id:?}"),
    });
    (policy, shared.to_string(), claims.collect())
}

#[tokio::test(start_paused = true)]
async fn a_mounted_directory_follows_the_assignments() {
    local(async {
        let daemon = Daemon::with_kubelet(CONSUMERS, None);
        assert_eq!(mounts(&daemon, "other", 0).await, []);
        let mounts_of_exporter = mounts(&daemon, "exporter", 0).await;
        let [(directory, at)] = &mounts_of_exporter[..] else { panic!("{mounts_of_exporter:?}") };
        assert_eq!(at, "/var/lib/kubelet");
        let file = Path::new(directory).join("cpu_manager_state");
        assert_eq!(read_state(&file), ("static".to_owned(), "0-15".to_owned(), vec![]));
        let first = fs::File::open(&file).unwrap();

        // A pod that is no consumer changes the file, too.
        assert_eq!(mounts(&daemon, "guaranteed", 4).await, []);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (policy, shared, claims) = read_state(&file);
        assert_eq!((&*policy, &*shared, claims.len()), ("static", "0-1,6-15", 1));
        assert_eq!(claims[0].1, "2-5");
        // The file was replaced, not overwritten: a reader never gets half of it.
        let old: serde_json::Value = serde_json::from_reader(first).unwrap();
        assert_eq!(old["defaultCpuSet"], "0-15");

        let (pod, _) = in_group(&daemon, "guaranteed", (Qos::Guaranteed, 4000), "2-5");
        daemon.event(Event::StopPod(pod.sandbox)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(read_state(&file).2, []);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mounted_file_has_the_assignments_at_the_creation() {
    local(async {
        let daemon = Daemon::with_kubelet(CONSUMERS, None);
        assert_eq!(mounts(&daemon, "guaranteed", 4).await, []);
        // No podresources are served: the log says so, and the rest is mounted.
        let mounts_of_handler = mounts(&daemon, "virt-handler", 0).await;
        let [(file, at)] = &mounts_of_handler[..] else { panic!("{mounts_of_handler:?}") };
        assert_eq!(at, "/k/state");
        assert_eq!(read_state(Path::new(file)).2.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn podresources_are_mounted_where_they_are_served() {
    local(async {
        let sockets = tempfile::tempdir().unwrap();
        let listen = sockets.path().join("made");
        let served = format!("podResources: {{listen: {}}}\n", listen.display());
        let daemon = Daemon::with_kubelet(&format!("{CONSUMERS}{served}"), None);
        let mounts_of_handler = mounts(&daemon, "virt-handler", 0).await;
        let socket = (listen.display().to_string(), "/k/sockets".to_owned());
        assert_eq!(mounts_of_handler[1..], [socket]);
        assert!(listen.is_dir(), "a missing directory would fail the container");
    })
    .await;
}

/// The kubelet's own files are correct then.
#[tokio::test(start_paused = true)]
async fn nothing_is_mounted_while_the_kubelet_assigns_cpus() {
    local(async {
        let state = StateFile {
            policy: "static".to_owned(),
            shared: "0-15".parse().unwrap(),
            claims: Vec::new(),
            pods: Vec::new(),
        };
        let config = format!("{CONSUMERS}onActiveKubelet: observe\n");
        let daemon = Daemon::with_kubelet(&config, Some(&state.to_json()));
        assert_eq!(mounts(&daemon, "exporter", 0).await, []);
        assert_eq!(mounts(&daemon, "virt-handler", 0).await, []);
    })
    .await;
}

/// The plugin leaves the mount out: a mount without a source would fail the container.
#[tokio::test(start_paused = true)]
async fn a_container_starts_without_a_file_that_cannot_be_written() {
    local(async {
        let daemon = Daemon::with_kubelet(CONSUMERS, None);
        let directory = daemon.paths.state_dir.join("kubelet");
        fs::create_dir_all(&daemon.paths.state_dir).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // By now the plugin has written the file of its start.
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, "").unwrap();
        assert_eq!(mounts(&daemon, "guaranteed", 4).await, []);
        assert_eq!(mounts(&daemon, "exporter", 0).await, []);
        fs::remove_file(&directory).unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(read_state(&directory.join("cpu_manager_state")).2.len(), 1);
        assert_eq!(mounts(&daemon, "exporter", 0).await.len(), 1);
    })
    .await;
}
