//! containerd's configuration in the formats of both versions.

use super::ContainerdSetup;
use super::version::Version;
use crate::cgroup::Driver;
use crate::images;

/// Without NRI, as is containerd 1.7's default, all is there but that it is disabled.
pub(super) fn text(setup: &ContainerdSetup, nri: bool) -> String {
    format!("{}{}{}", common(setup), self::nri(setup, nri), cri(setup))
}

/// Four times the default: emulated CPUs are many times slower than real ones, and busy containers
/// take theirs from the plugin.
const NRI_TIMEOUT: &str = "8s";

/// All paths are the defaults below the node's root directory.
fn nri(setup: &ContainerdSetup, enabled: bool) -> String {
    let disable = !enabled;
    let root = setup.root.display().to_string();
    let root = root.trim_end_matches('/');
    format!(
        r#"
[plugins."io.containerd.nri.v1.nri"]
disable = {disable}
disable_connections = false
plugin_request_timeout = "{NRI_TIMEOUT}"
socket_path = "{root}/var/run/nri/nri.sock"
plugin_path = "{root}/opt/nri/plugins"
plugin_config_path = "{root}/etc/nri/conf.d"
"#
    )
}

fn common(setup: &ContainerdSetup) -> String {
    let format = match setup.version {
        Version::V1_7 => 2,
        Version::V2_1 => 3,
    };
    let (data, run) = (setup.data.display(), setup.run.display());
    format!(
        r#"version = {format}
root = "{data}/root"
state = "{run}/state"

[grpc]
address = "{run}/containerd.sock"

[ttrpc]
address = "{run}/containerd.sock.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
path = "{data}/opt"
"#
    )
}

/// No network plugins: every pod uses the host's network.
///
/// By default (`disable_hugetlb_controller = true`) containerd drops the limits of huge pages of new
/// containers, and no plugin learns of them.
fn cri(setup: &ContainerdSetup) -> String {
    let ContainerdSetup { snapshotter, restrict_oom_score, data, runc, .. } = setup;
    let (data, runc, image) = (data.display(), runc.display(), images::LAB);
    let systemd = setup.driver == Driver::Systemd;
    // Version 2 has a plugin for images and one for containers in place of one for both.
    let (runtime, images) = match setup.version {
        Version::V1_7 => (
            "io.containerd.grpc.v1.cri",
            format!(
                r#"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = {restrict_oom_score}
disable_hugetlb_controller = false

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{data}/cni"
conf_dir = "{data}/cni.d"
"#
            ),
        ),
        Version::V2_1 => (
            "io.containerd.cri.v1.runtime",
            format!(
                r#"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = {restrict_oom_score}
disable_hugetlb_controller = false

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{data}/cni"]
conf_dir = "{data}/cni.d"
"#
            ),
        ),
    };
    format!(
        r#"{images}
[plugins."{runtime}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."{runtime}".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = {systemd}
"#
    )
}
