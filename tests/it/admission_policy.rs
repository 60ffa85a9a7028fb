//! The admission policy that makes pinned pods require the plugin: evaluates its expressions on
//! pods with the API server's defaults. `tests/it/manifests.rs` checks its schema.

use cel::extractors::This;
use cel::objects::{Key, Map};
use cel::{Context, ExecutionError, Program, Value};
use quantity::Quantity;
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const REQUIRES: &str = "required-plugins.noderesource.dev";

fn policy() -> serde_json::Value {
    let path = "manifests/overlays/require/policy.yaml";
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    serde_yaml::from_str(text.split("\n---\n").next().unwrap()).unwrap()
}

/// Kubernetes' function of this name, exact for quantities below 2^53.
fn quantity(text: Arc<String>) -> Result<f64, ExecutionError> {
    let parsed = Quantity::parse(&text);
    let parsed = parsed.map_err(|why| ExecutionError::function_error("quantity", why))?;
    Ok(parsed.milli() as f64 / 1000.0)
}

fn approximate(This(quantity): This<f64>) -> f64 {
    quantity
}

fn compare(This(one): This<f64>, other: f64) -> i64 {
    one.partial_cmp(&other).map_or(0, |order| order as i64)
}

fn context(pod: &serde_json::Value, variables: &HashMap<Key, Value>) -> Context<'static, 'static> {
    let mut context = Context::default();
    context.add_function("quantity", quantity).unwrap();
    context.add_function("asApproximateFloat", approximate).unwrap();
    context.add_function("compareTo", compare).unwrap();
    context.add_variable("object", pod).unwrap();
    let variables = Map { map: Arc::new(variables.clone()) };
    context.add_variable_from_value("variables", Value::Map(variables));
    context
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap()
}

/// Whether the policy annotates a pod.
fn is_annotated(pod: &serde_json::Value) -> bool {
    let policy = policy();
    let mut variables: HashMap<Key, Value> = HashMap::new();
    for variable in policy["spec"]["variables"].as_array().unwrap() {
        let program = Program::compile(text(&variable["expression"])).unwrap();
        let value = program.execute(&context(pod, &variables));
        let name = text(&variable["name"]);
        let value = value.unwrap_or_else(|error| panic!("{name}: {error}, {pod}"));
        variables.insert(name.into(), value);
    }
    // What the mutation constructs needs the API server's types: only the condition is evaluated.
    let mutation = text(&policy["spec"]["mutations"][0]["applyConfiguration"]["expression"]);
    let (condition, annotated) = mutation.split_once('?').unwrap();
    assert!(annotated.contains(&format!("'{REQUIRES}': '[\"cpu-manager\"]'")), "{annotated}");
    Program::compile(mutation).unwrap();
    let condition = Program::compile(condition).unwrap();
    match condition.execute(&context(pod, &variables)).unwrap() {
        Value::Bool(is_annotated) => is_annotated,
        other => panic!("{other:?}"),
    }
}

fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> serde_json::Value {
    let map = |pairs: &[(&str, &str)]| -> serde_json::Value {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    };
    json!({"requests": map(requests), "limits": map(limits)})
}

/// Requests and limits of a Guaranteed pod's container.
fn equal(cpu: &str) -> serde_json::Value {
    let all = [("cpu", cpu), ("memory", "1Gi")];
    resources(&all, &all)
}

fn pod(containers: &[serde_json::Value]) -> serde_json::Value {
    let container = |(number, resources): (usize, &serde_json::Value)| json!({"name": format!("c{number}"), "image": "i", "resources": resources});
    let containers: Vec<serde_json::Value> = containers.iter().enumerate().map(container).collect();
    json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers}})
}

