//! The plugin as installed, from its image in the pod of `manifests/`, on real containerd: each
//! overlay works with its privileges, and each privilege is needed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::bench::{Bench, exclusive, set_affinity, shared};
use crate::support::binaries;
use cpuset::CpuSet;
use exclusivity::verify::Drift;
use lab::cgroup;
use lab::containerd::Version;
use lab::daemonset::{Confinement, refuses_writes};
use lab::instance::Instance as _;
use lab::manifests::Manifests;
use lab::manifests::types::ContainerSpec;
use lab::process;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;

/// Two check passes, and the time until the first one.
const PATIENCE: Duration = Duration::from_secs(40);

on_both!(the_base_pins_and_may_do_nothing_else);

/// The overlay with these CPUs reserved.
pub(crate) fn overlay(name: &str, reserved: CpuSet) -> Manifests {
    let reserved = format!("reservedSystemCPUs: \"{reserved}\"");
    Manifests::of(name).unwrap().edited("systemReserved: {cpu: \"2\"}", &reserved).unwrap()
}

fn container(manifests: &mut Manifests) -> &mut ContainerSpec {
    &mut manifests.pod_mut().containers[0]
}

fn take_away(capability: &str, manifests: &mut Manifests) {
    container(manifests).security_context.capabilities.add.retain(|added| added != capability);
}

/// Waits until it has taken over the node and its probes succeed.
fn install(bench: &mut Bench, manifests: &Manifests) {
    let done = bench.install(manifests).and_then(|()| {
        let (daemon, node) = bench.daemon();
        daemon.wait_until_ready(node)
    });
    done.unwrap_or_else(|error| panic!("{error:#}"));
}

fn log(bench: &Bench) -> String {
    bench.daemon.as_ref().unwrap().files().log()
}

/// The exclusive container has a CPU, the shared one the rest, and the state file agrees.
#[track_caller]
fn check_pinned(bench: &Bench) {
    let cpus = bench.allowed("db");
    assert_eq!((cpus.len(), bench.allowed("web")), (1, bench.online() - cpus));
    let files = bench.daemon.as_ref().unwrap().files();
    assert_eq!(files.claimed("db", "main").unwrap(), Some(cpus));
}

/// The same sources and compiler must give the same image everywhere.
#[test]
fn the_program_does_not_contain_build_paths() {
    let program = fs::read(&binaries().programs.plugin).unwrap();
    let contains =
        |place: &str| program.windows(place.len()).any(|bytes| bytes == place.as_bytes());
    assert!(
        contains("./src/") || contains("cargo/registry"),
        "no source paths in the program: the test is out of date"
    );
    let home = std::env::var("HOME").unwrap();
    for place in [lab::cache::repository().to_str().unwrap(), &home] {
        assert!(!contains(&format!("{place}/")), "the program contains {place}");
    }
}

