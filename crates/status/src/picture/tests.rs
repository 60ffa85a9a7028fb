//! Pictures of machines of every shape.

use super::text::{Style, draw};
use super::*;
use machines::synthetic::{Machine, Numbering};

fn tenant(badge: u16, name: &str, cpus: &str) -> Tenant {
    Tenant {
        badge: Badge(badge),
        is_pod: false,
        name: name.to_owned(),
        cpus: cpus.parse().unwrap(),
        idle: CpuSet::EMPTY,
        placement: String::new(),
    }
}

/// A picture of a machine on which everything is shared that is not held or reserved.
fn picture(topology: &Topology, reserved: &str, tenants: Vec<Tenant>) -> Picture {
    let reserved: CpuSet = reserved.parse().unwrap();
    let held: CpuSet = tenants.iter().map(|tenant| tenant.cpus).collect();
    let shared = topology.online() - topology.isolated() - held;
    let isolated = topology.isolated();
    Picture::of(topology, Occupancy { tenants, reserved, shared, isolated, ..Occupancy::default() })
}

fn machine(words: &str) -> Topology {
    words.parse::<Machine>().unwrap().topology().unwrap()
}

#[track_caller]
fn check(picture: &Picture, width: usize, expect: &str) {
    let text = draw(picture, Style { width, colour: false });
    assert_eq!(text, expect, "\n{text}");
}

#[test]
fn each_cpu_has_the_letter_of_its_container_or_a_sign() {
    let tenants = vec![tenant(0, "a", "8-17"), tenant(1, "b", "24-31"), tenant(2, "c", "2-7")];
    let picture = picture(&machine("pack:1 l3:4 core:8"), "0-1", tenants);
    let expect = "\
socket 0, NUMA node 0
 ┌ uncore cache 0 ─┐ ┌ uncore cache 8 ─┐ ┌ uncore cache 16 ┐ ┌ uncore cache 24 ┐
 │ - - C C C C C C │ │ A A A A A A A A │ │ A A · · · · · · │ │ B B B B B B B B │
 └ 0-7 ────────────┘ └ 8-15 ───────────┘ └ 16-23 ──────────┘ └ 24-31 ──────────┘
· shared   - reserved: never exclusive
";
    check(&picture, 80, expect);
    let narrow = draw(&picture, Style { width: 50, colour: false });
    assert_eq!(narrow.lines().count(), 8, "{narrow}");
}

#[test]
fn threads_are_below_each_other_and_smaller_cores_leave_blanks() {
    let hybrid =
        Machine { cores: 4, threads: 2, efficient: 2, ..Machine::default() }.topology().unwrap();
    let expect = "\
┌ socket 0, NUMA node 0, uncore cache 0 ┐
│ - A · ·                               │
│ · A                                   │
└ 0-5 ──────────────────────────────────┘
· shared   - reserved: never exclusive
";
    check(&picture(&hybrid, "0", vec![tenant(0, "a", "2-3")]), 100, expect);
}

/// Sub-NUMA clustering.
#[test]
fn nodes_are_inside_the_cache_that_they_share() {
    let expect = "\
socket 0, uncore cache 0
 ┌ NUMA node 0 ┐ ┌ NUMA node 1 ┐
 │ - ·         │ │ · ·         │
 └ 0-1 ────────┘ └ 2-3 ────────┘
· shared   - reserved: never exclusive
";
    check(&picture(&machine("pack:1 l3:1 numa:2 core:2"), "0", vec![]), 100, expect);
}

#[test]
fn offline_cpus_and_nodes_without_cpus_are_shown() {
    let offline = "1".parse().unwrap();
    let machine =
        Machine { cores: 2, memory_only: 1, offline, ..Machine::default() }.topology().unwrap();
    let expect = "\
┌ socket 0, NUMA node 0, uncore cache 0 ┐ ┌ offline ──────────────────────────────┐
│ ·                                     │ │ x                                     │
└ 0 ────────────────────────────────────┘ └ 1 ────────────────────────────────────┘
NUMA node 1: memory only
· shared   x offline
";
    check(&picture(&machine, "", vec![]), 100, expect);
}

#[test]
fn containers_beyond_z_have_two_letters() {
    let one_each = (0..64).map(|cpu| tenant(cpu, "x", &cpu.to_string())).collect();
    let text = draw(
        &picture(&machine("pack:1 core:64"), "", one_each),
        Style { width: 80, colour: false },
    );
    assert!(text.contains("│  A  B  C") && text.contains(" AA AB"), "{text}");
}

