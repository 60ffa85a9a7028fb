//! Cgroups of containers and pods, and a pod's QoS class, from the runtime's paths.
//!
//! With the cgroupfs driver these are plain paths. With systemd's a slice `a-b.slice` lies in
//! `a.slice` (systemd.slice(5)); containerd may give the whole path of a slice, CRI-O gives its last
//! name only.

use cpuset::CgroupPath;
use ledger::{PoolKind, Qos};

/// The cgroup of an OCI `cgroupsPath`; `None` if it is empty or no path. With systemd's driver it is
/// `SLICE:PREFIX:NAME`: a scope `PREFIX-NAME.scope` in a slice.
pub(super) fn of_container(path: &str) -> Option<CgroupPath> {
    let parts: Vec<&str> = path.split(':').collect();
    let [slice, prefix, name] = parts[..] else { return CgroupPath::new(path) };
    let unit = match (name.ends_with(".slice"), prefix) {
        (true, _) => name.to_owned(),
        (false, "") => format!("{name}.scope"),
        (false, prefix) => format!("{prefix}-{name}.scope"),
    };
    CgroupPath::new(&format!("{}/{unit}", expand(last(slice))?))
}

/// The cgroup of a pod's `cgroup_parent`; `None` if it is empty or no path.
pub(super) fn of_pod(parent: &str) -> Option<CgroupPath> {
    let last = last(parent);
    if last.ends_with(".slice") { CgroupPath::new(&expand(last)?) } else { CgroupPath::new(parent) }
}

/// The class from a pod's `cgroup_parent`, [`Qos::Unknown`] if no kubelet made the cgroup, and which
/// CPUs the pod shares.
///
/// The kubelet puts a pod below `kubepods` (Guaranteed), `kubepods/burstable` or
/// `kubepods/besteffort`, and these below a root that an administrator can choose. With the
/// cgroupfs driver these are directories (`/kubepods/burstable/podUID`), with systemd's the parts
/// of a slice's name (`kubepods-burstable-podUID.slice`). Pods of its system partition (KEP-5894)
/// are below `kubepods/system` in the same way.
pub(super) fn kind(parent: &str) -> (Qos, PoolKind) {
    match last(parent).strip_suffix(".slice") {
        // A slice's own name repeats the names of all slices above it.
        Some(slice) => kind_of(slice.split('-')),
        None => kind_of(parent.split('/')),
    }
}

/// By the parts after the innermost `kubepods`: nodes in pods (kind) have several.
fn kind_of<'a>(parts: impl DoubleEndedIterator<Item = &'a str>) -> (Qos, PoolKind) {
    let mut below = "";
    let mut second = "";
    for part in parts.rev() {
        if part == "kubepods" {
            return match below {
                "system" => (class(second), PoolKind::Reserved),
                _ => (class(below), PoolKind::General),
            };
        }
        second = below;
        below = part;
    }
    (Qos::Unknown, PoolKind::General)
}

/// By the name of what is directly below all classes.
fn class(name: &str) -> Qos {
    match name {
        "burstable" => Qos::Burstable,
        "besteffort" => Qos::BestEffort,
        pod if pod.starts_with("pod") => Qos::Guaranteed,
        _ => Qos::Unknown,
    }
}

fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The path of a slice: `a.slice/a-b.slice` for `a-b.slice`.
fn expand(slice: &str) -> Option<String> {
    let name = match slice {
        // The OCI runtimes use this slice for containers outside of Kubernetes.
        "" => "system",
        slice => slice.strip_suffix(".slice")?,
    };
    if name.split('-').any(str::is_empty) {
        return None;
    }
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    let slices: Vec<String> =
        ends.filter_map(|end| name.get(..end)).map(|part| format!("{part}.slice")).collect();
    Some(slices.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_cgroup_comes_from_its_cgroups_path() {
        for (path, expected) in [
            ("/kubepods/burstable/poda1-b2/c1", Some("kubepods/burstable/poda1-b2/c1")),
            ("/kubepods/poda1-b2/crio-c1", Some("kubepods/poda1-b2/crio-c1")),
            (
                "kubepods-burstable-poda1_b2.slice:cri-containerd:c1",
                Some(
                    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda1_b2.slice/cri-containerd-c1.scope",
                ),
            ),
            (
                "kubepods-poda1_b2.slice:crio:c1",
                Some("kubepods.slice/kubepods-poda1_b2.slice/crio-c1.scope"),
            ),
            (
                "/kubepods.slice/kubepods-poda1_b2.slice:cri-containerd:c1",
                Some("kubepods.slice/kubepods-poda1_b2.slice/cri-containerd-c1.scope"),
            ),
            (
                "kubelet-kubepods-poda1_b2.slice:cri-containerd:c1",
                Some(
                    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-poda1_b2.slice/cri-containerd-c1.scope",
                ),
            ),
            (":docker:c1", Some("system.slice/docker-c1.scope")),
            ("", None),
            ("/", None),
            ("/kubepods/../../etc", None),
            ("a--b.slice:x:y", None),
            ("a.slice:x:../../y", None),
            ("not-a-slice:x:y", None),
        ] {
            assert_eq!(of_container(path).as_ref().map(CgroupPath::as_str), expected, "{path:?}");
        }
    }

    #[test]
    fn a_pods_cgroup_comes_from_its_cgroup_parent() {
        let slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda1_b2.slice";
        for (parent, expected) in [
            ("/kubepods/burstable/poda1-b2", Some("kubepods/burstable/poda1-b2")),
            ("kubepods-burstable-poda1_b2.slice", Some(slice)),
            (&*format!("/{slice}"), Some(slice)),
            ("", None),
            ("/", None),
            ("a--b.slice", None),
        ] {
            let group = of_pod(parent);
            assert_eq!(group.as_ref().map(CgroupPath::as_str), expected, "{parent:?}");
        }
    }

    #[test]
    fn a_pods_class_comes_from_its_cgroup_parent() {
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
            // similar names
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
            assert_eq!(kind(cgroup_parent), (qos, PoolKind::General), "{cgroup_parent:?}");
        }
    }

    #[test]
    fn pods_of_the_system_partition_have_classes_and_share_the_reserved_cpus() {
        use PoolKind::{General, Reserved};
        let slice = "kubepods.slice/kubepods-system.slice";
        for (cgroup_parent, qos, pool) in [
            ("/kubepods/system/poda1-b2", Qos::Guaranteed, Reserved),
            ("/kubepods/system/burstable/poda1-b2", Qos::Burstable, Reserved),
            ("/kubepods/system/besteffort/poda1-b2/", Qos::BestEffort, Reserved),
            ("/kubelet/kubepods/system/burstable/poda1-b2", Qos::Burstable, Reserved),
            (&format!("/{slice}/kubepods-system-poda1_b2.slice"), Qos::Guaranteed, Reserved),
            ("kubepods-system-burstable-poda1_b2.slice", Qos::Burstable, Reserved),
            ("kubelet-kubepods-system-besteffort-poda1_b2.slice", Qos::BestEffort, Reserved),
            ("/kubepods/system/new/poda1", Qos::Unknown, Reserved),
            // A pod's uid may begin with anything.
            ("/kubepods/podsystem-1", Qos::Guaranteed, General),
            ("kubepods-podsystem_1.slice", Qos::Guaranteed, General),
            ("/kubepods/burstable/podsystem", Qos::Burstable, General),
            ("/kubepods/burstable/system/poda1", Qos::Burstable, General),
            ("/system/kubepods/poda1", Qos::Guaranteed, General),
            ("system-kubepods-burstable-poda1.slice", Qos::Burstable, General),
            // A node within a pod of the partition.
            ("/kubepods/system/poda1/kubelet/kubepods/podb2", Qos::Guaranteed, General),
        ] {
            assert_eq!(kind(cgroup_parent), (qos, pool), "{cgroup_parent:?}");
        }
    }
}
