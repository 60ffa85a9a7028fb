//! The block for this plugin in a kubelet's configuration: the fields that mean something here, and
//! what has to change on the kubelet's side.

use super::Config;
use super::fields::{HEADER, OF_KUBELET};
use super::memory::{self, MemoryPolicy};
use super::not_used::NOT_USED;
use super::pasted;
use super::reserved;
use super::source::{ConfigError, Mistakes, Warning};
use super::yaml::{YamlNode, YamlValue};
use ledger::Policy;
use std::fmt::Write as _;

/// The result of converting a kubelet's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromKubelet {
    /// A configuration of this plugin in YAML, with what to do in comments.
    pub block: String,
    /// The fields that the block leaves out, a line each.
    pub left_out: Vec<String>,
}

/// Reads a kubelet's file, YAML or JSON. `name` is the text's name in errors and in the block.
///
/// # Errors
/// If it is not a KubeletConfiguration, or one that no kubelet starts with.
pub fn from_kubelet(name: &str, bytes: Vec<u8>) -> Result<FromKubelet, Mistakes> {
    if let Some(why) = pasted::command_line(&String::from_utf8_lossy(&bytes)) {
        let (name, why) = (name.to_owned(), why.to_owned());
        return Err(ConfigError::Wrong { name, line: 1, why }.into());
    }
    let config = Config::from_bytes(name, bytes)?;
    let root = &config.source.root;
    let of_kubelet = |name: &str| {
        HEADER.contains(&name)
            || NOT_USED.contains(&name)
            || OF_KUBELET.iter().any(|field| field.name() == name)
    };
    if let Some((own, _)) = root.fields().iter().find(|(key, _)| !of_kubelet(&key.name)) {
        let why =
            "a field of this plugin, unknown to a kubelet: check such a file without --kubelet";
        return Err(config.source.at(&own.name, why).into());
    }
    config.check_without_policy()?;
    let mut block = format!("# From {}.\n", wording::printable(name));
    write_advice(&config, &mut block);
    let is_counted = config.values.memory.policy == MemoryPolicy::Static;
    for field in OF_KUBELET.iter().map(|field| field.name()) {
        match (&config.values.reserved.list, root.field(field)) {
            // A list of CPUs can look like a number.
            (Some(list), _) if field == reserved::LIST => {
                let _ = writeln!(block, "{field}: \"{list}\"");
            }
            (_, Some((_, value))) => write_field(field, value, is_counted, &mut block),
            _ => {}
        }
    }
    let mut left_out = config.not_used();
    for field in [reserved::SYSTEM, reserved::KUBE, memory::EVICTION] {
        let amounts = root.field(field).map_or(&[][..], |(_, amounts)| amounts.fields());
        for (key, _) in amounts.iter().filter(|(key, _)| !counts(field, &key.name, is_counted)) {
            let text = format!("{field}: {}: not used here", key.name);
            left_out.push(Warning { line: key.line, text });
        }
    }
    if let Some((key, _)) = root.field(memory::RESERVED)
        && !is_counted
    {
        let text = format!("{}: not used here", memory::RESERVED);
        left_out.push(Warning { line: key.line, text });
    }
    left_out.sort_by_key(|left_out| left_out.line);
    let left_out = left_out.iter().map(|left_out| format!("{name}, {left_out}")).collect();
    Ok(FromKubelet { block, left_out })
}

