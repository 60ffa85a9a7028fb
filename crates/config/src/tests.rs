//! What is accepted, and the error for each mistake.

mod entries;
mod memory;
mod odd_input;
mod pasted;

use super::*;
use ledger::Exposure;
use ledger::pod_option::PodOption;
use placement::{EngineKind, UncoreOrder};
use topology::{Cpu, Facts};

fn machine() -> Topology {
    let cpu =
        |id| Cpu { id, core: id / 2 * 2, uncore: 0, numa: 0, socket: 0, die: None, kind: None };
    Topology::build(Facts { cpus: (0..8).map(cpu).collect(), ..Facts::default() }).unwrap()
}

fn resolve(text: &str) -> Result<Settings, String> {
    Config::parse("config.yaml", text)
        .and_then(|config| config.resolve(&machine()))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn refuses(text: &str, expect: &str) {
    let error = resolve(text).unwrap_err();
    assert_eq!(error, format!("config.yaml, {expect}. Nothing was changed"), "{text}");
}

#[test]
fn a_pasted_kubelet_block_is_understood() {
    let settings = resolve(
        "cpuManagerPolicy: static\n\
         cpuManagerPolicyOptions:\n  full-pcpus-only: \"true\"\n  prefer-align-cpus-by-uncorecache: true\n\
         reservedSystemCPUs: 0-1\nuncoreCacheOrder: numerical\n\
         systemReserved: {cpu: 500m, memory: 1Gi}\n",
    )
    .unwrap();
    assert_eq!(settings.policy, Policy::Static);
    assert_eq!(settings.placement.reserved.to_string(), "0-1");
    assert!(settings.placement.options.full_pcpus_only);
    assert!(settings.placement.options.prefer_align_cpus_by_uncorecache);
    assert_eq!(settings.placement.options.uncore_order, UncoreOrder::Numerical);
}

#[test]
fn amounts_are_added_up_and_reserve_the_lowest_cores() {
    for (text, reserved) in [
        ("systemReserved: {cpu: 500m}", "0"),
        ("systemReserved: {cpu: 500m}\nkubeReserved: {cpu: \"1\"}", "0-1"),
        ("kubeReserved: {cpu: 2.5, memory: 100Mi}", "0-2"),
        ("reservedSystemCPUs: 4", "4"),
    ] {
        let settings = resolve(&format!("cpuManagerPolicy: static\n{text}\n")).unwrap();
        assert_eq!(settings.placement.reserved.to_string(), reserved, "{text}");
    }
}

#[test]
fn an_empty_file_has_policy_none() {
    for text in ["", "# nothing yet\n", "cpuManagerPolicy: none\n", "cpuManagerPolicy: \"\"\n"] {
        assert_eq!(resolve(text).unwrap().policy, Policy::None, "{text:?}");
    }
}

#[test]
fn mistakes_are_named_with_line_field_and_what_was_expected() {
    refuses(
        "cpuManagerPolicy: static\nreservedSystemCPUs: 0: 1\n",
        "line 2: not valid YAML: mapping values are not allowed in this context",
    );
    refuses(
        "cpuManagerPolicy: [static\n",
        "line 1: cpuManagerPolicy: not valid YAML: unclosed bracket '['",
    );
    refuses(
        "cpuManagerPolicy: static\nreservedSystemCPU: 0-1\n",
        "line 2: unknown field \"reservedSystemCPU\" (did you mean reservedSystemCPUs?)",
    );
    refuses("strict: maybe\n", "line 1: strict: \"maybe\" is unknown, expected true or false");
    refuses(
        "cpuManagerPolicy: dynamic\n",
        "line 1: cpuManagerPolicy: \"dynamic\" is unknown, expected none or static",
    );
    refuses(
        "cpuManagerPolicy: static\nuncoreCacheOrder: numeric\n",
        "line 2: uncoreCacheOrder: \"numeric\" is unknown, expected fewest-free or numerical (did you mean numerical?)",
    );
    refuses(
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\ncpuManagerPolicyOptions:\n  full-pcpu-only: \"true\"\n",
        "line 4: full-pcpu-only: cpu manager: new static policy error: unknown CPU Manager Policy option: \
         \"full-pcpu-only\" (did you mean full-pcpus-only?)",
    );
    refuses(
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-1\"\ncpuManagerPolicyOptions: {full-pcpus-only: yes please}\n",
        "line 3: full-pcpus-only: cpu manager: new static policy error: bad value for option \"full-pcpus-only\": \
         strconv.ParseBool: parsing \"yes please\": invalid syntax (expected \"true\" or \"false\")",
    );
    refuses(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: true, full-pcpus-only: false}\n",
        "line 2: cpuManagerPolicyOptions.full-pcpus-only: set twice, first on line 2",
    );
    refuses(
        "cpuManagerPolicy: static\nstrict: true\n# strict: it is\ncpuManagerPolicyOptions:\n  strict: x\nstrict: false\n",
        "line 6: strict: set twice, first on line 2",
    );
    refuses(
        "cpuManagerPolicyOptions: {full-pcpus-only: true}\n",
        "line 1: cpuManagerPolicyOptions: \"full-pcpus-only\" needs cpuManagerPolicy: static",
    );
}

