//! `cpuctl doctor` on nodes of different kinds. The handshake with a runtime is tested in
//! `tests/protocol`.

use crate::support::fake_sysfs;
use clap::Parser;
use cpuctl::{Cli, doctor};
use machines::presets::preset;
use std::fs;
use std::path::Path;

/// A node whose files are below a directory: KEP-4800's machine, cgroup v2, nothing else.
fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let facts = preset("kep-4800").unwrap().facts().unwrap();
    fs::create_dir(dir.path().join("sys")).unwrap();
    fake_sysfs::write(&dir.path().join("sys"), &fake_sysfs::files(&facts));
    write(dir.path(), "sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
    write(dir.path(), "sys/fs/cgroup/cgroup.procs", "");
    write(dir.path(), "proc/sys/kernel/osrelease", "6.12.30\n");
    dir
}

fn write(root: &Path, file: &str, text: impl AsRef<[u8]>) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The output, and whether the exit status is 0.
fn examined(root: &Path, more: &[&str]) -> (String, bool) {
    let cgroups = root.join("sys/fs/cgroup");
    let fixed = ["cpuctl", "doctor", "--root", root.to_str().unwrap(), "--cgroup-root"];
    let all = [&fixed[..], &[cgroups.to_str().unwrap()], more].concat();
    let mut out = Vec::new();
    let command = Cli::try_parse_from(all).unwrap().command;
    let is_sound = command.run(&mut out, &mut Vec::new()).is_ok();
    (String::from_utf8(out).unwrap(), is_sound)
}

/// The line of a subject, and the advice below it.
fn line(text: &str, subject: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line[9..].starts_with(subject));
    let own = lines.next().unwrap_or_else(|| panic!("no {subject} in\n{text}"));
    let advice = lines.next().filter(|line| line.starts_with(' ')).unwrap_or_default();
    let words = [own, advice].concat();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_part_of_a_node_has_a_line() {
    let node = node();
    let (text, is_sound) = examined(node.path(), &[]);
    assert!(!is_sound, "without a runtime there is a problem");
    for (subject, expected) in [
        ("machine", "ok machine 1 socket, 1 NUMA node, 4 uncore caches, 32 cores, CPUs 0-31"),
        ("isolated", "ok isolated CPUs none"),
        ("cgroups", "ok cgroups v2, no pods"),
        ("CPU managers", "ok CPU managers none"),
        ("kubelet", "ok kubelet no CPU manager state"),
        ("devices", "ok devices no podresources socket of the kubelet"),
    ] {
        assert_eq!(line(&text, subject), expected);
    }
    assert!(
        line(&text, "runtime").starts_with("PROBLEM runtime /var/run/nri/nri.sock does not exist")
    );
    assert!(line(&text, "exclusivity").starts_with("ok exclusivity auto becomes groups"));
}

#[test]
fn what_is_in_the_plugins_way_is_named() {
    let node = node();
    let root = node.path();
    write(root, "sys/devices/system/cpu/isolated", "8-15\n");
    write(root, "proc/17/cmdline", b"/bin/nri-topology-aware\0--host-root\0/host\0");
    write(root, "opt/nri/plugins/10-balloons", "");
    write(root, "var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"static\"}");
    write(root, "var/lib/kubelet/config.yaml", "cpuManagerPolicy: static\n");
    write(root, "sys/fs/cgroup/kubepods.slice/cpuset.cpus", "\n");
    let (text, _) = examined(root, &[]);
    assert!(line(&text, "isolated").starts_with("note isolated CPUs isolcpus=8-15"));
    let managers = line(&text, "CPU managers");
    assert!(managers.contains("10-balloons (launched by the runtime), nri-topology-aware (NRI"));
    let kubelet = "PROBLEM kubelet its CPU manager assigns CPUs (policy static): the plugin would";
    let refused = format!("{kubelet} refuse containers that ask for exclusive CPUs");
    assert!(line(&text, "kubelet").starts_with(&refused));
    assert_eq!(line(&text, "cgroups"), "ok cgroups v2, systemd driver");
    let config = root.join("config.yaml");
    fs::write(&config, "mode: observe\n").unwrap();
    let (text, _) = examined(root, &["--config", config.to_str().unwrap()]);
    assert!(line(&text, "kubelet").starts_with(&format!("{kubelet} only observe")));
}

