//! Text formats: lists and masks of CPUs, the checkpoint, the kubelet's state file, the
//! configuration.

use super::node;
use config::{Config, ConfigError, FromKubelet, NodeIdentity, from_kubelet};
use cpuset::{CpuSet, MAX_CPUS};
use kubelet::{StateFile, StateFileError};
use ledger::{Channel, Claim, Due, Event, KubeletClaim, Ledger, Mechanism, Named, Stance};
use state::checkpoint::{self, SavedClaims};
use status::config_status::ConfigStatus;
use std::str;

/// The kernel's list format: a parsed set is printed and parsed as the same set.
pub fn cpulist(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match text.parse::<CpuSet>() {
        Ok(set) => {
            assert!(set.iter().all(|cpu| cpu < MAX_CPUS));
            assert_eq!(set.iter().count(), set.len());
            assert_eq!(set.to_string().parse(), Ok(set), "{text:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The kernel's mask format: a parsed mask, printed by an independent implementation, is parsed as
/// the same set.
pub fn masks(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match CpuSet::from_mask(text) {
        Ok(set) => {
            assert!(set.iter().all(|cpu| cpu < MAX_CPUS));
            let mut groups = Vec::new();
            for group in (0..MAX_CPUS / 32).rev() {
                let bits = (0..32).filter(|bit| set.contains(group * 32 + bit));
                let word = bits.fold(0_u32, |word, bit| word | 1 << bit);
                groups.push(format!("{word:08x}"));
            }
            assert_eq!(CpuSet::from_mask(&groups.join(",")), Ok(set), "{text:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A checkpoint: with any content, taking over a running node is legal and moves no container.
///
/// Random bytes rarely have the right checksum, so they are also tried as the content of a valid
/// file.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(claims) = checkpoint::decode(bytes) {
        adopt(claims);
    }
    let sum = crc32fast::hash(bytes);
    let mut sealed = format!("{{\"version\":1,\"checksum\":\"{sum:08x}\",\"state\":").into_bytes();
    sealed.extend(bytes);
    sealed.push(b'}');
    if let Ok(claims) = checkpoint::decode(&sealed) {
        adopt(claims);
    }
}

/// Restarts with these claims on a node with two exclusive containers and one that was never
/// pinned.
pub fn adopt(claims: SavedClaims) {
    adopt_with(node::ledger(claims.cpus).with_memory(claims.memory));
}

fn adopt_with(mut ledger: Ledger) {
    assert_eq!(ledger.check(), Ok(()));
    let a = node::cpus("2-5");
    let b = node::cpus("8-11");
    let nodes = [
        node::running("a", 4000, Some(a)),
        node::running("b", 4000, Some(b)),
        node::running("late", 2000, None),
    ];
    let (pods, containers) = nodes.into_iter().unzip();
    ledger.apply(Event::Synchronize { pods, containers });
    let Due { updates, .. } = ledger.due(&Channel::Runtime);
    assert_eq!(ledger.check(), Ok(()));
    let held: Vec<Claim> = ledger.claims().collect();
    let of = |id: &str| held.iter().find(|claim| &*claim.id.0 == id).map(|claim| claim.cpus);
    assert_eq!((of("id-a"), of("id-b")), (Some(a), Some(b)), "moved by a checkpoint");
    // Ended containers of a pod that runs on keep their CPUs, which may leave too few.
    let late = of("id-late").map(|cpus| cpus.len());
    assert!(late == Some(2) || (late.is_none() && ledger.free().len() < 2), "{late:?} CPUs");
    assert!(updates.iter().all(|update| !["id-a", "id-b"].contains(&&*update.container.0)));
}

/// The kubelet's state file: it survives a round trip, and taking over a node with it is legal and
/// moves no container.
///
/// Random bytes rarely have the right checksum, so a wrong one is corrected if nothing else is
/// wrong.
pub fn kubelet(bytes: &[u8]) {
    match StateFile::parse(bytes) {
        Ok(state) => take_over(&state),
        Err(StateFileError::Checksum { says, is, .. }) => {
            let text = String::from_utf8_lossy(bytes).replace(&says.to_string(), &is.to_string());
            if let Ok(state) = StateFile::parse(text.as_bytes()) {
                take_over(&state);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The claims that name their container. Files that the plugin writes have no claims by id.
fn named(state: &StateFile) -> impl Iterator<Item = &KubeletClaim> {
    state.claims.iter().filter(|claim| matches!(claim.of, Named::Container(..)))
}

fn take_over(state: &StateFile) {
    let again = StateFile::parse(state.to_json().as_bytes()).expect("a valid file");
    assert_eq!((&again.policy, again.shared), (&state.policy, state.shared));
    assert!(named(&again).eq(named(state)), "{again:?}");
    let mut ledger = node::ledger(Vec::new());
    ledger.apply(Event::Stance { stance: Stance::Assign, claims: state.claims.clone() });
    adopt_with(ledger);
}

/// A configuration: valid for the machine, or refused with one line without the parser's jargon.
/// Converting a kubelet's file, and then the result, gives the same result.
pub fn config(bytes: &[u8]) {
    if let Ok(FromKubelet { block, .. }) = from_kubelet("kubelet.yaml", bytes.to_vec()) {
        let again = from_kubelet("kubelet.yaml", block.clone().into_bytes());
        assert_eq!(again.unwrap(), FromKubelet { block, left_out: Vec::new() });
    }
    let topology = node::topology();
    let labels = "pool=gpu".parse().ok();
    let this = NodeIdentity { name: Some("node".to_owned()), labels };
    let read = Config::from_bytes("config.yaml", bytes.to_vec());
    if let Err(mistakes) = &read {
        assert!(mistakes.to_string().lines().count() <= 21, "{mistakes}");
    }
    let resolved = read.map_err(ConfigError::from).and_then(|config| {
        let config = config.for_node(&this)?;
        Ok((config.resolve(topology)?, config))
    });
    match resolved {
        Ok((settings, config)) => {
            assert!(settings.placement.reserved.is_subset(&topology.online()));
            let daemon = (&config).into();
            assert!(!ConfigStatus::log_line(&settings, Mechanism::Groups, daemon).is_empty());
        }
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.starts_with("config.yaml") && error.contains("Nothing was changed"),
                "{error}"
            );
            assert!(error.lines().count() == 1 && error.len() < 5000, "{error}");
            for inside in ["invalid type", "invalid value", "expected struct", "missing field"] {
                assert!(!error.contains(inside), "{error}");
            }
        }
    }
}
