//! The recordings as seeds of the fuzzers.

use super::recorded::Recorded;
use super::{CONTAINERD_2_1, CONTAINERD_2_4, CRIO_1_36, Capture};
use crate::fuzz_calls;
use crate::go::TtrpcMessage;
use crate::runtime::{PLUGIN, frame};
use protobuf::Message as _;
use std::path::Path;
use ttrpc::proto::Request;

/// With `WRITE_SEEDS` in the environment this writes the seeds; without it, it only compares them.
#[test]
fn the_seeds_of_the_fuzzers_equal_the_recordings() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for Capture { name, generation, recording, .. } in [CONTAINERD_2_1, CRIO_1_36, CONTAINERD_2_4] {
        // Fuzzers run short seeds more often, and mutate them more easily.
        for (part, calls) in Recorded::all(recording).chunks(12).enumerate() {
            let mut records = Vec::new();
            let mut frames = Vec::new();
            for (index, recorded) in calls.iter().enumerate() {
                let (method, payload) = recorded.call(generation, recorded.container());
                fuzz_calls::encode(&mut records, method, &payload);
                let stream = 2 * u32::try_from(index).unwrap() + 1;
                let message = TtrpcMessage { stream, kind: 1, payload: request(method, &payload) };
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
    let committed = std::fs::read(path).unwrap_or_default();
    let equal = sorted(&committed) == sorted(bytes);
    assert!(equal, "{} differs from the recording: set WRITE_SEEDS", path.display());
}

fn request(method: &str, payload: &[u8]) -> Vec<u8> {
    let mut request = Request::new();
    request.service = "nri.pkg.api.v1alpha1.Plugin".into();
    request.method = method.into();
    request.payload = payload.to_vec();
    request.timeout_nano = 1_990_000_000;
    request.write_to_bytes().unwrap()
}
