//! Keeps exclusive CPUs exclusive.
//!
//! `cgroup_tree` is a pure model of cgroup v2 cpusets.

pub mod cgroup_tree;
