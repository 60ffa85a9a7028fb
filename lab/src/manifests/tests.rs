use super::*;
use nri_cpu_manager::config::PodResources;
use std::fs;

/// The base and its overlays.
const OVERLAYS: [&str; 10] = [
    "base",
    "containerd-1.7",
    "crio",
    "devices",
    "host-pid",
    "kernel-exclusivity",
    "migrate",
    "openshift",
    "podresources",
    "require",
];

#[test]
fn everything_that_ships_can_be_rendered() {
    let directory = cache::repository().join("manifests/overlays");
    let mut there: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.push("base".to_owned());
    there.sort();
    assert_eq!(there, OVERLAYS);
    for name in OVERLAYS.into_iter().chain([RELEASE]) {
        let manifests = Manifests::of(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        let pod = manifests.pod();
        for container in pod.init_containers.iter().chain(&pod.containers) {
            assert_eq!(container.image, crate::image::shipped::NAME, "{name}: {}", container.name);
        }
    }
}

#[test]
fn overlays_add_to_the_base_and_take_nothing_away() {
    let of = |name| Manifests::of(name).unwrap();
    let paths = |manifests: &Manifests| {
        let mounts = &manifests.pod().containers[0].volume_mounts;
        mounts.iter().map(|m| (m.mount_path.clone(), m.read_only)).collect::<Vec<_>>()
    };
    let base = of("base");
    let kernel = of("kernel-exclusivity");
    let context = |m: &Manifests| m.pod().containers[0].security_context.clone();
    assert_eq!(context(&base).capabilities.add, [""; 0]);
    assert_eq!(context(&kernel).capabilities.add, ["SYS_ADMIN", "SYS_NICE"]);
    assert_eq!(context(&kernel).capabilities.drop, ["ALL"]);
    assert!(!base.pod().host_pid && kernel.pod().host_pid);
    assert!(paths(&base).contains(&("/sys/fs/cgroup".to_owned(), false)));
    assert_eq!(paths(&kernel), paths(&base));
    let host_pid = of("host-pid");
    assert!(host_pid.pod().host_pid);
    assert_eq!(context(&host_pid).capabilities.add, [""; 0]);
    assert_eq!(paths(&host_pid), paths(&base));
    let migrate = of("migrate");
    let added = added_mount(&base, &migrate);
    assert_eq!((&*added.mount_path, added.read_only), ("/var/lib/kubelet", true));
    assert_eq!(added.recursive_read_only, Some(RecursiveReadOnly::IfPossible));
    let devices = of("devices");
    let asked = added_mount(&base, &devices);
    assert_eq!((&*asked.mount_path, asked.read_only), ("/var/lib/kubelet/pod-resources", true));
    let pod_resources = of("podresources");
    let added = added_mount(&base, &pod_resources);
    assert_eq!((&*added.mount_path, added.read_only), ("/var/lib/kubelet/pod-resources", true));
    let env = &pod_resources.pod().containers[0].env;
    let listen = env.iter().find(|variable| variable.name == "POD_RESOURCES_LISTEN").unwrap();
    let listens = PodResources::in_directory(&listen.value).unwrap();
    assert!(listens.listen.starts_with("/var/lib/nri-cpu-manager"), "the base's state directory");
    assert_eq!(listens.kubelet.parent(), Some(Path::new(&added.mount_path)));
    assert!(env.iter().any(|variable| variable.name == "NODE_NAME"), "of the base");
    assert_eq!(paths(&of("containerd-1.7")), paths(&base));
    assert_eq!(of("containerd-1.7").pod().init_containers.len(), 1);
    for name in ["crio", "openshift"] {
        let label = context(&of(name)).se_linux_options.unwrap();
        assert_eq!(label.r#type, "spc_t", "{name}");
    }
}

/// The only mount that an overlay adds to the base.
fn added_mount<'a>(base: &Manifests, overlay: &'a Manifests) -> &'a types::VolumeMount {
    let known = &base.pod().containers[0].volume_mounts;
    let is_new =
        |one: &&types::VolumeMount| known.iter().all(|old| old.mount_path != one.mount_path);
    let mounts = &overlay.pod().containers[0].volume_mounts;
    let added: Vec<&types::VolumeMount> = mounts.iter().filter(is_new).collect();
    assert_eq!((added.len(), mounts.len()), (1, known.len() + 1));
    added[0]
}