fn the_base_pins_and_may_do_nothing_else(version: Version) {
    let mut bench = Bench::new(version);
    bench.run(&shared("web"));
    let manifests = overlay("base", bench.reserved());
    install(&mut bench, &manifests);
    bench.run(&exclusive("db"));
    check_pinned(&bench);
    let before = bench.allowed("db");

    let pid = bench.daemon().0.pid().unwrap();
    let confinement = Confinement::of(pid).unwrap();
    println!("{confinement:?}");
    // With the unified hierarchy: the mode on every host.
    assert!(!cgroup::is_v2() || confinement.cgroup_mode == 0o555, "{:o}", confinement.cgroup_mode);
    let below_cgroup = |point: &String| point.starts_with("/sys/fs/cgroup");
    let (cgroups, others): (Vec<_>, Vec<_>) =
        confinement.writable.iter().cloned().partition(below_cgroup);
    let expected = Confinement {
        user: 0,
        capabilities: 0,
        bounding: 0,
        no_new_privileges: true,
        seccomp: 2,
        cgroup_mode: confinement.cgroup_mode,
        // The runtime's default with the unified hierarchy.
        cgroup_namespace: cgroup::is_v2(),
        writable: vec!["/var/lib/nri-cpu-manager".to_owned()],
    };
    assert_eq!(Confinement { writable: others, ..confinement }, expected);
    assert!(!cgroups.is_empty());
    for place in ["", "/etc/nri-cpu-manager", "/var/run/nri", "/sys"] {
        assert!(refuses_writes(pid, place).unwrap(), "{place} can be written to");
    }
    assert!(
        !refuses_writes(pid, "/var/lib/nri-cpu-manager").unwrap(),
        "the check of writes does not work"
    );

    // Kill and restart the plugin, then the runtime.
    let (daemon, node) = bench.daemon();
    let killed = daemon.container().unwrap().id.clone();
    daemon.end(node, Signal::SIGKILL).unwrap();
    daemon.start(node).unwrap();
    daemon.wait_until_ready(node).unwrap();
    assert!(node.kubelet().exit_code(&killed).is_err(), "the ended instance was not removed");
    assert_eq!(daemon.log().matches("synchronised with").count(), 2);
    check_pinned(&bench);
    let (daemon, node) = bench.daemon();
    node.kill_runtime().unwrap();
    node.restart_runtime().unwrap();
    daemon.wait_for_synchronisation(node, 2, PATIENCE).unwrap();
    check_pinned(&bench);
    assert_eq!(bench.allowed("db"), before);

    // containerd does not report the end of pods that are older than its start: the plugin finds it
    // in their cgroups when it needs the CPUs.
    bench.host.node.remove("db").unwrap();
    assert_eq!(bench.allowed("web"), bench.online(), "the plugin does not answer events");
    bench.run(&exclusive("next"));
    assert_eq!(bench.allowed("next"), before);
    let assignments = bench.daemon().0.files().assignments().unwrap();
    let holders: Vec<&str> = assignments.iter().map(|one| one.pod.as_str()).collect();
    assert_eq!(holders, ["next"], "an ended pod has an assignment");

    // Removed: containers keep what they have.
    bench.uninstall().unwrap();
    assert_eq!(bench.allowed("next"), before);
}

/// The kubelet's directory must exist, and its static policy makes the plugin stand by.
#[test]
fn the_overlay_for_moving_nodes_stands_by_for_the_static_policy() {
    let mut bench = Bench::new(Version::V2_1);
    let manifests = overlay("migrate", bench.reserved());
    let directory = bench.host.node.containerd().root().join("var/lib/kubelet");
    fs::remove_dir_all(&directory).unwrap();
    let error = bench.install(&manifests).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("volume kubelet") && error.contains("does not exist"), "{error}");

    fs::create_dir_all(&directory).unwrap();
    let online = bench.online();
    let state = format!(r#"{{"policyName":"static","defaultCpuSet":"{online}","checksum":0}}"#);
    fs::write(directory.join("cpu_manager_state"), state).unwrap();
    // Like a pod's memory volume.
    let volume = directory.join("pods");
    fs::create_dir(&volume).unwrap();
    mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    bench.install(&manifests).unwrap();
    let (daemon, node) = bench.daemon();
    daemon.wait_for_synchronisation(node, 1, PATIENCE).unwrap();
    let unready = format!("{:#}", daemon.probe().unwrap_err());
    assert!(unready.contains("readinessProbe") && unready.contains("503"), "{unready}");
    let pid = daemon.pid().unwrap();
    assert!(refuses_writes(pid, "/var/lib/kubelet").unwrap());
    let recursive = node.kubelet().has_recursive_read_only().unwrap();
    assert_eq!(refuses_writes(pid, "/var/lib/kubelet/pods").unwrap(), recursive);
    let log = log(&bench);
    assert!(log.contains("the kubelet's own CPU manager is active"), "{log}");
    let refused = format!("{:#}", bench.host.node.run(&exclusive("db")).unwrap_err());
    assert!(refused.contains("cpuManagerPolicy: none"), "{refused}");
}

/// The steps of docs/install.md, from containerd 1.7's default configuration.
#[test]
fn containerd_1_7_gets_nri_switched_on() {
    let mut bench = Bench::new(Version::V1_7);
    let manifests = overlay("containerd-1.7", bench.reserved());
    let node = &mut bench.host.node;
    node.restart_runtime_without_nri().unwrap();
    fs::remove_dir_all(node.containerd().root().join("var/run/nri")).unwrap();
    let config = node.containerd().config_path();
    let before = fs::read_to_string(&config).unwrap();

    bench.install(&manifests).unwrap_or_else(|error| panic!("{error:#}"));
    let (daemon, node) = bench.daemon();
    let log = daemon.init_log("enable-nri").unwrap();
    print!("{log}");
    assert!(log.contains("systemctl restart containerd"), "{log}");
    let after = fs::read_to_string(&config).unwrap();
    assert_eq!(after, before.replace("disable = true", "disable = false"));
    assert_ne!(after, before);
    // Until containerd is restarted, the plugin reports what is missing.
    assert_eq!(daemon.wait_for_end(node.kubelet()).unwrap(), 1);
    assert!(daemon.files().log().contains("Is NRI enabled"), "{}", daemon.files().log());

    node.restart_runtime().unwrap();
    daemon.start(node).unwrap();
    daemon.wait_until_ready(node).unwrap();
    bench.run(&shared("web"));
    bench.run(&exclusive("db"));
    check_pinned(&bench);

    // Again, as after every restart of the pod.
    install(&mut bench, &manifests);
    let log = bench.daemon().0.init_log("enable-nri").unwrap();
    assert!(log.contains("nothing was changed"), "{log}");
    assert_eq!(fs::read_to_string(&config).unwrap(), after);
}

