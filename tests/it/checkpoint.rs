//! With any damaged state file the plugin starts, adopts the running containers, and moves none.

use crate::fuzz_bodies;
use crate::fuzz_bodies::adopt;
use ledger::{Claim, ContainerId, CpuRequest, LeftAlone, Margin, MemoryClaim, PodUid};
use placement::memory_manager::{self, MemoryKind};
use proptest::prelude::*;
use state::checkpoint::{self, Loaded, SavedClaims, StateDir};
use state::disk;
use std::fs;
use std::path::PathBuf;

/// Claims of two running containers with exclusive CPUs, of one that has ended, and of one that
/// runs but was never pinned, and memory of the first; [`adopt`] has the running ones.
fn claims() -> SavedClaims {
    let claim = |name: &str, cpus: &str| Claim {
        pod_uid: PodUid(format!("uid-{name}").into()),
        namespace: "default".to_owned(),
        pod: name.to_owned(),
        container: "c".to_owned(),
        id: ContainerId(format!("id-{name}").into()),
        cpus: cpus.parse().unwrap(),
        margin: Margin::NONE,
        mixed: false,
        lent: false,
        cpu: CpuRequest::default(),
    };
    let memory = MemoryClaim {
        pod_uid: PodUid("uid-a".into()),
        container: "c".to_owned(),
        memory: memory_manager::NodeMemoryClaim {
            nodes: [0].into_iter().collect(),
            amounts: [(MemoryKind::Memory, 1 << 30)].into(),
        },
    };
    let cpus =
        vec![claim("a", "2-5"), claim("b", "8-11"), claim("gone", "12-15"), claim("late", "6-7")];
    SavedClaims {
        cpus,
        memory: vec![memory],
        left_alone: [(ContainerId("id-other".into()), LeftAlone::Reserved)].into(),
        installing: false,
    }
}

struct Disk {
    state: StateDir,
    file: PathBuf,
    whole: Vec<u8>,
    _dir: tempfile::TempDir,
}

/// A node that had no plugin is one without a state file: an empty or damaged one is a plugin's.
#[test]
fn only_a_missing_file_means_that_no_plugin_ran() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), &disk::Disk::start().unwrap()).unwrap();
    assert_eq!(state.remembered().unwrap(), None);
    state.save(&SavedClaims::default()).unwrap();
    assert_eq!(state.remembered().unwrap(), Some(SavedClaims::default()));
    fs::write(dir.path().join("checkpoint.json"), "{").unwrap();
    assert_eq!(state.remembered().unwrap(), Some(SavedClaims::default()));
}

fn disk() -> Disk {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), &disk::Disk::start().unwrap()).unwrap();
    state.save(&claims()).unwrap();
    let file = dir.path().join("checkpoint.json");
    let whole = fs::read(&file).unwrap();
    Disk { state, file, whole, _dir: dir }
}

impl Disk {
    /// Starts with this state file; returns whether it was accepted.
    fn start(&self, bytes: &[u8]) -> bool {
        fs::write(&self.file, bytes).unwrap();
        match self.state.load().unwrap() {
            Loaded::Claims(claims) => {
                adopt(claims);
                true
            }
            Loaded::Rejected { kept_at, .. } => {
                // A rejected file is kept under another name for an administrator.
                fs::remove_file(kept_at.unwrap()).unwrap();
                adopt(SavedClaims::default());
                false
            }
            Loaded::Missing => panic!("the file exists"),
        }
    }
}

#[test]
fn a_truncated_checkpoint_is_rejected() {
    let disk = disk();
    let accepted: Vec<usize> =
        (0..=disk.whole.len()).filter(|length| disk.start(&disk.whole[..*length])).collect();
    // The last byte is only a newline.
    assert_eq!(accepted, [disk.whole.len() - 1, disk.whole.len()]);
}

