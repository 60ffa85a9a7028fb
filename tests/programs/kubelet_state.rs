//! `nri-cpu-manager kubelet-state` as a user runs it.

use crate::support::fake_sysfs;
use kubelet::StateFile;
use ledger::model::{ContainerId, PodUid};
use ledger::{Claim, CpuRequest, Margin, Named};
use machines::synthetic::Machine;
use state::checkpoint::StateDir;
use state::disk::Disk;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn kubelet_state(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nri-cpu-manager"))
        .arg("kubelet-state")
        .args([Path::new("--config"), &dir.join("config.yaml")])
        .args([Path::new("--state-dir"), &dir.join("state")])
        .args([Path::new("--sysfs-root"), &dir.join("sys")])
        .output()
        .unwrap()
}

#[test]
fn the_state_file_for_the_kubelet_has_the_assigned_cpus() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine { cores: 16, ..Machine::default() };
    let files = fake_sysfs::files(&machine.facts().unwrap());
    fake_sysfs::write(&dir.path().join("sys"), &files);
    let claim = |pod: &str, container: &str, cpus: &str| Claim {
        pod_uid: PodUid(pod.into()),
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        container: container.to_owned(),
        id: ContainerId("id".into()),
        cpus: cpus.parse().unwrap(),
        margin: Margin::NONE,
        mixed: false,
        lent: false,
        cpu: CpuRequest::default(),
    };
    // Stays open, as by a running plugin.
    let state = StateDir::open(&dir.path().join("state"), &Disk::start().unwrap()).unwrap();
    let claims = vec![claim("a", "one", "2-3"), claim("a", "two", "8"), claim("b", "c", "4-7")];
    state.save(&claims.into()).unwrap();
    for (option, shared) in [("false", "0-1,9-15"), ("true", "9-15")] {
        let config = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\ncpuManagerPolicyOptions: {{strict-cpu-reservation: {option}}}\n"
        );
        fs::write(dir.path().join("config.yaml"), config).unwrap();
        let output = kubelet_state(dir.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let state = StateFile::parse(&output.stdout).unwrap();
        assert_eq!(
            (state.policy.as_str(), state.shared.to_string()),
            ("static", shared.to_owned())
        );
        let claims: Vec<String> = state
            .claims
            .iter()
            .map(|claim| match &claim.of {
                Named::Container(uid, name) => format!("{uid}/{name} {}", claim.cpus),
                Named::Id(id) => id.to_string(),
            })
            .collect();
        assert_eq!(claims, ["a/one 2-3", "a/two 8", "b/c 4-7"]);
    }
}

#[test]
fn nothing_is_printed_without_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let files = fake_sysfs::files(&Machine { cores: 4, ..Machine::default() }.facts().unwrap());
    fake_sysfs::write(&dir.path().join("sys"), &files);
    fs::write(dir.path().join("config.yaml"), "").unwrap();
    let output = kubelet_state(dir.path());
    assert!(!output.status.success() && output.stdout.is_empty());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("checkpoint.json") && error.contains("--state-dir"), "{error}");
}
