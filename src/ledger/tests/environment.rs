//! Environment variables of containers.

use super::*;

fn told(settings: Settings, milli: u64) -> Vec<(&'static str, String)> {
    let mut node = Node::with(settings, Vec::new());
    let pod = guaranteed("a", milli);
    let container = container(&pod, "c", "a", milli);
    node.ledger.handle(Admission::Create { pod, container }).unwrap().environment
}

#[test]
fn environment_variables_are_set_for_new_exclusive_containers_if_configured() {
    let wanted = Settings { expose_cpus: true, ..settings() };
    let own = |(name, value): (&'static str, &str)| (name, value.to_owned());
    let expect = [
        ("NRI_CPU_MANAGER_CPUS", "2-3,8-15"),
        ("NRI_CPU_MANAGER_NUMA_NODES", "0"),
        ("NRI_CPU_MANAGER_UNCORE_CACHES", "2-3;8-15"),
    ];
    assert_eq!(told(wanted.clone(), 10_000), expect.map(own));
    assert_eq!(told(wanted, 1500), []);
    assert_eq!(told(settings(), 10_000), []);
}
