//! Adds a device file, a mount, a variable and a memory limit to containers, as plugins for GPUs and
//! memory do: `inject INDEX [SOCKET]`.
//!
//! A pod asks for that by the annotation `inject.nri.io/INDEX`, whose value is the memory limit in
//! bytes, or empty for none. With `inject.nri.io/cpus` its containers get these CPUs as well: if two
//! plugins set CPUs, the runtime refuses the container. The output has the device files of each new
//! container when this plugin is called: runtimes call plugins in the order of their indexes, and each
//! plugin gets what those before it have added.

use nri::wire::{
    Container, ContainerAdjustment, Event, KeyValue, LinuxDevice, Mount, OptionalInt64, PodSandbox,
};
use nri::{Answer, CallError, Configuration, Endpoint, Events, Identity, Plugin};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

const PREFIX: &str = "inject.nri.io/";

struct Inject {
    index: String,
}

impl Plugin for Inject {
    async fn configure(&self, _: Configuration) -> Result<Events, CallError> {
        println!("ready");
        Ok(Events::of(&[Event::CREATE_CONTAINER]))
    }

    async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Answer, CallError> {
        let files: Vec<&str> =
            container.linux.devices.iter().map(|device| device.path.as_str()).collect();
        println!("{} has {files:?}", container.name);
        let Self { index } = self;
        let Some(memory) = pod.annotations.get(&format!("{PREFIX}{index}")) else {
            return Ok(Answer::default());
        };
        let mut adjust = ContainerAdjustment::new();
        adjust.env.push(KeyValue {
            key: format!("INJECTED_{index}"),
            value: "yes".to_owned(),
            ..Default::default()
        });
        adjust.mounts.push(Mount {
            destination: format!("/injected-{index}"),
            type_: "bind".to_owned(),
            source: "/proc/sys".to_owned(),
            options: ["bind", "ro"].map(str::to_owned).into(),
            ..Default::default()
        });
        let linux = adjust.linux.mut_or_insert_default();
        // The device numbers of /dev/null.
        linux.devices.push(LinuxDevice {
            path: format!("/dev/injected-{index}"),
            type_: "c".to_owned(),
            major: 1,
            minor: 3,
            ..Default::default()
        });
        if let Ok(limit) = memory.parse() {
            let resources = linux.resources.mut_or_insert_default();
            let limit = OptionalInt64 { value: limit, ..Default::default() };
            resources.memory.mut_or_insert_default().limit = Some(limit).into();
        }
        if let Some(cpus) = pod.annotations.get(&format!("{PREFIX}cpus")) {
            let resources = linux.resources.mut_or_insert_default();
            resources.cpu.mut_or_insert_default().cpus.clone_from(cpus);
        }
        Ok(Answer { adjust: Some(adjust), ..Answer::default() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let index = arguments.next().ok_or("expected an index from 00 to 99")?;
    let socket = arguments.next().unwrap_or_else(|| nri::DEFAULT_SOCKET.to_owned());
    let mut term = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! { _ = term.recv() => {}, _ = ctrl_c() => {} }
    };
    let identity = Identity::new("inject", &index)?;
    let plugin = |_| Inject { index: index.clone() };
    nri::run(Endpoint::Socket(socket.into()), &identity, plugin, stop).await?;
    Ok(())
}