/// Neither DaemonSet selects the other's pods. The release is confined like the base and mounts
/// only what it writes.
#[test]
fn the_release_is_a_second_daemon_set() {
    let base = Manifests::of("base").unwrap();
    let rendered = tempfile::tempdir().unwrap();
    render(rendered.path()).unwrap();
    for containers in [false, true] {
        let release = Manifests::for_release(rendered.path(), containers).unwrap();
        let selects = |one: &Manifests, other: &Manifests| {
            let labels = &other.daemon_set.spec.template.metadata.labels;
            let selector = &one.daemon_set.spec.selector.match_labels;
            assert!(!selector.is_empty());
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        assert!(!selects(&base, &release) && !selects(&release, &base));
        let identity = |one: &Manifests| {
            let meta = &one.daemon_set.metadata;
            (meta.name.clone(), meta.namespace.clone())
        };
        assert_ne!(identity(&release).0, identity(&base).0);
        assert_eq!(identity(&release).1, identity(&base).1);
        assert!(release.config_map.is_none());
        let pod = release.pod();
        let ([init], [main]) = (&pod.init_containers[..], &pod.containers[..]) else {
            panic!("not one init container and one container");
        };
        let option: &[&str] = if containers { &["--containers"] } else { &[] };
        assert_eq!(init.args, [&["release"][..], option].concat());
        assert_eq!(main.args, ["release", "--stay"]);
        let json = |value: &types::SecurityContext| serde_json::to_value(value).unwrap();
        let mounts = |container: &types::ContainerSpec| -> Vec<(String, bool)> {
            let mounts = container.volume_mounts.iter();
            mounts.map(|mount| (mount.mount_path.clone(), mount.read_only)).collect()
        };
        for container in [init, main] {
            assert_eq!(
                json(&container.security_context),
                json(&base.pod().containers[0].security_context)
            );
            assert_eq!(container.security_context.capabilities.add, [""; 0]);
            let paths = ["/var/lib/nri-cpu-manager", "/sys/fs/cgroup"];
            assert_eq!(mounts(container), paths.map(|path| (path.to_owned(), false)));
        }
    }
}

#[test]
fn a_configuration_goes_with_the_privileges_that_it_needs() {
    let rendered = tempfile::tempdir().unwrap();
    let rendered = rendered.path();
    render(rendered).unwrap();
    for (config, capabilities) in [
        ("cpuManagerPolicy: static\n", &[][..]),
        ("cpuManagerPolicy: static\nexclusivity: runtime\n", &[]),
        ("exclusivity: groups\n", &[]),
        ("exclusivity: auto\n", &[]),
        ("exclusivity: kernel\n", &["SYS_ADMIN", "SYS_NICE"]),
    ] {
        let manifests = Manifests::for_config(rendered, config).unwrap();
        let security = &manifests.pod().containers[0].security_context;
        assert_eq!(security.capabilities.add, capabilities, "{config}");
        assert_eq!(manifests.config_map.unwrap().data["config.yaml"], config);
    }
    for (config, host_pid) in [
        ("rebalance: {movesPer100Starts: 1}\n", true),
        ("exclusivity: kernel\nrebalance: {movesPer100Starts: 1}\n", true),
        ("exclusivity: groups\n", false),
    ] {
        let manifests = Manifests::for_config(rendered, config).unwrap();
        assert_eq!(manifests.pod().host_pid, host_pid, "{config}");
    }
    let served = "podResources: {listen: /d}\n";
    let manifests = Manifests::for_config(rendered, served).unwrap();
    let container = &manifests.pod().containers[0];
    assert_eq!(container.security_context.capabilities.add, [""; 0]);
    assert!(container.volume_mounts.iter().any(|m| m.name == "kubelet-pod-resources"));
    for config in [&format!("exclusivity: kernel\n{served}"), "{"] {
        assert!(Manifests::for_config(rendered, config).is_err());
    }
}

/// An operator's own configuration, which shares no line with the base's.
const OWN: &str = "cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}
reservedSystemCPUs: 0-3,8
placement: compact
exclusivity: groups
rebalance: {movesPer100Starts: 10, minStay: 5m}
nodes:
- names: [gpu-*]
  reservedSystemCPUs: 0-7
";

/// Both ways of docs/install.md to configure kustomize's objects.
#[test]
fn every_overlay_keeps_an_operators_own_values() {
    let own: Value = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nri-cpu-manager", "namespace": "kube-system"},
        "data": {CONFIG: OWN},
    });
    let own = serde_yaml::to_string(&own).unwrap();
    for name in OVERLAYS {
        // In the base itself.
        let edited =
            copied(
                |file, text| {
                    if file == Path::new("base/configmap.yaml") { own.clone() } else { text }
                },
            );
        keeps_own_values(&part(edited.path(), name));
        // In a directory of its own, which patches the overlay.
        let shipped = copied(|_, text| text);
        let site = shipped.path().join("site");
        fs::create_dir(&site).unwrap();
        fs::write(site.join("configmap.yaml"), &own).unwrap();
        let overlay = part(Path::new(".."), name);
        let kustomization = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
             resources: [{}]\npatches: [{{path: configmap.yaml}}]\n",
            overlay.display()
        );
        fs::write(site.join("kustomization.yaml"), kustomization).unwrap();
        keeps_own_values(&site);
    }
}

