//! Steps in a person's words.

use super::Step;

impl Step {
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::StartPlugin(_) => "start the plugin".to_owned(),
            Self::StartDaemonSet(_) => {
                "start the plugin as the pod of changed manifests".to_owned()
            }
            Self::StartBare(_) => "start the plugin's bare program".to_owned(),
            Self::Launch(_) => "have containerd launch the plugin".to_owned(),
            Self::Confinement => "look how the plugin is confined".to_owned(),
            Self::Log => "read the plugin's log".to_owned(),
            Self::KillPlugin => "kill the plugin and start it again".to_owned(),
            Self::KillRuntime => "kill containerd and start it again".to_owned(),
            Self::KillBoth => "kill containerd and the plugin, and start both again".to_owned(),
            Self::SwapConfig(_) => "change the configuration's ConfigMap".to_owned(),
            Self::Status => "ask for the status".to_owned(),
            Self::Fetch(path) => format!("get {path}"),
            Self::WaitFor(text, _) => format!("wait until the plugin says {text:?}"),
            Self::SetOnline(cpu, true) => format!("bring CPU {cpu} online"),
            Self::SetOnline(cpu, false) => format!("take CPU {cpu} offline"),
            Self::Add(pod, container) => {
                format!("start container {} in pod {pod}", container.name)
            }
            Self::Stop(pod, container) => format!("stop container {container} of pod {pod}"),
            Self::End(pod, container) => format!("container {container} of pod {pod} ends"),
            Self::Run(pod) => {
                format!("start pod {} ({:?}, {})", pod.name, pod.qos(), pod.describe_cpus())
            }
            Self::RunTogether(pods) => format!("start {} pods at the same time", pods.len()),
            Self::RunSlowly(pod, steps) => {
                format!("start pod {} while these are done: {}", pod.name, describe_all(steps))
            }
            Self::Settle(seconds) => format!("wait until all is as decided, {seconds} s at most"),
            Self::Watch(steps) => format!(
                "look whether containers meet while these are done: {}",
                describe_all(steps)
            ),
            Self::Wait(seconds) => format!("wait for {seconds} s"),
            Self::Reconfigure(_) => "restart the plugin with another configuration".to_owned(),
            Self::Retry(pod) => format!("start pod {pod} once more"),
            Self::Resize(pod, milli) => format!("resize pod {pod} to {milli}m CPU"),
            Self::Remove(pod) => format!("remove pod {pod}"),
            Self::KubeletState(_) => "write the kubelet's state file".to_owned(),
            Self::WriteCgroup(group, file, value) => {
                format!("write {value:?} to {file} of {group:?}")
            }
            Self::ReadCgroup(group, file) => format!("read {file} of {group:?}"),
            Self::View => "look at every container's process".to_owned(),
            Self::Measure => "measure the plugin's memory".to_owned(),
            Self::EndPlugin => "kill the plugin".to_owned(),
            Self::RunBusy(pod) => format!("start busy pod {} ({})", pod.name, pod.describe_cpus()),
            Self::RunCrowd(number) => format!("start {number} busy pods"),
            Self::RunFirstInstruction(pod) => {
                format!("start pod {} ({:?}), which looks around", pod.name, pod.qos())
            }
            Self::RealiseClasses => "write the groups of classes anew".to_owned(),
            Self::RunBusyOnHost(name) => format!("start {name} on the host, busy"),
            Self::Throttling(pod, seconds) => format!("count throttling of {pod} for {seconds} s"),
            Self::KernelWarned => "ask the kernel whether it has warned of itself".to_owned(),
            Self::Latency(_) => "time exclusive containers".to_owned(),
            Self::ClassWrites => "time writes to a class".to_owned(),
            Self::Storm(settings) => format!(
                "a storm of {} kills, seed {}, {} workers",
                settings.kills, settings.seed, settings.workers
            ),
            Self::CompareCgroups(settings) => format!(
                "compare cgroups with their model, seed {}, {} steps",
                settings.seed, settings.steps
            ),
            Self::Panic => "end the kernel".to_owned(),
            Self::Uninstall => "remove the plugin's DaemonSet".to_owned(),
            Self::Release(false) => "apply manifests/release".to_owned(),
            Self::Release(true) => "apply manifests/release with --containers".to_owned(),
            Self::SnapshotCgroups => "take down what all cgroups say".to_owned(),
            Self::Clear => "empty the node".to_owned(),
        }
    }
}

fn describe_all(steps: &[Step]) -> String {
    let steps: Vec<String> = steps.iter().map(Step::describe).collect();
    steps.join(", ")
}
