//! `memoryOnlyNodes`: NUMA nodes without CPUs whose memory exclusive containers may use.

use super::given::Given;
use super::source::Mistakes;
use super::values::Text;
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use ledger::Settings;
use serde::Deserialize;
use serde::de::{self, Deserializer};

/// Their numbers, in the kernel's list format like CPUs.
struct List(NodeSet);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let list: Option<CpuSet> = text.parse().ok();
        let Some(list) = list.filter(|list| list.iter().all(|node| node < MAX_NODES)) else {
            let why = format!("{text:?} is no list of NUMA nodes below {MAX_NODES}, such as 2-3,5");
            return Err(de::Error::custom(why));
        };
        Ok(List(list.iter().collect()))
    }
}

pub(super) fn read(given: &Given<'_>, nodes: &mut NodeSet) -> Result<(), Mistakes> {
    let List(list) = given.parse()?;
    *nodes = list;
    Ok(())
}

pub(super) fn check(settings: &Settings) -> Result<(), &'static str> {
    if settings.memory_only_nodes != NodeSet::EMPTY && !settings.mems_follow_cpus {
        return Err("all nodes are allowed unless exclusiveMemoryNodes is follow-cpus");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn with(more: &str) -> Result<NodeSet, String> {
        let text = format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{more}");
        let config = Config::parse("c.yaml", &text).map_err(|error| error.to_string())?;
        Ok(config.values.settings.memory_only_nodes)
    }

    #[test]
    fn a_list_of_memory_only_nodes_needs_memory_that_follows_cpus() {
        assert_eq!(with("").unwrap(), NodeSet::EMPTY);
        let nodes = with("exclusiveMemoryNodes: follow-cpus\nmemoryOnlyNodes: 2-3,5\n").unwrap();
        assert_eq!(nodes.to_string(), "2,3,5");
        for (more, why) in [
            ("memoryOnlyNodes: 2\n", "line 3: memoryOnlyNodes: all nodes are allowed unless"),
            (
                "exclusiveMemoryNodes: follow-cpus\nmemoryOnlyNodes: hbm\n",
                "line 4: memoryOnlyNodes: \"hbm\" is no list of NUMA nodes below 128",
            ),
            (
                "exclusiveMemoryNodes: follow-cpus\nmemoryOnlyNodes: 128\n",
                "line 4: memoryOnlyNodes: \"128\" is no list",
            ),
        ] {
            let refused = with(more).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
