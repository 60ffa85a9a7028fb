//! The figures as text.

use crate::benchmark::figures::{Figures, Times};
use crate::benchmark::{EngineConfig, Mix, NamedMachine};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The figures of one mix under one load.
pub(crate) struct Cells<'a> {
    mix: &'a Mix,
    load: u64,
    machines: &'a [NamedMachine],
    engines: Vec<&'a EngineConfig>,
    /// By machine, then engine.
    sums: Vec<Vec<Figures>>,
}

impl<'a> Cells<'a> {
    pub(crate) fn new(
        mix: &'a Mix,
        load: u64,
        machines: &'a [NamedMachine],
        engines: Vec<&'a EngineConfig>,
    ) -> Cells<'a> {
        let sums = vec![vec![Figures::default(); engines.len()]; machines.len()];
        Cells { mix, load, machines, engines, sums }
    }

    pub(crate) fn add(&mut self, machine: usize, engine: usize, figures: &Figures) {
        self.sums[machine][engine] += figures;
    }

    pub(crate) fn raw(&self) -> String {
        let mut text = String::new();
        for (machine, row) in self.machines.iter().zip(&self.sums) {
            for (engine, figures) in self.engines.iter().zip(row) {
                let mix = self.mix.name;
                let load = self.load;
                // Writing to a string does not fail.
                let _ = writeln!(text, "{mix} {load} {} {} {figures}", machine.name, engine.name);
            }
        }
        text
    }

    /// A table of machines by engines, then one of each engine's mean figures.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("mix {}, load {} %\n", self.mix.name, self.load);
        let names = self.engines.iter().map(|engine| engine.name.to_owned());
        let mut rows = vec![["machine".to_owned()].into_iter().chain(names).collect::<Vec<_>>()];
        for (machine, row) in self.machines.iter().zip(&self.sums) {
            let cells = row.iter().map(|figures| self.cell(figures));
            rows.push([machine.name.clone()].into_iter().chain(cells).collect());
        }
        text += &aligned(&rows);
        let head = [
            "mean of machines",
            "aligned %",
            "excess caches",
            "excess nodes",
            "shared cores",
            "refused, enough free %",
            "refused, too few %",
            "use %",
            "moves per 100",
            "CPUs moved per 100",
            "us p99",
            "plan us p99",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for (engine, name) in self.engines.iter().map(|engine| engine.name).enumerate() {
            let mean = |of: fn(&Figures) -> f64, digits: usize| {
                format!("{:.digits$}", self.mean(engine, of))
            };
            rows.push(vec![
                name.to_owned(),
                mean(Figures::aligned, 1),
                mean(Figures::excess_caches, 3),
                mean(Figures::excess_nodes, 3),
                mean(Figures::shared_cores, 3),
                mean(Figures::refused_with_enough, 2),
                mean(Figures::refused_with_too_few, 2),
                mean(Figures::used, 1),
                mean(Figures::moved_containers, 1),
                mean(Figures::moved_cpus, 0),
                or_dash(self.sum(engine).decision_times.p99()),
                or_dash(self.sum(engine).plan_times.p99()),
            ]);
        }
        text + &aligned(&rows)
    }

    /// Aligned, excess caches and excess nodes; under a policy that refuses containers: aligned,
    /// refusals and use.
    fn cell(&self, figures: &Figures) -> String {
        if self.mix.policy.is_some() {
            let refused = figures.refused_with_enough();
            format!("{:.1} refused {refused:.2} use {:.1}", figures.aligned(), figures.used())
        } else {
            let caches = figures.excess_caches();
            let nodes = figures.excess_nodes();
            format!("{:.1}/{caches:.3}/{nodes:.3}", figures.aligned())
        }
    }

    /// The mean over the machines where an engine has a choice.
    fn mean(&self, engine: usize, of: fn(&Figures) -> f64) -> f64 {
        let divided = self.machines.iter().zip(&self.sums).filter(|(one, _)| one.is_divided());
        let values: Vec<f64> = divided.map(|(_, row)| of(&row[engine])).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// The sum over all machines.
    fn sum(&self, engine: usize) -> Figures {
        let mut sum = Figures::default();
        for row in &self.sums {
            sum += &row[engine];
        }
        sum
    }
}

/// Columns of equal width.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The last line, about the engine `compact` with the mix `mixed`: means over machines.
#[derive(Default)]
pub(crate) struct Summary {
    /// Aligned and excess nodes, by name.
    quality: BTreeMap<String, String>,
    /// Times of decisions without moves.
    decisions: Times,
    /// Times of plans, with both budgets.
    plans: Times,
}

impl Summary {
    /// The keys on the line; `moves` are at a load of 95 %.
    const NAMES: [&str; 4] = ["compact80", "compact95", "moves10", "moves20"];

    pub(crate) fn add(&mut self, cells: &Cells<'_>) {
        for (engine, name) in cells.engines.iter().map(|engine| engine.name).enumerate() {
            let key = match name {
                "compact" => format!("compact{}", cells.load),
                "compact+10" if cells.load == 95 => "moves10".to_owned(),
                "compact+20" if cells.load == 95 => "moves20".to_owned(),
                _ => continue,
            };
            let aligned = cells.mean(engine, Figures::aligned);
            let nodes = cells.mean(engine, Figures::excess_nodes);
            self.quality.insert(key, format!("{aligned:.1}/{nodes:.3}"));
            let sum = cells.sum(engine);
            if name == "compact" {
                self.decisions += &sum.decision_times;
            } else {
                self.plans += &sum.plan_times;
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in Summary::NAMES {
            write!(f, "{name}={} ", self.quality.get(name).map_or("-", String::as_str))?;
        }
        let plans = self.plans.p99().map(|micros| micros.div_ceil(1000));
        write!(f, "us-p99={} plan-ms-p99={}", or_dash(self.decisions.p99()), or_dash(plans))
    }
}

fn or_dash(number: Option<usize>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}
