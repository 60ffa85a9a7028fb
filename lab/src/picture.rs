//! A node drawn for people: uncore caches as blocks, CPUs by container, and what was decided beside what is true.
//!
//! Everything is readable without colour: a container's CPUs carry its letter, shared ones a dot.

use std::fmt::Write;

use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::wording;

use crate::view::{ContainerView, View};

/// Columns of a terminal that the blocks may use.
const WIDTH: usize = 100;

/// Background colours (of the 256 that terminals know) on which black is readable, one a letter.
const COLOURS: [u8; 8] = [114, 215, 111, 218, 229, 152, 183, 180];

/// Draws a view.
#[must_use]
pub fn draw(view: &View, reserved: &str, colour: bool) -> String {
    let exclusive: Vec<(&ContainerView, CpuSet)> = view
        .containers
        .iter()
        .filter(|c| c.decided.is_some())
        .map(|c| (c, parse(&c.allowed)))
        .collect();
    let pen = Pen { exclusive: &exclusive, colour };
    let mut text = String::new();
    let blocks: Vec<Vec<String>> = view
        .hardware
        .caches
        .iter()
        .enumerate()
        .map(|(number, cache)| pen.block(number, &parse(cache)))
        .collect();
    let width = blocks.first().map_or(1, |block| width(&block[1]) + 1);
    for row in blocks.chunks((WIDTH / width).max(1)) {
        for line in 0..row[0].len() {
            let _ = writeln!(
                text,
                "{}",
                row.iter().map(|block| block[line].as_str()).collect::<Vec<_>>().join(" ")
            );
        }
    }
    let _ = writeln!(
        text,
        "  · shared by everyone else; {} {} reserved: never exclusive\n",
        wording::cpus(reserved),
        wording::agree(reserved, "is", "are")
    );
    text += &pen.table(view);
    text
}

/// One line that says whether processes and decisions agree, and if not, where.
#[must_use]
pub fn verdict(view: &View) -> String {
    let wrong = view.disagreements();
    if wrong.is_empty() {
        return format!(
            "All agree: the processes of all {} containers run exactly where it was decided.",
            view.containers.len()
        );
    }
    format!("They do NOT agree:\n  {}", wrong.join("\n  "))
}

struct Pen<'a> {
    exclusive: &'a [(&'a ContainerView, CpuSet)],
    colour: bool,
}

impl Pen<'_> {
    /// A cache: its number, a frame with a cell for each CPU, and the first and last CPU's number.
    fn block(&self, number: usize, cpus: &CpuSet) -> Vec<String> {
        let inner = cpus.len() * 2 + 1;
        let (first, last) = (cpus.iter().next().unwrap_or(0), cpus.iter().last().unwrap_or(0));
        let cells: String = cpus.iter().map(|cpu| self.cell(cpu)).collect();
        let room = inner.saturating_sub(first.to_string().len());
        vec![
            format!("{:<1$}", format!(" uncore cache {number}"), inner + 2),
            format!("┌{}┐", "─".repeat(inner)),
            format!("│{cells} │"),
            format!("└{}┘", "─".repeat(inner)),
            format!(" {first}{last:>room$} "),
        ]
    }

    /// Two columns: the letter of whoever has this CPU, and the space before it.
    fn cell(&self, cpu: usize) -> String {
        let owners: Vec<usize> = self
            .exclusive
            .iter()
            .enumerate()
            .filter(|(_, (_, cpus))| cpus.contains(cpu))
            .map(|(i, _)| i)
            .collect();
        match owners.as_slice() {
            [] => " ·".to_owned(),
            [owner] => self.paint(*owner, &format!(" {}", letter(*owner))),
            _ => " !".to_owned(),
        }
    }

    fn paint(&self, owner: usize, text: &str) -> String {
        if self.colour {
            format!("\x1b[30;48;5;{}m{text}\x1b[0m", COLOURS[owner % COLOURS.len()])
        } else {
            text.to_owned()
        }
    }

    fn table(&self, view: &View) -> String {
        let shared = self.exclusive.iter().fold(parse(&view.hardware.online), |rest, (c, _)| {
            rest - c.decided.as_deref().map(parse).unwrap_or_default()
        });
        let mut text = format!(
            "     {:<12} {:<22} {:<24} {:<24} {}\n",
            "pod", "asks for", "its process may run on", "decided", "uncore caches"
        );
        let mut owner = 0;
        for container in &view.containers {
            let (mark, decided) = match &container.decided {
                Some(cpus) => {
                    owner += 1;
                    (self.paint(owner - 1, &format!(" {} ", letter(owner - 1))), cpus.clone())
                }
                None => (" · ".to_owned(), format!("{shared} (shared)")),
            };
            let request = match container.request {
                milli if milli % 1000 == 0 => {
                    format!("{}, {:?}", wording::count(milli / 1000, "CPU"), container.qos)
                }
                milli => format!("{milli}m CPU, {:?}", container.qos),
            };
            let caches = if container.decided.is_some() {
                spread(view, &parse(&container.allowed))
            } else {
                String::new()
            };
            let _ = writeln!(
                text,
                " {mark} {:<12} {request:<22} {:<24} {decided:<24} {caches}",
                container.pod, container.allowed
            );
        }
        text
    }
}

