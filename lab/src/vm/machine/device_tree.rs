//! The device tree of an arm64 machine, with its uncore caches.
//!
//! QEMU describes no caches, and Linux takes the last level that a CPU names for one of the whole
//! machine. This adds each core's L2 and each die's or module's L3 to QEMU's own tree, by the
//! Devicetree Specification, 3.8.1 and 3.9.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::Machine;

/// Above QEMU's own.
const FIRST_PHANDLE: usize = 0xa000;

impl Machine {
    /// `source` is QEMU's tree, as `dtc` writes it.
    pub(crate) fn add_caches(&self, source: &str) -> Result<String> {
        let core = |cpu| FIRST_PHANDLE + self.position(cpu).core;
        let uncore = |cache| FIRST_PHANDLE + self.cpus() + cache;
        let mut lines = source.lines();
        let mut tree = String::new();
        for line in lines.by_ref() {
            tree += line;
            tree.push('\n');
            if line == "\t};" && tree.contains("\t\tcpu@0 {") {
                break;
            }
            if let Some(number) = line.strip_prefix("\t\tcpu@") {
                let number = number.trim_end_matches(" {");
                let cpu = usize::from_str_radix(number, 16)
                    .with_context(|| format!("unexpected CPU in the device tree: {line}"))?;
                writeln!(tree, "\t\t\tnext-level-cache = <{}>;", core(cpu))?;
            }
        }
        // The last line closes the list of CPUs.
        tree.truncate(tree.trim_end().len().saturating_sub("};".len()));
        let mut cache = |name: String, level, phandle, next: String| {
            writeln!(
                tree,
                "\t\t{name} {{ compatible = \"cache\"; cache-level = <{level}>; cache-unified; \
                 phandle = <{phandle}>; {next}}};"
            )
        };
        let caches = self.sockets * self.dies * self.modules;
        for number in 0..caches {
            cache(format!("l3-cache{number}"), 3, uncore(number), String::new())?;
        }
        for first in (0..self.cpus()).step_by(self.threads) {
            let next = format!("next-level-cache = <{}>; ", uncore(self.position(first).cache));
            cache(format!("l2-cache{first}"), 2, core(first), next)?;
        }
        tree += "\t};\n";
        for line in lines {
            tree += line;
            tree.push('\n');
        }
        Ok(tree)
    }
}
