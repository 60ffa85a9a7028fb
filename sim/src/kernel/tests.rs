use super::*;
use machines::synthetic::Machine;

fn path(path: &str) -> CgroupPath {
    CgroupPath::new(path).unwrap()
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn file(group: &str, file: &str) -> PathBuf {
    directory(&path(group)).join(file)
}

/// 8 CPUs; a container in `k/pod/c` with one process.
fn node() -> (SimulatedKernel, u32) {
    let machine = Machine { cores: 8, ..Machine::default() };
    let kernel = SimulatedKernel::new(machine.facts().unwrap());
    let pid = kernel.lock().spawn(&path("k/pod/c"));
    (kernel, pid)
}

#[test]
fn illegal_writes_and_removals_fail_with_the_kernels_errors() {
    let (kernel, pid) = node();
    let write = |group, name, text| kernel.lock().write(&file(group, name), text);
    write("k", "cpuset.cpus", "0-3").unwrap();
    for (group, name, text, errno) in [
        ("k", "cpuset.cpus", "", Errno::ENOSPC),
        ("k", "cpuset.cpus", "0-8", Errno::ERANGE),
        ("k", "cpuset.cpus", "3-0", Errno::EINVAL),
        ("k", "cpuset.cpus.effective", "0", Errno::EACCES),
        ("none", "cpuset.cpus", "0", Errno::ENOENT),
        ("k", "cpu.max", "1", Errno::EINVAL),
    ] {
        assert_eq!(write(group, name, text), Err(errno), "{group}/{name}: {text:?}");
    }
    assert_eq!(kernel.lock().remove_cgroup(&path("k/pod/c")), Err(Errno::EBUSY));
    assert_eq!(kernel.lock().remove_cgroup(&path("k")), Err(Errno::EBUSY));
    kernel.lock().kill(pid);
    write("k", "cpuset.cpus", "").unwrap();
    kernel.lock().remove_cgroup(&path("k/pod/c")).unwrap();
}

#[test]
fn a_process_keeps_its_mask_and_never_leaves_its_cgroups_cpus() {
    let (kernel, pid) = node();
    Kernel::set_affinity(&kernel, pid, cpus("2-3")).unwrap();
    for (list, allowed) in [("3-5", "3"), ("4-5", "4-5"), ("0-7", "2-3")] {
        kernel.lock().write(&file("k/pod", "cpuset.cpus"), list).unwrap();
        assert_eq!(kernel.lock().allowed(pid), cpus(allowed));
        let status = kernel.lock().read_text(Path::new(&format!("{PROC}/{pid}/status"))).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{allowed}\n")), "{status}");
    }
    assert_eq!(kernel.lock().set_affinity(pid, cpus("8")), Err(Errno::EINVAL));
    assert_eq!(kernel.lock().set_affinity(99, cpus("4")), Err(Errno::ESRCH));
}
