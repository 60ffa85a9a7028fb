//! The plugin's model of cgroup v2 cpusets held against the kernel.

use lab::cgroup_model::Settings;
use lab::containerd::Version;
use lab::step::{Outcome, Step};

use crate::part::{Part, machine, play};

const STEPS: usize = 5000;

#[test]
fn the_model_of_cgroups_is_as_the_kernel_is() {
    for (name, seed) in [("small", 1), ("smt", 2)] {
        play(&machine(name), Version::V2_1, &[compared(seed)]);
    }
}

fn compared(seed: u64) -> Part {
    let steps = vec![Step::CompareCgroups(Settings { seed, steps: STEPS })];
    Part::new("the model of cgroups", steps, |outcomes| {
        let [Outcome::Cgroups(comparison)] = outcomes else { panic!("not one comparison") };
        println!("{comparison}");
        assert!(comparison.difference.is_none(), "model and kernel differ");
        assert_eq!(comparison.steps, STEPS);
        // What the plugin relies on has happened.
        assert!(comparison.cut_empty > 0, "no group ever ran on all of its parent's CPUs");
        for result in ["write ok", "write ENOENT", "write ENOSPC", "write ERANGE", "offline ok"] {
            assert!(comparison.results.contains_key(result), "never: {result}");
        }
    })
}