#[test]
fn every_mistake_that_is_independent_of_the_others_is_reported() {
    let report = |text: &str| {
        let mistakes = Config::parse_whole("c", text).unwrap_err().to_string();
        let line = |line: &str| {
            let line = line.strip_prefix("c, ").unwrap().strip_suffix(". Nothing was changed");
            line.unwrap().to_owned()
        };
        mistakes.lines().map(line).collect::<Vec<String>>()
    };
    let text = "strict: maybe\nreservedSystemCPU: 0-1\nplacement: best\nnodes:\n\
                - names: [a]\n  strict: 1\n- exposeCPUs: 2\nnoticeSeconds: 5\n";
    let lines = report(text);
    let expect = [
        "line 1: strict: \"maybe\" is unknown",
        "line 2: unknown field \"reservedSystemCPU\"",
        "line 3: placement: \"best\" is unknown",
        "line 6: strict: \"1\" is unknown",
        "line 7: exposeCPUs: \"2\" is unknown",
        "line 7: nodes: this entry matches no node",
    ];
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{expect}: {lines:#?}");
    }
    // The plugin's log and status have one line.
    let first = Config::parse("c", text).unwrap_err().to_string();
    assert!(first.starts_with("c, line 2: unknown field"), "{first}");
    // Fields that contradict each other, once each is valid.
    let lines = report("noticeSeconds: 5\nmemoryOnlyNodes: 1\n");
    assert!(lines.len() == 2 && lines[1].starts_with("line 2: memoryOnlyNodes"), "{lines:#?}");
    // Text that is not YAML, or another object, is one mistake.
    assert_eq!(report("strict: [\nplacement: best\n").len(), 1);
    assert_eq!(report("kind: Pod\nstrict: maybe\n").len(), 1);
    let many: String = (0..100).map(|number| format!("x{number}: 1\n")).collect();
    let mistakes = Config::parse_whole("c", &many).unwrap_err().to_string();
    assert_eq!(mistakes.lines().count(), 21);
    assert!(mistakes.ends_with("\nand 80 more mistakes"), "{mistakes}");
}

#[test]
fn the_kubelets_directory_and_the_mode_have_defaults() {
    for (text, dir, mode) in [
        ("", Some("/var/lib/kubelet"), Mode::Enforce),
        ("kubeletStateDir: /data/kubelet\nmode: observe", Some("/data/kubelet"), Mode::Observe),
        ("kubeletStateDir: \"\"\nmode: enforce", None, Mode::Enforce),
    ] {
        let config = Config::parse("config.yaml", text).unwrap();
        assert_eq!(config.kubelet_state_dir(), dir.map(Path::new), "{text}");
        assert_eq!(config.mode(), mode, "{text}");
    }
    refuses(
        "kubeletStateDir: kubelet\n",
        "line 1: kubeletStateDir: \"kubelet\" is not an absolute path: expected one like \"/var/lib/kubelet\", or \"\" for none",
    );
    refuses("mode: fight\n", "line 1: mode: \"fight\" is unknown, expected enforce or observe");
}

#[test]
fn reserved_lists_are_read_as_the_kubelet_reads_them() {
    let reserved = |text: &str| {
        let config = Config::parse("c", &format!("cpuManagerPolicy: static\n{text}")).unwrap();
        config.resolve(&machine()).unwrap().placement.reserved.to_string()
    };
    assert_eq!(reserved("reservedSystemCPUs: \"3-6,1-5\"\n"), "1-6");
    let empty = "reservedSystemCPUs: \"\"\nsystemReserved: {cpu: 500m}\n";
    assert_eq!(reserved(empty), reserved("systemReserved: {cpu: 500m}\n"));
    let kubelet = "cpuManagerPolicy: static\nreservedSystemCPUs: \"\"\nkubeReserved: {cpu: 1}\n";
    let FromKubelet { block, .. } = from_kubelet("k", kubelet.into()).unwrap();
    assert!(!block.contains("reservedSystemCPUs"), "{block}");
}