/// Every CPU once, lines within the width, the same text with colour and without, and valid SVG.
#[test]
fn machines_of_every_size_are_drawn_completely() {
    for (words, memory_only) in [
        ("pack:1", 0),
        ("pack:1 core:2", 0),
        ("pack:2 numa:4 l3:3 core:8 pu:2", 0),
        ("pack:2 numa:16 core:8 pu:2", 2),
        ("pack:8 core:8 pu:8", 0),
        ("pack:4 core:64 pu:2", 0),
        ("pack:2 numa:32 core:4 pu:2", 0),
        ("pack:2 l3:64 core:1 pu:2", 0),
    ] {
        let described: Machine = words.parse().unwrap();
        let described = Machine { memory_only, numbering: Numbering::Interleaved, ..described };
        let topology = described.topology().unwrap();
        let all: Vec<usize> = topology.online().iter().collect();
        let tenants = all
            .chunks(3)
            .step_by(2)
            .enumerate()
            .map(|(at, cpus)| {
                let cpus = cpus.iter().flat_map(|cpu| CpuSet::of(*cpu)).collect();
                Tenant { cpus, ..tenant(at as u16, "<pod>", "") }
            })
            .collect();
        let picture = picture(&topology, "0", tenants);
        let mut drawn: Vec<usize> = picture.cells().iter().map(|cell| cell.cpu).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, all, "{words}");
        for width in [40, 80, 200] {
            let plain = draw(&picture, Style { width, colour: false });
            let widest = plain.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.max(70), "{words} at {width}: {widest}\n{plain}");
            let coloured = draw(&picture, Style { width, colour: true });
            let mut stripped = String::new();
            for (at, part) in coloured.split('\x1b').enumerate() {
                let text = if at == 0 { part } else { part.split_once('m').unwrap().1 };
                stripped.push_str(text);
            }
            assert_eq!(stripped, plain);
        }
        for svg in [svg::file(&picture, "a <title>"), svg::part(&picture)] {
            assert_eq!(svg.matches("<title>CPU ").count(), all.len(), "{words}");
            assert!(
                !svg.contains("<pod>") && !svg.contains("NaN") && !svg.contains("inf"),
                "{words}"
            );
        }
    }
}

/// A file has plain colours only, and a page has a value for each variable in its rules.
#[test]
fn every_colour_has_a_value_in_light_and_dark() {
    let file = svg::file(&picture(&machine("pack:1"), "", vec![]), "a title");
    assert!(file.contains("prefers-color-scheme: dark") && !file.contains("var("), "{file}");
    let page = svg::page_style() + include_str!("../../../serve/src/page/page.css");
    for used in page.split("var(").skip(1) {
        let (variable, _) = used.split_once(')').unwrap();
        // Light and dark.
        assert_eq!(page.matches(&format!("{variable}: #")).count(), 2, "{variable}");
    }
}

#[test]
fn isolated_cpus_have_a_sign_unless_a_container_has_them() {
    let isolated = "4-7".parse().unwrap();
    let machine = Machine { cores: 8, isolated, ..Machine::default() }.topology().unwrap();
    let expect = "\
┌ socket 0, NUMA node 0, uncore cache 0 ┐
│ - · · · A A i i                       │
└ 0-7 ──────────────────────────────────┘
· shared   - reserved: never exclusive   i isolated: never shared (isolcpus)
";
    let picture = picture(&machine, "0", vec![tenant(0, "a", "4-5")]);
    check(&picture, 100, expect);
    let sentence = "8 CPUs: 2 exclusive to 1 container, 3 shared, 1 reserved, 2 isolated.";
    assert_eq!(picture.sentence(), sentence);
}

#[test]
fn a_pod_with_an_own_pool_has_letters_and_is_no_container() {
    let pod = Tenant { is_pod: true, ..tenant(1, "ns/pod", "4-7") };
    let picture = picture(&machine("pack:1 core:8"), "0", vec![tenant(0, "ns/pod/c", "2-3"), pod]);
    let sentence = "8 CPUs: 6 exclusive to 1 container and 1 pod, 1 shared, 1 reserved.";
    assert_eq!(picture.sentence(), sentence);
}

/// The first number in `text` that follows these words.
fn number_after(text: &str, words: &str) -> f64 {
    let (_, rest) = text.split_once(words).unwrap();
    let number = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap();
    number.parse().unwrap()
}

/// On a screen of 1,024 pixels with a scroll bar, where the page has margins.
#[test]
fn machines_of_128_cpus_are_seen_without_scrolling() {
    for words in [
        "pack:2 l3:4 core:8 pu:2",
        "pack:2 numa:4 l3:2 core:8",
        "pack:1 l3:8 core:8 pu:2",
        "pack:1 l3:16 core:8",
        "pack:2 l3:8 core:4 pu:2",
        "pack:2 l3:16 core:4",
        "pack:2 numa:4 l3:2 core:4 pu:2",
        "pack:8 core:8 pu:2",
        "pack:1 core:128",
        "pack:4 core:4 pu:8",
    ] {
        let machine = machine(words);
        assert_eq!(machine.online().len(), 128, "{words}");
        let svg = svg::part(&picture(&machine, "0", vec![]));
        let least = number_after(&svg, "min-width: ");
        assert!(least <= 960.0, "{words}: {least}");
    }
}

