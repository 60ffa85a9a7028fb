//! `podLevelResources`: what the containers without whole CPUs of a pod share (KEP-5526).

use ledger::{PodLevelResources, Policy, Settings};
use placement::{Scope, TopologyPolicy};

pub(super) const FIELD: &str = "podLevelResources";

/// The CPUs of a pod are chosen as a whole, which only the scope `pod` does. The topology manager's policy
/// `none` has no scope.
pub(super) fn check(settings: &Settings) -> Result<(), &'static str> {
    let has_own_pools = settings.pod_level_resources == PodLevelResources::OwnPool;
    let manager = &settings.placement.topology_manager;
    let in_pod_scope = manager.scope == Scope::Pod && manager.policy != TopologyPolicy::None;
    if has_own_pools && !in_pod_scope {
        return Err(
            "own-pool chooses all CPUs of a pod together: it needs topologyManagerScope: pod and a \
             topologyManagerPolicy other than none",
        );
    }
    Ok(())
}

/// For the settings of a node: another node may have the policy that a file lacks.
pub(super) fn check_policy(settings: &Settings) -> Result<(), &'static str> {
    let has_own_pools = settings.pod_level_resources == PodLevelResources::OwnPool;
    if has_own_pools && settings.policy != Policy::Static {
        return Err("own-pool needs cpuManagerPolicy: static");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use machines::synthetic::Machine;

    const STATIC: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\n";
    const POD_SCOPE: &str = "topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\n";

    fn with(text: &str) -> Result<Config, String> {
        let topology = "pack:1 core:4".parse::<Machine>().unwrap().topology().unwrap();
        let config = Config::parse("c.yaml", text).map_err(|error| error.to_string())?;
        config.resolve(&topology).map_err(|error| error.to_string())?;
        Ok(config)
    }

    fn pods(config: &Config) -> PodLevelResources {
        config.values.settings.pod_level_resources
    }

    #[test]
    fn an_own_pool_needs_static_and_the_scope_of_pods() {
        let own_pool = format!("{STATIC}{POD_SCOPE}podLevelResources: own-pool\n");
        assert_eq!(pods(&with(STATIC).unwrap()), PodLevelResources::Shared);
        assert_eq!(pods(&with(&own_pool).unwrap()), PodLevelResources::OwnPool);
        assert!(with("podLevelResources: shared\n").is_ok());
        for (text, why) in [
            (
                format!("{STATIC}podLevelResources: own-pool\n"),
                "line 3: podLevelResources: own-pool chooses all CPUs of a pod together: it needs topologyManagerScope: pod and a topologyManagerPolicy other than none",
            ),
            (
                format!("{STATIC}topologyManagerScope: pod\npodLevelResources: own-pool\n"),
                "line 4: podLevelResources: own-pool chooses all CPUs of a pod together",
            ),
            (
                format!("{POD_SCOPE}podLevelResources: own-pool\n"),
                "line 3: podLevelResources: own-pool needs cpuManagerPolicy: static",
            ),
            (
                "podLevelResources: own\n".to_owned(),
                "line 1: podLevelResources: \"own\" is unknown, expected shared or own-pool",
            ),
        ] {
            let refused = with(&text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn an_entry_for_a_node_can_begin_and_end_own_pools() {
        let own_pool = "podLevelResources: own-pool\n";
        for (file, entry, on_node) in [
            (
                format!("{STATIC}{POD_SCOPE}"),
                "podLevelResources: own-pool",
                PodLevelResources::OwnPool,
            ),
            (
                format!("{STATIC}{POD_SCOPE}{own_pool}"),
                "podLevelResources: shared",
                PodLevelResources::Shared,
            ),
            (
                format!("{STATIC}{POD_SCOPE}{own_pool}"),
                "cpuManagerPolicy: none",
                PodLevelResources::Shared,
            ),
        ] {
            let config = with(&format!("{file}nodes:\n- names: [a]\n  {entry}\n")).unwrap();
            assert_eq!(pods(&config.with(&[0]).unwrap()), on_node, "{entry}");
        }
        let entry = "nodes:\n- names: [a]\n  topologyManagerScope: container\n";
        let text = format!("{STATIC}{POD_SCOPE}{own_pool}{entry}");
        assert!(with(&text).unwrap_err().contains("needs topologyManagerScope: pod"));
    }
}
