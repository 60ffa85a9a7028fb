//! The manifests against Kubernetes' own types: a field that Kubernetes does not know fails here;
//! an API server would silently drop it.
//!
//! The lab tests that the files work together.

use config::Config;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machines::presets::preset;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Checks a resource or a patch, which is a resource with most fields missing.
fn check(resource: Value) -> Result<(), String> {
    match resource["kind"].as_str() {
        Some("DaemonSet") => strict::<DaemonSet>(resource),
        Some("ConfigMap") => strict::<ConfigMap>(resource),
        Some("Job") => strict::<Job>(resource),
        Some("NetworkPolicy") => strict::<NetworkPolicy>(resource),
        Some("Role") => strict::<Role>(resource),
        Some("RoleBinding") => strict::<RoleBinding>(resource),
        Some("ServiceAccount") => strict::<ServiceAccount>(resource),
        Some("MutatingAdmissionPolicy") => strict::<MutatingAdmissionPolicy>(resource),
        Some("MutatingAdmissionPolicyBinding") => {
            strict::<MutatingAdmissionPolicyBinding>(resource)
        }
        Some("ClusterRole") => strict::<ClusterRole>(resource),
        Some("SecurityContextConstraints") => strict::<SecurityContextConstraints>(resource),
        other => Err(format!("the kind {other:?} is missing in this test")),
    }
}

/// The fields of OpenShift's type (openshift/api, `security/v1`) that the overlay sets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "only their names and types are checked")]
struct SecurityContextConstraints {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    allow_host_dir_volume_plugin: bool,
    #[serde(rename = "allowHostIPC")]
    allow_host_ipc: bool,
    allow_host_network: bool,
    #[serde(rename = "allowHostPID")]
    allow_host_pid: bool,
    allow_host_ports: bool,
    allow_privilege_escalation: bool,
    allow_privileged_container: bool,
    allowed_capabilities: Vec<String>,
    required_drop_capabilities: Vec<String>,
    read_only_root_filesystem: bool,
    run_as_user: Strategy,
    se_linux_context: Strategy,
    fs_group: Strategy,
    supplemental_groups: Strategy,
    seccomp_profiles: Vec<String>,
    volumes: Vec<String>,
}

#[derive(Deserialize)]
struct Strategy {
    #[allow(dead_code, reason = "only its type is checked")]
    r#type: String,
}

/// The type must have every field, and the field's value must be of its type.
fn strict<T: DeserializeOwned>(resource: Value) -> Result<(), String> {
    let mut unknown = Vec::new();
    // The path has a question mark at each optional field.
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string().replace(".?", ""));
    let read: Result<T, _> = serde_ignored::deserialize(resource, &mut note);
    read.map_err(|error| error.to_string())?;
    if unknown.is_empty() { Ok(()) } else { Err(format!("unknown: {}", unknown.join(", "))) }
}

