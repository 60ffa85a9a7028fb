//! `exposeCPUs: file`: the content of containers' files, and when it changes.

use crate::support::daemon::{Daemon, fragmented, in_group, write_group};
use crate::support::events::{create, local};
use ledger::{Admission, Container, CpuRequest, Event, MilliCpu, Pod, Qos, RequestedUpdate};
use std::fs;
use std::time::Duration;

const MOVES: &str = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n\
     rebalance: {movesPer100Starts: 10, minStay: 0s}\n";

/// The content of a container's files: its CPUs, and those that it will lose.
fn files(directory: &str) -> (String, String) {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{directory}/{name}")).unwrap();
        text.strip_suffix('\n').unwrap().to_owned()
    };
    (read("cpus"), read("leaving"))
}

fn says(cpus: &str, leaving: &str) -> (String, String) {
    (cpus.to_owned(), leaving.to_owned())
}

/// The CPUs of the only claim.
fn held(daemon: &Daemon) -> String {
    daemon.on_disk()[0].cpus.to_string()
}

async fn resized(daemon: &Daemon, (pod, container): (Pod, Container), milli: u64) {
    let amount = Some(MilliCpu(milli));
    let cpu = CpuRequest { request: amount, limit: amount };
    let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
    daemon.event(Admission::Update { pod, container, requested }).await.unwrap();
}

