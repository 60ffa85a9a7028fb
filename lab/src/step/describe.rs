//! Steps in words, for progress and errors.

use super::Step;

impl Step {
    pub fn describe(&self) -> String {
        match self {
            Self::StartPlugin(_) => "start the plugin".to_owned(),
            Self::StartDaemonSet(_) => "start the plugin's pod from changed manifests".to_owned(),
            Self::Record => "record the runtime's calls".to_owned(),
            Self::StartBare(_) => "start the plugin as a plain process".to_owned(),
            Self::Launch(_) => "restart containerd, which launches the plugin".to_owned(),
            Self::Confinement => "check the plugin's confinement".to_owned(),
            Self::Log => "read the plugin's log".to_owned(),
            Self::KillPlugin => "kill and restart the plugin".to_owned(),
            Self::KillRuntime => "kill and restart containerd".to_owned(),
            Self::SwapConfig(_) => "change the ConfigMap".to_owned(),
            Self::Status => "run nri-cpu-manager status".to_owned(),
            Self::WaitFor(text, count) => {
                format!("wait for {text:?} in the plugin's log ({count} times)")
            }
            Self::SetOnline(cpu, true) => format!("set CPU {cpu} online"),
            Self::SetOnline(cpu, false) => format!("set CPU {cpu} offline"),
            Self::Add(pod, container) => {
                format!("start container {} in pod {pod}", container.name)
            }
            Self::Stop(pod, container) => format!("stop container {container} of pod {pod}"),
            Self::End(pod, container) => format!("container {container} of pod {pod} ends"),
            Self::Run(pod) => {
                format!("start pod {} ({:?}, {})", pod.name, pod.qos(), pod.describe_cpus())
            }
            Self::Settle(seconds) => {
                format!("wait until containers are as decided (at most {seconds} s)")
            }
            Self::Watch(steps) => {
                format!("check for shared exclusive CPUs during: {}", describe_all(steps))
            }
            Self::Wait(seconds) => format!("wait {seconds} s"),
            Self::Reconfigure(_) => "restart the plugin with another configuration".to_owned(),
            Self::Retry(pod) => format!("start pod {pod} again"),
            Self::Resize(pod, milli) => format!("resize pod {pod} to {milli}m CPU"),
            Self::ResizeInARow(pod, sizes) => format!("resize pod {pod} {} times", sizes.len()),
            Self::Remove(pod) => format!("remove pod {pod}"),
            Self::WriteCgroup(group, file, value) => {
                format!("write {value:?} to {file} of {group:?}")
            }
            Self::Nest(pod) => format!("make a cgroup within that of pod {pod}"),
            Self::ReadCgroup(group, file) => format!("read {file} of {group:?}"),
            Self::View => "check all containers".to_owned(),
            Self::EndPlugin => "kill the plugin".to_owned(),
            Self::RunBusy(pod) => format!("start busy pod {} ({})", pod.name, pod.describe_cpus()),
            Self::RunCrowd(number) => format!("start {number} busy pods"),
            Self::RunFirstInstruction(pod) => {
                format!("start pod {} ({:?}) with the probe", pod.name, pod.qos())
            }
            Self::RunWatched(pod) => {
                format!("start pod {} ({:?}) and watch its processes", pod.name, pod.qos())
            }
            Self::RealiseClasses => "rewrite the cgroups of QoS classes".to_owned(),
            Self::RunBusyOnHost(name) => format!("start busy host process {name}"),
            Self::Throttling(pod, seconds) => format!("count throttling of {pod} for {seconds} s"),
            Self::KernelWarned => "check the kernel for warnings".to_owned(),
            Self::Latency(_) => "time exclusive containers".to_owned(),
            Self::ClassWrites => "time writes to the cgroup of a class".to_owned(),
            Self::Storm(settings) => format!(
                "storm: {} kills, seed {}, {} workers",
                settings.kills, settings.seed, settings.workers
            ),
            Self::CompareCgroups(settings) => format!(
                "compare cgroups with the model: seed {}, {} steps",
                settings.seed, settings.steps
            ),
            Self::Panic => "crash the kernel".to_owned(),
            Self::Uninstall => "remove the plugin's DaemonSet".to_owned(),
            Self::Release(false) => "apply manifests/release".to_owned(),
            Self::Release(true) => "apply manifests/release with --containers".to_owned(),
            Self::SnapshotCgroups => "record all cgroups".to_owned(),
            Self::Clear => "empty the node".to_owned(),
        }
    }
}

fn describe_all(steps: &[Step]) -> String {
    let steps: Vec<String> = steps.iter().map(Step::describe).collect();
    steps.join(", ")
}
