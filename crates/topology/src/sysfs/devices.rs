//! [`located_device`]: the NUMA node of a device.
//!
//! `/sys/dev/char/MAJOR:MINOR` and `/sys/dev/block/MAJOR:MINOR`
//! (Documentation/ABI/testing/sysfs-dev) are links to the device's directory. The nearest directory
//! above it that is a PCI function or similar has a file `numa_node`. A VFIO group (`/dev/vfio/N`)
//! is not on a bus: its functions are in `kernel/iommu_groups/N/devices`.

use super::tree::SysfsTree;
use kernel::Kernel;
use std::path::Path;

/// The most directories to check. Paths in sysfs have fewer.
const DEEPEST: usize = 40;

/// A device whose NUMA node the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedDevice {
    /// The PCI address, or the name of another kind of directory. Several files of one device have
    /// one name.
    pub name: String,
    pub node: usize,
}

/// The device with these numbers; `None` if the kernel does not know its node, as for `/dev/null`.
/// `root` is the sysfs directory.
pub fn located_device(
    kernel: &dyn Kernel,
    root: &Path,
    block: bool,
    major: i64,
    minor: i64,
) -> Option<LocatedDevice> {
    let kind = if block { "block" } else { "char" };
    let link = root.join(format!("dev/{kind}/{major}:{minor}"));
    let device = kernel.resolve(&link).ok()?;
    let root = kernel.resolve(root).ok()?;
    node_above(kernel, &root, &device).or_else(|| group_node(kernel, &root, &device))
}

/// The node of the nearest directory with a file `numa_node`, from `device` up to `root`.
fn node_above(kernel: &dyn Kernel, root: &Path, device: &Path) -> Option<LocatedDevice> {
    let mut above = device.ancestors().take(DEEPEST).take_while(|dir| dir.starts_with(root));
    above.find_map(|dir| {
        let name = dir.file_name()?.to_string_lossy().into_owned();
        Some(LocatedDevice { name, node: node_of(kernel, dir)? })
    })
}

/// The node in a device's file `numa_node`; `None` for -1, which means unknown.
pub(super) fn node_of(kernel: &dyn Kernel, dir: &Path) -> Option<usize> {
    SysfsTree::at(kernel, dir.to_owned()).number("numa_node").value
}

/// The node of the functions of a VFIO group, if all are on one node.
fn group_node(kernel: &dyn Kernel, root: &Path, device: &Path) -> Option<LocatedDevice> {
    let is_group = device.parent().is_some_and(|dir| dir.ends_with("devices/virtual/vfio"));
    if !is_group {
        return None;
    }
    let group = device.file_name()?;
    let functions = root.join("kernel/iommu_groups").join(group).join("devices");
    let entries = kernel.entries(&functions).ok()?;
    let nodes = entries.filter_map(|(name, _)| node_of(kernel, &functions.join(name)));
    let mut nodes: Vec<usize> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    match nodes.as_slice() {
        [node] => {
            Some(LocatedDevice { name: format!("VFIO group {}", group.display()), node: *node })
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make a copy of /sys")]
mod tests {
    use super::*;
    use kernel::Linux;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(root: &Path, from: &str, to: &str) {
        let from = root.join(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    }

    #[test]
    fn devices_have_the_node_of_their_function_or_vfio_group() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "devices/pci0000:40/0000:41:00.0/numa_node", "1\n");
        write(root, "devices/pci0000:40/0000:41:00.0/nvme/nvme0/nvme0n1/dev", "259:0\n");
        link(root, "dev/block/259:0", "../../devices/pci0000:40/0000:41:00.0/nvme/nvme0/nvme0n1");
        write(root, "devices/pci0000:40/0000:42:00.0/numa_node", "-1\n");
        write(root, "devices/pci0000:40/0000:42:00.0/drm/renderD128/dev", "226:128\n");
        link(root, "dev/char/226:128", "../../devices/pci0000:40/0000:42:00.0/drm/renderD128");
        write(root, "devices/virtual/mem/null/dev", "1:3\n");
        link(root, "dev/char/1:3", "../../devices/virtual/mem/null");
        write(root, "devices/virtual/vfio/12/dev", "242:0\n");
        link(root, "dev/char/242:0", "../../devices/virtual/vfio/12");
        let functions = "kernel/iommu_groups/12/devices";
        link(
            root,
            &format!("{functions}/0000:41:00.0"),
            "../../../../devices/pci0000:40/0000:41:00.0",
        );
        for (block, major, minor, expect) in [
            (true, 259, 0, Some(("0000:41:00.0", 1))),
            (false, 259, 0, None),
            (false, 226, 128, None),
            (false, 1, 3, None),
            (false, 242, 0, Some(("VFIO group 12", 1))),
            (false, -1, 0, None),
        ] {
            let actual = located_device(&Linux, root, block, major, minor);
            let actual = actual.as_ref().map(|one| (one.name.as_str(), one.node));
            assert_eq!(actual, expect, "{block} {major}:{minor}");
        }
        // The functions of the group are on several nodes.
        link(
            root,
            &format!("{functions}/0000:43:00.0"),
            "../../../../devices/pci0000:40/0000:43:00.0",
        );
        write(root, "devices/pci0000:40/0000:43:00.0/numa_node", "0\n");
        assert_eq!(located_device(&Linux, root, false, 242, 0), None);
    }

    #[test]
    fn a_link_that_leads_out_of_sysfs_has_no_node() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "numa_node", "3\n");
        write(dir.path(), "elsewhere/dev", "");
        let root = dir.path().join("sys");
        link(&root, "dev/char/5:5", "../../../elsewhere");
        assert_eq!(located_device(&Linux, &root, false, 5, 5), None);
    }
}