fn write_advice(config: &Config, block: &mut String) {
    block.push_str(match config.policy() {
        Policy::Static => {
            "# Only one of the kubelet and the plugin may assign CPUs: in the kubelet's file, set\n\
             # cpuManagerPolicy: none and topologyManagerPolicy: none, and remove the options of both. Then stop the\n\
             # kubelet, delete its cpu_manager_state, and start it. What reserves CPUs stays in both files.\n"
        }
        Policy::None => {
            "# No container gets exclusive CPUs with policy none. For exclusive CPUs set it to static here, with\n\
             # reserved CPUs, and leave it in the kubelet's file.\n"
        }
    });
    if config.values.memory.policy == MemoryPolicy::Static {
        block.push_str(
            "# Only one of the two may count memory: in the kubelet's file, set memoryManagerPolicy: None, and delete the\n\
             # kubelet's memory_manager_state while it is stopped. What reserves memory stays in both files.\n",
        );
    }
    if config.policy() == Policy::Static && config.values.reserved.is_nothing() {
        block.push_str(
            "# TO DO: static needs reserved CPUs. The kubelet has none in this file, so it gets them as an argument\n\
             # (--reserved-cpus, --system-reserved, --kube-reserved). Here they are reservedSystemCPUs: \"0-1\" or\n\
             # systemReserved: {cpu: 500m}.\n",
        );
    }
}

/// Whether an amount in a field has an effect. That of memory has one where memory is counted.
fn counts(field: &str, name: &str, is_counted: bool) -> bool {
    match field {
        reserved::SYSTEM | reserved::KUBE => {
            name == reserved::CPU || (is_counted && name == memory::MEMORY)
        }
        memory::EVICTION => is_counted && name == memory::AVAILABLE,
        _ => true,
    }
}

/// Writes a valid field; nothing if its value is the default. `is_counted` says whether memory is.
fn write_field(name: &str, value: &YamlNode, is_counted: bool, block: &mut String) {
    match &value.value {
        YamlValue::Scalar(text) if !text.is_empty() => {
            let _ = writeln!(block, "{name}: {text}");
        }
        YamlValue::Map(fields) => {
            let mut written = false;
            for (key, value) in fields {
                let Some(text) = value.text() else { continue };
                if !counts(name, &key.name, is_counted) {
                    continue;
                }
                if !written {
                    let _ = writeln!(block, "{name}:");
                    written = true;
                }
                let _ = writeln!(block, "  {}: \"{text}\"", key.name);
            }
            // An empty map is no threshold, and no field the default one.
            if name == memory::EVICTION && is_counted && !written {
                let _ = writeln!(block, "{name}: {{}}");
            }
        }
        YamlValue::List(items) if name == memory::RESERVED && is_counted => {
            write_reservations(items, block);
        }
        YamlValue::Scalar(_) | YamlValue::List(_) | YamlValue::Null => {}
    }
}