#[test]
fn the_plugin_itself_is_no_other_manager() {
    let node = node();
    write(node.path(), "proc/17/cmdline", b"/nri-cpu-manager\0status\0--state-dir\0/run\0");
    assert_eq!(line(&examined(node.path(), &[]).0, "CPU managers"), "ok CPU managers none");
    write(node.path(), "proc/18/cmdline", b"/nri-cpu-manager\0run\0");
    let own = "ok CPU managers this plugin is running";
    assert_eq!(line(&examined(node.path(), &[]).0, "CPU managers"), own);
}

#[test]
fn a_configuration_is_checked_against_the_node() {
    let node = node();
    let file = node.path().join("config.yaml");
    let shown = file.to_str().unwrap();
    let checked = |text: &str| {
        fs::write(&file, text).unwrap();
        let (text, _) = examined(node.path(), &["--config", shown]);
        (line(&text, "configuration"), line(&text, "exclusivity"))
    };
    let (config, exclusivity) =
        checked("cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\nexclusivity: runtime\n");
    assert_eq!(config, "ok configuration fits this node");
    assert!(exclusivity.starts_with("note exclusivity runtime"), "{exclusivity}");
    let (config, _) = checked("cpuManagerPolicy: static\nreservedSystemCPUs: \"40\"\n");
    assert!(config.starts_with("PROBLEM configuration") && config.contains("line 2"), "{config}");
}

#[test]
fn without_a_file_the_configuration_of_the_default_install_is_checked() {
    let small = node();
    let (text, _) = examined(small.path(), &[]);
    let fits =
        "ok configuration that of the default install fits this node; --config FILE checks another";
    assert_eq!(line(&text, "configuration"), fits);
    write(small.path(), "sys/devices/system/cpu/online", "30-31\n");
    let (text, _) = examined(small.path(), &[]);
    let noted = line(&text, "configuration");
    let expected = format!(
        "{} line 4: systemReserved: 2 CPUs are reserved, and this machine has 2, so none",
        fits.replacen("ok", "note", 1)
    );
    assert!(noted.starts_with(&expected), "{noted}");
    let none = "ok reservation the kubelet needs none: nothing is assigned here";
    assert_eq!(line(&text, "reservation"), none);

    // The same settings as the manifest's.
    let base: serde_yaml::Value =
        serde_yaml::from_str(include_str!("../../manifests/base/configmap.yaml")).unwrap();
    let shipped: serde_yaml::Value =
        serde_yaml::from_str(base["data"]["config.yaml"].as_str().unwrap()).unwrap();
    let compiled: serde_yaml::Value = serde_yaml::from_str(doctor::DEFAULT_INSTALL).unwrap();
    assert_eq!(shipped, compiled);
}

#[test]
fn the_kubelet_has_to_reserve_as_many_cpus() {
    let node = node();
    let reservation = |kubelet: &str| {
        write(node.path(), "var/lib/kubelet/config.yaml", kubelet);
        line(&examined(node.path(), &[]).0, "reservation")
    };
    let enough = "ok reservation 2 CPUs (0-1), and in the kubelet as many";
    for kubelet in [
        "systemReserved: {cpu: 2}\n",
        "systemReserved: {cpu: 1500m}\nkubeReserved: {cpu: \"0.5\"}\n",
        "reservedSystemCPUs: 0-1,4\nsystemReserved: {cpu: 1}\n",
    ] {
        assert_eq!(reservation(kubelet), enough, "{kubelet}");
    }
    for (kubelet, has, lines) in [
        ("cpuManagerPolicy: none\n", "0", "systemReserved: {cpu: \"2\"}"),
        ("systemReserved: {cpu: 500m, memory: 1Gi}\n", "500m", "systemReserved: {cpu: \"2\"}"),
        ("kubeReserved: {cpu: 60m}\n", "60m", "systemReserved: {cpu: \"1940m\"}"),
        ("reservedSystemCPUs: \"0\"\n", "1", "systemReserved: {cpu: \"2\"}"),
    ] {
        let noted = reservation(kubelet);
        let expected = format!("note reservation 2 CPUs (0-1), but {has} in the kubelet otherwise");
        assert!(noted.starts_with(&expected), "{noted}");
        assert!(noted.contains(&format!("In /var/lib/kubelet/config.yaml: {lines};")), "{noted}");
    }
    fs::remove_file(node.path().join("var/lib/kubelet/config.yaml")).unwrap();
    let unknown = line(&examined(node.path(), &[]).0, "reservation");
    let expected = "note reservation 2 CPUs (0-1); that of the kubelet is unknown: ";
    assert!(unknown.starts_with(expected), "{unknown}");
}

