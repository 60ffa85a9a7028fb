//! Reads pods from Kubernetes YAML documents of pods and controllers. All pods arrive at the
//! beginning, in the order of the text, and stay.

use crate::workload::{Amounts, ContainerSpec, PodSpec, Workload, WorkloadError, qos};
use ledger::{Annotations, ContainerKind};
use placement::memory_manager::{self, MemoryKind};
use quantity::Quantity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml::Value;
use std::collections::{BTreeMap, BTreeSet};

/// More replicas of a controller are treated as a mistake.
const MAX_REPLICAS: u64 = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    kind: String,
    metadata: Metadata,
    spec: Option<Value>,
    status: Option<Value>,
    items: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

/// The `spec` of a controller.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Controller {
    replicas: Option<u64>,
    parallelism: Option<u64>,
    template: Template,
}

#[derive(Debug, Deserialize)]
struct Template {
    #[serde(default)]
    metadata: Metadata,
    spec: PodBody,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodBody {
    containers: Vec<ContainerBody>,
    init_containers: Option<Vec<ContainerBody>>,
    /// Resources of the whole pod, which are not supported.
    resources: Option<Value>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerBody {
    name: String,
    resources: Option<Resources>,
    restart_policy: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, Value>>,
    limits: Option<BTreeMap<String, Value>>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// The fields of a pod's `spec` that are not read (Kubernetes 1.29 to 1.37).
const POD_FIELDS: &str = "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy \
    enableServiceLinks ephemeralContainers evictionResponders hostAliases hostIPC hostNetwork hostPID hostUsers \
    hostname hostnameOverride imagePullSecrets nodeName nodeSelector os overhead preemptionPolicy priority \
    priorityClassName readinessGates resourceClaims restartPolicy runtimeClassName schedulerName schedulingGates \
    schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace \
    subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef";
/// The fields of a container that are not read.
const CONTAINER_FIELDS: &str = "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports \
    readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce \
    terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir";
/// The field of a container's `resources` that is not read: devices that are claimed (DRA).
const RESOURCES_FIELDS: &str = "claims";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
    let mut reader = Reader::default();
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let place = format!("document {}", number + 1);
        let mut value = Value::deserialize(document).map_err(|error| form(&place, error))?;
        // `<<: *anchor`, which kubectl accepts.
        value.apply_merge().map_err(|error| form(&place, error))?;
        reader.object(&place, value, "")?;
    }
    reader.report_unread();
    Workload::new(reader.pods, reader.ignored)
}

#[derive(Debug, Default)]
struct Reader {
    pods: Vec<PodSpec>,
    ignored: Vec<String>,
    /// The kind, namespace and name of each object so far.
    known: BTreeSet<(String, String, String)>,
    /// Names of extended resources, such as `nvidia.com/gpu`.
    extended: BTreeSet<String>,
    /// Fields that Kubernetes does not know, each with the field that has it.
    unknown: BTreeSet<String>,
}

impl Reader {
    /// Notes what has no effect in a pod: extended resources and unknown fields.
    fn note_unread(&mut self, spec: &PodBody) {
        self.note_unknown("", &spec.others, POD_FIELDS);
        let containers = spec.containers.iter().map(|one| ("containers", one));
        let init = spec.init_containers.iter().flatten().map(|one| ("initContainers", one));
        for (place, one) in containers.chain(init) {
            self.note_unknown(&format!("{place}."), &one.others, CONTAINER_FIELDS);
            let Some(resources) = &one.resources else { continue };
            let place = format!("{place}.resources.");
            self.note_unknown(&place, &resources.others, RESOURCES_FIELDS);
            for (field, amounts) in
                [("requests", &resources.requests), ("limits", &resources.limits)]
            {
                for name in amounts.iter().flat_map(BTreeMap::keys) {
                    if name.contains('/') {
                        self.extended.insert(name.clone());
                    } else if !["cpu", "memory", EPHEMERAL_STORAGE].contains(&name.as_str())
                        && !name.starts_with("hugepages-")
                    {
                        self.unknown.insert(format!("{place}{field}.{name}"));
                    }
                }
            }
        }
    }