/// A cell has a letter above the CPU's number: capital letters are 0.73 as high as their font.
#[test]
fn letter_and_number_of_a_cell_are_apart() {
    let both = ["0-3", "4-7"].into_iter().enumerate();
    let tenants = both.map(|(at, cpus)| tenant(at as u16 * 26, "x", cpus)).collect();
    let svg = svg::part(&picture(&machine("core:4 pu:2"), "", tenants));
    let mut cells = 0;
    for cell in svg.split("<g><title>CPU ").skip(1) {
        let (letter, number) = cell.split_once("class=\"number").unwrap();
        let letter_below = number_after(letter.split_once("<text").unwrap().1, " y=\"");
        let number_above = number_after(number, " y=\"") - 0.73 * 12.0;
        assert!(number_above - letter_below >= 5.0, "{letter_below} {number_above}");
        cells += 1;
    }
    assert_eq!(cells, 8);
}

/// NUMA nodes side by side, and a legend in columns: a screen shows most of it.
#[test]
fn a_large_machine_is_wide_and_not_high() {
    let words = "pack:2 numa:4 l3:3 core:8 pu:2";
    let topology = machine(words);
    let all: Vec<usize> = topology.online().iter().collect();
    let tenants = all.chunks(4).take(90).enumerate().map(|(at, cpus)| {
        let cpus = cpus.iter().flat_map(|cpu| CpuSet::of(*cpu)).collect();
        Tenant { cpus, ..tenant(at as u16, &format!("team/inference-{at}/main"), "") }
    });
    let svg = svg::file(&picture(&topology, "", tenants.collect()), "a title");
    let (width, height) = (number_after(&svg, " width=\""), number_after(&svg, " height=\""));
    assert!(width > 1000.0 && width <= 1430.0, "{width} x {height}");
    assert!(height < 1300.0, "{width} x {height}");
}

/// A small one stays narrow: the README shows it.
#[test]
fn a_small_machine_fits_into_a_text() {
    let svg = svg::part(&picture(&machine("l3:4 core:8"), "", vec![]));
    assert!(svg.contains(" width=\"670\""), "{svg}");
}

#[test]
fn a_machine_alone_has_the_numbers_of_its_cpus() {
    let offline = "1".parse().unwrap();
    let topology = Machine { cores: 300, offline, ..Machine::default() }.topology().unwrap();
    let picture = Picture::of_machine(&topology);
    let svg = svg::file(&picture, "machine");
    for part in [">299</text>", "<title>CPU 299</title>", "1 offline, 299 online.", ">x</text>"] {
        assert!(svg.contains(part), "{part} is not in\n{svg}");
    }
    assert_eq!(svg.matches("class=\"number\"").count(), 299);
    assert_eq!(picture.legend(), [Usage::Offline]);
}

#[test]
fn facts_of_the_node_are_in_the_image() {
    let mut picture = picture(&machine("core:2"), "", vec![]);
    picture.facts = ["exclusivity kernel", "placement compact"].map(str::to_owned).to_vec();
    let svg = svg::file(&picture, "a title");
    assert!(svg.contains(">exclusivity kernel · placement compact</text>"), "{svg}");
}

#[test]
fn memory_has_a_line_for_each_node_where_it_is_counted() {
    let mut picture = picture(&machine("core:2"), "", vec![]);
    let before = svg::part(&picture);
    picture.memory = vec!["NUMA node 0: memory 60Gi, 32Gi allocated, 28Gi free".to_owned()];
    let expect = "\
┌ socket 0, NUMA node 0, uncore cache 0 ┐
│ · ·                                   │
└ 0-1 ──────────────────────────────────┘
NUMA node 0: memory 60Gi, 32Gi allocated, 28Gi free
";
    check(&picture, 100, expect);
    let narrow = draw(&picture, Style { width: 40, colour: false });
    assert!(narrow.ends_with("NUMA node 0: memory 60Gi, 32Gi allocate…\n"), "{narrow}");
    assert!(
        svg::file(&picture, "a title").contains(">NUMA node 0: memory 60Gi, 32Gi allocated, 28Gi")
    );
    let height = |svg: &str| number_after(svg, " height=\"");
    assert!(height(&svg::part(&picture)) > height(&before));
}

/// A picture shrinks with a screen until its smallest text is 10 pixels high.
#[test]
fn no_text_of_a_page_is_smaller_than_12_pixels_and_none_shrinks_below_10() {
    let rules = svg::page_style() + include_str!("../../../serve/src/page/page.css");
    for size in rules.split("font-size: ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let pixels = match (size.strip_suffix("px"), size.strip_suffix("rem")) {
            (Some(pixels), _) => pixels.parse::<f64>().unwrap(),
            (None, Some(rem)) => rem.parse::<f64>().unwrap() * 16.0,
            _ => unreachable!("{size}"),
        };
        assert!(pixels >= 12.0, "{size}");
    }
    let many = || (0..64).map(|cpu| tenant(cpu, "x", &cpu.to_string())).collect::<Vec<_>>();
    for words in ["core:64", "core:400"] {
        let svg = svg::part(&picture(&machine(words), "", many()));
        let least = number_after(&svg, "min-width: ");
        assert!(
            least >= (number_after(&svg, " width=\"") * 10.0 / 12.0).floor(),
            "{words}: {least}"
        );
        for size in svg.split("font-size=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(size.parse::<f64>().unwrap() >= 12.0, "{words}: {size}");
        }
    }
}
