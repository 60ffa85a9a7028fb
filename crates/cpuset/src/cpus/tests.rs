use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[track_caller]
fn check(list: &str, expect: &str) {
    match list.parse::<CpuSet>() {
        Ok(set) => assert_eq!(set.to_string(), expect, "{list:?}"),
        Err(error) => assert_eq!(error.to_string(), expect, "{list:?}"),
    }
}

#[test]
fn lists_are_read_as_the_kernel_reads_them() {
    check("", "");
    check(" \n", "");
    check("0", "0");
    check("0-3,8\n", "0-3,8");
    check("8,0-3,2-5", "0-5,8");
    check("0,1", "0-1");
    check("0-15:2/4", "0-1,4-5,8-9,12-13");
    check("1-7:1/2,64", "1,3,5,7,64");
    check("0-2047", "0-2047");
    check("63-64,127-128", "63-64,127-128");
    check("2048", "CPU 2048 in \"2048\" is past the limit: CPU numbers up to 2047 are supported");
    check(
        "99999999999999999999999",
        "CPU 99999999999999999999999 in \"99999999999999999999999\" is past the limit: CPU numbers up to 2047 are supported",
    );
    check("3-1", "range \"3-1\" in CPU list \"3-1\" ends before it starts");
    for bad in ["a", "1,,2", "-1", "1-", "+1", "1 2", "0-3,x"] {
        assert!(matches!(bad.parse::<CpuSet>(), Err(ParseError::NotANumber { .. })), "{bad:?}");
    }
    for bad in ["0-15:0/4", "0-15:5/4", "0-15:2", "3:1/2"] {
        assert!(matches!(bad.parse::<CpuSet>(), Err(ParseError::Stride { .. })), "{bad:?}");
    }
}

#[test]
fn masks_are_read_as_the_kernel_reads_them() {
    for (mask, list) in [
        ("f", "0-3"),
        ("00000000,00000101\n", "0,8"),
        ("0xff", "0-7"),
        ("1,00000000,00000000", "64"),
        ("80000000", "31"),
    ] {
        assert_eq!(CpuSet::from_mask(mask).unwrap().to_string(), list, "{mask:?}");
    }
    for bad in ["", "g", "123456789", "1,,2", "+f"] {
        assert!(matches!(CpuSet::from_mask(bad), Err(ParseError::Mask { .. })), "{bad:?}");
    }
    let zeros = ",00000000".repeat(64);
    assert!(matches!(CpuSet::from_mask(&format!("1{zeros}")), Err(ParseError::PastLimit { .. })));
    // Kernels built for more CPUs than the machine has print leading groups of zeros.
    assert_eq!(CpuSet::from_mask(&format!("0{zeros}")).unwrap(), CpuSet::EMPTY);
}

#[test]
fn cpus_past_the_limit_are_refused() {
    let mut set = CpuSet::EMPTY;
    assert_eq!(set.insert(MAX_CPUS - 1), Ok(()));
    assert_eq!(set.insert(MAX_CPUS), Err(PastLimit(MAX_CPUS)));
    assert_eq!(set.to_string(), "2047");
    set.remove(MAX_CPUS);
    assert!(!set.contains(MAX_CPUS));
}

fn cpus() -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::btree_set(prop_oneof![0..130usize, 0..MAX_CPUS], 0..80)
}

fn set(cpus: &BTreeSet<usize>) -> CpuSet {
    cpus.iter().map(|&cpu| CpuSet::of(cpu).unwrap()).collect()
}

proptest! {
    #[test]
    fn printed_lists_read_back(a in cpus()) {
        prop_assert_eq!(set(&a).to_string().parse::<CpuSet>().unwrap(), set(&a));
    }

    #[test]
    fn operations_agree_with_those_of_a_standard_set(a in cpus(), b in cpus(), n in 0..90usize) {
        let x = set(&a);
        let y = set(&b);
        prop_assert_eq!(x | y, set(&(&a | &b)));
        prop_assert_eq!(x & y, set(&(&a & &b)));
        prop_assert_eq!(x - y, set(&(&a - &b)));
        prop_assert_eq!(x.common(&y), (&a & &b).len());
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.first(), a.first().copied());
        prop_assert_eq!(x.iter().collect::<Vec<_>>(), a.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(x.lowest(n), set(&a.iter().copied().take(n).collect()));
    }

    #[test]
    fn any_text_is_a_set_or_an_error(text in "[0-9a-fx,:/ -]{0,24}") {
        let _ = text.parse::<CpuSet>();
        let _ = CpuSet::from_mask(&text);
    }
}