    /// Notes the fields that are not among `known`, with `place` before them.
    fn note_unknown(&mut self, place: &str, fields: &BTreeMap<String, Value>, known: &str) {
        let is_known = |field: &str| known.split_whitespace().any(|one| one == field);
        let unknown = fields.keys().filter(|field| !is_known(field));
        self.unknown.extend(unknown.map(|field| format!("{place}{field}")));
    }

    /// One line for all pods.
    fn report_unread(&mut self) {
        let list = |names: &BTreeSet<String>| {
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        if !self.extended.is_empty() {
            let names = list(&self.extended);
            self.ignored.push(format!("extended resources ({names}): the NUMA nodes of devices"));
        }
        if !self.unknown.is_empty() {
            let names = list(&self.unknown);
            self.ignored.push(format!("fields of pods that Kubernetes does not have: {names}"));
        }
    }

    /// Reads an object. `kind` is used if the object has no kind.
    fn object(&mut self, place: &str, value: Value, kind: &str) -> Result<(), WorkloadError> {
        if value.is_null() {
            return Ok(());
        }
        let object: Object = serde_yaml::from_value(value).map_err(|error| form(place, error))?;
        let Object { kind: own_kind, metadata, spec, status, items } = object;
        let kind = if own_kind.is_empty() { kind.to_owned() } else { own_kind };
        if kind.is_empty() {
            self.ignored.push(format!("{place}: no kind"));
            return Ok(());
        }
        // The API server omits the kind of a list's items if all are of the same kind.
        if let Some(of_items) = kind.strip_suffix("List") {
            for (number, item) in items.into_iter().flatten().enumerate() {
                self.object(&format!("{place}, {kind}, item {}", number + 1), item, of_items)?;
            }
            return Ok(());
        }
        // The API server generates a unique name for an object without one, so it is no duplicate.
        let is_named = metadata.name.is_some();
        let name = metadata.name.or(metadata.generate_name).unwrap_or_else(|| "pod".to_owned());
        let namespace = metadata.namespace.unwrap_or_else(|| "default".to_owned());
        let place = format!("{place}, {kind} {namespace}/{name}");
        if is_named && !self.known.insert((kind.clone(), namespace.clone(), name.clone())) {
            return Err(form(&place, "duplicate kind and name"));
        }
        if kind == "Pod"
            && let Some(phase) = ended(status.as_ref())
        {
            self.ignored.push(format!("{place}: its phase is {phase}"));
            return Ok(());
        }
        match kind.as_str() {
            "Pod" => {
                let spec: PodBody = body(&place, spec)?;
                let pod = pod(&place, namespace, name, &spec)?;
                self.note_unread(&spec);
                self.pods.push(PodSpec { annotations: annotations(metadata.annotations), ..pod });
            }
            "Deployment"
            | "StatefulSet"
            | "ReplicaSet"
            | "ReplicationController"
            | "DaemonSet"
            | "Job" => {
                let controller: Controller = body(&place, spec)?;
                let replicas = if kind == "DaemonSet" {
                    1 // on each node
                } else {
                    controller.replicas.or(controller.parallelism).unwrap_or(1)
                };
                if replicas > MAX_REPLICAS {
                    let why = format!("{replicas} replicas: at most {MAX_REPLICAS} are supported");
                    return Err(form(&place, why));
                }
                let Template { metadata, spec } = controller.template;
                let annotations = annotations(metadata.annotations);
                self.note_unread(&spec);
                for replica in 0..replicas {
                    let name = format!("{name}-{replica}");
                    let pod = pod(&place, namespace.clone(), name, &spec)?;
                    self.pods.push(PodSpec { annotations: annotations.clone(), ..pod });
                }
            }
            _ => self.ignored.push(place),
        }
        Ok(())
    }
}

/// The phase of a pod that has ended and needs no CPUs; `None` for other pods.
fn ended(status: Option<&Value>) -> Option<&str> {
    let phase = status?.get("phase")?.as_str()?;
    if ["Succeeded", "Failed"].contains(&phase) { Some(phase) } else { None }
}

fn body<T: DeserializeOwned>(place: &str, spec: Option<Value>) -> Result<T, WorkloadError> {
    let spec = spec.ok_or_else(|| form(place, "no spec"))?;
    serde_yaml::from_value(spec).map_err(|error| form(place, error))
}

fn pod(
    place: &str,
    namespace: String,
    name: String,
    spec: &PodBody,
) -> Result<PodSpec, WorkloadError> {
    if spec.resources.as_ref().is_some_and(|resources| !resources.is_null()) {
        let why = "resources of the whole pod (spec.resources) are not supported; set them for its containers";
        return Err(form(place, why));
    }
    let mut containers = Vec::new();
    let mut amounts = Vec::new();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let all =
        init.iter().map(|one| (one, true)).chain(spec.containers.iter().map(|one| (one, false)));
    for (one, init) in all {
        if containers.iter().any(|other: &ContainerSpec| other.name == one.name) {
            return Err(form(place, format!("two containers are named {}", one.name)));
        }
        let place = format!("{place}, container {}", one.name);
        let amounts_of_one = amounts_of(&place, one)?;
        let kind = match (init, one.restart_policy.as_deref()) {
            (false, _) => ContainerKind::App,
            (true, Some("Always")) => ContainerKind::RestartableInit,
            (true, _) => ContainerKind::Init,
        };
        containers.push(ContainerSpec {
            name: one.name.clone(),
            kind,
            request: amounts_of_one.cpu.0.milli(),
            limit: amounts_of_one.cpu.1.milli(),
            memory: memory_of(&place, one)?,
        });
        amounts.push(amounts_of_one);
    }
    if spec.containers.is_empty() {
        return Err(form(place, "no containers"));
    }
    let qos = qos(&amounts);
    let annotations = Annotations::default();
    Ok(PodSpec { namespace, name, qos, annotations, containers, arrive: 0, depart: None })
}

fn annotations(annotations: Option<BTreeMap<String, String>>) -> Annotations {
    annotations.into_iter().flatten().collect()
}

/// The requests and limits of a container. As in the API server, a limit without a request is the
/// request, too.
fn amounts_of(place: &str, one: &ContainerBody) -> Result<Amounts, WorkloadError> {
    let read = |of: &Option<BTreeMap<String, Value>>, what: &str| {
        let value = of.as_ref().and_then(|map| map.get(what));
        value.map(|value| quantity(place, what, value)).transpose()
    };
    let Some(Resources { requests, limits, .. }) = &one.resources else {
        return Ok(Amounts::default());
    };
    let pair = |what| -> Result<(Quantity, Quantity), WorkloadError> {
        let limit = read(limits, what)?;
        let request = read(requests, what)?.or(limit).unwrap_or_default();
        Ok((request, limit.unwrap_or_default()))
    };
    let amounts = Amounts { cpu: pair("cpu")?, memory: pair("memory")? };
    amounts.check().map_err(|why| form(place, why))?;
    Ok(amounts)
}

/// The limits of memory and huge pages of a container.
fn memory_of(place: &str, one: &ContainerBody) -> Result<memory_manager::Amounts, WorkloadError> {
    let limits = one.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let mut amounts = memory_manager::Amounts::new();
    for (what, value) in limits.into_iter().flatten() {
        if what != "memory" && !what.starts_with("hugepages-") {
            continue;
        }
        let kind = what.parse::<MemoryKind>().map_err(|why| form(place, why))?;
        let bytes = quantity(place, what, value)?.whole();
        if bytes > 0 {
            amounts.insert(kind, bytes);
        }
    }
    Ok(amounts)
}

fn quantity(place: &str, what: &str, value: &Value) -> Result<Quantity, WorkloadError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(form(place, format!("{what}: expected a string or a number"))),
    };
    Quantity::parse(&text).map_err(|why| form(place, format!("{what}: {why}")))
}

