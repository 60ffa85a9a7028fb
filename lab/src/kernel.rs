//! What the kernel says of itself.

use anyhow::{Context, Result};

const TAINTED: &str = "/proc/sys/kernel/tainted";

/// Whether the kernel has warned of itself, or died in part, since it was started: nothing that it
/// promises counts then.
///
/// Source: `Documentation/admin-guide/tainted-kernels.rst` of the kernel.
pub fn has_warned() -> Result<bool> {
    let text =
        std::fs::read_to_string(TAINTED).with_context(|| format!("cannot read {TAINTED}"))?;
    let tainted: u64 = text.trim().parse().with_context(|| format!("{TAINTED} says {text:?}"))?;
    let (died, warned) = (1 << 7, 1 << 9);
    Ok(tainted & (died | warned) != 0)
}