#[test]
fn guaranteed_pods_are_annotated() {
    for (cpu, expect) in [
        ("1", true),
        ("2", true),
        ("2000m", true),
        ("2.0", true),
        ("128", true),
        ("1k", true),
        ("500m", true),
        ("2500m", true),
        ("1.5", true),
        ("0", false),
    ] {
        assert_eq!(is_annotated(&pod(&[equal(cpu)])), expect, "{cpu}");
    }
    assert!(is_annotated(&pod(&[equal("500m"), equal("2")])), "one of several");
    let mixed =
        resources(&[("cpu", "2"), ("memory", "1Gi")], &[("cpu", "2000m"), ("memory", "1024Mi")]);
    assert!(is_annotated(&pod(&[mixed])), "two texts of one amount");
}

#[test]
fn other_classes_are_not_annotated() {
    let burstable = [
        resources(&[("cpu", "2"), ("memory", "0")], &[("cpu", "2"), ("memory", "0")]),
        resources(&[("cpu", "2"), ("memory", "1Gi")], &[("cpu", "4"), ("memory", "1Gi")]),
        resources(&[("cpu", "2")], &[("cpu", "2")]),
        resources(&[("cpu", "2"), ("memory", "1Gi")], &[]),
        resources(&[("cpu", "2"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "2Gi")]),
    ];
    for one in burstable {
        assert!(!is_annotated(&pod(std::slice::from_ref(&one))), "{one}");
        assert!(!is_annotated(&pod(&[equal("2"), one.clone()])), "with another: {one}");
    }
    for nothing in [json!({}), json!({"claims": [{"name": "gpu"}]}), json!(null)] {
        let mut pod = pod(&[equal("2")]);
        pod["spec"]["containers"][0]["resources"] = nothing.clone();
        if nothing.is_null() {
            pod["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
        }
        assert!(!is_annotated(&pod), "{nothing}");
    }
}

#[test]
fn init_containers_and_pod_level_resources_are_considered() {
    let mut with_init = pod(&[equal("500m")]);
    for cpu in ["500m", "2"] {
        with_init["spec"]["initContainers"] = json!([{"name": "i", "resources": equal(cpu)}]);
        assert!(is_annotated(&with_init), "{cpu}");
    }
    with_init["spec"]["initContainers"] = json!([{"name": "i", "resources": {}}]);
    assert!(!is_annotated(&with_init), "the class is not Guaranteed");
    with_init["spec"]["containers"][0]["resources"] = equal("2");
    assert!(!is_annotated(&with_init), "the class is not Guaranteed");

    let mut of_pod = pod(&[equal("2"), json!({})]);
    assert!(!is_annotated(&of_pod));
    of_pod["spec"]["resources"] = equal("4");
    assert!(is_annotated(&of_pod));
    for containers in [&[json!({}), json!({})][..], &[equal("500m"), json!({})]] {
        for cpu in ["4", "2500m"] {
            let mut of_pod = pod(containers);
            of_pod["spec"]["resources"] = equal(cpu);
            assert!(is_annotated(&of_pod), "{cpu} of {containers:?}");
        }
    }
    let mut empty = pod(&[equal("2")]);
    empty["spec"]["resources"] = json!({});
    assert!(is_annotated(&empty), "the containers decide");
    of_pod["spec"]["resources"] =
        resources(&[("cpu", "3"), ("memory", "1Gi")], &[("cpu", "4"), ("memory", "1Gi")]);
    assert!(!is_annotated(&of_pod));
}

#[test]
fn pod_options_for_exclusive_cpus_count_and_existing_requirements_stay() {
    let burstable = resources(&[("cpu", "2")], &[]);
    for (key, value, expect) in [
        ("cpus.cpu-manager.nri.io", "exclusive", true),
        ("cpus.cpu-manager.nri.io/container.c0", "exclusive+shared", true),
        ("cpus.cpu-manager.nri.io/pod", "shared", false),
        ("smt.cpu-manager.nri.io", "isolate", false),
    ] {
        let mut pod = pod(std::slice::from_ref(&burstable));
        pod["metadata"]["annotations"] = json!({ key: value });
        assert_eq!(is_annotated(&pod), expect, "{key}: {value}");
    }
    let mut annotated = pod(&[equal("2")]);
    annotated["metadata"]["annotations"] = json!({ REQUIRES: "[\"other\"]" });
    assert!(!is_annotated(&annotated), "the pod's own annotation stays");
}
