//! `cpuctl bench-gain`: what pinning gains on this machine.

pub(crate) use gain::{Arguments as BenchGainArgs, Interrupted};
use std::error::Error;
use std::io::Write;

/// The command's name, with which it starts its own children.
const NAME: &str = "bench-gain";

pub(crate) fn run(args: &BenchGainArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    gain::run(args, &[NAME], out).map_err(|error| {
        if error.is::<Interrupted>() {
            Box::new(Interrupted)
        } else {
            Box::<dyn Error>::from(format!("{error:#}"))
        }
    })
}
