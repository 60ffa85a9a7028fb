//! `memoryOnlyNodes`: NUMA nodes without CPUs whose memory exclusive containers may use.

use super::file::File;
use super::source::{ConfigError, Source};
use super::values::Text;
use crate::cpuset::CpuSet;
use crate::nodeset::{MAX_NODES, NodeSet};

/// Their numbers, in the kernel's list format like CPUs.
pub(super) fn nodes(
    source: &Source,
    file: &File,
    mems_follow_cpus: bool,
) -> Result<NodeSet, ConfigError> {
    let Some(Text(text)) = &file.memory_only_nodes else { return Ok(NodeSet::EMPTY) };
    let wrong = |why: String| source.at("memoryOnlyNodes", why);
    let list: Option<CpuSet> = text.parse().ok();
    let Some(list) = list.filter(|list| list.iter().all(|node| node < MAX_NODES)) else {
        let why = format!("{text:?} is no list of NUMA nodes below {MAX_NODES}, such as 2-3,5");
        return Err(wrong(why));
    };
    if !list.is_empty() && !mems_follow_cpus {
        return Err(wrong("all nodes are allowed unless exclusiveMems is follow-cpus".to_owned()));
    }
    Ok(list.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn with(more: &str) -> Result<NodeSet, String> {
        let text = format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{more}");
        let config = Config::parse("c.yaml", &text).map_err(|error| error.to_string())?;
        Ok(config.memory_only_nodes)
    }

    #[test]
    fn a_list_of_nodes_with_memory_that_follows_cpus() {
        assert_eq!(with("").unwrap(), NodeSet::EMPTY);
        let nodes = with("exclusiveMems: follow-cpus\nmemoryOnlyNodes: 2-3,5\n").unwrap();
        assert_eq!(nodes.to_string(), "2,3,5");
        for (more, why) in [
            ("memoryOnlyNodes: 2\n", "line 3: memoryOnlyNodes: all nodes are allowed unless"),
            (
                "exclusiveMems: follow-cpus\nmemoryOnlyNodes: hbm\n",
                "line 4: memoryOnlyNodes: \"hbm\" is no list of NUMA nodes below 128",
            ),
            (
                "exclusiveMems: follow-cpus\nmemoryOnlyNodes: 128\n",
                "line 4: memoryOnlyNodes: \"128\" is no list",
            ),
        ] {
            let refused = with(more).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