/// The file names every CPU on which its container may run, before, during and after a change.
#[tokio::test(start_paused = true)]
async fn files_follow_a_containers_cpus() {
    local(async {
        let daemon = Daemon::with_kubelet("exposeCPUs: file\n", None);
        let (pod, container) = in_group(&daemon, "a", (Qos::Guaranteed, 4000), "2-5");
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let answer = daemon.event(create).await.unwrap();
        assert_eq!(answer.environment, []);
        let directory = answer.directory.unwrap();
        assert_eq!(files(&directory), says("2-5", ""));
        let read = |name: &str| fs::read_to_string(format!("{directory}/{name}")).unwrap();
        assert_eq!((read("numa_nodes"), read("uncore_caches")), ("0\n".into(), "2-5\n".into()));
        assert_eq!(read("housekeeping"), "\n");
        let event = Event::Started { pod: pod.clone(), container: container.clone() };
        daemon.event(event).await.unwrap();

        resized(&daemon, (pod.clone(), container.clone()), 2000).await;
        assert_eq!(files(&directory), says("2-5", "4-5"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(files(&directory), says("2-5", "4-5"), "it has not left them");
        write_group(&daemon, "a", "2-3");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(files(&directory), says("2-3", ""));

        // A shared container has no files; a restarted plugin takes over existing ones.
        let (other, web) = in_group(&daemon, "web", (Qos::Burstable, 500), "0-1,4-15");
        let create = Admission::Create { pod: other, container: web };
        assert_eq!(daemon.event(create).await.unwrap().directory, None);
        let pods = vec![pod.clone()];
        let two = Some(MilliCpu(2000));
        let cpu = CpuRequest { request: two, limit: two };
        let containers = vec![Container { cpus: Some("2-3".parse().unwrap()), cpu, ..container }];
        daemon.event(Event::Synchronize { pods, containers }).await.unwrap();
        assert_eq!(files(&directory), says("2-3", ""));

        daemon.event(Event::StopPod(pod.sandbox)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!fs::exists(&directory).unwrap());
    })
    .await;
}

/// `scale-delay-time` delays resizes: the container loses the CPUs when it is over.
#[tokio::test(start_paused = true)]
async fn files_announce_a_shrink_before_it_happens() {
    local(async {
        let config = "exposeCPUs: file\ncpuManagerPolicyOptions: {scale-delay-time: 4s}\n";
        let daemon = Daemon::with_kubelet(config, None);
        let (pod, container) = in_group(&daemon, "a", (Qos::Guaranteed, 4000), "2-5");
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let directory = daemon.event(create).await.unwrap().directory.unwrap();
        let event = Event::Started { pod: pod.clone(), container: container.clone() };
        daemon.event(event).await.unwrap();
        resized(&daemon, (pod.clone(), container.clone()), 2000).await;
        assert_eq!(files(&directory), says("2-5", "4-5"));
        assert_eq!(held(&daemon), "2-5");
        tokio::time::sleep(Duration::from_millis(3900)).await;
        assert_eq!(held(&daemon), "2-5");
        // Growing back withdraws the notice.
        resized(&daemon, (pod.clone(), container.clone()), 4000).await;
        assert_eq!(files(&directory), says("2-5", ""));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(held(&daemon), "2-5");
        resized(&daemon, (pod, container), 2000).await;
        tokio::time::sleep(Duration::from_millis(4100)).await;
        assert_eq!(held(&daemon), "2-3");
        write_group(&daemon, "a", "2-3");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(files(&directory), says("2-3", ""));
    })
    .await;
}

/// The shared part of a mixed container has a separate file, which follows the pool.
#[tokio::test(start_paused = true)]
async fn files_name_each_part_of_a_mixed_container() {
    local(async {
        let namespaces = "namespaces: [{names: [ns], allow: {cpus: [exclusive+shared]}}]\n";
        let daemon = Daemon::with_kubelet(&format!("exposeCPUs: file\n{namespaces}"), None);
        let (mut pod, container) = in_group(&daemon, "a", (Qos::Guaranteed, 2000), "0-15");
        pod.annotations = [("cpus.cpu-manager.nri.io", "exclusive+shared")].into_iter().collect();
        let create_a = Admission::Create { pod: pod.clone(), container: container.clone() };
        let directory = daemon.event(create_a).await.unwrap().directory.unwrap();
        let shared = || fs::read_to_string(format!("{directory}/shared")).unwrap();
        assert_eq!((files(&directory), shared()), (says("2-3", ""), "0-1,4-15\n".to_owned()));
        daemon.event(Event::Started { pod, container }).await.unwrap();
        daemon.event(create("b", Qos::Guaranteed, 4000)).await.unwrap();
        assert_eq!((files(&directory), shared()), (says("2-3", "4-7"), "0-1,4-15\n".to_owned()));
        write_group(&daemon, "a", "0-3,8-15");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((files(&directory), shared()), (says("2-3", ""), "0-1,8-15\n".to_owned()));
    })
    .await;
}

/// Without a notice period a creation moves other containers; with one it leaves them where they
/// are.
#[tokio::test]
async fn no_creation_waits_for_a_notice() {
    for (notice, expected) in [(0, "8-15"), (5, "2-7,10-11")] {
        local(async {
            let more = format!("{MOVES}exposeCPUs: file\nnoticeSeconds: {notice}\n");
            let daemon = Daemon::with_kubelet(&more, None);
            fragmented(&daemon).await;
            let answer = daemon.event(create("eight", Qos::Guaranteed, 8000)).await.unwrap();
            assert_eq!(answer.setting.unwrap().cpus().to_string(), expected, "{notice}");
        })
        .await;
    }
}

/// Container c is in two caches; the end of pod b makes room for it in one.
#[tokio::test(start_paused = true)]
async fn files_announce_a_move_after_another_pod_has_ended() {
    local(async {
        let more = "exclusivity: groups\nexposeCPUs: file\nnoticeSeconds: 300\n";
        let daemon = Daemon::with_kubelet(&format!("{MOVES}{more}"), None);
        daemon.event(Event::Synchronize { pods: vec![], containers: vec![] }).await.unwrap();
        let run = async |name: &str, milli, set: &str| {
            let (pod, container) = in_group(&daemon, name, (Qos::Guaranteed, milli), set);
            let create = Admission::Create { pod: pod.clone(), container: container.clone() };
            let answer = daemon.event(create).await.unwrap();
            assert_eq!(answer.setting.unwrap().cpus().to_string(), set);
            daemon.event(Event::Started { pod: pod.clone(), container }).await.unwrap();
            (pod, answer.directory.unwrap())
        };
        run("a", 4000, "2-5").await;
        let (b, _) = run("b", 6000, "8-13").await;
        let (_, directory) = run("c", 4000, "6-7,14-15").await;
        assert_eq!(files(&directory), says("6-7,14-15", ""));
        daemon.event(Event::StopPod(b.sandbox)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(files(&directory), says("6-7,14-15", "6-7,14-15"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn directories_of_an_earlier_process_are_taken_over() {
    local(async {
        let daemon = Daemon::with_kubelet("exposeCPUs: file\n", None);
        let exposed = daemon.paths.state_dir.join("exposed");
        for id in ["id-a", "id-gone"] {
            fs::create_dir_all(exposed.join(id)).unwrap();
            fs::write(exposed.join(id).join("cpus"), "2-5\n").unwrap();
        }
        let (pod, container) = in_group(&daemon, "a", (Qos::Guaranteed, 4000), "8-11");
        let listed = Container { cpus: Some("8-11".parse().unwrap()), ..container };
        daemon
            .event(Event::Synchronize { pods: vec![pod], containers: vec![listed] })
            .await
            .unwrap();
        let left: Vec<_> =
            fs::read_dir(&exposed).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, ["id-a"]);
        assert_eq!(fs::read_to_string(exposed.join("id-a").join("cpus")).unwrap(), "8-11\n");
    })
    .await;
}

/// The runtime lists its containers again while the kubelet's own CPU manager is active. A running
/// container keeps its files, which follow it again when the kubelet's manager has stopped.
#[tokio::test(start_paused = true)]
async fn files_outlast_a_list_while_the_kubelet_assigns_cpus() {
    const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0-7,12-15","entries":{"uid-k":{"c":"8-11"}},"checksum":0}"#;
    const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":0}"#;
    local(async {
        let daemon = Daemon::with_kubelet("exposeCPUs: file\n", None);
        let (pod, container) = in_group(&daemon, "a", (Qos::Guaranteed, 4000), "2-5");
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let directory = daemon.event(create).await.unwrap().directory.unwrap();
        let started = Event::Started { pod: pod.clone(), container: container.clone() };
        daemon.event(started).await.unwrap();
        daemon.kubelet_writes(STATIC);
        tokio::time::sleep(Duration::from_secs(30)).await;
        daemon.create("b", Qos::Guaranteed, 2000).await.unwrap_err();
        let listed = Container { cpus: Some("2-5".parse().unwrap()), ..container.clone() };
        let list = Event::Synchronize { pods: vec![pod.clone()], containers: vec![listed] };
        daemon.event(list).await.unwrap();
        assert_eq!(files(&directory), says("2-5", ""));

        daemon.kubelet_writes(NONE);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(files(&directory), says("2-5", ""));
        resized(&daemon, (pod, container), 2000).await;
        assert_eq!(files(&directory), says("2-5", "4-5"));
    })
    .await;
}
