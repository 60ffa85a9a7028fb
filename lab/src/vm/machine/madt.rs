//! ACPI's MADT, the list of processors and interrupt controllers, as in QEMU's q35 but in another
//! order.
//!
//! Linux numbers CPUs in the order of this table, and prefers a newer revision in the initramfs to
//! the firmware's (the kernel's `Documentation/admin-guide/acpi/initrd_table_override.rst`). The
//! format is in the ACPI specification, 5.2.12.

use anyhow::{Context, Result};

use super::Machine;

/// Where Linux looks for ACPI tables in the initramfs.
pub(crate) const TABLES: &str = "kernel/firmware/acpi";

/// QEMU's revision is 1; only a higher one replaces it.
const OEM_REVISION: u32 = 2;

const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// Interrupts with another input than their number, or other flags than ISA's: source, input,
/// flags.
const OVERRIDES: [(u8, u32, u16); 5] = [
    (0, 2, 0),
    (5, 5, ACTIVE_HIGH_LEVEL),
    (9, 9, ACTIVE_HIGH_LEVEL),
    (10, 10, ACTIVE_HIGH_LEVEL),
    (11, 11, ACTIVE_HIGH_LEVEL),
];

const ACTIVE_HIGH_LEVEL: u16 = 0b1101;

impl Machine {
    /// None if QEMU's own numbering is the described one.
    pub(crate) fn madt(&self) -> Result<Option<Vec<u8>>> {
        if !self.is_renumbered() {
            return Ok(None);
        }
        let processors: Option<Vec<(u8, u8)>> =
            (0..self.cpus()).map(|cpu| self.processor(cpu)).collect();
        let processors = processors
            .with_context(|| format!("the machine {} has APIC ids above 254", self.name))?;
        Ok(Some(table(&processors)))
    }

    /// The firmware's number (QEMU's) and the APIC id of a CPU. None if the id does not fit: 255
    /// means all processors.
    pub(super) fn processor(&self, cpu: usize) -> Option<(u8, u8)> {
        let index = self.index(cpu);
        let apic_id = u8::try_from(self.apic_id(index)).ok().filter(|id| *id < u8::MAX)?;
        Some((u8::try_from(index).ok()?, apic_id))
    }
}

/// Each processor has the firmware's number and its APIC id.
fn table(processors: &[(u8, u8)]) -> Vec<u8> {
    let mut body = [LOCAL_APIC, 1].map(u32::to_le_bytes).concat();
    for (uid, apic_id) in processors {
        body.extend([0, 8, *uid, *apic_id]);
        body.extend(1_u32.to_le_bytes());
    }
    body.extend([1, 12, 0, 0]);
    body.extend([IO_APIC, 0].map(u32::to_le_bytes).concat());
    for (from, to, flags) in OVERRIDES {
        body.extend([2, 10, 0, from]);
        body.extend(to.to_le_bytes());
        body.extend(flags.to_le_bytes());
    }
    // NMI of all processors at LINT1.
    body.extend([4, 6, u8::MAX, 0, 0, 1]);
    with_header(&body)
}

fn with_header(body: &[u8]) -> Vec<u8> {
    const HEADER: usize = 36;
    const CHECKSUM: usize = 9;
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut table = b"APIC".to_vec();
    table.extend(length.to_le_bytes());
    // The table's revision, and the place of the checksum.
    table.extend([3, 0]);
    table.extend(b"BOCHS BXPC    ");
    table.extend(OEM_REVISION.to_le_bytes());
    table.extend(b"BXPC");
    table.extend(1_u32.to_le_bytes());
    table.extend(body);
    // The sum of all bytes is 0.
    table[CHECKSUM] = table.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}
