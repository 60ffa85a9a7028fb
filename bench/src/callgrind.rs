//! Runs this program under valgrind and reads its counts.

use std::env::current_exe;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::num::ParseIntError;
use std::process::{Command, Stdio};

/// The function whose calls are counted.
const COUNTED: &str = concat!(module_path!(), "::counted_by_callgrind");

/// Functions that are not counted: the allocator's work depends on everything that was freed
/// before.
const ALLOCATOR: [&str; 4] = ["malloc", "calloc", "realloc", "free"];

/// Counts a call, and prints the name of its case.
pub(super) fn case<T>(name: &str, call: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    println!("{name}");
    let mut call = Some(call);
    let mut answer = None;
    counted_by_callgrind(&mut || answer = call.take().map(|call| call()));
    black_box(answer).ok_or_else(|| format!("{name}: not called").into())
}

/// Not generic, so that it has the one name in valgrind's arguments; not inlined, so that valgrind
/// finds it; and with an instruction after the call, so that it is not a tail call.
#[inline(never)]
fn counted_by_callgrind(call: &mut dyn FnMut()) -> bool {
    call();
    black_box(true)
}

/// Runs all cases; returns their instructions.
pub(super) fn count() -> Result<Vec<(String, u64)>, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--combine-dumps=yes"])
        // Entering and leaving these functions toggles counting. Outside COUNTED that counts the
        // allocator instead, which the reset at its entry discards.
        .args([COUNTED].iter().chain(&ALLOCATOR).map(|name| format!("--toggle-collect={name}")))
        .arg(format!("--zero-before={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(current_exe()?)
        .arg("--cases")
        .stderr(Stdio::inherit());
    let child = valgrind.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "valgrind not found: install Debian's package valgrind".to_owned(),
        _ => format!("cannot start valgrind: {error}"),
    })?;
    if !child.status.success() {
        return Err(format!("the cases failed under valgrind: {}", child.status).into());
    }
    let names = String::from_utf8(child.stdout)?;
    let names: Vec<&str> = names.lines().collect();
    let mut counts = totals(&fs::read_to_string(out)?)?;
    // The last part is the end of the program, after the last case.
    counts.pop();
    if counts.len() != names.len() || counts.contains(&0) {
        let ran = names.len();
        let counted = counts.iter().filter(|&&count| count > 0).count();
        return Err(format!(
            "{ran} cases ran, but valgrind counted {counted}: are the program's symbols stripped?"
        )
        .into());
    }
    Ok(names.into_iter().map(str::to_owned).zip(counts).collect())
}

/// The total of each part of valgrind's output; one is written after each case.
fn totals(out: &str) -> Result<Vec<u64>, ParseIntError> {
    let totals = out.lines().filter_map(|line| line.strip_prefix("totals:"));
    totals.map(|total| total.trim().parse()).collect()
}