fn write_reservations(items: &[YamlNode], block: &mut String) {
    let _ = writeln!(block, "{}:", memory::RESERVED);
    for item in items {
        let node = item.field("numaNode").and_then(|(_, node)| node.text()).unwrap_or_default();
        let limits = item.field("limits").map_or(&[][..], |(_, limits)| limits.fields());
        let limits = limits
            .iter()
            .filter_map(|(kind, amount)| Some(format!("{}: \"{}\"", kind.name, amount.text()?)));
        let limits: Vec<String> = limits.collect();
        let _ = writeln!(block, "- {{numaNode: {node}, limits: {{{}}}}}", limits.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> Result<FromKubelet, String> {
        from_kubelet("kubelet.yaml", text.into()).map_err(|error| error.to_string())
    }

    /// Without its comments.
    fn block(text: &str) -> String {
        let FromKubelet { block, .. } = converted(text).unwrap();
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_block_has_the_fields_that_mean_something_here() {
        let text = "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\
                    \t\"cpuManagerPolicy\": \"static\", \"cpuManagerPolicyOptions\": {\"full-pcpus-only\": \"true\"},\n\
                    \t\"topologyManagerScope\": \"\", \"topologyManagerPolicy\": \"restricted\",\n\
                    \t\"topologyManagerPolicyOptions\": {\"max-allowable-numa-nodes\": \"9\"},\n\
                    \t\"kubeReserved\": {\"memory\": \"1Gi\"}, \"evictionHard\": {\"memory.available\": \"5%\"},\n\
                    \t\"systemReserved\": {\"cpu\": 1.5, \"pid\": 9}, \"reservedSystemCPUs\": \"0,7\"}";
        assert_eq!(
            block(text),
            "cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  full-pcpus-only: \"true\"\n\
             topologyManagerPolicy: restricted\n\
             topologyManagerPolicyOptions:\n  max-allowable-numa-nodes: \"9\"\n\
             reservedSystemCPUs: \"0,7\"\nsystemReserved:\n  cpu: \"1.5\"\n"
        );
        let left_out = converted(text).unwrap().left_out;
        let fields: Vec<&str> =
            left_out.iter().map(|line| line.split(": not used here").next().unwrap()).collect();
        assert_eq!(
            fields,
            [
                "kubelet.yaml, line 5: kubeReserved: memory",
                "kubelet.yaml, line 5: evictionHard: memory.available",
                "kubelet.yaml, line 6: systemReserved: pid"
            ]
        );
    }

    #[test]
    fn the_block_has_what_counts_memory() {
        let counted = "memoryManagerPolicy: Static\nevictionHard: {nodefs.available: 5%}\n\
                       kubeReserved: {memory: 1Gi, pid: 9}\n\
                       reservedMemory: [{limits: {memory: 1Gi}, numaNode: 0}]\n";
        assert_eq!(
            block(counted),
            "kubeReserved:\n  memory: \"1Gi\"\nmemoryManagerPolicy: Static\nreservedMemory:\n\
             - {numaNode: 0, limits: {memory: \"1Gi\"}}\nevictionHard: {}\n"
        );
        assert_eq!(converted(counted).unwrap().left_out.len(), 2);
        let threshold = counted.replace("nodefs", "memory");
        let expect = "evictionHard:\n  memory.available: \"5%\"\n";
        assert!(block(&threshold).ends_with(expect), "{}", block(&threshold));
        let other = counted.replace("Static", "None");
        assert_eq!(block(&other), "memoryManagerPolicy: None\n");
        let left_out = converted(&other).unwrap().left_out;
        assert!(
            left_out.contains(&"kubelet.yaml, line 4: reservedMemory: not used here".to_owned())
        );
        assert_eq!(left_out.len(), 4, "{left_out:?}");
    }

    #[test]
    fn comments_of_the_block_say_what_has_to_change() {
        let block = |text: &str| converted(text).unwrap().block;
        let fixed = block("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n");
        assert!(fixed.contains("# cpuManagerPolicy: none and topology"), "{fixed}");
        assert!(!fixed.contains("TO DO"), "{fixed}");
        for reserved in ["", "kubeReserved: {memory: 1Gi}\n", "kubeReserved: {cpu: 0}\n"] {
            let text = block(&format!("cpuManagerPolicy: static\n{reserved}"));
            assert!(text.contains("TO DO: static needs reserved CPUs"), "{text}");
        }
        let advice = "set memoryManagerPolicy: None";
        assert!(block("memoryManagerPolicy: Static\n").contains(advice));
        assert!(!fixed.contains(advice), "{fixed}");
        let none = block("");
        assert!(none.contains("set it to static here") && !none.contains("TO DO"), "{none}");
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expect) in [
            ("port: 1\nexclusivity: groups\n", "line 2: exclusivity: a field of this plugin"),
            ("nodes: []\n", "line 1: nodes: a field of this plugin"),
            ("prot: 1\n", "line 1: unknown field \"prot\" (did you mean port?)"),
            (
                "cpuManagerPolicyOptions: {full-pcpus-only: true}\n",
                "line 1: cpuManagerPolicyOptions: \"full-pcpus-only\" needs cpuManagerPolicy: static",
            ),
            ("port: 1\nport: 2\n", "line 2: port: set twice, first on line 1"),
            ("kind: Pod\n", "line 1: this is a Kubernetes object (Pod)"),
        ] {
            let error = converted(text).unwrap_err();
            assert!(error.starts_with(&format!("kubelet.yaml, {expect}")), "{error}");
        }
    }
}