/// containerd 1.7 reads NRI as disabled before enable-nri, and as enabled after it, with other
/// files.
#[test]
fn containerd_1_7_reads_what_was_written() {
    let bench = Bench::new(Version::V1_7);
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    let nri = || {
        let containerd = bench.host.node.containerd().program("containerd");
        let dump =
            Command::new(containerd).arg("--config").arg(&config).args(["config", "dump"]).output();
        let dump = String::from_utf8(dump.unwrap().stdout).unwrap();
        let part = dump.split("[plugins.\"io.containerd.nri.v1.nri\"]").nth(1).unwrap_or(&dump);
        part.lines().skip(1).find(|l| l.contains("disable =")).unwrap().trim().to_owned()
    };
    let usual = "version = 2\n# Ours.\n[plugins]\n  [plugins.\"io.containerd.internal.v1.opt\"]\n    path = \"/opt/x\"\n";
    let enable = || {
        let mut cpuctl = Command::new(&binaries().programs.cpuctl);
        cpuctl.arg("enable-nri").arg("--config").arg(&config).output().unwrap().status
    };
    let crlf = usual.replace('\n', "\r\n");
    for text in [usual, &crlf, "version = 2\n"] {
        fs::write(&config, text).unwrap();
        assert_eq!(nri(), "disable = true");
        assert!(enable().success());
        assert_eq!(nri(), "disable = false", "{text:?}");
    }
    fs::remove_file(&config).unwrap();
    assert!(!enable().success());
    assert!(!config.exists(), "containerd reads another file");
}

/// hostPID is needed to find an inherited affinity, SYS_NICE to repair it for another user. What a
/// process has chosen itself is no drift.
#[test]
fn affinity_needs_the_hosts_processes_and_sys_nice() {
    type Change = fn(&mut Manifests);
    const FOUND: &str = "it inherited the runtime's affinity";
    let variants: [(Change, bool, bool); 3] = [
        (|_| (), true, true),
        (|manifests| take_away("SYS_NICE", manifests), true, false),
        (|manifests| manifests.pod_mut().host_pid = false, false, false),
    ];
    for (change, found, repaired) in variants {
        let mut bench = Bench::new(Version::V2_1);
        let (online, reserved) = (bench.online(), bench.reserved());
        let mut manifests = overlay("kernel-exclusivity", reserved);
        change(&mut manifests);
        install(&mut bench, &manifests);
        let mut pod = shared("web");
        pod.containers[0].user = 1000;
        let pid = bench.run(&pod).containers[0].pid;
        let modest = bench.run(&shared("modest")).containers[0].pid;
        set_affinity(modest, bench.assignable());
        // Every variant repairs this drift, which shows that two check passes have run.
        let witness = bench.run(&shared("witness")).containers[0].pid;
        let group = cgroup::of_process(witness, "cpuset").unwrap();
        set_affinity(process::parent(pid).unwrap(), reserved);
        set_affinity(pid, reserved);
        fs::write(group.join("cpuset.cpus"), reserved.to_string()).unwrap();
        let drifted = format!("but {}", Drift::Set(reserved));
        let (daemon, node) = bench.daemon();
        daemon.wait_for(node, &drifted, 1, PATIENCE).unwrap();
        let log = log(&bench);
        assert_eq!(log.contains(FOUND), found, "{log}");
        assert_eq!(log.contains(": widened"), repaired, "{log}");
        assert!(!log.contains("modest"), "a process's own affinity was reported: {log}");
        assert_eq!(bench.allowed("web"), if repaired { online } else { reserved });
    }
}