/// The fields of a kustomization that can contain resources. The lab's composer refuses other
/// fields.
#[derive(Deserialize)]
struct Kustomization {
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
struct Patch {
    path: Option<String>,
    patch: Option<String>,
}

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// The files for `kubectl apply -k`.
fn kustomized() -> Vec<PathBuf> {
    ["base", "bench-gain", "doctor", "overlays", "uninstall"]
        .iter()
        .flat_map(|name| files(&manifests().join(name)))
        .collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

#[test]
fn kubernetes_knows_every_field() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    let mut check_one = |from: &Path, resource: Value| {
        checked += 1;
        wrong.extend(check(resource).err().map(|why| format!("{}: {why}", from.display())));
    };
    for file in kustomized() {
        let text = fs::read_to_string(&file).unwrap();
        if file.ends_with("kustomization.yaml") {
            let rules: Kustomization = serde_yaml::from_str(&text).unwrap();
            let patches = rules.patches.iter();
            patches.filter_map(|p| p.patch.as_ref()).for_each(|p| check_one(&file, yaml(p)));
        } else {
            text.split("\n---\n").for_each(|document| check_one(&file, yaml(document)));
        }
    }
    assert!(checked >= 8, "only {checked} found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the Helm chart makes of all its values; `hack/chart check` compares the file with Helm's
/// output.
#[test]
fn kubernetes_knows_every_field_of_the_charts_objects() {
    let text = include_str!("../chart/objects.yaml");
    let mut kinds = BTreeSet::new();
    for document in text.split("\n---\n") {
        let object = yaml(document);
        let kind = object["kind"].as_str().unwrap().to_owned();
        // The Prometheus operator's types are not Kubernetes'.
        if kind != "PodMonitor" {
            check(object).unwrap_or_else(|why| panic!("{why} in\n{document}"));
        }
        kinds.insert(kind);
    }
    assert!(kinds.len() > 8, "only {kinds:?}");
}

/// Helm's merge of values: maps by key, and null removes.
fn merge(values: &mut Value, over: &Value) {
    let (Some(values), Some(over)) = (values.as_object_mut(), over.as_object()) else {
        *values = over.clone();
        return;
    };
    for (key, value) in over {
        if value.is_null() {
            values.remove(key);
        } else {
            merge(values.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// The chart's configuration with these values, on a node that all entries are for.
fn plugin_accepts(values: &Value) -> Result<(), String> {
    let mut config =
        yaml(include_str!("../../charts/nri-cpu-manager/values.yaml"))["config"].take();
    merge(&mut config, values);
    let text = serde_yaml::to_string(&config).unwrap();
    let machine = preset("epyc-7303").unwrap().topology().unwrap();
    let config = Config::parse("config", &text).and_then(|config| {
        let entries: Vec<usize> = (0..config.overrides().len()).collect();
        config.with(&entries)?.resolve(&machine)
    });
    config.map(drop).map_err(|why| why.to_string())
}

/// `hack/chart check` compares the same file with what the chart refuses.
#[test]
fn the_plugin_refuses_the_contradictions_that_the_chart_refuses() {
    let cases = yaml(include_str!("../chart/contradictions.yaml"));
    let [refused, accepted] =
        ["refused", "accepted"].map(|key| cases[key].as_array().unwrap().as_slice());
    assert!(refused.len() > 15 && accepted.len() > 15);
    for case in refused {
        assert!(plugin_accepts(&case["config"]).is_err(), "accepted: {case}");
    }
    for case in accepted {
        plugin_accepts(case).unwrap_or_else(|why| panic!("{case}: {why}"));
    }
}

/// CRI-O finds no image by a short name, and an image without a tag would be pulled at each start.
#[test]
fn every_image_has_a_full_name() {
    let expect = concat!("localhost/nri-cpu-manager:", env!("CARGO_PKG_VERSION"));
    let mut images = 0;
    for file in kustomized() {
        let text = fs::read_to_string(&file).unwrap();
        for image in text.lines().filter_map(|line| line.trim().strip_prefix("image: ")) {
            assert_eq!(image, expect, "{}", file.display());
            images += 1;
        }
    }
    assert!(images >= 4, "only {images} found");
}

/// The chart's images have the tag `appVersion`, and registries sort charts by `version`.
#[test]
fn the_chart_has_the_programs_version() {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/nri-cpu-manager/Chart.yaml");
    let chart = yaml(&fs::read_to_string(chart).unwrap());
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
}

/// A file that no kustomization names ships and is never applied.
#[test]
fn every_manifest_is_named_by_a_kustomization() {
    let mut named = Vec::new();
    for file in kustomized().into_iter().filter(|f| f.ends_with("kustomization.yaml")) {
        let rules: Kustomization =
            serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let paths = rules.patches.into_iter().filter_map(|patch| patch.path);
        let paths = rules.resources.into_iter().chain(paths);
        named.extend(paths.map(|path| file.with_file_name(path)));
        named.push(file);
    }
    for file in kustomized() {
        assert!(named.contains(&file), "nothing names {}", file.display());
    }
}

#[test]
fn mistakes_in_a_manifest_are_found() {
    let text = fs::read_to_string(manifests().join("base/daemonset.yaml")).unwrap();
    for (from, to, expect) in [
        ("readOnlyRootFilesystem", "readOnlyRootFileSystem", "readOnlyRootFileSystem"),
        ("tolerations:", "toleration:", "spec.template.spec.toleration"),
        ("maxSurge: 1", "maxSurge: 1\n      maxSurg: 1", "maxSurg"),
        ("drop: [\"ALL\"]", "drop: ALL", "invalid type"),
        ("runAsUser: 0", "runAsUser: \"0\"", "invalid type"),
        ("kind: DaemonSet", "kind: Daemonset", "Daemonset"),
    ] {
        assert!(text.contains(from), "the DaemonSet has no {from}");
        let error = check(yaml(&text.replacen(from, to, 1))).unwrap_err();
        assert!(error.contains(expect), "{to}: {error}");
    }
}

/// The kubelet on the same node has series of the same names, so each query selects the plugin's
/// own job.
#[test]
fn the_dashboard_selects_only_the_plugins_series() {
    let text = fs::read_to_string(manifests().join("grafana/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let job = variables.iter().find(|variable| variable["name"] == "job").unwrap();
    assert_eq!(job["query"], "label_values(nri_cpu_manager_build_info, job)");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let mut queries = 0;
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let selectors = query.matches('{').count();
            assert!(selectors > 0, "{}: {query}", panel["title"]);
            assert_eq!(query.matches(r#"{job=~"$job","#).count(), selectors, "{query}");
            queries += 1;
        }
        // Without it a heatmap takes each series for a bucket of a histogram.
        if panel["type"] == "heatmap" {
            assert_eq!(panel["options"]["calculate"], true, "{}", panel["title"]);
        }
    }
    assert!(queries > 20, "only {queries} found");
}

#[test]
fn the_dashboard_shows_alignment_moves_foreign_partitions_and_fallbacks() {
    let text = fs::read_to_string(manifests().join("grafana/dashboard.json")).unwrap();
    for metric in [
        "cgroups_writable",
        "distrusted_cgroups",
        "foreign_partition_cpus",
        "exclusivity_fallback",
        "exclusive_containers",
        "excess_domains",
        "split_cores",
        "moves_total",
        "rebalance_moves_left",
        "rebalance_moves_total",
        "unbound_pods",
    ] {
        assert!(text.contains(&format!("nri_cpu_manager_{metric}{{job")), "no query of {metric}");
    }
}

/// Grafana moves a panel that overlaps another one to a place that it chooses.
#[test]
fn the_dashboards_panels_do_not_overlap() {
    #[derive(Debug, Deserialize)]
    struct Rectangle {
        x: u64,
        y: u64,
        w: u64,
        h: u64,
    }
    let text = fs::read_to_string(manifests().join("grafana/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at: Rectangle = serde_json::from_value(panel["gridPos"].clone()).unwrap();
        assert!(at.x + at.w <= 24, "{}: {at:?}", panel["title"]);
        for x in at.x..at.x + at.w {
            for y in at.y..at.y + at.h {
                assert!(taken.insert((x, y)), "{} overlaps at {x}, {y}", panel["title"]);
            }
        }
    }
}

#[test]
fn promtool_tests_that_each_alert_fires_and_that_it_does_not() {
    #[derive(Deserialize)]
    struct Tried {
        alertname: String,
        exp_alerts: Vec<Value>,
    }
    let read =
        |name: &str| yaml(&fs::read_to_string(manifests().join("prometheus").join(name)).unwrap());
    let tests = read("rules_test.yaml");
    let tests = tests["tests"].as_array().unwrap().iter();
    let tried: Vec<Tried> = tests
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .map(|one| serde_json::from_value(one.clone()).unwrap())
        .collect();
    let rules = read("rules.yaml");
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: BTreeSet<&str> = rules.map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert!(alerts.len() > 10, "only {alerts:?} found");
    for fires in [true, false] {
        let of = tried.iter().filter(|one| one.exp_alerts.is_empty() != fires);
        let tested: BTreeSet<&str> = of.map(|one| one.alertname.as_str()).collect();
        assert_eq!(alerts, tested, "fires: {fires}");
    }
}

/// What the constraints allow must be what the pod needs: OpenShift refuses a pod that needs more.
#[test]
fn the_constraints_of_openshift_admit_the_pod() {
    let read = |path: &str| fs::read_to_string(manifests().join(path)).unwrap();
    let documents = read("overlays/openshift/scc.yaml");
    let objects: Vec<Value> = documents.split("\n---\n").map(yaml).collect();
    let [constraints, role, binding] = &objects[..] else { panic!("{} objects", objects.len()) };
    let name = &constraints["metadata"]["name"];
    assert_eq!(role["rules"][0]["resourceNames"][0], *name);
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    for file in ["base/daemonset.yaml", "uninstall/daemonset.yaml"] {
        let pod = &yaml(&read(file))["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap_or("default");
        assert_eq!(binding["subjects"][0]["name"], account, "{file}");
        let allowed = constraints["volumes"].as_array().unwrap();
        for volume in pod["volumes"].as_array().unwrap() {
            let kinds = volume.as_object().unwrap().keys().filter(|key| *key != "name");
            kinds.for_each(|kind| assert!(allowed.iter().any(|one| one == kind), "{file}: {kind}"));
        }
        let of = |kind: &str| pod[kind].as_array().cloned().unwrap_or_default();
        for container in of("initContainers").iter().chain(&of("containers")) {
            let context = &container["securityContext"];
            for field in ["readOnlyRootFilesystem", "allowPrivilegeEscalation"] {
                assert_eq!(context[field], constraints[field], "{file}: {field}");
            }
            assert_eq!(context["capabilities"]["drop"], constraints["requiredDropCapabilities"]);
            assert_eq!(context["capabilities"]["add"], Value::Null);
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        }
    }
}
