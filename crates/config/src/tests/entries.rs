//! Mistakes in entries for some nodes, and in fields that are not in force.

use super::*;

#[test]
fn names_and_values_count_under_every_policy_and_in_every_entry() {
    let none = "kubeletStateDir: \"\"\n";
    let in_force =
        "cpuManagerPolicy: static\nreservedSystemCPUs: 0\ntopologyManagerPolicy: restricted\n";
    for (line, expect) in [
        (
            "topologyManagerPolicy: strict",
            "topologyManagerPolicy: \"strict\" is unknown, expected none or best-effort or restricted or single-numa-node",
        ),
        (
            "topologyManagerPolicy: restrictd",
            "topologyManagerPolicy: \"restrictd\" is unknown, expected none or best-effort or restricted or single-numa-node \
             (did you mean restricted?)",
        ),
        (
            "topologyManagerScope: pods",
            "topologyManagerScope: \"pods\" is unknown, expected container or pod (did you mean pod?)",
        ),
        (
            "systemReserved: {cpu: abc}",
            "systemReserved: invalid amount of CPUs \"abc\": expected one like 2, 1.5 or 500m",
        ),
        (
            "kubeReserved: {cpu: -1}",
            "kubeReserved: invalid amount of CPUs \"-1\": expected one like 2, 1.5 or 500m",
        ),
        (
            "cpuManagerPolicyOptions: {whole: true}",
            "whole: cpu manager: new static policy error: unknown CPU Manager Policy option: \"whole\" (expected one of \
             full-pcpus-only, strict-cpu-reservation, prefer-align-cpus-by-uncorecache, distribute-cpus-across-numa, \
             align-by-socket, distribute-cpus-across-cores, \
             scale-delay-time)",
        ),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: true, distribute-cpus-across-cores: true}",
            "full-pcpus-only: full-pcpus-only and distribute-cpus-across-cores exclude each other: remove \
             distribute-cpus-across-cores if containers are to get whole cores, or full-pcpus-only if they are to get \
             CPUs of as many cores as possible",
        ),
        (
            "topologyManagerPolicyOptions: {max-allowable-numa-node: 9}",
            "max-allowable-numa-node: topology manager: unknown Topology Manager Policy option: \"max-allowable-numa-node\" \
             (did you mean max-allowable-numa-nodes?)",
        ),
        (
            "topologyManagerPolicyOptions: {max-allowable-numa-nodes: x}",
            "max-allowable-numa-nodes: topology manager: unable to convert policy option to integer \
             \"max-allowable-numa-nodes\": strconv.Atoi: parsing \"x\": invalid syntax (expected a number like 8)",
        ),
        (
            "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'on'}",
            "prefer-closest-numa-nodes: topology manager: bad value for option \"prefer-closest-numa-nodes\": \
             strconv.ParseBool: parsing \"on\": invalid syntax (expected \"true\" or \"false\")",
        ),
    ] {
        let (key, _) = line.split_once(':').unwrap();
        for base in [none, in_force] {
            // Without the line that the wrong one would repeat.
            let base: String = base
                .lines()
                .filter(|one| !one.starts_with(key))
                .fold(String::new(), |all, one| all + one + "\n");
            let at = base.lines().count() + 1;
            refuses(&format!("{base}{line}\n"), &format!("line {at}: {expect}"));
            let entry = format!("{base}nodes:\n- names: [elsewhere]\n  {line}\n");
            refuses(&entry, &format!("line {}: {expect}", at + 2));
        }
    }
    // Empty is the default, as in the kubelet.
    assert!(resolve("topologyManagerPolicy: \"\"\ntopologyManagerScope: \"\"\n").is_ok());
}

#[test]
fn fields_of_several_entries_may_contradict_each_other_where_they_do_not_meet() {
    let text = "cpuManagerPolicyOptions: {full-pcpus-only: true}\nnodes:\n- names: [\"s-*\"]\n  cpuManagerPolicy: static\n  \
                reservedSystemCPUs: 0\n- names: [s-1]\n  topologyManagerPolicy: single-numa-node\n  \
                cpuManagerPolicyOptions: {align-by-socket: true}\n";
    assert!(on("s-2", "", text).unwrap().placement.options.full_pcpus_only);
    let error = on("s-1", "", text).unwrap_err();
    assert!(error.starts_with("config.yaml, line 8: align-by-socket: "), "{error}");
    assert!(on("web", "", text).unwrap_err().contains("needs cpuManagerPolicy: static"));
}

#[test]
fn mistakes_in_overrides_show_on_every_node_with_their_own_lines() {
    let with = |entry: &str| {
        format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nnodes:\n- names: [a]\n  strict: true\n{entry}"
        )
    };
    refuses(
        &with("- names: [b]\n  strict: maybe\n"),
        "line 7: strict: \"maybe\" is unknown, expected true or false",
    );
    refuses(
        &with("- names: [b]\n  reservedSystemCPUs: \" \"\n"),
        "line 7: nodes[1].reservedSystemCPUs: empty list: expected CPUs like \"0-1\"; or omit the field",
    );
    refuses(
        &with("- strict: true\n"),
        "line 6: nodes: this entry matches no node: set names, labels or both",
    );
    refuses(
        &with("- names: [b]\n  nodes: [{names: [c]}]\n"),
        "line 7: nodes: nested entries are not supported",
    );
    refuses(&with("names: [b]\n"), "line 6: names: only valid in an entry of nodes");
    refuses(
        &with("- names: [b]\n  labels: {c: d, c: e}\n"),
        "line 7: nodes[1].labels.c: set twice, first on line 7",
    );
    refuses(
        &with("- names: [\"\"]\n"),
        "line 6: names: empty name: expected one like \"worker-1\" or \"gpu-*\"",
    );
    let error = resolve(&with("- names: [b]\n  strikt: true\n")).unwrap_err();
    assert!(
        error.starts_with("config.yaml, line 7: nodes[1]: unknown field \"strikt\""),
        "{error}"
    );
    // What does not fit the machine is a mistake only where it is in force.
    let text = with("- names: [b]\n  reservedSystemCPUs: 64\n");
    assert!(on("a", "", &text).is_ok());
    let error = on("b", "", &text).unwrap_err();
    assert!(
        error.starts_with("config.yaml, line 7: reservedSystemCPUs: CPU 64 does not exist"),
        "{error}"
    );
    let text = with("- names: [b]\n  cpuManagerPolicyOptions:\n    full-pcpu-only: true\n");
    let error = on("a", "", &text).unwrap_err();
    assert!(error.starts_with("config.yaml, line 8: full-pcpu-only: "), "{error}");
}
