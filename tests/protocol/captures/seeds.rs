//! The recordings as seeds of the fuzzers.

use super::recorded::Recorded;
use super::{CONTAINERD_2_1, CONTAINERD_2_4, CRIO_1_36, Capture};
use crate::fuzz_calls;
use crate::go::Message;
use crate::runtime::{PLUGIN, frame};
use protobuf::Message as _;
use std::path::Path;
use ttrpc::proto::Request;

/// The fuzzers start from what real runtimes sent. With `WRITE_SEEDS` in the environment this
/// writes the seeds, without it checks that they are there and are still these.
#[test]
fn seeds_of_the_fuzzers() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for Capture { name, generation, recording, .. } in [CONTAINERD_2_1, CRIO_1_36, CONTAINERD_2_4] {
        // Short ones are tried more often and bent more easily.
        for (part, calls) in Recorded::all(recording).chunks(12).enumerate() {
            let (mut records, mut frames) = (Vec::new(), Vec::new());
            for (index, recorded) in calls.iter().enumerate() {
                let (method, payload) = recorded.call(generation, recorded.container());
                fuzz_calls::encode(&mut records, method, &payload);
                let stream = 2 * u32::try_from(index).unwrap() + 1;
                let message = Message { stream, kind: 1, payload: request(method, &payload) };
                frames.extend(frame(PLUGIN, &message.bytes()));
            }
            seed(&corpus.join(format!("ttrpc/{name}-{part}")), &records);
            seed(&corpus.join(format!("mux/{name}-{part}")), &frames);
        }
    }
}

fn seed(path: &Path, bytes: &[u8]) {
    if std::env::var_os("WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    // The entries of a map have no order.
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    let found = std::fs::read(path).unwrap_or_default();
    let same = sorted(&found) == sorted(bytes);
    assert!(same, "{} is not what was recorded: set WRITE_SEEDS", path.display());
}

fn request(method: &str, payload: &[u8]) -> Vec<u8> {
    let mut request = Request::new();
    request.service = "nri.pkg.api.v1alpha1.Plugin".into();
    request.method = method.into();
    request.payload = payload.to_vec();
    request.timeout_nano = 1_990_000_000;
    request.write_to_bytes().unwrap()
}
