//! Converts the ledger's decisions into the runtime's messages.

use ledger::environment::{DIRECTORY, Variable};
use ledger::{CpuSetting, MilliCpu, Update};
use nri::wire;
use std::sync::Arc;

/// Where a container finds the files about its CPUs.
pub(super) const MOUNTED: &str = "/run/nri-cpu-manager";
const MOUNT_OPTIONS: [&str; 5] = ["rbind", "ro", "nosuid", "nodev", "noexec"];
/// No CFS quota for OCI runtimes; zero would mean "no change".
const NO_QUOTA: i64 = -1;

pub(super) fn container_adjustment(
    setting: &CpuSetting,
    environment: &[Variable],
    directory: Option<&str>,
) -> wire::ContainerAdjustment {
    let variable = |(key, value): &Variable| wire::KeyValue {
        key: (*key).to_owned(),
        value: value.clone(),
        ..Default::default()
    };
    let mut variables: Vec<wire::KeyValue> = environment.iter().map(variable).collect();
    if directory.is_some() {
        variables.push(variable(&(DIRECTORY, MOUNTED.to_owned())));
    }
    let linux = wire::LinuxContainerAdjustment {
        resources: Some(resources(setting)).into(),
        ..Default::default()
    };
    wire::ContainerAdjustment {
        env: variables,
        mounts: directory.map(mount).into_iter().collect(),
        linux: Some(linux).into(),
        ..Default::default()
    }
}

/// A mount of the container's files from this directory of the host.
fn mount(source: &str) -> wire::Mount {
    wire::Mount {
        destination: MOUNTED.to_owned(),
        type_: "bind".to_owned(),
        source: source.to_owned(),
        options: MOUNT_OPTIONS.map(str::to_owned).to_vec(),
        ..Default::default()
    }
}

/// Changes of existing containers, in the given order.
pub fn updates(updates: &[Update]) -> Vec<nri::Update> {
    // Most have the setting of the one before.
    let runs = updates.chunk_by(|one, next| one.setting == next.setting);
    runs.flat_map(|run| {
        let resources = run.first().map(|first| resources(&first.setting)).into();
        let linux = Arc::new(wire::LinuxContainerUpdate { resources, ..Default::default() });
        run.iter().map(move |one| nri::Update {
            container_id: Arc::clone(&one.container.0),
            linux: Arc::clone(&linux),
        })
    })
    .collect()
}

/// CPUs, and a quota: none for exclusive CPUs, or that of a limit that holds again. Memory nodes
/// only if they are part of the decision: a change moves a running container's memory.
fn resources(setting: &CpuSetting) -> wire::LinuxResources {
    let mut cpu = wire::LinuxCPU {
        cpus: setting.cpus().to_string(),
        mems: setting.mems().map_or_else(String::new, |mems| mems.to_string()),
        ..Default::default()
    };
    let (limit, period) = setting.limit().map(MilliCpu::quota).unzip();
    let quota = if setting.is_exclusive() { Some(NO_QUOTA) } else { limit };
    if let Some(value) = quota {
        cpu.quota = Some(wire::OptionalInt64 { value, ..Default::default() }).into();
    }
    if let Some(value) = period {
        cpu.period = Some(wire::OptionalUInt64 { value, ..Default::default() }).into();
    }
    wire::LinuxResources { cpu: Some(cpu).into(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::ContainerId;

    fn shared(id: &str, cpus: &str) -> Update {
        let setting = CpuSetting::shared(cpus.parse().unwrap()).unwrap();
        Update { container: ContainerId(id.into()), setting }
    }

    #[test]
    fn an_adjustment_has_the_cpus_and_no_quota_if_they_are_exclusive() {
        for (setting, cpus, quota) in [
            (CpuSetting::exclusive("8-15,17".parse().unwrap()), "8-15,17", Some(-1)),
            (CpuSetting::shared("0-1".parse().unwrap()), "0-1", None),
        ] {
            let made = container_adjustment(&setting.unwrap(), &[], None);
            let cpu = &made.linux.resources.cpu;
            assert_eq!(
                (cpu.cpus.as_str(), cpu.quota.as_ref().map(|quota| quota.value)),
                (cpus, quota)
            );
            assert_eq!(cpu.mems, "");
            assert!(cpu.shares.is_none() && cpu.period.is_none());
        }
        // Its CPUs are no longer its own, so its limit holds again.
        let setting =
            CpuSetting::shared("0-1".parse().unwrap()).unwrap().with_limit(Some(MilliCpu(2500)));
        let made = container_adjustment(&setting, &[], None);
        let cpu = &made.linux.resources.cpu;
        assert_eq!((cpu.quota.value, cpu.period.value), (250_000, 100_000));
        let setting = CpuSetting::exclusive("4".parse().unwrap()).unwrap();
        let made = container_adjustment(
            &setting.clone().with_mems(Some([0, 3].into_iter().collect())),
            &[],
            None,
        );
        assert_eq!(made.linux.resources.cpu.mems, "0,3");
        let made = container_adjustment(&setting.with_mems(Some(Default::default())), &[], None);
        assert_eq!(made.linux.resources.cpu.mems, "", "an empty set is never sent");
    }

    #[test]
    fn updates_keep_their_order_and_may_fail_one_by_one() {
        let exclusive = CpuSetting::exclusive("4".parse().unwrap()).unwrap();
        let asked = [
            shared("b", "0-1"),
            shared("a", "0-2"),
            Update { container: ContainerId("x".into()), setting: exclusive },
        ];
        let made = updates(&asked);
        let sent: Vec<_> = made
            .iter()
            .map(|update| {
                let cpu = update.linux.resources.cpu.as_ref().expect("CRI-O needs it");
                assert_eq!(cpu.mems, "");
                (&*update.container_id, &*cpu.cpus, cpu.quota.as_ref().map(|quota| quota.value))
            })
            .collect();
        assert_eq!(sent, [("b", "0-1", None), ("a", "0-2", None), ("x", "4", Some(-1))]);
    }
}