/// The plugin's own container has the host's files below `/host` (overlay `quiet`).
#[test]
fn interrupts_are_read_where_the_overlay_quiet_mounts_them() {
    let node = node();
    let host = node.path().join("host");
    write(&host, "proc/interrupts", "CPU0\n 24: 1 PCI-MSI 0-edge nic\n");
    write(&host, "proc/irq/24/smp_affinity_list", "0-31\n");
    write(&host, "proc/irq/default_smp_affinity", "ffffffff\n");
    let (text, _) = examined(node.path(), &["--host-root", host.to_str().unwrap()]);
    assert_eq!(line(&text, "interrupts"), "ok interrupts 1 of 1 interrupt can be moved");
}

#[test]
fn interrupts_that_can_be_moved_are_counted() {
    let node = node();
    let root = node.path();
    let unwritable = line(&examined(root, &[]).0, "interrupts");
    assert!(unwritable.starts_with("note interrupts cannot write "), "{unwritable}");
    let listing = "           CPU0\n 24:          1   PCI-MSI   0-edge      nic\n";
    write(root, "proc/interrupts", listing);
    write(root, "proc/irq/24/smp_affinity_list", "0-31\n");
    write(root, "proc/irq/default_smp_affinity", "ffffffff\n");
    let writable = line(&examined(root, &[]).0, "interrupts");
    assert_eq!(writable, "ok interrupts 1 of 1 interrupt can be moved");
}

#[test]
fn isolated_partitions_are_told_as_this_kernel_has_them() {
    let node = node();
    let config = node.path().join("config.yaml");
    fs::write(
        &config,
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\ncpusetPartition: isolated\n",
    )
    .unwrap();
    let (text, _) = examined(node.path(), &["--config", config.to_str().unwrap()]);
    let isolation = line(&text, "isolation");
    assert!(isolation.contains("before Linux 7.0") && isolation.contains("kswapd"), "{isolation}");
}

#[test]
fn huge_pages_that_containerd_hides_are_noted_where_they_are_counted() {
    const COUNTED: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n\
                           memoryManagerPolicy: Static\n\
                           reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n";
    const FILE: &str = "etc/containerd/config.toml";
    let node = node();
    let file = node.path().join("config.yaml");
    let checked = |text: &str| {
        fs::write(&file, text).unwrap();
        line(&examined(node.path(), &["--config", file.to_str().unwrap()]).0, "configuration")
    };
    write(node.path(), "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    assert_eq!(checked(COUNTED), "ok configuration fits this node");
    write(node.path(), FILE, "version = 2\n# disable_hugetlb_controller = false\n");
    let noted = checked(COUNTED);
    assert!(noted.starts_with("note configuration fits this node huge pages"), "{noted}");
    assert_eq!(
        checked("cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\n"),
        "ok configuration fits this node"
    );
    write(node.path(), FILE, "version = 2\n  disable_hugetlb_controller = false # for plugins\n");
    assert_eq!(checked(COUNTED), "ok configuration fits this node");
}

#[test]
fn a_socket_without_a_runtime_is_a_problem() {
    let node = node();
    fs::create_dir_all(node.path().join("run/nri")).unwrap();
    let socket = node.path().join("run/nri/nri.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let closing = std::thread::spawn(move || drop(listener.accept()));
    let (text, is_sound) = examined(node.path(), &[]);
    closing.join().unwrap();
    let line = line(&text, "runtime");
    assert!(!is_sound && line.starts_with("PROBLEM runtime /run/nri/nri.sock: "), "{line}");
}

#[test]
fn programs_get_one_document() {
    let (text, _) = examined(node().path(), &["--output", "json"]);
    let findings: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(findings.len(), 12);
    let machine = &findings[0];
    assert_eq!((&machine["subject"], &machine["severity"]), (&"machine".into(), &"ok".into()));
    assert!(findings.iter().any(|one| one["severity"] == "problem" && one["advice"].is_string()));
}
