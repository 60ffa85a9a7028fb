//! What the name of a cgroup means: kubelets and runtimes name cgroups by rules.

use super::goal::CgroupLevel;
use cpuset::CgroupPath;

/// Kubelets put pods below a cgroup with this name. Partitions there count as this program's.
const KUBEPODS: &str = "kubepods";

/// What runtimes put before a container's id in the name of its cgroup. CRI-O's `crio-conmon-` is not
/// among them: it precedes a container's id, but the cgroup is that of the monitor.
const PREFIXES: [&str; 3] = ["cri-containerd-", "crio-", ""];

/// Runtimes make ids of 32 random bytes. No cgroup that a container makes has such a name.
const ID_DIGITS: usize = 64;

/// The level of a cgroup directly below a kubelet's root; `None` if it is not a kubelet cgroup.
pub(super) fn level_of(group: &CgroupPath) -> Option<CgroupLevel> {
    let (above, name) = group.as_str().rsplit_once('/')?;
    let name = match (above.rsplit('/').next()?.strip_suffix(".slice"), name.strip_suffix(".slice"))
    {
        // A slice's own name repeats the names of all slices above it.
        (Some(above), Some(name)) => name.strip_prefix(above)?.strip_prefix('-')?,
        _ => name,
    };
    match name {
        "burstable" | "besteffort" => Some(CgroupLevel::Class),
        pod if pod.starts_with("pod") => Some(CgroupLevel::Pod),
        _ => None,
    }
}

pub(super) fn is_of_pods(group: &CgroupPath) -> bool {
    group.as_str().split(['/', '-']).any(|part| part.starts_with(KUBEPODS))
}

/// The id of the container for which a runtime has made this cgroup.
pub(super) fn container_id(group: &CgroupPath) -> Option<&str> {
    let name = group.as_str().rsplit('/').next()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Some(id) } else { None }
}

/// Whether a runtime made this cgroup for the container with that id: `ID`, `RUNTIME-ID.scope`.
pub(super) fn is_named_after(group: &CgroupPath, id: &str) -> bool {
    let name = group.as_str().rsplit('/').next().unwrap_or_default();
    !id.is_empty() && name.strip_suffix(".scope").unwrap_or(name).ends_with(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_recognised_by_its_id() {
        let id = "0123456789abcdef".repeat(4);
        for (group, is_one) in [
            (format!("kubepods/burstable/poda/{id}"), true),
            (format!("kubepods.slice/kubepods-poda.slice/cri-containerd-{id}.scope"), true),
            (format!("kubepods.slice/kubepods-poda.slice/crio-{id}.scope"), true),
            (format!("kubepods/poda/crio-{id}"), true),
            (format!("kubepods.slice/kubepods-poda.slice/crio-conmon-{id}.scope"), false),
            (format!("kubepods/poda/{}", &id[1..]), false),
            (format!("kubepods/poda/{id}/init.scope"), false),
            ("kubepods/pod0e2b5f0c-94a5-4a57-8a9e-2f4bd6e7a001".to_owned(), false),
        ] {
            let group = CgroupPath::new(&group).unwrap();
            assert_eq!(container_id(&group) == Some(&*id), is_one, "{group}");
        }
    }

    #[test]
    fn a_name_says_whether_a_cgroup_is_a_class_or_a_pod() {
        for (group, level) in [
            ("kubepods/pod1-2", Some(CgroupLevel::Pod)),
            ("kubepods/burstable", Some(CgroupLevel::Class)),
            ("kubepods.slice/kubepods-pod1_2.slice", Some(CgroupLevel::Pod)),
            ("kubepods.slice/kubepods-besteffort.slice", Some(CgroupLevel::Class)),
            (
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice",
                Some(CgroupLevel::Pod),
            ),
            ("kubepods.slice/crio-1.scope", None),
            ("kubepods", None),
        ] {
            assert_eq!(level_of(&CgroupPath::new(group).unwrap()), level, "{group}");
        }
    }
}