#[test]
fn a_flipped_bit_never_changes_a_claim() {
    let disk = disk();
    let mut accepted = Vec::new();
    for at in 0..disk.whole.len() {
        for bit in 0..8 {
            let mut bytes = disk.whole.clone();
            bytes[at] ^= 1 << bit;
            if disk.start(&bytes) {
                accepted.push(bytes);
            }
        }
    }
    // Accepted are other white space at the end, and an upper case letter in the checksum.
    for bytes in accepted {
        assert_eq!(
            checkpoint::decode(&bytes).unwrap(),
            claims(),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

/// A kind of damage to a file. Positions are fractions of its length.
#[derive(Debug, Clone)]
enum Damage {
    Byte(f64, u8),
    Cut(f64, f64),
    Zeros(f64, f64),
    Copy(f64, f64, f64),
    Insert(f64, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let part = 0.0..1.0;
    prop_oneof![
        3 => (part.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => (part.clone(), part.clone()).prop_map(|(from, to)| Damage::Cut(from, to)),
        1 => (part.clone(), part.clone()).prop_map(|(from, to)| Damage::Zeros(from, to)),
        1 => (part.clone(), part.clone(), part.clone())
            .prop_map(|(from, to, at)| Damage::Copy(from, to, at)),
        1 => (part, prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    let place = |fraction: f64| (fraction * length as f64) as usize;
    let range = |a: f64, b: f64| place(a.min(b))..place(a.max(b));
    match damage {
        Damage::Byte(at, byte) => {
            if let Some(old) = bytes.get_mut(place(*at)) {
                *old = *byte;
            }
        }
        Damage::Cut(from, to) => drop(bytes.drain(range(*from, *to))),
        Damage::Zeros(from, to) => bytes[range(*from, *to)].fill(0),
        Damage::Copy(from, to, at) => {
            let copy = bytes[range(*from, *to)].to_vec();
            let at = place(*at);
            bytes.splice(at..at, copy);
        }
        Damage::Insert(at, new) => {
            let at = place(*at);
            bytes.splice(at..at, new.iter().copied());
        }
    }
}

/// Ten thousand corruptions, each also as the content of a file with a valid checksum.
#[test]
fn random_damage_never_changes_a_claim() {
    let disk = disk();
    let text = String::from_utf8(disk.whole.clone()).unwrap();
    let content = text[text.find("{\"containers\"").unwrap()..].trim_end().trim_end_matches('}');
    let content = format!("{content}}}");
    let config = ProptestConfig { cases: 10_000, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let damages = prop::collection::vec(damage(), 1..4);
    let result = runner.run(&damages, |damages| {
        let mut bytes = disk.whole.clone();
        let mut sealed = content.clone().into_bytes();
        for damage in &damages {
            apply(&mut bytes, damage);
            apply(&mut sealed, damage);
        }
        if disk.start(&bytes) {
            prop_assert_eq!(checkpoint::decode(&bytes).unwrap(), claims());
        }
        fuzz_bodies::checkpoint(&sealed);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn files_of_other_programs_and_later_versions_are_rejected() {
    let disk = disk();
    let kubelet = r#"{"policyName":"static","defaultCpuSet":"0-1,6-15","entries":{"u":{"c":"2-5"}},"checksum":1353318690}"#;
    let later =
        String::from_utf8(disk.whole.clone()).unwrap().replace("\"version\":1", "\"version\":2");
    assert!(later.contains("\"version\":2"));
    for foreign in [kubelet, &later, "[]", "null", "\u{feff}{}", "policyName: static\n"] {
        assert!(!disk.start(foreign.as_bytes()), "{foreign}");
    }
}

#[test]
fn an_unwritable_state_directory_fails_the_start_and_names_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    // Not even root can create directories there.
    for path in [file.join("state"), PathBuf::from("/proc/nri-cpu-manager")] {
        let error = StateDir::open(&path, &disk::Disk::start().unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("cannot create the directory") && error.contains("--state-dir"),
            "{error}"
        );
    }
}
