//! `nri-cpu-manager uninstall`: reverts what the plugin has written into cgroups.

use crate::support::commands::command;
use crate::support::events::local;
use crate::support::observed::{CONFIG, ObservedDaemon};
use ledger::{Claim, ContainerId, CpuRequest, Margin, MilliCpu, PodUid, Qos};
use nri_cpu_manager::uninstall::{UninstallArgs, run};
use state::checkpoint::StateDir;
use state::disk::Disk;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Makes a cgroup with files like the kernel's.
fn group(root: &Path, group: &str, files: &[(&str, &str)]) {
    fs::create_dir_all(root.join(group)).unwrap();
    for (file, text) in files {
        fs::write(root.join(group).join(file), format!("{text}\n")).unwrap();
    }
}

/// Writes an earlier process's record of its writes.
fn write_record(state: &Path) {
    let text = "nri-cpu-manager cgroups 1 \nkubepods/burstable\t\t0-1,4-7\t\t\nkubepods/poda\t0-7\t0-3\t200000 100000\t\n";
    fs::write(state.join("cgroups"), text).unwrap();
}

fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    files
}

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap().trim().to_owned()
}

/// A QoS class and a pod that are bound to the shared pool, a partition, a lifted quota, and a
/// partition of another program.
fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
    let partition = |state| ("cpuset.cpus.partition", state);
    group(
        root,
        "kubepods",
        &[("cpuset.cpus", ""), partition("member"), ("cpuset.cpus.exclusive", "2-3")],
    );
    group(root, "kubepods/burstable", &[("cpuset.cpus", "0-1,4-7"), partition("member")]);
    group(
        root,
        "kubepods/poda",
        &[
            ("cpuset.cpus", "0-3"),
            ("cpu.max", "max 100000"),
            partition("member"),
            ("cpuset.cpus.exclusive", "2-3"),
        ],
    );
    group(
        root,
        "kubepods/poda/c",
        &[("cpuset.cpus", "2-3"), partition("root"), ("cpuset.cpus.exclusive", "2-3")],
    );
    group(
        root,
        "system.slice",
        &[("cpuset.cpus", "0-1"), partition("isolated"), ("cpuset.cpus.exclusive", "0-1")],
    );
    dir
}

fn args(root: &Path, state: &Path) -> UninstallArgs {
    UninstallArgs {
        dry_run: false,
        containers: false,
        stay: false,
        state_dir: state.to_owned(),
        kubelet_state_dir: root.to_owned(),
        cgroup_root: root.to_owned(),
        sysfs_root: root.to_owned(),
        proc_root: root.to_owned(),
        host_root: None,
    }
}

#[test]
fn everything_that_the_plugin_wrote_is_reverted() {
    let node = node();
    let state = tempfile::tempdir().unwrap();
    let root = node.path();
    write_record(state.path());
    // Of another boot; and what a plugin that was killed leaves.
    let old = r#"{"version":1,"boot":"other","records":[],"banned":null}"#;
    fs::write(state.path().join("quiet.json"), old).unwrap();
    fs::create_dir(state.path().join("pod-resources")).unwrap();
    for name in ["status.sock", "pod-resources/kubelet.sock", "pod-resources/config.yaml"] {
        fs::write(state.path().join(name), "").unwrap();
    }
    let mut out = Vec::new();
    run(&args(root, state.path()), &mut out).unwrap();
    assert_eq!(files_below(state.path()), ["lock"]);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "shared pool: 2 cgroups restored\npartitions:  1 partition ended\nCFS quotas:  1 quota restored\n"
    );
    for (file, text) in [
        ("kubepods/burstable/cpuset.cpus", ""),
        ("kubepods/poda/cpuset.cpus", "0-7"),
        ("kubepods/poda/cpu.max", "200000 100000"),
        ("kubepods/poda/c/cpuset.cpus.partition", "member"),
        ("kubepods/poda/c/cpuset.cpus.exclusive", ""),
        ("kubepods/poda/cpuset.cpus.exclusive", ""),
        ("kubepods/cpuset.cpus.exclusive", ""),
        ("system.slice/cpuset.cpus.partition", "isolated"),
        ("system.slice/cpuset.cpus", "0-1"),
    ] {
        assert_eq!(read(root, file), text, "{file}");
    }
    let mut again = Vec::new();
    run(&args(root, state.path()), &mut again).unwrap();
    assert!(String::from_utf8(again).unwrap().starts_with("shared pool: 0 cgroups restored"));
}