fn keeps_own_values(directory: &Path) {
    let manifests = Manifests::of_directory(directory).unwrap();
    let data = manifests.config_map.unwrap().data;
    assert_eq!(data.into_iter().collect::<Vec<_>>(), [(CONFIG.to_owned(), OWN.to_owned())]);
}

fn with(file: &str, from: &str, to: &str) -> Result<Manifests> {
    let copy = copied(|name, mut text| {
        if name == Path::new(file) {
            assert!(text.contains(from), "{file} has no {from}");
            text = text.replacen(from, to, 1);
        }
        text
    });
    let overlay = if file.starts_with("base") { "overlays/kernel-exclusivity" } else { file };
    let overlay =
        overlay.trim_end_matches("/daemonset.yaml").trim_end_matches("/kustomization.yaml");
    Manifests::of_directory(&copy.path().join(overlay))
}

/// A copy of the base and the overlays, with their files changed.
fn copied(edit: impl Fn(&Path, String) -> String) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let source = cache::repository().join("manifests");
    for name in OVERLAYS {
        let shipped = part(&source, name);
        let below = shipped.strip_prefix(&source).unwrap();
        fs::create_dir_all(copy.path().join(below)).unwrap();
        for entry in fs::read_dir(&shipped).unwrap() {
            let name = below.join(entry.unwrap().file_name());
            let text = edit(&name, fs::read_to_string(source.join(&name)).unwrap());
            fs::write(copy.path().join(&name), text).unwrap();
        }
    }
    copy
}

#[test]
fn unsupported_content_is_an_error() {
    let base = "base/daemonset.yaml";
    with(base, "runAsUser: 0", "runAsUser: 0").unwrap();
    for (file, from, to, expect) in [
        (base, "readOnly: true", "readonly: true", "readonly"),
        (base, "cpu: 10m", "cpu: 10x", "10x"),
        (base, "type: RuntimeDefault", "type: Localhost", "Localhost"),
        (
            base,
            "automountServiceAccountToken: false",
            "automountServiceAccountToken: true",
            "must be false",
        ),
        (
            base,
            "name: nri\n              mountPath",
            "name: nrx\n              mountPath",
            "volume nrx",
        ),
        (base, "type: DirectoryOrCreate", "type: BlockDevice", "BlockDevice"),
        (base, "port: metrics", "port: metric", "no port metric"),
        (base, "httpGet:", "tcpSocket:", "tcpSocket"),
        (
            "overlays/migrate/kustomization.yaml",
            "readOnly: true\n",
            "readOnly: false\n",
            "needs readOnly",
        ),
    ] {
        let result = with(file, from, to).and_then(|manifests| {
            manifests.pod().containers[0].resources.requests.milli_cpu().map(|_| ())
        });
        let error = format!("{:#}", result.expect_err(to));
        assert!(error.contains(expect), "{to}: {error}");
    }
}

/// docs/install.md: one `images` entry applies to every container.
#[test]
fn the_image_comes_from_another_registry() {
    let images = "images:\n  - name: localhost/nri-cpu-manager\n    newName: registry.example.com:5000/cpus\n";
    for (tag, expect) in [("", env!("CARGO_PKG_VERSION")), ("    newTag: next\n", "next")] {
        let file = "overlays/containerd-1.7/kustomization.yaml";
        let manifests = with(file, "resources:", &format!("{images}{tag}resources:")).unwrap();
        let pod = manifests.pod();
        let all = pod.init_containers.iter().chain(&pod.containers).map(|c| &c.image);
        let expect = format!("registry.example.com:5000/cpus:{expect}");
        assert_eq!(all.collect::<Vec<_>>(), [&expect, &expect]);
    }
}
