//! Files as kubelets write them, and damaged ones.

use super::*;
use proptest::prelude::*;

/// Second generation, with the checksum a kubelet gives it.
const V2: &str = r#"{"policyName":"static","defaultCpuSet":"0-1,4","entries":{"podA":{"x":"5-6"},"podB":{"c1":"2","c2":"3"}},"checksum":4159687561}"#;
/// Third generation.
const V3: &str = r#"{"policyName":"static","defaultCpuSet":"0-1,4","entries":{"podA":{"x":"5-6"},"podB":{"c1":"2","c2":"3"}},"podEntries":{"podA":{"cpuSet":"5-7"}},"checksum":369959899}"#;

fn claims(text: &str) -> Vec<String> {
    let state = StateFile::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    state.claims.iter().map(|claim| format!("{} {}", claim.of, claim.cpus)).collect()
}

#[test]
fn a_file_of_every_generation_is_read() {
    let expect = ["podA/x 5-6", "podB/c1 2", "podB/c2 3"];
    assert_eq!(claims(V2), expect);
    assert_eq!(claims(V3), expect);
    let state = StateFile::parse(V3.as_bytes()).unwrap();
    assert_eq!((state.policy.as_str(), state.shared.to_string()), ("static", "0-1,4".to_owned()));
    assert_eq!(state.pods, [(PodUid("podA".into()), "5-7".parse().unwrap())]);
    let first = r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"id1":"2-3","id2":"4"},"checksum":0}"#;
    assert_eq!(claims(first), ["container id1 2-3", "container id2 4"]);
}

/// The checksums that kubelets of all ages write under policy none.
#[test]
fn a_file_without_entries_is_valid_with_each_checksum() {
    for checksum in ["1353318690", "3242152201", "0"] {
        let text = format!(r#"{{"policyName":"none","defaultCpuSet":"","checksum":{checksum}}}"#);
        let state = StateFile::parse(text.as_bytes()).unwrap();
        assert_eq!((state.policy.as_str(), state.claims.len()), ("none", 0));
    }
}

#[test]
fn a_file_is_written_byte_for_byte_as_a_kubelet_writes_it() {
    for text in [V2, r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#] {
        assert_eq!(StateFile::parse(text.as_bytes()).unwrap().to_json(), text);
    }
}

#[test]
fn unknown_fields_and_empty_lists_are_skipped() {
    let text = r#"{"policyName":"static","defaultCpuSet":"0","entries":{"p":{"c":""}},"later":[1],"checksum":0}"#;
    assert_eq!(claims(text), [""; 0]);
}

#[test]
fn a_bad_file_is_an_error_that_names_the_policy_if_the_file_does() {
    for (text, expect, policy) in [
        ("", "truncated, or not a state file", None),
        ("[]", "truncated, or not a state file", None),
        ("{}", "missing field `policyName`", None),
        (&V2[..V2.len() - 1], "truncated, or not a state file", None),
        (&V2.replace("5-6", "5-7"), "checksum 4159687561, expected", Some("static")),
        (&V3.replace("369959899", "0"), "checksum 0, expected 369959899", Some("static")),
        (
            r#"{"policyName":"static","entries":{"p":{"c":"3-1"}}}"#,
            "invalid CPUs of container c of pod p",
            Some("static"),
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"0-4294967295"}"#,
            "invalid CPUs of all other containers",
            Some("static"),
        ),
    ] {
        let error = StateFile::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expect), "{text}: {error}");
        assert_eq!(error.policy(), policy, "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_state_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = StateFile::parse(&bytes);
    }

    /// No changed byte goes unnoticed that changes what the file says.
    #[test]
    fn a_changed_byte_is_noticed_or_harmless(at in 0..400usize, byte: u8) {
        for text in [V2, V3] {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(state) = StateFile::parse(&bytes) {
                prop_assert_eq!(state, StateFile::parse(text.as_bytes()).unwrap());
            }
        }
    }
}
