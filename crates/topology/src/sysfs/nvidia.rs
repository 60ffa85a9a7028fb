//! [`gpus`]: NVIDIA's GPUs, from the files of their driver.
//!
//! The driver registers its character devices (major number 195) without a class, so that sysfs has
//! no link from their numbers. Its own files have the way:
//! `/proc/driver/nvidia/gpus/ADDRESS/information` names the minor number and the UUID of the GPU at
//! a PCI address. They are neither namespaced nor masked in ordinary containers.

use super::devices::node_of;
use kernel::Kernel;
use std::path::Path;

/// More GPUs than any server has.
const MAX_GPUS: usize = 256;
/// The most bytes of a file, which has some 15 lines.
const LONGEST: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The PCI address, such as `0000:3b:00.0`.
    pub address: String,
    /// Such as `GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77`; `None` if the driver does not report it.
    pub uuid: Option<String>,
    /// N in the name `/dev/nvidiaN`; `None` if the driver does not report it.
    pub minor: Option<i64>,
    pub node: Option<usize>,
}

/// All GPUs of the driver; empty without the driver.
///
/// Reading may block for long, for example while the driver resets a GPU, so do not call this on a
/// thread that a container waits for.
pub fn gpus(kernel: &dyn Kernel, proc: &Path, sysfs: &Path) -> Vec<Gpu> {
    let directory = proc.join("driver/nvidia/gpus");
    let entries = kernel.entries(&directory).into_iter().flatten();
    let mut gpus: Vec<Gpu> = entries
        .filter(|(name, is_directory)| *is_directory && is_pci_address(name))
        .take(MAX_GPUS)
        .map(|(address, _)| {
            let text = kernel.read(&directory.join(&address).join("information"));
            let text = text.ok().filter(|text| text.len() <= LONGEST).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let value = |name: &str| {
                text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
            };
            Gpu {
                uuid: value("GPU UUID:").filter(|uuid| uuid.starts_with("GPU-")),
                minor: value("Device Minor:").and_then(|minor| minor.parse().ok()),
                node: node_of(kernel, &sysfs.join("bus/pci/devices").join(&address)),
                address,
            }
        })
        .collect();
    gpus.sort_by(|one, other| one.address.cmp(&other.address));
    gpus
}

/// Whether a name is like `0000:3b:00.0`. Other names must not become part of a path.
fn is_pci_address(name: &str) -> bool {
    name.len() <= 16
        && name.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'))
        && name.contains(':')
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make copies of /proc and /sys")]
mod tests {
    use super::*;
    use kernel::Linux;
    use std::fs;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// In the form of the driver's file.
    fn information(uuid: &str, address: &str, minor: &str) -> String {
        format!(
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 412\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.61.00.01\n\
             Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {address}\n\
             Device Minor: \t {minor}\nGPU Firmware: \t 535.104.05\nGPU Excluded:\t No\n"
        )
    }

    /// Eight GPUs of a server with two sockets, made from the driver's documentation.
    #[test]
    fn gpus_have_the_node_of_their_pci_function() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for n in 0..8 {
            let address = format!("0000:{:02x}:00.0", 0x1a + 0x11 * n);
            let uuid = format!("GPU-00000000-0000-0000-0000-00000000000{n}");
            let path = format!("proc/driver/nvidia/gpus/{address}/information");
            // The minor numbers of the driver need not have the order of the addresses.
            write(root, &path, &information(&uuid, &address, &(7 - n).to_string()));
            let node = format!("sys/bus/pci/devices/{address}/numa_node");
            write(root, &node, &format!("{}\n", n / 4));
        }
        write(root, "proc/driver/nvidia/version", "NVRM version: ...");
        let actual = gpus(&Linux, &root.join("proc"), &root.join("sys"));
        let nodes: Vec<Option<usize>> = actual.iter().map(|gpu| gpu.node).collect();
        assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
        let first = Gpu {
            address: "0000:1a:00.0".into(),
            uuid: Some("GPU-00000000-0000-0000-0000-000000000000".into()),
            minor: Some(7),
            node: Some(0),
        };
        assert_eq!(actual[0], first);
    }

    #[test]
    fn facts_that_the_driver_does_not_report_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let proc = root.join("proc");
        let sys = root.join("sys");
        assert_eq!(gpus(&Linux, &proc, &sys), []);
        let at = |address: &str| format!("driver/nvidia/gpus/{address}/information");
        write(
            &proc,
            &at("0000:01:00.0"),
            "Model: \t\t Unknown\nGPU UUID: \t ??\nDevice Minor: \t\n",
        );
        write(&proc, &at("..:evil"), "Device Minor: \t 0\n");
        write(&proc, "driver/nvidia/gpus/0000:02:00.0", "a file");
        write(&sys, "bus/pci/devices/0000:01:00.0/numa_node", "-1\n");
        let unknown = Gpu { address: "0000:01:00.0".into(), uuid: None, minor: None, node: None };
        assert_eq!(gpus(&Linux, &proc, &sys), [unknown]);
    }
}
