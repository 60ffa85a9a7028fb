//! A pod's quality of service class, from its cgroup.

use crate::ledger::Qos;

/// The class from a pod's `cgroup_parent`; [`Qos::Unknown`] if no kubelet made the group.
///
/// The kubelet puts a pod below `kubepods` (Guaranteed), `kubepods/burstable` or
/// `kubepods/besteffort`, and these below a root that an administrator can choose. With the
/// cgroupfs driver these are directories (`/kubepods/burstable/podUID`), with systemd's the parts
/// of a slice's name (`kubepods-burstable-podUID.slice`). containerd gives the whole path of the
/// slice, CRI-O its last name only.
pub(super) fn of_cgroup_parent(cgroup_parent: &str) -> Qos {
    let last = cgroup_parent.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match last.strip_suffix(".slice") {
        // A slice's own name repeats the names of all slices above it.
        Some(slice) => of_parts(slice.split('-')),
        None => of_parts(cgroup_parent.split('/')),
    }
}

/// The class by the part after the innermost `kubepods`: nodes in pods (kind) have several.
fn of_parts<'a>(parts: impl DoubleEndedIterator<Item = &'a str>) -> Qos {
    let mut below = "";
    for part in parts.rev() {
        if part == "kubepods" {
            return match below {
                "burstable" => Qos::Burstable,
                "besteffort" => Qos::BestEffort,
                pod if pod.starts_with("pod") => Qos::Guaranteed,
                _ => Qos::Unknown,
            };
        }
        below = part;
    }
    Qos::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape() {
        for (cgroup_parent, qos) in [
            // containerd, systemd driver
            ("/kubepods.slice/kubepods-poda1_b2.slice", Qos::Guaranteed),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda1_b2.slice",
                Qos::Burstable,
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda1_b2.slice",
                Qos::BestEffort,
            ),
            // CRI-O, systemd driver
            ("kubepods-poda1_b2.slice", Qos::Guaranteed),
            ("kubepods-burstable-poda1_b2.slice", Qos::Burstable),
            ("kubepods-besteffort-poda1_b2.slice", Qos::BestEffort),
            // either, cgroupfs driver
            ("/kubepods/pod3b1912748bdac94ba92ece21f7144933", Qos::Guaranteed),
            ("/kubepods/burstable/poda1-b2", Qos::Burstable),
            ("/kubepods/besteffort/poda1-b2/", Qos::BestEffort),
            // another cgroup root, as kind has
            ("/kubelet/kubepods/poda1-b2", Qos::Guaranteed),
            ("/kubelet/kubepods/burstable/poda1-b2", Qos::Burstable),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-poda1_b2.slice",
                Qos::BestEffort,
            ),
            ("kubelet-kubepods-poda1_b2.slice", Qos::Guaranteed),
            // a node within a pod of another
            ("/kubepods/burstable/poda1/docker/kubelet/kubepods/podb2", Qos::Guaranteed),
            // words that only look like it
            ("/besteffort/kubepods/poda1-b2", Qos::Guaranteed),
            ("/burstable.slice/kubepods-podburstable.slice", Qos::Guaranteed),
            ("/my-kubepods/burstable/poda1", Qos::Unknown),
            ("/kubepods/burst/poda1", Qos::Unknown),
            // not from a kubelet
            ("", Qos::Unknown),
            ("/", Qos::Unknown),
            ("/kubepods", Qos::Unknown),
            ("kubepods.slice", Qos::Unknown),
            ("system.slice", Qos::Unknown),
            ("/docker/abc", Qos::Unknown),
        ] {
            assert_eq!(of_cgroup_parent(cgroup_parent), qos, "{cgroup_parent:?}");
        }
    }
}
