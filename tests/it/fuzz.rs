//! The bodies of the fuzz targets without a fuzzer: on the committed corpus, on damaged copies of
//! it, and on random bytes. `hack/fuzz` runs the same bodies guided by coverage.

use crate::fuzz_bodies;
use crate::fuzz_bodies::TARGETS;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use protobuf::CodedOutputStream;
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
fn every_target_passes_on_its_corpus() {
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
fn every_target_passes_on_damaged_seeds() {
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

/// Edits of people and programs: whole lines and values, and YAML's syntax, repeated up to
/// thousands of times.
#[test]
fn the_config_target_passes_on_edited_configurations() {
    const PIECES: &[&str] = &[
        "[",
        "]",
        "{",
        "}",
        ", ",
        ": ",
        ":\n",
        "- ",
        "? ",
        "\n",
        "\n  ",
        "\r\n",
        "\t",
        "\"",
        "'",
        "|\n",
        ">-\n",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!x ",
        "%YAML 1.2\n",
        "---\n",
        "...\n",
        "# ",
        "\\",
        "\u{feff}",
        "\0",
        "\u{1b}",
        "é",
        "true",
        "null",
        "~",
        "500",
        "-1",
        "1e9999",
        "0-4294967296",
        "strict: true\n",
        "nodes:\n",
        "namespaces:\n",
        "- names: [a]\n",
        "rebalance: true\n",
        "systemReserved: {cpus: 4}\n",
        "kind: ConfigMap\n",
    ];
    let seeds = corpus("config");
    let seed =
        (0..seeds.len()).prop_map(|seed| String::from_utf8_lossy(&seeds[seed].1).into_owned());
    let index = any::<prop::sample::Index>;
    let edit =
        (index(), index(), index(), 0..6_u8, prop_oneof![9 => 1..4_usize, 1 => 100..3000_usize]);
    check(&(seed, prop::collection::vec(edit, 1..8)), |(text, edits)| {
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        lines.push(String::new());
        for (line, other, at, edit, times) in edits {
            let line = line.index(lines.len());
            let other = other.index(lines.len());
            match edit {
                0 if lines.len() > 1 => drop(lines.remove(line)),
                1 => lines.insert(line, lines[other].repeat(times)),
                2 => lines.swap(line, other),
                3 => lines[line].insert_str(0, &" ".repeat(times)),
                _ => {
                    let text = &mut lines[line];
                    let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
                    let at = if bounds.is_empty() { 0 } else { bounds[at.index(bounds.len())] };
                    text.insert_str(at, &PIECES[other % PIECES.len()].repeat(times));
                }
            }
        }
        fuzz_bodies::config(lines.concat().as_bytes());
        Ok(())
    });
}

#[test]
fn every_target_passes_on_random_bytes() {
    for (_, body) in TARGETS {
        check(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
            body(&bytes);
            Ok(())
        });
    }
}

/// Messages similar to the runtime's: fields in any order, unknown, missing, repeated, or of a
/// wrong type.
#[test]
fn the_annotations_target_passes_on_random_messages() {
    let text = prop_oneof![
        "[a-z]{0,3}",
        "(cpus|smt|uncor)\\.cpu-manager\\.nri\\.io(/pod|/container\\.c|/pods)?",
        "(exclusive|isolate|prefer)",
        "io\\.kubernetes\\.(pod\\.(uid|name)|container\\.name|cri-o\\.Metadata)",
    ];
    let field = prop_oneof![
        (1..16_u32, any::<u64>()).prop_map(|(number, value)| varint(number, value)),
        (1..16_u32, text.clone()).prop_map(|(number, text)| delimited(number, text.as_bytes())),
        (5..7_u32, [text.clone(), text], any::<bool>()).prop_map(|(number, [key, value], swap)| {
            let key = delimited(1, key.as_bytes());
            let value = delimited(2, value.as_bytes());
            let entry = if swap { [value, key] } else { [key, value] };
            delimited(number, &entry.concat())
        }),
    ];
    let message = field.prop_recursive(5, 60, 8, |field| {
        let number = prop::sample::select(&[1, 2, 3, 4, 5, 6, 8, 9, 11][..]);
        (number, prop::collection::vec(field, 0..8))
            .prop_map(|(number, fields)| delimited(number, &fields.concat()))
    });
    check(&prop::collection::vec(message, 0..8), |fields| {
        fuzz_bodies::annotations(&fields.concat());
        fuzz_bodies::well_formed(&fields.concat());
        Ok(())
    });
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut field = Vec::new();
    CodedOutputStream::vec(&mut field).write_uint64(number, value).unwrap();
    field
}

fn delimited(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    CodedOutputStream::vec(&mut field).write_bytes(number, content).unwrap();
    field
}

fn check<S: Strategy>(inputs: &S, body: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    TestRunner::new(config).run(inputs, body).unwrap();
}
