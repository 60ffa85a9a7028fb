//! The overlay `kernel-exclusivity` needs its privileges: with less, the plugin falls back to
//! another mechanism and reports what is missing.

use anyhow::{Result, ensure};

use super::exclusivity;
use super::shape::Shape;
use crate::daemonset::Confinement;
use crate::manifests::Manifests;
use crate::testbed::{Testbed, says};

// Bits of `linux/capability.h`.
const SYS_ADMIN: u64 = 1 << 21;
const SYS_NICE: u64 = 1 << 23;

/// On a machine with eight CPUs.
pub(super) fn privileges(testbed: &mut Testbed<'_>, _: &Shape) -> Result<()> {
    let all = SYS_ADMIN | SYS_NICE;
    falls_back(testbed, |_| {}, all, "0,3-7", "")?;
    let without_capability = |manifests: &mut Manifests| {
        let container = &mut manifests.pod_mut().containers[0];
        container.security_context.capabilities.add.retain(|added| added != "SYS_ADMIN");
    };
    let missing = "the capability SYS_ADMIN is missing";
    falls_back(testbed, without_capability, SYS_NICE, "0-7", missing)?;
    let read_only = |manifests: &mut Manifests| {
        let mounts = &mut manifests.pod_mut().containers[0].volume_mounts;
        mounts.iter_mut().filter(|m| m.name == "cgroup").for_each(|m| m.read_only = true);
    };
    falls_back(testbed, read_only, all, "0-7", "/sys/fs/cgroup cannot be written")
}

/// The plugin of the changed manifests has these capabilities and logs `why`; a busy host process may
/// run on `service`.
fn falls_back(
    testbed: &mut Testbed<'_>,
    change: impl FnOnce(&mut Manifests),
    capabilities: u64,
    service: &str,
    why: &str,
) -> Result<()> {
    testbed.clear()?;
    let overlay = testbed.manifests(&exclusivity("kernel"))?;
    let mut manifests = overlay.configured(&exclusivity("auto"));
    change(&mut manifests);
    testbed.apply(&manifests)?;
    testbed.shared("web")?;
    testbed.run_busy_on_host("service")?;
    testbed.exclusive("db", 2)?;
    let view = testbed.look()?;
    // Containers are pinned in each case.
    ensure!(view.disagreements().is_empty(), "{:?}", view.disagreements());
    ensure!((view.allowed("db"), view.allowed("web")) == ("1-2", "0,3-7"), "{view:?}");
    // Only the kernel keeps host processes away.
    ensure!(view.allowed("service") == service, "service: {}", view.allowed("service"));
    says(&testbed.log()?, &[why])?;
    let confinement = testbed.confinement()?;
    let expected = Confinement {
        capabilities,
        bounding: capabilities,
        no_new_privileges: true,
        seccomp: 2,
        // The mode on every host: files can be written, the directory cannot.
        cgroup_mode: 0o555,
        cgroup_namespace: true,
        ..confinement.clone()
    };
    ensure!(confinement == expected, "{confinement:?}, expected {expected:?}");
    Ok(())
}
