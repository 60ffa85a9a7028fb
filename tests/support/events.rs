//! Calls for tests of a daemon.

use ledger::model::{ContainerId, PodUid, SandboxId};
use ledger::{Admission, Container, CpuRequest, MilliCpu, Pod, Qos};

/// A container in its own pod, with this request and limit in thousandths of a CPU.
pub(crate) fn pod_and_container(name: &str, qos: Qos, milli: u64) -> (Pod, Container) {
    let sandbox = SandboxId(format!("sandbox-{name}").into());
    let amount = Some(MilliCpu(milli));
    let pod = Pod {
        sandbox: sandbox.clone(),
        uid: PodUid(format!("uid-{name}").into()),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        qos,
        budget: amount,
        limits: Default::default(),
        own_resources: None,
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    };
    let cpu = CpuRequest { request: amount, limit: amount };
    let container = Container::new(ContainerId(format!("id-{name}").into()), sandbox, "c", cpu);
    (pod, container)
}

/// The creation of [`pod_and_container`].
pub(crate) fn create(name: &str, qos: Qos, milli: u64) -> Admission {
    let (pod, container) = pod_and_container(name, qos, milli);
    Admission::Create { pod, container }
}

/// Runs a test in a `LocalSet`, which the daemon's task needs.
pub(crate) async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}
