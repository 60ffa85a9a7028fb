//! Calls for tests of a daemon, and where these run.

use ledger::model::{ContainerId, PodUid, SandboxId};
use ledger::{Admission, Container, CpuRequest, MilliCpu, Pod, Qos};

/// Creates a container in its own pod, with this request and limit in thousandths of a CPU.
pub(crate) fn create(name: &str, qos: Qos, milli: u64) -> Admission {
    let sandbox = SandboxId(format!("sandbox-{name}"));
    let amount = Some(MilliCpu(milli));
    Admission::Create {
        pod: Pod {
            sandbox: sandbox.clone(),
            uid: PodUid(format!("uid-{name}")),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            qos,
            budget: amount,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        },
        container: Container::new(
            ContainerId(format!("id-{name}")),
            sandbox,
            "c",
            CpuRequest { request: amount, limit: amount },
        ),
    }
}

pub(crate) async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}
