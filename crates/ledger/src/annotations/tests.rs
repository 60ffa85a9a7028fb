//! Tests: the wishes for each container of a pod.

use super::super::wish::ALL;
use super::*;
use proptest::prelude::*;

const KEYS: [&str; 6] = ["cpus", "uncore", "numa", "smt", "placement", "movable"];

#[test]
fn only_annotations_with_the_domain_count() {
    for (name, ours) in [
        ("smt.cpu-manager.nri.io", true),
        ("smt.cpu-manager.nri.io/pod", true),
        (".cpu-manager.nri.io", true),
        ("smt.cpu-manager.nri.io.example.org/pod", false),
        ("example.org/smt.cpu-manager.nri.io", false),
        ("cpu-manager.nri.io", false),
    ] {
        assert_eq!(is_wish(name), ours, "{name}");
        let annotations: Annotations = [(name, "isolate")].into_iter().collect();
        assert_eq!(annotations.is_empty(), !ours, "{name}");
    }
}

fn named(count: usize) -> impl Iterator<Item = (String, &'static str)> {
    (0..count).map(|at| (format!("cpus.cpu-manager.nri.io/container.c{at}"), "exclusive"))
}

#[test]
fn more_annotations_than_the_limit_refuse_every_container_without_repeating_them() {
    let most: Annotations = named(MAX_ANNOTATIONS).chain([("example.org/a".into(), "")]).collect();
    assert_eq!(most.of("c0").cpus, Some(Cpus::Exclusive));
    assert_eq!((most.of("c0").error.as_ref(), most.of("other")), (None, &Asked::default()));
    for count in [MAX_ANNOTATIONS + 1, 6096] {
        let annotations: Annotations = named(count).collect();
        assert!(!annotations.is_empty() && annotations.named.is_empty());
        for container in ["c0", "other"] {
            let asked = annotations.of(container);
            assert_eq!(
                asked.error.as_ref().unwrap().to_string(),
                "WishNotAllowedError: the pod has more than 64 annotations KEY.cpu-manager.nri.io; \
                 use KEY.cpu-manager.nri.io/pod for what applies to all of its containers"
            );
            assert_eq!(asked.cpus, Some(Cpus::Shared), "no CPUs are kept free for it");
        }
    }
}

/// A second implementation: the wishes for a container, and whether an annotation for it is wrong.
fn expected(annotations: &BTreeMap<String, String>, container: &str) -> (Vec<Wish>, bool) {
    let own = format!("/container.{container}");
    let mut wishes = Vec::new();
    let mut is_wrong = false;
    for (name, value) in annotations {
        let (key, addressee) = name.split_once(DOMAIN).unwrap();
        let applies = addressee == own || !addressee.starts_with("/container.");
        let known = addressee.is_empty() || addressee == "/pod" || addressee == own;
        is_wrong |= applies && (!known || Wish::parse(key, value).is_err());
    }
    for (key, value, wish) in ALL {
        let says = |addressee: &str| annotations.get(&format!("{key}{DOMAIN}{addressee}"));
        let valid = |said: &&String| Wish::parse(key, said).is_ok();
        let of_all = says("/pod").filter(valid).or(says("").filter(valid));
        if says(&own).filter(valid).or(of_all).is_some_and(|said| said == value) {
            wishes.push(wish);
        }
    }
    (wishes, is_wrong)
}

proptest! {
    #[test]
    fn the_most_specific_annotation_counts_for_each_container(
        said in prop::collection::btree_map(
            (
                prop::sample::select(&KEYS[..]),
                prop::sample::select(&["", "/pod", "/container.a", "/container.b", "/pods"][..]),
            ),
            (0..ALL.len() + 1, any::<bool>()),
            0..20,
        ),
    ) {
        let said: BTreeMap<String, String> = said
            .into_iter()
            .map(|((key, addressee), (at, fits))| {
                let of_key: Vec<_> = ALL.iter().filter(|(known, ..)| !fits || *known == key).collect();
                let value = of_key.get(at % (of_key.len() + 1)).map_or("wrong", |(_, value, _)| value);
                (format!("{key}{DOMAIN}{addressee}"), value.to_owned())
            })
            .collect();
        let annotations: Annotations = said.iter().collect();
        prop_assert_eq!(annotations.is_empty(), said.is_empty());
        for container in ["a", "b", "c", ""] {
            let asked = annotations.of(container);
            let mut wishes: Vec<Wish> = asked.list().collect();
            let (mut expected, is_wrong) = expected(&said, container);
            wishes.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&wishes, &expected, "{}", container);
            prop_assert_eq!(asked.error.is_some(), is_wrong, "{}", container);
        }
    }
}
