//! cpuset partitions that the plugin did not make, written by hand as an administrator or systemd
//! writes them.

use cpuset::CpuSet;

use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::step::{CgroupRef, Step};

/// Made before the plugin starts.
const EARLY: Partition = Partition { parent: "foreign", name: "by-hand" };
/// Made while containers run, where systemd has its units.
const LATE: Partition = Partition { parent: "system.slice", name: "foreign.service" };

/// It is in another cgroup: next to the pods' own one (`kubepods`), which has all CPUs in its
/// `cpuset.cpus`, the kernel makes no partition.
#[derive(Clone, Copy)]
struct Partition {
    parent: &'static str,
    name: &'static str,
}

impl Partition {
    fn path(self) -> String {
        format!("{}/{}", self.parent, self.name)
    }

    fn own(self) -> CgroupRef {
        CgroupRef::Named(self.path())
    }

    fn above(self) -> CgroupRef {
        CgroupRef::Named(self.parent.to_owned())
    }

    fn make(self, script: &mut Script, cpus: CpuSet) {
        let list = cpus.to_string();
        for (group, file, text) in [
            (self.above(), "cgroup.subtree_control", "+cpuset"),
            (self.above(), "cpuset.cpus.exclusive", &list),
            (self.own(), "cpuset.cpus", &list),
            (self.own(), "cpuset.cpus.exclusive", &list),
            (self.own(), "cpuset.cpus.partition", "root"),
        ] {
            script.does(Step::WriteCgroup(group, file.to_owned(), text.to_owned()));
        }
        self.is_unchanged(script, cpus);
    }

    fn is_unchanged(self, script: &mut Script, cpus: CpuSet) {
        let list = cpus.to_string();
        for (group, file, text) in [
            (self.above(), "cpuset.cpus.exclusive", list.as_str()),
            (self.own(), "cpuset.cpus", &list),
            (self.own(), "cpuset.cpus.exclusive", &list),
            (self.own(), "cpuset.cpus.effective", &list),
            (self.own(), "cpuset.cpus.partition", "root"),
        ] {
            script.reads(group, file, text);
        }
    }

    fn end(self, script: &mut Script) {
        for (group, file, text) in [
            (self.own(), "cpuset.cpus.partition", "member"),
            (self.own(), "cpuset.cpus.exclusive", ""),
            (self.above(), "cpuset.cpus.exclusive", ""),
        ] {
            script.does(Step::WriteCgroup(group, file.to_owned(), text.to_owned()));
        }
        script.does(Step::WaitFor(format!("foreign partition: {} has ended", self.path()), 1));
    }

    /// Its line in `status`.
    fn line(self, cpus: CpuSet) -> String {
        format!("foreign {cpus}: cpuset partition {} of another program", self.path())
    }
}

/// Containers leave the CPUs of a partition that appears, new ones do not get them, and after its
/// end they are there again. The plugin's own partitions stay valid.
pub(super) fn partitions(shape: &Shape) -> Option<Script> {
    let free = shape.free();
    let room = shape.room();
    if room < 6 {
        return None;
    }
    let early = free - free.lowest(room - 1);
    // At first only these two can be exclusive, so that db has them on every machine.
    let own = free.lowest(room - 1) - free.lowest(room - 3);
    let spare = free.lowest(room - 3) - free.lowest(room - 4);
    let keeps = shape.exclusivity == "kernel";
    // The kernel makes no partition of another one's CPUs.
    let late = if keeps { spare } else { spare | own.lowest(1) };

    let narrow = Shape { reserved: shape.online() - own, ..shape.clone() };
    let mut script = Script::new(&narrow);
    EARLY.make(&mut script, early);
    script.foreign(early);
    script.plugin(narrow.config(""));
    script.shared("web");
    script.exclusive("db", 2);
    script.expect(&[("db", own)]);
    script.says(Step::Status, &[&EARLY.line(early)]);
    script.reserve(shape.reserved);
    script.does(Step::Reconfigure(shape.config("")));
    let before = script.expect(&[("db", own)]);

    LATE.make(&mut script, late);
    script.foreign(early | late);
    script.does(Step::WaitFor(format!("foreign partition: {} has ", LATE.path()), 1));
    // An update of db is sent with the next answer at the latest.
    script.shared("late");
    script.view_where(move |view| {
        let now = parse(view.allowed("db"));
        let left = own - late;
        if left.is_subset(&now) { Ok(()) } else { Err(format!("db had {left} and has {now}")) }
    });
    script.exclusive("rest", room - 3 - late.len());
    let full = if keeps { script.exclusive_unmoved(before) } else { script.view() };
    script.refused(Step::Run(super::exclusive("one-too-many", 1)), "not enough");
    script.remove("one-too-many");
    script.says(Step::Status, &[&EARLY.line(early), &LATE.line(late)]);
    if keeps {
        // The plugin makes none that would leave all other cgroups a single CPU.
        let last = if shape.reserved.len() > 1 { "root" } else { "member" };
        for (pod, state) in [("db", "root"), ("rest", last)] {
            script.reads(CgroupRef::Container(pod.to_owned()), "cpuset.cpus.partition", state);
        }
    }
    EARLY.is_unchanged(&mut script, early);
    LATE.is_unchanged(&mut script, late);

    LATE.end(&mut script);
    script.foreign(early);
    script.exclusive("new", late.len());
    let again = script.exclusive_unmoved(full);
    EARLY.is_unchanged(&mut script, early);
    EARLY.end(&mut script);
    script.foreign(CpuSet::EMPTY);
    script.exclusive("last", 1);
    script.exclusive_unmoved(again);
    Some(script)
}