/// On which caches a set of CPUs lies, and whether fewer would have done.
fn spread(view: &View, cpus: &CpuSet) -> String {
    let caches: Vec<CpuSet> = view.hardware.caches.iter().map(|cache| parse(cache)).collect();
    let used: Vec<String> = (0..caches.len())
        .filter(|&i| !(caches[i] & *cpus).is_empty())
        .map(|i| i.to_string())
        .collect();
    let largest = caches.iter().map(CpuSet::len).max().unwrap_or(1).max(1);
    let enough = cpus.len().div_ceil(largest);
    let split =
        if used.len() > enough { format!(": SPLIT, {enough} would do") } else { String::new() };
    format!("{}{split}", used.join(" and "))
}

fn letter(owner: usize) -> char {
    char::from(b'A' + u8::try_from(owner % 26).unwrap_or(0))
}

fn parse(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;
    use crate::pod::Qos;

    fn view() -> View {
        let container = |pod: &str, milli, allowed: &str, decided: Option<&str>| ContainerView {
            pod: pod.into(),
            container: "main".into(),
            qos: if decided.is_some() { Qos::Guaranteed } else { Qos::Burstable },
            request: milli,
            allowed: allowed.into(),
            quota: None,
            decided: decided.map(str::to_owned),
            mems: String::new(),
            told: Vec::new(),
        };
        View {
            hardware: Hardware {
                online: "0-7".into(),
                caches: vec!["0-3".into(), "4-7".into()],
                ..Hardware::default()
            },
            read: Hardware::default(),
            busy: Vec::new(),
            containers: vec![
                container("web", 100, "0-1,6-7", None),
                container("db", 4000, "2-5", Some("2-5")),
            ],
        }
    }

    #[test]
    fn blocks_letters_and_numbers_without_colour() {
        let text = draw(&view(), "0-1", false);
        let expected = "\u{20}uncore cache 0  uncore cache 1\n\
                        ┌─────────┐ ┌─────────┐\n\
                        │ · · A A │ │ A A · · │\n\
                        └─────────┘ └─────────┘\n\
                        \u{20}0       3   4       7 \n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains(" A  db           4 CPUs, Guaranteed"), "{text}");
        assert!(text.contains("0 and 1: SPLIT, 1 would do"), "{text}");
        assert!(text.contains("0-1,6-7 (shared)"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn colour_is_added_and_changes_no_letter() {
        let plain = draw(&view(), "0-1", false);
        let coloured = draw(&view(), "0-1", true);
        let mut stripped = String::new();
        for (i, part) in coloured.split('\x1b').enumerate() {
            stripped +=
                if i == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
        }
        assert_eq!(stripped, plain);
        assert_ne!(coloured, plain);
    }

    #[test]
    fn the_verdict_names_what_disagrees() {
        assert!(verdict(&view()).starts_with("All agree"));
        let mut wrong = view();
        wrong.containers[0].allowed = "0-7".into();
        assert_eq!(
            verdict(&wrong),
            "They do NOT agree:\n  web: the process may run on 0-7, decided was 0-1,6-7"
        );
    }
}