#[test]
fn an_impossible_reservation_is_refused_with_its_line() {
    let with = |list: &str| format!("cpuManagerPolicy: static\nreservedSystemCPUs: {list}\n");
    refuses(&with("0,8-9"), "line 2: reservedSystemCPUs: CPUs 8-9 do not exist; online CPUs: 0-7");
    refuses(
        &with("\" \""),
        "line 2: reservedSystemCPUs: empty list: expected CPUs like \"0-1\"; or omit the field",
    );
    refuses(
        &with("0-x"),
        "line 2: reservedSystemCPUs: \"0-x\" is not a CPU number in CPU list \"0-x\": expected numbers and ranges like 0-3,8",
    );
    refuses(
        "cpuManagerPolicy: static\n",
        "line 1: cpuManagerPolicy: the static policy needs reserved CPUs, so that shared containers always have \
         some: set reservedSystemCPUs: \"0-1\", or systemReserved: {cpu: 500m}",
    );
    refuses(
        "cpuManagerPolicy: static\nsystemReserved: {cpu: two}\n",
        "line 2: systemReserved: invalid amount of CPUs \"two\": expected one like 2, 1.5 or 500m",
    );
}

#[test]
fn a_reservation_of_all_cpus_leaves_nothing_to_assign() {
    let effect = "so none is left to assign: the policy in force is none, and no container gets exclusive \
                  CPUs. To assign some, reserve fewer here, by an entry of nodes for this node";
    for (fields, why) in [
        (
            "reservedSystemCPUs: 0-7",
            "2: reservedSystemCPUs: all CPUs of this machine (0-7) are reserved",
        ),
        (
            "systemReserved: {cpu: 7001m}",
            "2: systemReserved: 8 CPUs are reserved, and this machine has 8",
        ),
        (
            "systemReserved: {cpu: 500}",
            "2: systemReserved: 500 CPUs are reserved (did you mean 500m?), and this machine has 8",
        ),
        (
            "kubeReserved: {cpu: 8500m}",
            "2: kubeReserved: 9 CPUs are reserved, and this machine has 8",
        ),
        (
            "systemReserved: {cpu: 6}\nkubeReserved: {cpu: 2500m}",
            "2: systemReserved: 9 CPUs are reserved, and this machine has 8",
        ),
    ] {
        let config =
            Config::parse("config.yaml", &format!("cpuManagerPolicy: static\n{fields}\n")).unwrap();
        assert_eq!(config.resolve(&machine()).unwrap(), Settings::default(), "{fields}");
        let warning = config.nothing_to_assign(&machine()).unwrap().to_string();
        assert_eq!(warning, format!("line {why}, {effect}"));
    }
    // A list takes precedence.
    let list = "cpuManagerPolicy: static\nsystemReserved: {cpu: 500}\nreservedSystemCPUs: 0\n";
    assert_eq!(resolve(list).unwrap().policy, Policy::Static);
    assert_eq!(Config::parse("", list).unwrap().nothing_to_assign(&machine()), None);
}

