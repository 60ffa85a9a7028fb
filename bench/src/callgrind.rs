//! Runs this program under valgrind and reads what it counted.

use std::env::current_exe;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::num::ParseIntError;
use std::process::{Command, Stdio};

/// The function whose calls are counted.
const COUNTED: &str = concat!(module_path!(), "::counted_by_callgrind");

/// What is not counted in it: how long the allocator searches depends on everything that was ever
/// freed.
const ALLOCATOR: [&str; 4] = ["malloc", "calloc", "realloc", "free"];

/// Calls `call` where it is counted, and tells its case.
pub(super) fn case<T>(name: &str, call: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    println!("{name}");
    let mut call = Some(call);
    let mut answer = None;
    counted_by_callgrind(&mut || answer = call.take().map(|call| call()));
    black_box(answer).ok_or_else(|| format!("{name}: not called").into())
}

/// Without type parameters, so that it has the one name in valgrind's arguments; not inlined, so
/// that valgrind finds it; with something to do after the call, so that it is not left before.
#[inline(never)]
fn counted_by_callgrind(call: &mut dyn FnMut()) -> bool {
    call();
    black_box(true)
}

/// All cases and their instructions.
///
/// # Errors
/// If valgrind is missing, a case fails, or what valgrind wrote is not of its form.
pub(super) fn count() -> Result<Vec<(String, u64)>, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--combine-dumps=yes"])
        // Entering and leaving these turns counting on and off: outside of what is counted the
        // wrong way round, so that is set to zero.
        .args([COUNTED].iter().chain(&ALLOCATOR).map(|name| format!("--toggle-collect={name}")))
        .arg(format!("--zero-before={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(current_exe()?)
        .arg("--cases")
        .stderr(Stdio::inherit());
    let child = valgrind.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            "valgrind is not there: install Debian's package valgrind".to_owned()
        }
        _ => format!("valgrind does not start: {error}"),
    })?;
    if !child.status.success() {
        return Err(format!("the cases under valgrind: {}", child.status).into());
    }
    let names = String::from_utf8(child.stdout)?;
    let names: Vec<&str> = names.lines().collect();
    let mut counts = totals(&fs::read_to_string(out)?)?;
    // The last part is what came after the last case.
    counts.pop();
    if counts.len() != names.len() || counts.contains(&0) {
        let ran = names.len();
        let found = counts.iter().filter(|&&count| count > 0).count();
        return Err(format!(
            "{ran} cases ran, but valgrind counted {found}: are the program's symbols stripped?"
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
