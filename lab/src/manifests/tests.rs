use super::types::VolumeMount;
use super::*;
use config::PodResources;
use std::fs;

fn overlays() -> Vec<String> {
    let directory = cache::repository().join("manifests/overlays");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

/// Everything that ships is rendered and understood. Overlays take nothing away from the base, whose
/// configuration an operator can edit: a patch of the ConfigMap would replace it.
#[test]
fn overlays_add_to_the_base_and_keep_its_configuration() {
    let mounts = |manifests: &Manifests| -> Vec<VolumeMount> {
        manifests.pod().containers[0].volume_mounts.clone()
    };
    let paths = |mounts: &[VolumeMount]| -> Vec<(String, bool)> {
        mounts.iter().map(|mount| (mount.mount_path.clone(), mount.read_only)).collect()
    };
    let base = Manifests::of("base").unwrap();
    assert!(overlays().len() > 4, "{:?}", overlays());
    for name in overlays() {
        let overlay = Manifests::of(&name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let security = &overlay.pod().containers[0].security_context;
        assert_eq!(security.capabilities.drop, ["ALL"], "{name}");
        assert_eq!(overlay.pod().host_pid, ["kernel-exclusivity", "host-pid"].contains(&&*name));
        let (own, all) = (paths(&mounts(&base)), paths(&mounts(&overlay)));
        assert!(own.iter().all(|mount| all.contains(mount)), "{name}: {all:?}");
        let added: Vec<&(String, bool)> = all.iter().filter(|one| !own.contains(one)).collect();
        let writable: Vec<&str> =
            added.iter().filter(|(_, read_only)| !read_only).map(|(path, _)| &**path).collect();
        let expected: &[&str] = match &*name {
            "quiet" => &[
                "/host/proc/irq",
                "/host/sys/devices/system/cpu",
                "/host/sys/devices/virtual/workqueue",
            ],
            _ => &[],
        };
        assert_eq!(writable, expected, "{name}");
        let directory = part(&cache::repository().join("manifests"), &name);
        for file in fs::read_dir(directory).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let changes = text.contains("kind: ConfigMap") || text.contains("configMapGenerator");
            assert!(!changes, "{name} changes the base's configuration");
        }
    }
}

#[test]
fn the_overlay_podresources_listens_in_the_state_directory() {
    let manifests = Manifests::of("podresources").unwrap();
    let container = &manifests.pod().containers[0];
    let listen = container.env.iter().find(|v| v.name == "POD_RESOURCES_LISTEN").unwrap();
    let listens = PodResources::in_directory(listen.value.as_ref().unwrap()).unwrap();
    assert!(listens.listen.starts_with("/var/lib/nri-cpu-manager"), "the base's state directory");
    let asked = listens.kubelet.parent().unwrap().to_str().unwrap();
    assert!(container.volume_mounts.iter().any(|mount| mount.mount_path == asked));
    assert!(container.env.iter().any(|variable| variable.name == "NODE_NAME"), "of the base");
}

/// Neither DaemonSet selects the other's pods. The uninstall is confined like the base and mounts
/// only what it writes.
#[test]
fn the_uninstall_is_a_second_daemon_set() {
    let [base, uninstall] = ["base", UNINSTALL].map(|name| Manifests::of(name).unwrap());
    let selects = |one: &Manifests, other: &Manifests| {
        let labels = &other.daemon_set.spec.template.metadata.labels;
        let selector = &one.daemon_set.spec.selector.match_labels;
        assert!(!selector.is_empty());
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    assert!(!selects(&base, &uninstall) && !selects(&uninstall, &base));
    let [own, other] = [&uninstall, &base].map(|manifests| &manifests.daemon_set.metadata);
    assert!(own.name != other.name && own.namespace == other.namespace);
    let confinement =
        |container: &types::ContainerSpec| format!("{:?}", container.security_context);
    let pod = uninstall.pod();
    for container in pod.init_containers.iter().chain(&pod.containers) {
        assert_eq!(confinement(container), confinement(&base.pod().containers[0]));
        let mounts = container.volume_mounts.iter().map(|mount| &*mount.mount_path);
        let mounts: Vec<&str> = mounts.filter(|path| !path.starts_with("/host/")).collect();
        assert_eq!(mounts, ["/var/lib/nri-cpu-manager", "/sys/fs/cgroup"]);
    }
    // What it puts back is what the overlay `quiet` can change.
    let quiet = Manifests::of("quiet").unwrap();
    let below_host = |container: &types::ContainerSpec| {
        let mounts = container.volume_mounts.iter();
        let mounts = mounts.map(|mount| (mount.mount_path.clone(), mount.read_only));
        mounts.filter(|(path, _)| path.starts_with("/host/")).collect::<Vec<_>>()
    };
    assert_eq!(below_host(&pod.init_containers[0]), below_host(&quiet.pod().containers[0]));
    assert!(below_host(&pod.containers[0]).is_empty());
}

#[test]
fn a_configuration_goes_with_the_privileges_that_it_needs() {
    for (config, part) in [
        ("cpuManagerPolicy: static\n", "base"),
        ("exclusivity: auto\n", "base"),
        ("exclusivity: kernel\n", "kernel-exclusivity"),
        ("rebalance: {movesPer100Starts: 1}\n", "host-pid"),
        ("exclusivity: kernel\nrebalance: {movesPer100Starts: 1}\n", "kernel-exclusivity"),
        ("podResources: {listen: /d}\n", "podresources"),
    ] {
        assert_eq!(part_for(config).unwrap(), part, "{config}");
        assert!(PARTS.contains(&part));
    }
    assert!(part_for("exclusivity: kernel\npodResources: {listen: /d}\n").is_err());
}

#[test]
fn unsupported_content_is_an_error() {
    let base = rendered(&part(&cache::repository().join("manifests"), "base")).unwrap();
    Manifests::parse(&base).unwrap();
    for (from, to, expect) in [
        ("readOnly: true", "readonly: true", "readonly"),
        ("type: RuntimeDefault", "type: Localhost", "Localhost"),
        ("automountServiceAccountToken: false", "automountServiceAccountToken: true", "must be"),
        ("name: nri\n", "name: nrx\n", "volume nri"),
        ("type: DirectoryOrCreate", "type: Socket", "Socket"),
        ("httpGet:", "tcpSocket:", "tcpSocket"),
        ("readOnly: true", "recursiveReadOnly: IfPossible", "needs readOnly"),
    ] {
        assert!(base.contains(from), "no {from} in\n{base}");
        let at = base.rfind(from).unwrap();
        let edited = format!("{}{to}{}", &base[..at], &base[at + from.len()..]);
        let error = format!("{:#}", Manifests::parse(&edited).expect_err(to));
        assert!(error.contains(expect), "{to}: {error}");
    }
}

/// docs/install.md: a directory of the operator's own, which patches the configuration.
#[test]
fn an_operators_directory_replaces_the_configuration() {
    const CONFIGURATION: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: 0-3,8\n";
    let site = cache::directory("site").unwrap();
    let own = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nri-cpu-manager", "namespace": "kube-system"},
        "data": {CONFIG: CONFIGURATION},
    });
    fs::write(site.join("configmap.yaml"), own.to_string()).unwrap();
    let kustomization =
        "resources: [../../../manifests/overlays/migrate]\npatches: [{path: configmap.yaml}]\n";
    fs::write(site.join("kustomization.yaml"), kustomization).unwrap();
    let manifests = Manifests::parse(&rendered(&site).unwrap()).unwrap();
    assert_eq!(manifests.config_map.unwrap().data[CONFIG], CONFIGURATION);
}