#[test]
fn the_error_for_a_missing_file_says_what_to_do() {
    let error = Config::read(Path::new("/nonexistent/config.yaml")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/config.yaml") && error.contains("--config"), "{error}");
}

#[test]
fn containers_learn_their_cpus_only_with_expose_cpus() {
    let with = |more: &str| {
        resolve(&format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{more}")).unwrap()
    };
    assert_eq!(with("").expose_cpus, Exposure::None);
    assert_eq!(with("exposeCPUs: environment\n").expose_cpus, Exposure::Environment);
    refuses(
        "exposeCPUs: always\n",
        "line 1: exposeCPUs: \"always\" is unknown, expected none or environment or file",
    );
}

#[test]
fn memory_follows_cpus_only_with_exclusive_mems() {
    for (value, follows) in [("all", false), ("follow-cpus", true)] {
        let text = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nexclusiveMemoryNodes: {value}\n"
        );
        assert_eq!(resolve(&text).unwrap().mems_follow_cpus, follows, "{text}");
    }
    refuses(
        "exclusiveMemoryNodes: follow\n",
        "line 1: exclusiveMemoryNodes: \"follow\" is unknown, expected all or follow-cpus (did you mean follow-cpus?)",
    );
}

#[test]
fn a_namespace_has_the_bounds_of_its_entry() {
    let static_policy = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\n";
    let text = format!(
        "{static_policy}namespaces:\n- names: [trading, hpc-*]\n  allow: {{uncore: [prefer, require], cpus: [shared]}}\n  \
         defaults: {{uncore: prefer}}\n- names: [\"*\"]\n  cpuManagerPolicy: none\n"
    );
    let settings = resolve(&text).unwrap();
    let names = |pod_options: &mut dyn Iterator<Item = &PodOption>| -> Vec<String> {
        pod_options.map(ToString::to_string).collect()
    };
    for namespace in ["trading", "hpc-1"] {
        let bounds = settings.namespaces.of(namespace).unwrap();
        let allowed = names(&mut bounds.allow.iter());
        assert_eq!(allowed, ["cpus: shared", "uncore: prefer", "uncore: require"]);
        assert_eq!(names(&mut bounds.defaults.iter()), ["uncore: prefer"]);
        assert_eq!(bounds.policy, None);
    }
    assert_eq!(settings.namespaces.of("web").unwrap().policy, Some(Policy::None));
    assert!(resolve(static_policy).unwrap().namespaces.is_empty());
}

#[test]
fn interrupts_are_a_field_and_a_pod_option() {
    let settings = resolve("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n").unwrap();
    assert_eq!(settings.interrupts, InterruptMode::Leave);
    let text = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\ninterrupts: away\nnamespaces:\n\
                - {names: [a], allow: {interrupts: [leave]}, defaults: {interrupts: housekeeping}}\n";
    let settings = resolve(text).unwrap();
    assert_eq!(settings.interrupts, InterruptMode::Away);
    let bounds = settings.namespaces.of("a").unwrap();
    assert_eq!(bounds.allow, [PodOption::Interrupts(InterruptMode::Leave)].into());
    assert_eq!(bounds.defaults, [PodOption::Interrupts(InterruptMode::Housekeeping)]);
    refuses(
        "interrupts: awya\n",
        "line 1: interrupts: \"awya\" is unknown, expected leave or away or housekeeping (did you mean away?)",
    );
    let warnings = |text: &str| {
        let config = Config::parse("config.yaml", text).unwrap();
        config.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("interrupts: leave\n"), [""; 0]);
    assert_eq!(
        warnings("interrupts: away\n"),
        [
            "line 1: interrupts: no effect without cpuManagerPolicy: static: no container has exclusive CPUs"
        ]
    );
}

#[test]
fn namespaces_bound_latency_knobs() {
    let with = |entry: &str| {
        format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nnamespaces:\n- names: [a]\n  {entry}\n"
        )
    };
    let allow = "allow: {c-states: [disable, \"max-latency:10\"], frequency-governor: [performance], \
                 min-frequency: [1GHz-2.5GHz], max-frequency: [3000000]}\n  \
                 defaults: {c-states: \"max-latency:50\", max-frequency: 3GHz}";
    let settings = resolve(&with(allow)).unwrap();
    let bounds = settings.namespaces.of("a").unwrap();
    let words = |words: Vec<(&str, String)>| -> Vec<String> {
        words.into_iter().map(|(key, value)| format!("{key}: {value}")).collect()
    };
    assert_eq!(
        words(bounds.knobs.words()),
        [
            "c-states: disable",
            "c-states: max-latency:10",
            "frequency-governor: performance",
            "min-frequency: 1GHz-2500MHz",
            "max-frequency: 3GHz",
        ]
    );
    let defaults = words(bounds.default_knobs.words());
    assert_eq!(defaults, ["c-states: max-latency:50", "max-frequency: 3GHz"]);
    for (entry, why) in [
        (
            "allow: {c-states: [enable]}",
            "line 5: namespaces[0].allow.c-states[0]: c-states \"enable\": expected \"disable\" or \"max-latency:US\"",
        ),
        (
            "allow: {min-frequency: [2GHz-1GHz]}",
            "line 5: namespaces[0].allow.min-frequency[0]: min-frequency \"2GHz-1GHz\": the lower frequency comes first",
        ),
        (
            "defaults: {frequency-governor: \"\"}",
            "line 5: namespaces[0].defaults.frequency-governor: frequency-governor \"\": expected a governor's name",
        ),
        (
            "defaults: {min-frequency: 2GHz, max-frequency: 1GHz}",
            "line 5: namespaces[0].defaults.max-frequency: min-frequency is 2000000 kHz, above max-frequency, which is 1000000 kHz",
        ),
    ] {
        let refused = resolve(&with(entry)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn reserved_namespaces_are_names_or_patterns() {
    let file = |policy: &str, list: &str| {
        format!("cpuManagerPolicy: {policy}\nreservedSystemCPUs: 0-1\nreservedNamespaces: {list}\n")
    };
    let settings = resolve(&file("static", "[kube-system, \"infra-*\"]")).unwrap();
    for (namespace, expected) in
        [("kube-system", true), ("infra-a", true), ("kube-system-1", false), ("default", false)]
    {
        assert_eq!(settings.reserved_namespaces.match_name(namespace), expected, "{namespace}");
    }
    refuses(
        &file("static", "[Kube]"),
        "line 3: reservedNamespaces[0]: invalid namespace \"Kube\": expected lower case letters, digits and -, or a pattern with * and ?",
    );
    let warnings = |policy| {
        let config = Config::parse("config.yaml", &file(policy, "[a]")).unwrap();
        config.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("static"), [""; 0]);
    assert_eq!(
        warnings("none"),
        [
            "line 3: reservedNamespaces: no effect without cpuManagerPolicy: static and its reserved CPUs"
        ]
    );
}

#[test]
fn an_impossible_entry_of_namespaces_is_refused_with_its_line() {
    let with = |entry: &str| format!("cpuManagerPolicy: static\nnamespaces:\n- {entry}\n");
    refuses(
        &with("names: [a]\n  allow: {uncore: [prefer, requires]}"),
        "line 4: namespaces[0].allow.uncore[1]: \"requires\" is unknown, expected prefer or require or ignore or exclusive (did you mean require?)",
    );
    refuses(
        &with("names: [a]\n  allow: {uncor: [prefer]}"),
        "line 4: namespaces[0].allow: \"uncor\" is unknown, expected cpus or uncore or numa or smt or placement or isolated-cpus or movable or interrupts or c-states or frequency-governor or min-frequency or max-frequency (did you mean uncore?)",
    );
    refuses(
        &with("names: [a]\n  defaults: {uncore: prefer, numa: spread}"),
        "line 4: namespaces[0].defaults: uncore: prefer and numa: spread contradict each other",
    );
    refuses(
        &with("names: [a]\n  cpuManagerPolicy: dynamic"),
        "line 4: namespaces[0].cpuManagerPolicy: \"dynamic\" is unknown, expected none or static",
    );
    refuses(
        &with("allow: {uncore: [prefer]}"),
        "line 3: namespaces[0]: entry without names: expected names like [\"hpc\", \"team-*\"]",
    );
    refuses(
        &with("names: [Team_A]"),
        "line 3: namespaces[0].names[0]: invalid namespace \"Team_A\": expected lower case letters, digits and -, or a pattern with * and ?",
    );
    refuses(
        &with(
            "names: [a]\n  allow: {uncore: [prefer]}\n# c\n- names: [b]\n-\n  names:\n  - c\n  - D",
        ),
        "line 10: namespaces[2].names[1]: invalid namespace \"D\": expected lower case letters, digits and -, or a pattern with * and ?",
    );
    refuses(
        &with("names: [b]\n- names: [a, team-*]\n- names: [\"*-prod\"]"),
        "line 4: namespaces[1]: \"team-*\" and \"*-prod\" can mean the same namespace, and neither is more specific: an entry for \
         it would be a guess (the other is namespaces[2]). Remove one, or make one more specific",
    );
    // In an override for other nodes, too, before any node uses it.
    let tie = "nodes:\n- names: [x]\n  namespaces:\n  - names: [b]\n  # c\n  - names:\n    - hpc-*\n  - names: [\"*-hpc\"]\n";
    refuses(
        &format!("namespaces: [{{names: [hpc-*]}}]\n{tie}"),
        "line 7: namespaces[1]: \"hpc-*\" and \"*-hpc\" can mean the same namespace, and neither is more specific: an entry for \
         it would be a guess (the other is namespaces[2]). Remove one, or make one more specific",
    );
    refuses(
        "namespaces: [{names: [a], cpuManagerPolicy: static}]\n",
        "line 1: namespaces[0]: \"a\" has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces only, \
         set static and reserved CPUs for the node, and none for {names: [\"*\"]}",
    );
}

/// One file is for nodes with exclusive CPUs and for others.
#[test]
fn a_namespace_can_be_static_if_some_node_with_the_list_is() {
    let none = "cpuManagerPolicy: none";
    let fixed = "cpuManagerPolicy: static";
    let namespaces =
        format!("namespaces:\n- {{names: [\"*\"], {none}}}\n- {{names: [trading], {fixed}}}\n");
    let reserved = "reservedSystemCPUs: 0\n";
    let node = |name: &str| NodeIdentity { name: Some(name.to_owned()), labels: None };
    for (base, other) in [(fixed, none), (none, fixed)] {
        let text = format!("{base}\n{reserved}{namespaces}nodes:\n- names: [gpu-7]\n  {other}\n");
        let config = Config::parse("file", &text).unwrap();
        for (name, policy) in [("web-1", base), ("gpu-7", other)] {
            let settings = config.for_node(&node(name)).unwrap().resolve(&machine()).unwrap();
            let fixed = if policy == fixed { Policy::Static } else { Policy::None };
            assert_eq!(settings.policy, fixed);
            assert_eq!(settings.namespaces.len(), if fixed == Policy::Static { 2 } else { 0 });
        }
    }
    // But not one for nodes that have none anyway.
    refuses(
        &format!(
            "{fixed}\n{reserved}nodes:\n- names: [gpu-7]\n  {none}\n  namespaces:\n  - {{names: [a], {fixed}}}\n"
        ),
        "line 7: namespaces[0]: \"a\" has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces only, \
         set static and reserved CPUs for the node, and none for {names: [\"*\"]}",
    );
}

/// There can be a thousand entries, and thousands of namespaces.
#[test]
fn what_entries_do_not_change_is_resolved_once() {
    let text = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nnamespaces: [{names: [a]}]\n\
                nodes:\n- names: [b]\n  strict: true\n- names: [c]\n  namespaces: [{names: [a]}]\n";
    let config = Config::parse("file", text).unwrap();
    let of =
        |config: &Config| std::ptr::from_ref(config.values.settings.namespaces.of("a").unwrap());
    assert_eq!(of(&config.with(&[0]).unwrap()), of(&config));
    assert_ne!(of(&config.with(&[0, 1]).unwrap()), of(&config));
}

#[test]
fn an_empty_list_of_namespaces_overrides_one_with_entries() {
    let text = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nnamespaces: [{names: [a]}]\n\
                nodes:\n- names: [b]\n  namespaces: []\n- names: [c]\n  strict: true\n";
    let config = Config::parse("file", text).unwrap();
    for (at, namespaces) in [(0, 0), (1, 1)] {
        let settings = config.with(&[at]).unwrap().resolve(&machine()).unwrap();
        assert_eq!(settings.namespaces.len(), namespaces);
    }
}

#[test]
fn strict_is_off_by_default() {
    for (text, strict) in
        [("", false), ("strict: false", false), ("strict: true", true), ("strict: \"true\"", true)]
    {
        assert_eq!(Config::parse("config.yaml", text).unwrap().strict(), strict, "{text}");
    }
}

/// On the machine of eight CPUs.
fn on(name: &str, labels: &str, text: &str) -> Result<Settings, String> {
    let node = NodeIdentity {
        name: (!name.is_empty()).then(|| name.to_owned()),
        labels: (!labels.is_empty()).then(|| labels.parse().unwrap()),
    };
    Config::parse("config.yaml", text)
        .and_then(|config| config.for_node(&node)?.resolve(&machine()))
        .map_err(|error| error.to_string())
}

const NODES: &str = "\
cpuManagerPolicy: static
reservedSystemCPUs: \"0\"
cpuManagerPolicyOptions: {full-pcpus-only: true}
nodes:
  - names: [gpu-7]
    reservedSystemCPUs: \"7\"
  - names: [\"gpu-*\", \"tpu-?\"]
    reservedSystemCPUs: \"2\"
    cpuManagerPolicyOptions:
      strict-cpu-reservation: \"true\"
  - labels: {zone: \"a*\"}
    reservedSystemCPUs: \"1\"
  - labels: {zone: a1, pool: gpu}
    systemReserved: {cpu: 1500m}
    cpuManagerPolicyOptions: {full-pcpus-only: false}
  - names: [\"old-*\"]
    cpuManagerPolicy: none
topologyManagerPolicy: best-effort
";

#[test]
fn the_most_specific_override_wins() {
    for (name, labels, reserved, whole, strict) in [
        ("web-1", "zone=b", "0", true, false),
        ("web-1", "zone=a2", "1", true, false),
        // More labels before fewer; an amount in the place of a list.
        ("web-1", "zone=a1,pool=gpu,more=x", "0-1", false, false),
        ("gpu-1", "zone=a1", "2", true, true),
        ("tpu-1", "zone=b", "2", true, true),
        ("tpu-11", "zone=b", "0", true, false),
        // A field that the most specific entry lacks comes from the others.
        ("gpu-7", "zone=a1,pool=gpu", "7", false, true),
    ] {
        let settings = on(name, labels, NODES).unwrap();
        let options = settings.placement.options;
        assert_eq!(settings.placement.reserved.to_string(), reserved, "{name} {labels}");
        let found = (options.full_pcpus_only, options.strict_cpu_reservation);
        assert_eq!(found, (whole, strict), "{name} {labels}");
        let manager = settings.placement.topology_manager.policy;
        assert_eq!(manager, placement::TopologyPolicy::BestEffort, "{name} {labels}");
    }
    // Options have no meaning under the policy that this override sets.
    assert_eq!(on("old-1", "zone=b", NODES).unwrap().policy, Policy::None);
    let equal = "nodes:\n- {names: [\"a*\"], reservedSystemCPUs: 1}\n- {names: [\"*b\"], reservedSystemCPUs: 2}\n";
    assert_eq!(on("ab", "", equal).unwrap().placement.reserved.to_string(), "2");
}

#[test]
fn an_entry_that_needs_an_unknown_name_or_label_is_an_error() {
    let error = on("", "zone=a", NODES).unwrap_err();
    assert_eq!(
        error,
        "config.yaml, line 5: names: this node's name is unknown: set NODE_NAME or --node-name. Nothing was changed"
    );
    let error = on("web-1", "", NODES).unwrap_err();
    assert!(
        error.starts_with("config.yaml, line 11: labels: this node's labels are unknown"),
        "{error}"
    );
    assert!(on("", "", "nodes: []\n").is_ok());
}

#[test]
fn options_that_exclude_each_other_are_both_named_with_what_to_do() {
    let with = |options: &str| {
        let text = format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\ncpuManagerPolicyOptions:\n{options}"
        );
        resolve(&text)
    };
    let mut pairs = Vec::new();
    for (at, one) in placement::Options::NAMES.iter().enumerate() {
        for other in &placement::Options::NAMES[at + 1..] {
            if [one, other].contains(&&"scale-delay-time") {
                continue;
            }
            let Err(error) = with(&format!("  {one}: true\n  {other}: true\n")) else { continue };
            assert!(error.contains(" exclude each other: remove "), "{error}");
            assert!(!error.contains("static policy options"), "{error}");
            for option in [one, other] {
                // In the field or not, both are named, and each as the one to remove.
                assert!(error.matches(option).count() >= 2, "{error}");
            }
            pairs.push(error);
        }
    }
    assert_eq!(pairs.len(), 4, "{pairs:?}");
    let numa = "  align-by-socket: true\ntopologyManagerPolicy: single-numa-node\n";
    let error = with(numa).unwrap_err();
    assert!(
        error.contains(
            "line 4: align-by-socket: align-by-socket and topologyManagerPolicy: single-numa-node exclude each other: \
             remove align-by-socket if"
        ),
        "{error}"
    );
}

#[test]
fn compact_placement_refuses_options_that_contradict_it() {
    let with = |text: &str| format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n{text}");
    assert_eq!(resolve(&with("")).unwrap().placement.engine, EngineKind::Kubelet);
    let implied = "placement: compact\nuncoreCacheOrder: fewest-free\n\
                   cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: true, full-pcpus-only: true}\n";
    assert_eq!(resolve(&with(implied)).unwrap().placement.engine, EngineKind::Compact);
    refuses(
        "placement: compakt\n",
        "line 1: placement: \"compakt\" is unknown, expected kubelet or compact (did you mean compact?)",
    );
    for (option, why) in [
        ("distribute-cpus-across-numa", "compact takes the fewest NUMA nodes and fills them"),
        ("distribute-cpus-across-cores", "compact takes whole cores first"),
        ("align-by-socket", "compact takes the fewest NUMA nodes before it counts sockets"),
    ] {
        let options = format!("cpuManagerPolicyOptions:\n  {option}: true\n");
        assert!(resolve(&with(&options)).is_ok(), "{option}");
        refuses(
            &with(&format!("placement: compact\n{options}")),
            &format!("line 5: {option}: cannot be used with placement: compact: {why}"),
        );
    }
    refuses(
        &with("placement: compact\nuncoreCacheOrder: numerical\n"),
        "line 4: uncoreCacheOrder: cannot be used with placement: compact: compact takes the uncore caches \
         that leave the smallest remainder, not by number",
    );
}

#[test]
fn all_mistakes_of_a_block_are_shown_at_once() {
    for (text, mistaken) in [
        (
            "rebalance:\n  mode: of\n  movesPer100Starts: 0\n  minStay: 5\n",
            &["line 2: mode", "line 3: movesPer100Starts", "line 4: minStay"][..],
        ),
        (
            "namespaces:\n- names: [a]\n  allow: {uncor: [prefer]}\n- {}\n- names: [B]\n",
            &[
                "line 3: namespaces[0].allow",
                "line 4: namespaces[1]",
                "line 5: namespaces[2].names[0]",
            ],
        ),
        // In one entry.
        (
            "namespaces:\n- names: [B, a, \"\"]\n  policy: static\n  cpuManagerPolicy: dynamic\n  allow:\n    \
             uncore: [requires, prefer]\n    numa:\n    - single\n    - close\n    uncor: [prefer, require]\n    \
             smt: isolate\n  defaults:\n    uncore: prefers\n    max-frequency: 1GHz\n    min-frequency: 2GHz\n",
            &[
                "line 2: namespaces[0].names[0]",
                "line 2: namespaces[0].names[2]",
                "line 3: namespaces[0]",
                "line 4: namespaces[0].cpuManagerPolicy",
                "line 6: namespaces[0].allow.uncore[0]",
                "line 9: namespaces[0].allow.numa[1]",
                "line 10: namespaces[0].allow",
                "line 11: namespaces[0].allow.smt",
                "line 13: namespaces[0].defaults.uncore",
                "line 15: namespaces[0].defaults.min-frequency",
            ],
        ),
        (
            "namespaces:\n- names: [a, b-*]\n- names: [a]\n- names: [\"*-b\"]\n",
            &["line 2: namespaces[0]", "line 2: namespaces[0]"],
        ),
        (
            "namespaces:\n- {names: [a], cpuManagerPolicy: static}\n- {names: [b], cpuManagerPolicy: static}\n",
            &["line 2: namespaces[0]", "line 3: namespaces[1]"],
        ),
        (
            "reservedNamespaces:\n- A\n- b\n- [c]\n",
            &["line 2: reservedNamespaces[0]", "line 4: reservedNamespaces[2]"],
        ),
    ] {
        let mistakes = Config::parse_whole("c", text).unwrap_err().to_string();
        println!("{mistakes}");
        let places: Vec<String> = mistakes
            .lines()
            .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
            .collect();
        let mistaken: Vec<String> = mistaken.iter().map(|place| format!("c, {place}")).collect();
        assert_eq!(places, mistaken, "{text}");
    }
}

#[test]
fn words_of_other_programs_have_a_suggestion() {
    for (text, meant) in [
        ("exclusivity: partitions\n", "kernel"),
        ("exclusivity: cgroups\n", "groups"),
        ("topologyManagerPolicy: single-numa\n", "single-numa-node"),
    ] {
        let error = resolve(text).unwrap_err();
        assert!(error.contains(&format!(" (did you mean {meant}?). Nothing")), "{error}");
    }
}

#[test]
fn a_file_that_sets_nothing_has_a_warning() {
    let warnings = |text: &str| {
        let config = Config::parse("c", text).unwrap();
        config.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let why = "line 1: the file sets nothing: cpuManagerPolicy is none, and no container gets exclusive CPUs";
    assert_eq!(warnings(""), [why]);
    assert_eq!(warnings("# later\n"), [why]);
    assert_eq!(warnings("cpuManagerPolicy: none\n"), [""; 0]);
}
