//! The control groups of containers and pods, from the runtime's paths.

use crate::ledger::CgroupPath;

/// The control group of an OCI `cgroupsPath`; `None` if it is empty or no path.
///
/// With the cgroupfs driver it is a plain path. With systemd's it is `SLICE:PREFIX:NAME`: a scope
/// `PREFIX-NAME.scope` in a slice. containerd may give the whole path of the slice, CRI-O gives its
/// last name only. A slice `a-b.slice` lies in `a.slice` (systemd.slice(5)).
pub(super) fn of_cgroups_path(path: &str) -> Option<CgroupPath> {
    let parts: Vec<&str> = path.split(':').collect();
    let [slice, prefix, name] = parts[..] else { return CgroupPath::new(path) };
    let unit = match (name.ends_with(".slice"), prefix) {
        (true, _) => name.to_owned(),
        (false, "") => format!("{name}.scope"),
        (false, prefix) => format!("{prefix}-{name}.scope"),
    };
    let last = slice.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    CgroupPath::new(&format!("{}/{unit}", expand(last)?))
}

/// The control group of a pod's `cgroup_parent`; `None` if it is empty or no path. With systemd's
/// driver it is a slice, by its path or its name.
pub(super) fn of_cgroup_parent(parent: &str) -> Option<CgroupPath> {
    let last = parent.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if last.ends_with(".slice") { CgroupPath::new(&expand(last)?) } else { CgroupPath::new(parent) }
}

/// The path of a slice.
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
    fn every_shape() {
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
            assert_eq!(
                of_cgroups_path(path).as_ref().map(CgroupPath::as_str),
                expected,
                "{path:?}"
            );
        }
    }

    #[test]
    fn pods() {
        let slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda1_b2.slice";
        for (parent, expected) in [
            ("/kubepods/burstable/poda1-b2", Some("kubepods/burstable/poda1-b2")),
            ("kubepods-burstable-poda1_b2.slice", Some(slice)),
            (&*format!("/{slice}"), Some(slice)),
            ("", None),
            ("/", None),
            ("a--b.slice", None),
        ] {
            let found = of_cgroup_parent(parent);
            assert_eq!(found.as_ref().map(CgroupPath::as_str), expected, "{parent:?}");
        }
    }
}
