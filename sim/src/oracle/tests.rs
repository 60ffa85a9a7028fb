use super::*;

#[test]
fn repairs_are_judged_as_often_as_the_plugin_counts_them() {
    let repair = ("cpuset", "written");
    let counted = |times| BTreeMap::from([(repair, times), (("cpuset", "sent"), 3)]);
    let mut oracle = Oracle::default();
    oracle.logged(Level::Warn, "ns/a/c: should have CPU 1, but CPU 2 is set: set again");
    oracle.repaired(&counted(1), &counted(1));
    assert!(oracle.repairs.is_empty() && oracle.complaint.is_none());
    // The log has no line about the second one within a minute.
    oracle.repaired(&counted(1), &counted(2));
    assert_eq!(oracle.repairs, [repair]);
    for (trouble, by_groups, may) in [
        (Trouble::None, true, false),
        (Trouble::None, false, true),
        (Trouble::Restarts, true, false),
        (Trouble::Restarts, false, true),
        (Trouble::All, true, true),
    ] {
        assert_eq!(oracle.may_repair(repair, trouble, by_groups), may, "{trouble:?}");
    }
    assert!(oracle.may_repair(("pod_quota", "written"), Trouble::Restarts, true));
    oracle.is_disturbed = true;
    assert!(oracle.may_repair(repair, Trouble::Restarts, true));
}
