//! Input that is no configuration: each gets one line with its place, and takes little memory.

use super::*;
use machines::synthetic::Machine;
use std::fs;

/// Words of the parser, which no error may show.
const INSIDE: [&str; 7] =
    ["invalid type", "struct", "sequence", "mapping,", "variant", "visit", "`"];

#[track_caller]
fn answer(bytes: impl Into<Vec<u8>>) -> String {
    Config::from_bytes("config.yaml", bytes.into())
        .map_err(ConfigError::from)
        .and_then(|config| config.resolve(&machine()))
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn answers(bytes: impl Into<Vec<u8>>, expect: &str) {
    assert_eq!(answer(bytes), format!("config.yaml, {expect}. Nothing was changed"));
}

#[test]
fn a_text_is_bounded_in_size_depth_and_values() {
    let max = yaml::MAX_SIZE;
    assert!(resolve(&format!("#{}", "x".repeat(max - 1))).is_ok());
    answers(format!("#{}", "x".repeat(max)), "line 1: larger than 1048576 bytes");
    let deep = "more than 32 lists and maps in each other";
    for open in ["[", "{", "[a, ", "{a: "] {
        let error = answer(format!("strict: true\nnodes: {}", open.repeat(60_000)));
        assert!(error.starts_with("config.yaml, line 2: nodes"), "{error}");
        assert!(error.contains(deep) && error.len() < 300, "{error}");
    }
    let error = answer(format!("nodes:\n{}a", "- ".repeat(60_000)));
    assert!(error.contains("line 2: ") && error.contains(deep), "{error}");
    let many = format!("nodes: [\n{}]\n", "x,\n".repeat(50_001));
    answers(many, "line 49999: nodes[49997]: more than 50000 values");
}

#[test]
fn anchors_and_aliases_are_refused() {
    let why = "YAML's anchors and aliases are not supported: write the value itself, and quote a text that \
               begins with & or *, like \"*\"";
    for (text, place) in [
        ("nodes:\n- labels: &l {a: b}\n- labels: *l\n", "line 2: nodes[0].labels"),
        ("namespaces:\n- names: [a]\n- names: [*]\n", "line 3: namespaces[1].names"),
        ("namespaces:\n- names: [a, *-prod]\n", "line 2: namespaces[0].names[1]"),
        ("strict: *\n", "line 1"),
        ("strict: &x true\n", "line 1: strict"),
    ] {
        answers(text, &format!("{place}: {why}"));
    }
    assert!(resolve("nodes: [{names: [\"*\"], labels: {a: eu-*}}]\n").is_ok());
}

#[test]
fn the_text_must_be_utf_8_without_control_characters() {
    answers(*b"strict: true\n# \xe4\n", "line 2: byte 0xE4 is not UTF-8: save the text as UTF-8");
    answers(*b"\xff\xfes\0t\0", "line 1: the text is UTF-16: save it as UTF-8");
    answers(
        "strict: true\nkubeletStateDir: /a\0b\n",
        "line 2: control character U+0000: remove it, or write it as \"\\u0000\" in quotes",
    );
    answers(
        "strict: \u{1b}[31mtrue\n",
        "line 1: control character U+001B: remove it, or write it as \"\\u001B\" in quotes",
    );
    // What editors on Windows write.
    let bom = "\u{feff}cpuManagerPolicy: static\r\nreservedSystemCPUs: \"0\"\r\n";
    assert_eq!(resolve(bom).unwrap().placement.reserved.to_string(), "0");
}

#[test]
fn a_tab_in_the_indentation_is_refused() {
    let why = "a tab in the indentation: YAML allows spaces only";
    answers("strict: true\nsystemReserved:\n\tcpu: 1\n", &format!("line 3: {why}"));
    answers("nodes:\n  - names: [a]\n  \tstrict: true\n", &format!("line 3: nodes[0]: {why}"));
    answers("strict: true\n\tplacement: compact\n", &format!("line 2: {why}"));
    assert!(resolve("strict:\ttrue\t# on\n").is_ok());
}

#[test]
fn a_path_that_no_file_can_have_is_refused() {
    answers(
        "kubeletStateDir: \"/var\\0lib\"\n",
        "line 1: kubeletStateDir: \"/var\\0lib\" has a NUL character, which no path can have: expected one like \
         \"/var/lib/kubelet\", or \"\" for none",
    );
    answers(
        "podResources:\n  listen: \"/run/\\0\"\n",
        "line 2: listen: \"/run/\\0\" has a NUL character, which no path can have",
    );
    let error = answer(format!("kubeletStateDir: /{}\n", "a/".repeat(3000)));
    assert!(error.contains("is longer than 4095 bytes") && error.len() < 1500, "{error}");
}

/// The fields that a map in this place can have.
fn fields(text: &str) -> Vec<String> {
    let error = answer(text);
    let (_, expected) = error.split_once(", expected one of ").unwrap();
    let (expected, _) = expected.split_once('.').unwrap();
    expected.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_field_says_what_it_expects() {
    let mut answered = 0;
    for place in [
        "",
        "nodes:\n- names: [a]\n  ",
        "namespaces:\n- ",
        "rebalance:\n  movesPer100Starts: 10\n  ",
        "podResources:\n  listen: /x\n  ",
    ] {
        let line = place.lines().count().max(1);
        for field in fields(&format!("{place}xyzzy: 1\n")) {
            if place.contains(&format!("{field}:")) {
                continue;
            }
            for value in
                ["xyzzy", "[xyzzy]", "[[xyzzy]]", "{xyzzy: 1}", "[{xyzzy: 1}]", "{xyzzy: {a: b}}"]
            {
                let text = format!("{place}{field}: {value}\n");
                let Err(error) = Config::parse("config.yaml", &text) else { continue };
                let error = error.to_string();
                answered += 1;
                assert!(error.starts_with(&format!("config.yaml, line {line}: ")), "{text}{error}");
                assert!(error.contains(&field) || error.contains("xyzzy"), "{text}{error}");
                assert!(!INSIDE.iter().any(|word| error.contains(word)), "{text}{error}");
                assert!(error.lines().count() == 1 && error.len() < 1000, "{text}{error}");
            }
        }
    }
    assert!(answered > 250, "{answered}");
}

#[test]
fn a_value_of_another_kind_is_refused_with_what_was_expected() {
    for (text, expect) in [
        (
            "strict: true\nrebalance: true\n",
            "line 2: rebalance: expected fields like {mode: ..., movesPer100Starts: ..., acrossNumaNodes: ..., minStay: ...}, found \"true\"",
        ),
        (
            "podResources: /run/x\n",
            "line 1: podResources: expected fields like {listen: ..., kubelet: ...}, found \"/run/x\"",
        ),
        ("strict: [true]\n", "line 1: strict: expected one value, found a list"),
        ("strict:\n  on: true\n", "line 1: strict: expected one value, found a map"),
        (
            "systemReserved: 500m\n",
            "line 1: systemReserved: expected names and values like {NAME: VALUE}, found \"500m\"",
        ),
        (
            "systemReserved: [{cpu: 1}]\n",
            "line 1: systemReserved: expected names and values like {NAME: VALUE}, found a list",
        ),
        (
            "systemReserved: {cpu: }\n",
            "line 1: systemReserved.cpu: expected one value, found nothing",
        ),
        (
            "systemReserved: {[cpu]: 1}\n",
            "line 1: systemReserved: a list or a map in place of a field's name",
        ),
        (
            "nodes: {names: [a]}\n",
            "line 1: nodes: expected a list of entries that begin with \"- \", found a map",
        ),
        (
            "nodes:\n- names: gpu-1\n",
            "line 2: nodes[0].names: expected a list like [\"gpu-1\"], found \"gpu-1\"",
        ),
        (
            "nodes:\n- gpu-1\n",
            "line 2: nodes[0]: expected fields like {cpuManagerPolicy: ..., cpuManagerPolicyOptions: ..., topologyManagerPolicy: ..., topologyManagerScope: ..., ...}, found \"gpu-1\"",
        ),
        (
            "- strict: true\n",
            "line 1: expected fields like {cpuManagerPolicy: ..., cpuManagerPolicyOptions: ..., topologyManagerPolicy: ..., topologyManagerScope: ..., ...}, found a list",
        ),
        (
            "namespaces:\n- names: [a]\n  allow: {uncore: prefer}\n",
            "line 3: namespaces[0].allow.uncore: expected a list like [\"prefer\"], found \"prefer\"",
        ),
        (
            "strict: !vault x\n",
            "line 1: strict: the tag !vault is not supported: write the value itself",
        ),
        (
            "strict: true\n---\nstrict: true\n",
            "line 3: a second document begins here: expected one, without --- between parts",
        ),
    ] {
        answers(text, expect);
    }
    // Nothing is the default.
    let nothing = "strict:\nnodes:\nnamespaces: ~\nsystemReserved:\nrebalance: null\n";
    assert_eq!(resolve(nothing).unwrap(), resolve("").unwrap());
    // A value is text: not the number 1.1, and not the boolean True.
    let entry = "nodes: [{labels: {version: 1.10}, strict: True}]\n";
    let config = Config::parse("c", entry).unwrap();
    assert_eq!(config.overrides()[0].labels, [("version".to_owned(), "1.10".to_owned())]);
    assert!(config.with(&[0]).unwrap().strict());
}

#[test]
fn long_values_are_cut() {
    let long = "x".repeat(1 << 19);
    for field in fields("xyzzy: 1\n") {
        for text in [
            format!("{field}: {long}\n"),
            format!("{field}: {{{long}: {long}}}\n"),
            format!("{field}: [{long}]\n"),
            format!("nodes:\n- {{names: [a], {field}: {long}}}\n"),
            format!("{field}{long}: 1\n"),
        ] {
            if let Err(error) = Config::parse("config.yaml", &text) {
                let error = error.to_string();
                assert!(
                    error.len() < 1500,
                    "{field}: {} bytes: {}",
                    error.len(),
                    wording::shortened(&error, 3000)
                );
            }
        }
    }
}

#[test]
fn resources_are_those_that_a_kubelet_reserves() {
    let all = "cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi, pid: '100'";
    assert!(resolve(&format!("cpuManagerPolicy: static\nsystemReserved: {{{all}}}\n")).is_ok());
    answers(
        "cpuManagerPolicy: static\nreservedSystemCPUs: 0\nsystemReserved: {cpus: \"4\"}\n",
        "line 3: systemReserved: \"cpus\" is unknown, expected cpu or memory or ephemeral-storage or pid (did you mean cpu?)",
    );
    answers(
        "nodes:\n- names: [a]\n  kubeReserved:\n    hugepages-2Mi: 4Gi\n",
        "line 3: kubeReserved: \"hugepages-2Mi\" is unknown, expected cpu or memory or ephemeral-storage or pid",
    );
}

#[test]
fn kubernetes_objects_are_recognised() {
    answers(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  other: x\n  config.yaml: |\n    strict: true\n    # c\n",
        "line 2: this is a ConfigMap: paste only the text below data.config.yaml, lines 8 to 9, without its indentation",
    );
    answers(
        "kind: ConfigMap\ndata: {}\n",
        "line 1: this is a ConfigMap without data: paste the configuration alone",
    );
    answers(
        "apiVersion: apps/v1\nkind: DaemonSet\n",
        "line 2: this is a Kubernetes object (DaemonSet): paste the configuration alone",
    );
    answers(
        "kind: kubeletconfiguration\n",
        "line 1: kind: \"kubeletconfiguration\" is unknown, expected KubeletConfiguration (did you mean KubeletConfiguration?)",
    );
    answers(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1alpha1\n",
        "line 2: apiVersion: \"kubelet.config.k8s.io/v1alpha1\" is unknown, expected kubelet.config.k8s.io/v1beta1 \
         (did you mean kubelet.config.k8s.io/v1beta1?)",
    );
    answers("kind: [Pod]\n", "line 1: kind: expected one value, found a list");
    answers(
        "nodes:\n- names: [a]\n  kind: KubeletConfiguration\n",
        "line 3: kind: only valid for the whole file",
    );
}

#[test]
fn reserved_cpus_that_split_cores_are_warned_of() {
    let warnings = |text: &str| -> Vec<String> {
        let config = Config::parse("c", text).unwrap();
        let settings = config.resolve(&machine()).unwrap();
        config.split_cores(&machine(), &settings).iter().map(ToString::to_string).collect()
    };
    let with = |text: &str| warnings(&format!("cpuManagerPolicy: static\n{text}\n"));
    let advice = "reservedSystemCPUs: \"0-3\" reserves whole cores";
    assert_eq!(
        with("reservedSystemCPUs: 0,2-3"),
        [format!(
            "line 2: reservedSystemCPUs: SMT siblings of reserved CPUs are not reserved (CPU 1), so containers that get \
             them exclusively share cores with what runs there. {advice}"
        )]
    );
    assert_eq!(
        with("cpuManagerPolicyOptions: {full-pcpus-only: true}\nsystemReserved: {cpu: 2500m}"),
        [format!(
            "line 3: systemReserved: SMT siblings of reserved CPUs are not reserved (CPU 3), and with full-pcpus-only no \
             container can have them exclusively. {advice}"
        )]
    );
    assert_eq!(with("reservedSystemCPUs: 0-3"), [""; 0]);
    assert_eq!(warnings("reservedSystemCPUs: 0"), [""; 0]);
}

#[test]
fn isolated_cpus_that_no_container_can_use_are_warned_of() {
    let warnings = |isolated: &str, text: &str| -> Vec<String> {
        let isolated = isolated.parse().unwrap();
        let machine = Machine { cores: 8, isolated, ..Machine::default() }.topology().unwrap();
        let config = Config::parse("c", text).unwrap();
        let settings = config.resolve(&machine).unwrap();
        config.isolated_cpus(&machine, &settings).iter().map(ToString::to_string).collect()
    };
    let with = |isolated: &str, text: &str| {
        warnings(isolated, &format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n{text}\n"))
    };
    assert_eq!(
        with("1,4-7", ""),
        [
            "line 2: reservedSystemCPUs: reserved CPU 1 is isolated (isolcpus=): the kernel does not balance what runs there, so shared containers use it only where no other CPU is left. Reserve CPUs that are not isolated: 0,2-3"
        ]
    );
    assert_eq!(
        with("2-7", ""),
        [
            "line 1: isolatedCPUs: all CPUs but the reserved ones are isolated (isolcpus=): no container gets exclusive CPUs without the pod option isolated-cpus; prefer and require give them to all"
        ]
    );
    assert_eq!(
        with("", "isolatedCPUs: require"),
        [
            "line 3: isolatedCPUs: the kernel was booted to isolate no CPU that is not reserved (isolcpus=): every container that asks for exclusive CPUs is refused"
        ]
    );
    for (isolated, option) in
        [("", "exclude"), ("4-7", "exclude"), ("4-7", "require"), ("2-7", "prefer"), ("", "prefer")]
    {
        assert_eq!(with(isolated, &format!("isolatedCPUs: {option}")), [""; 0]);
    }
    assert_eq!(warnings("1-7", "reservedSystemCPUs: 0-1"), [""; 0]);
}

#[test]
fn a_file_that_is_special_or_too_large_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let refused = |path: &Path| Config::read(path).unwrap_err().to_string();
    let at =
        |path: &Path, why: &str| format!("cannot read configuration {}: {why}", path.display());
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(
        refused(&path),
        at(
            &path,
            "a FIFO, not a regular file. Put a regular file there, or set another file with --config"
        )
    );
    assert_eq!(
        refused(dir.path()),
        at(
            dir.path(),
            "a directory, not a regular file. Put a regular file there, or set another file with --config"
        )
    );
    let large = dir.path().join("large.yaml");
    fs::File::create(&large).unwrap().set_len(20 << 20).unwrap();
    assert_eq!(
        refused(&large),
        at(
            &large,
            "larger than 1048576 bytes. Remove what is not configuration, or set another file with --config"
        )
    );
}
