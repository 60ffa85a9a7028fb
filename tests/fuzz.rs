//! The bodies of the fuzz targets without a fuzzer: on the committed corpus, on damaged copies of it,
//! and on random bytes. `hack/fuzz` runs the same bodies guided by coverage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod fuzz_bodies;

use fuzz_bodies::TARGETS;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use std::fs;
use std::path::{Path, PathBuf};

/// The seeds of a target.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    assert!(dir.is_dir(), "no directory {}", dir.display());
    let entries = fs::read_dir(dir).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_corpus_passes() {
    for (target, body) in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has no corpus");
        for (path, bytes) in corpus {
            println!("{}", path.display());
            body(&bytes);
        }
    }
}

/// Seeds with a few bytes changed, inserted or removed.
#[test]
fn damaged_seeds_pass() {
    for (target, body) in TARGETS {
        let corpus = corpus(target);
        let seed = (0..corpus.len()).prop_map(|seed| corpus[seed].1.clone());
        let edits =
            prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6);
        check(&(seed, edits), |(mut bytes, edits)| {
            for (at, byte, edit) in edits {
                let at = at.index(bytes.len() + 1);
                match edit {
                    0 => bytes.insert(at, byte),
                    1 if at < bytes.len() => drop(bytes.remove(at)),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
                }
            }
            body(&bytes);
            Ok(())
        });
    }
}

#[test]
fn random_bytes_pass() {
    for (_, body) in TARGETS {
        check(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
            body(&bytes);
            Ok(())
        });
    }
}

fn check<S: Strategy>(inputs: &S, body: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    TestRunner::new(config).run(inputs, body).unwrap();
}