/// Interrupt 24 has this plugin's affinity, and another program has set that of 25.
#[test]
fn interrupts_are_restored_and_what_could_not_be_is_named() {
    let node = node();
    let state = tempfile::tempdir().unwrap();
    let root = node.path();
    let record = |number: u32| {
        format!(
            r#"[{{"interrupt":{number}}},{{"names":["nic"],"before":{{"cpus":"0-7"}},"ours":[{{"cpus":"0-3"}}],"confirmed":true}}]"#
        )
    };
    let records = [24, 25, 26].map(record).join(",");
    let content = format!(r#"{{"version":1,"boot":"","records":[{records}]}}"#);
    fs::write(state.path().join("quiet.json"), content).unwrap();
    let line = |number: u32| format!("{number:>4}:          1   PCI-MSI   0-edge      nic\n");
    let lines: String = [24, 25, 26].map(line).concat();
    fs::write(root.join("interrupts"), format!("           CPU0\n{lines}")).unwrap();
    group(root, "irq/24", &[("smp_affinity_list", "0-3")]);
    group(root, "irq/25", &[("smp_affinity_list", "5")]);
    // A directory in the place of a file can be neither read nor written.
    fs::create_dir_all(root.join("irq/26/smp_affinity_list")).unwrap();
    let mut out = Vec::new();
    let error = run(&args(root, state.path()), &mut out).unwrap_err().to_string();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("interrupts and latency knobs: 1 file restored\n"), "{out}");
    assert!(out.contains("not undone:  interrupt 26: "), "{out}");
    assert_eq!(error, "1 change could not be undone, see above");
    assert_eq!(read(root, "irq/24/smp_affinity_list"), "0-7");
    assert_eq!(read(root, "irq/25/smp_affinity_list"), "5");
    assert!(state.path().join("quiet.json").exists(), "it has the original of interrupt 26");
    fs::remove_dir_all(root.join("irq/26")).unwrap();
    run(&args(root, state.path()), &mut Vec::new()).unwrap();
    assert_eq!(files_below(state.path()), ["lock"]);
}

#[test]
fn uninstall_is_refused_while_the_plugin_runs() {
    let node = node();
    let state = tempfile::tempdir().unwrap();
    let _running = StateDir::open(state.path(), &Disk::start().unwrap()).unwrap();
    let error = run(&args(node.path(), state.path()), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("Remove the DaemonSet first"), "{error}");
    assert_eq!(read(node.path(), "kubepods/burstable/cpuset.cpus"), "0-1,4-7");
}

/// Its name may be mistyped: the records of what has to be undone would be elsewhere.
#[test]
fn uninstall_fails_without_a_state_directory_and_creates_none() {
    let node = node();
    let parent = tempfile::tempdir().unwrap();
    let [missing, file, link] =
        ["state/of/plugin", "file", "link"].map(|name| parent.path().join(name));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&missing, &link).unwrap();
    for state in [&missing, &file, &link] {
        for stay in [false, true] {
            let args = UninstallArgs { stay, ..args(node.path(), state) };
            let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
            let expect = format!("no directory {}, nothing was undone", state.display());
            assert!(error.starts_with(&expect), "{error}");
        }
    }
    assert_eq!(read(node.path(), "kubepods/burstable/cpuset.cpus"), "0-1,4-7");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
    // Nothing is known of an empty one, for example that of a node on which the plugin never ran.
    fs::create_dir_all(&missing).unwrap();
    run(&args(node.path(), &missing), &mut Vec::new()).unwrap();
}

#[test]
fn uninstall_fails_without_a_cpuset_controller() {
    let empty = tempfile::tempdir().unwrap();
    let error = run(&args(empty.path(), empty.path()), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("has no cpuset controller"), "{error}");
}

/// A container's id, as long as those of runtimes.
fn id(of: char) -> String {
    of.to_string().repeat(64)
}

/// Containers of both cgroup drivers: with exclusive CPUs and a quota that is lifted or not, shared
/// ones in the pool, on all CPUs, and without any setting.
fn with_containers(state: &Path) -> tempfile::TempDir {
    let node = node();
    let root = node.path();
    fs::create_dir_all(root.join("devices/system/cpu")).unwrap();
    fs::write(root.join("devices/system/cpu/possible"), "0-7\n").unwrap();
    let container = |path: &str, cpus, quota| {
        let files =
            [("cpuset.cpus", cpus), ("cpu.max", quota), ("cpuset.cpus.partition", "member")];
        group(root, path, &files);
    };
    container(&format!("kubepods/poda/{}", id('a')), "2-3", "max 100000");
    container(&format!("kubepods/burstable/podb/{}", id('b')), "0-1,4-7", "max 100000");
    container(&format!("kubepods/burstable/podb/{}", id('e')), "", "max 100000");
    // Cgroups that a container has made in its own cgroup belong to it.
    container(&format!("kubepods/burstable/podb/{}/inner", id('b')), "0", "max 100000");
    let slice = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podc.slice";
    container(&format!("{slice}/cri-containerd-{}.scope", id('c')), "4-5", "200000 100000");
    container(&format!("{slice}/crio-{}.scope", id('d')), "0-9", "50000 100000");
    container(&format!("{slice}/crio-{}.scope/container", id('f')), "4-5", "max 100000");
    container(&format!("{slice}/crio-{}.scope", id('f')), "4-5", "max 100000");
    // The ids in these names are those of containers, but the cgroups are of other processes.
    container(&format!("{slice}/crio-conmon-{}.scope", id('f')), "0", "max 100000");
    container(&format!("system.slice/docker-{}.scope", id('a')), "0", "max 100000");
    let claim = |of, limit: Option<u64>| Claim {
        pod_uid: PodUid(String::new().into()),
        namespace: String::new(),
        pod: String::new(),
        container: String::new(),
        id: ContainerId(id(of).into()),
        cpus: "2-3".parse().unwrap(),
        margin: Margin::NONE,
        mixed: false,
        lent: false,
        cpu: CpuRequest { request: limit.map(MilliCpu), limit: limit.map(MilliCpu) },
    };
    let claims = vec![
        claim('a', Some(2000)),
        claim('c', Some(2000)),
        claim('f', Some(1500)),
        claim('9', None),
    ];
    StateDir::open(state, &Disk::start().unwrap()).unwrap().save(&claims.into()).unwrap();
    node
}

