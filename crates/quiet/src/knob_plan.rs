//! What the latency knobs of all containers mean for the files of this node.

use crate::Roots;
use crate::goal::{Goal, QuietContainer};
use crate::knobs::{CPUS, GOVERNOR, LATENCY, is_knob};
use crate::originals::{Judgement, Originals, Setting, SettingValue};
use crate::planned::{Planned, back};
use kernel::Kernel;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// A knob that a container asks for and cannot have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Denied {
    /// Its namespace, pod and name.
    pub container: String,
    /// A sentence.
    pub why: String,
}

/// What the knobs of all containers mean on this node.
#[derive(Debug, Default)]
pub(crate) struct KnobPlan {
    pub(crate) planned: Vec<Planned>,
    pub(crate) denied: BTreeSet<Denied>,
    /// Files that this node does not have.
    pub(crate) unavailable: BTreeSet<&'static str>,
}

/// Plans all knobs, and the return of those that no container asks for any more.
pub(crate) fn plan(
    kernel: &dyn Kernel,
    roots: &Roots,
    goal: &Goal,
    originals: &mut Originals,
) -> KnobPlan {
    let sys = kernel.resolve(&roots.sys).unwrap_or_else(|_| roots.sys.clone());
    let mut planner = Planner { kernel, sys, targets: BTreeMap::new(), plan: KnobPlan::default() };
    for container in &goal.containers {
        for cpu in &container.cpus {
            planner.add(container, cpu);
        }
    }
    let Planner { sys, targets, mut plan, .. } = planner;
    for (setting, (container, value)) in &targets {
        let path = sys.join(setting);
        let observed = match read(kernel, &path) {
            Ok(observed) => observed,
            Err(error) => {
                let why = format!("cannot read {}: {error}", path.display());
                plan.denied.insert(Denied { container: (*container).to_owned(), why });
                continue;
            }
        };
        let setting = Setting::Knob(setting.clone());
        let target = SettingValue::Text(value.clone());
        let Judgement { original, is_drift } = originals.judge(&setting, &observed, false);
        plan.planned.push(Planned {
            setting,
            path,
            observed,
            target,
            original,
            is_drift,
            names: vec![],
        });
    }
    for setting in originals.settings() {
        if let Setting::Knob(path) = setting.clone()
            && !targets.contains_key(&path)
        {
            let path = sys.join(path);
            let observed = read(kernel, &path);
            plan.planned.extend(back(path, observed, setting, originals));
        }
    }
    plan
}

struct Planner<'a> {
    kernel: &'a dyn Kernel,
    sys: PathBuf,
    /// The target value of each file, and the first container that asks for it. CPUs that share a
    /// frequency policy share its files.
    targets: BTreeMap<String, (&'a str, String)>,
    plan: KnobPlan,
}

impl<'a> Planner<'a> {
    fn add(&mut self, container: &'a QuietContainer, cpu: usize) {
        let directory = self.sys.join(format!("{CPUS}/cpu{cpu}"));
        if let Some(c_states) = container.knobs.c_states {
            self.want(container, directory.join("power"), LATENCY, c_states.word());
        }
        for (file, value) in container.knobs.frequencies() {
            if let Err(why) = self.check(&directory.join("cpufreq"), file, &value) {
                self.plan.denied.insert(Denied { container: container.name.clone(), why });
            } else {
                self.want(container, directory.join("cpufreq"), file, value);
            }
        }
    }

    fn want(
        &mut self,
        container: &'a QuietContainer,
        directory: PathBuf,
        file: &'static str,
        value: String,
    ) {
        // The directory may be a link to that of a policy.
        let path = directory.join(file);
        let Ok(path) = self.kernel.resolve(&path) else {
            self.plan.unavailable.insert(file);
            return;
        };
        let setting = path.strip_prefix(&self.sys).ok().and_then(|path| path.to_str());
        let Some(setting) = setting.filter(|path| is_knob(path)) else {
            self.plan.unavailable.insert(file);
            return;
        };
        let (owner, first) =
            self.targets.entry(setting.to_owned()).or_insert((&container.name, value.clone()));
        if *first != value {
            let why = format!("{setting} is {first} for {owner}, whose CPUs share it: not {value}");
            self.plan.denied.insert(Denied { container: container.name.clone(), why });
        }
    }

    /// Compares a value with what the files next to it allow. The kernel refuses what they leave open.
    fn check(&self, directory: &Path, file: &str, value: &str) -> Result<(), String> {
        let text = |name: &str| match read(self.kernel, &directory.join(name)) {
            Ok(SettingValue::Text(text)) => Some(text),
            _ => None,
        };
        if file == GOVERNOR {
            let Some(available) = text("scaling_available_governors") else { return Ok(()) };
            if !available.split_ascii_whitespace().any(|name| name == value) {
                return Err(format!(
                    "frequency governor {value:?} is not available: scaling_available_governors has {}",
                    wording::or_none(available)
                ));
            }
            return Ok(());
        }
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let (Some(lowest), Some(highest)) =
            (number("cpuinfo_min_freq"), number("cpuinfo_max_freq"))
        else {
            return Ok(());
        };
        match value.parse::<u64>() {
            Ok(khz) if (lowest..=highest).contains(&khz) => Ok(()),
            _ => Err(format!(
                "{file} cannot be {value} kHz: cpuinfo_min_freq and cpuinfo_max_freq allow {lowest} to {highest} kHz"
            )),
        }
    }
}

pub(crate) fn read(kernel: &dyn Kernel, path: &Path) -> io::Result<SettingValue> {
    kernel.text(path).map(SettingValue::Text)
}