fn form(place: &str, why: impl ToString) -> WorkloadError {
    WorkloadError::Form { place: place.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::Qos;

    const PODS: &str = r#"
# No object before the first separator.
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: prod}
spec:
  initContainers:
  - {name: prepare, resources: {limits: {cpu: 2, memory: 1Gi}}}
  - {name: proxy, restartPolicy: Always, resources: {limits: {cpu: 500m, memory: 1Gi}}}
  containers:
  - {name: main, resources: {requests: {cpu: "4"}, limits: {cpu: 4.0, memory: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: db}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template: {spec: {containers: [{name: web, resources: {requests: {cpu: 0.25}}}]}}
"#;

    #[test]
    fn pods_and_controllers_are_read_and_other_kinds_ignored() {
        let workload = parse(PODS).unwrap();
        let names: Vec<String> = workload
            .pods
            .iter()
            .map(|pod| format!("{}/{} {:?}", pod.namespace, pod.name, pod.qos))
            .collect();
        assert_eq!(
            names,
            ["prod/db Guaranteed", "default/web-0 Burstable", "default/web-1 Burstable"]
        );
        assert_eq!(workload.ignored, ["document 2, Service default/db"]);
        let db: Vec<(u64, u64, ContainerKind)> = workload.pods[0]
            .containers
            .iter()
            .map(|one| (one.request, one.limit, one.kind))
            .collect();
        assert_eq!(
            db,
            [
                (2000, 2000, ContainerKind::Init),
                (500, 500, ContainerKind::RestartableInit),
                (4000, 4000, ContainerKind::App)
            ]
        );
        assert_eq!(workload.pods[1].containers[0].request, 250);
        assert_eq!(workload.pods[0].qos, Qos::Guaranteed);
    }

    #[test]
    fn limits_of_memory_and_huge_pages_are_read() {
        let pod = |limits: &str| {
            parse(&format!(
                "kind: Pod\nspec: {{containers: [{{name: c, resources: {{limits: {{{limits}}}}}}}]}}\n"
            ))
        };
        let workload = pod("cpu: 2, memory: 8Gi, hugepages-2Mi: 1Gi, hugepages-1Gi: 0").unwrap();
        let expect = [(MemoryKind::Memory, 8 << 30), (MemoryKind::HugePages(2 << 20), 1 << 30)];
        assert_eq!(workload.pods[0].containers[0].memory, memory_manager::Amounts::from(expect));
        assert!(pod("cpu: 2").unwrap().pods[0].containers[0].memory.is_empty());
        let error = pod("hugepages-big: 1Gi").unwrap_err().to_string();
        let expect = "document 1, Pod default/pod, container c: \"hugepages-big\" is neither memory nor hugepages-SIZE, such as hugepages-2Mi";
        assert_eq!(error, expect);
    }

    #[test]
    fn extended_resources_and_unknown_fields_have_one_line_each() {
        let pods = |spec: &str| {
            let pod =
                |name| format!("kind: Pod\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n");
            parse(&(pod("a") + &pod("b"))).unwrap().ignored
        };
        let gpu = "nodeName: n, containers: [{name: c, image: x, ports: [], resources: {claims: [], limits: {cpu: 1, ephemeral-storage: 1Gi, nvidia.com/gpu: 1}}}]";
        assert_eq!(pods(gpu), ["extended resources (nvidia.com/gpu): the NUMA nodes of devices"]);
        let typos = "nodeSelecter: {}, initContainers: [{name: i, imag: x}], \
                     containers: [{name: c, resorces: {}, resources: {limit: {}, requests: {cpus: 1}}}]";
        let fields = "containers.resorces, containers.resources.limit, containers.resources.requests.cpus, \
                      initContainers.imag, nodeSelecter";
        let expected = format!("fields of pods that Kubernetes does not have: {fields}");
        assert_eq!(pods(typos), [expected]);
    }

    #[test]
    fn lists_of_the_api_server_are_read() {
        let text = r#"{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [
            {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"}},
            {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Succeeded"}},
            {"metadata": {"name": "d"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Failed"}}
        ]}"#;
        let read = |text: &str| {
            let Workload { pods, ignored } = parse(text).unwrap();
            (pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>().join(" "), ignored)
        };
        let ended = [
            "document 1, PodList, item 2, Pod default/b: its phase is Succeeded",
            "document 1, PodList, item 3, Pod default/d: its phase is Failed",
        ];
        assert_eq!(read(text), ("a".to_owned(), ended.map(str::to_owned).to_vec()));
        let text = "kind: DeploymentList\nitems:\n\
                    - metadata: {name: web}\n  spec: {template: {spec: {containers: [{name: c}]}}}\n";
        assert_eq!(read(text), ("web-0".to_owned(), Vec::new()));
        let text = "kind: List\nitems:\n- {kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}\n- {spec: {}}\n";
        let kindless = "document 1, List, item 2: no kind".to_owned();
        assert_eq!(read(text), ("a".to_owned(), vec![kindless]));
    }

    #[test]
    fn yaml_merge_keys_are_applied() {
        let text = "kind: Pod\nspec:\n  containers:\n\
                    \x20 - {name: one, resources: &r {limits: {cpu: 2, memory: 1Gi}}}\n\
                    \x20 - {name: two, resources: {<<: *r}}\n";
        let pod = &parse(text).unwrap().pods[0];
        assert_eq!((pod.qos, pod.containers[1].limit), (Qos::Guaranteed, 2000));
        let error = parse("kind: Pod\nspec: {<<: 1}\n").unwrap_err().to_string();
        assert!(error.starts_with("document 1: "), "{error}");
    }

    #[test]
    fn mistakes_are_reported_with_their_document() {
        for (text, expect) in [
            ("", "no pods found"),
            ("kind: PodList\nitems: null\n", "no pods found"),
            (
                "kind: Service\nmetadata: {name: x}\n---\ncpuManagerPolicy: static\n",
                "no pods found; ignored: document 1, Service default/x; document 2: no kind",
            ),
            ("kind: Pod\nmetadata: {name: x}\n", "document 1, Pod default/x: no spec"),
            (
                "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, resources: {limits: {cpu: many}}}]}\n",
                "document 1, Pod default/x, container c: cpu: invalid quantity \"many\": expected one like 2, 1.5, 500m or 1Gi",
            ),
            ("kind: Pod\nspec: {containers: []}\n", "document 1, Pod default/pod: no containers"),
            (
                "kind: Pod\nmetadata: {name: x}\nspec: {initContainers: [{name: c}], containers: [{name: c}]}\n",
                "document 1, Pod default/x: two containers are named c",
            ),
            (
                "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}]}\n",
                "document 1, Pod default/x, container c: memory: the request exceeds the limit",
            ),
            (
                "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c}]}\n---\nkind: Pod\nmetadata: {name: x, namespace: default}\nspec: {}\n",
                "document 2, Pod default/x: duplicate kind and name",
            ),
            (
                "kind: Job\nmetadata: {name: x}\nspec: {parallelism: 9999999, template: {spec: {containers: []}}}\n",
                "document 1, Job default/x: 9999999 replicas: at most 100000 are supported",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expect);
        }
        let nameless =
            "kind: Pod\nmetadata: {generateName: x-}\nspec: {containers: [{name: c}]}\n---\n";
        assert_eq!(parse(&nameless.repeat(2)).unwrap().pods.len(), 2);
        assert!(parse("- 1\n").unwrap_err().to_string().starts_with("document 1: "));
        assert!(parse("kind: [\n").is_err());
    }
}