#[test]
fn containers_are_freed_only_on_request() {
    let state = tempfile::tempdir().unwrap();
    let node = with_containers(state.path());
    let root = node.path();
    let slice = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podc.slice";
    let a = format!("kubepods/poda/{}", id('a'));
    let b = format!("kubepods/burstable/podb/{}", id('b'));
    let f = format!("{slice}/crio-{}.scope", id('f'));
    let both = |group: &str| {
        [read(root, &format!("{group}/cpuset.cpus")), read(root, &format!("{group}/cpu.max"))]
    };
    let mut out = Vec::new();
    run(&args(root, state.path()), &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("containers"));
    assert_eq!(both(&a), ["2-3", "max 100000"]);

    let freeing = UninstallArgs { containers: true, ..args(root, state.path()) };
    let mut out = Vec::new();
    run(&freeing, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(
        out.contains("CFS quotas:  2 quotas restored\ncontainers:  4 containers freed\n"),
        "{out}"
    );
    for (group, expected) in [
        (a, ["", "200000 100000"]),
        (b.clone(), ["", "max 100000"]),
        (format!("{b}/inner"), ["0", "max 100000"]),
        (format!("kubepods/burstable/podb/{}", id('e')), ["", "max 100000"]),
        (format!("{slice}/cri-containerd-{}.scope", id('c')), ["", "200000 100000"]),
        (format!("{slice}/crio-{}.scope", id('d')), ["0-9", "50000 100000"]),
        (f.clone(), ["", "150000 100000"]),
        (format!("{f}/container"), ["", "150000 100000"]),
        (format!("{slice}/crio-conmon-{}.scope", id('f')), ["0", "max 100000"]),
        (format!("system.slice/docker-{}.scope", id('a')), ["0", "max 100000"]),
    ] {
        assert_eq!(both(&group), expected, "{group}");
    }
}

#[test]
fn containers_of_a_kubelet_that_assigns_cpus_are_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let node = with_containers(state.path());
    let a = format!("kubepods/poda/{}/cpuset.cpus", id('a'));
    let write = |policy| {
        let text = format!(r#"{{"policyName":"{policy}","defaultCpuSet":"","checksum":1}}"#);
        fs::write(node.path().join("cpu_manager_state"), text).unwrap();
    };
    write("static");
    let freeing = UninstallArgs { containers: true, ..args(node.path(), state.path()) };
    let error = run(&freeing, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("static policy is active"), "{error}");
    assert_eq!(read(node.path(), &a), "2-3");
    assert_eq!(read(node.path(), "kubepods/poda/c/cpuset.cpus.partition"), "root");
    write("none");
    run(&freeing, &mut Vec::new()).unwrap();
    assert_eq!(read(node.path(), &a), "");
}

#[test]
fn a_damaged_state_file_frees_no_containers() {
    let state = tempfile::tempdir().unwrap();
    let node = with_containers(state.path());
    fs::write(state.path().join("checkpoint.json"), "{").unwrap();
    let freeing = UninstallArgs { containers: true, ..args(node.path(), state.path()) };
    let error = run(&freeing, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("whose CFS quota was lifted"), "{error}");
    assert_eq!(read(node.path(), &format!("kubepods/poda/{}/cpuset.cpus", id('a'))), "2-3");
    run(&args(node.path(), state.path()), &mut Vec::new()).unwrap();
}

/// The files of a directory with their contents.
fn below(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::read(&path).unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_dry_run_of_uninstall_names_who_keeps_cpus_and_changes_nothing() {
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        daemon.create("web", Qos::Burstable, 500).await.unwrap();
        daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        let dir = &daemon.paths.state_dir;
        let before = below(dir);
        let ask = async |more: &[&str]| {
            command(dir, &[&["uninstall", "--dry-run"], more].concat()).await.unwrap()
        };
        assert_eq!(
            ask(&[]).await,
            "ns/a/c: CPUs 2-3 would stay set, and others may run there\n\
             shared pool: 0-1,4-15 -> 0-1,4-15\n"
        );
        assert_eq!(
            ask(&["--containers"]).await,
            "ns/a/c: CPUs 2-3 would become 0-15, shared with all others\n\
             shared pool: 0-1,4-15 -> 0-15; 2-3 become shared\n\
             1 container on shared CPUs would follow\n"
        );
        assert_eq!(below(dir), before);
    })
    .await;
}
