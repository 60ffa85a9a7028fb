//! `reservedSystemCPUs`, `systemReserved` and `kubeReserved`: the CPUs that are never exclusive, as a
//! list or as an amount, and the memory that is not for containers.

use super::given::Given;
use super::memory::{MEMORY, memory_amount};
use super::source::{ConfigError, Mistakes, Source};
use super::values::{CpuList, Pairs};
use cpuset::CpuSet;
use placement::Reservation;
use placement::memory_manager::WrittenAmount;
use quantity::Quantity;
use topology::Topology;

pub(super) const LIST: &str = "reservedSystemCPUs";
pub(super) const SYSTEM: &str = "systemReserved";
pub(super) const KUBE: &str = "kubeReserved";

pub(super) const CPU: &str = "cpu";

/// The resources that a kubelet can reserve. Only `cpu` and `memory` count here.
const RESOURCES: [&str; 4] = [CPU, MEMORY, "ephemeral-storage", "pid"];

/// The list takes precedence, as in the kubelet.
#[derive(Debug, Clone, Default)]
pub(super) struct Reserved {
    pub(super) list: Option<CpuSet>,
    pub(super) system: Amounts,
    pub(super) kube: Amounts,
}

/// Amounts of resources. An override replaces those that it has.
#[derive(Debug, Clone, Default)]
pub(super) struct Amounts {
    cpu: Option<Amount>,
    memory: WrittenAmount,
}

#[derive(Debug, Clone)]
struct Amount {
    text: String,
    /// In thousandths of a CPU.
    milli: u64,
}

pub(super) fn read_list(given: &Given<'_>, list: &mut Option<CpuSet>) -> Result<(), Mistakes> {
    // As for the kubelet, an empty text is no list.
    if given.text()?.is_empty() {
        return Ok(());
    }
    let CpuList(cpus) = given.parse()?;
    *list = Some(cpus);
    Ok(())
}

pub(super) fn read_amounts(given: &Given<'_>, amounts: &mut Amounts) -> Result<(), Mistakes> {
    let texts: Pairs = given.parse()?;
    if let Some(name) = texts.names().find(|name| !RESOURCES.contains(name)) {
        return Err(given.wrong(wording::unknown(name, &RESOURCES)).into());
    }
    if let Some(text) = texts.get(CPU) {
        let milli = parse_milli_cpus(text).map_err(|why| given.wrong(why))?;
        amounts.cpu = Some(Amount { text: text.to_owned(), milli });
    }
    if let Some(text) = texts.get(MEMORY) {
        amounts.memory = memory_amount(text).map_err(|why| given.wrong(why))?;
    }
    Ok(())
}

impl Reserved {
    /// Whether no CPU is reserved on any machine.
    pub(super) fn is_nothing(&self) -> bool {
        self.list.is_none() && self.amount() == 0
    }

    /// The memory of both amounts.
    pub(super) fn memory(&self) -> WrittenAmount {
        self.system.memory.plus(self.kube.memory)
    }

    /// The field that says which CPUs are reserved.
    pub(super) fn field(&self) -> &'static str {
        if self.list.is_some() {
            LIST
        } else if self.system.cpu.is_some() {
            SYSTEM
        } else {
            KUBE
        }
    }

    /// The list, or without one the sum of the amounts, at most all CPUs of the machine.
    ///
    /// # Errors
    /// If this machine does not have the CPUs of the list.
    pub(super) fn on(
        &self,
        topology: &Topology,
        source: &Source,
    ) -> Result<Reservation, ConfigError> {
        let Some(list) = self.list else {
            let all = topology.online().len() as u64 * 1000;
            return Ok(Reservation::amount(self.amount().min(all)));
        };
        let absent = list - topology.online();
        if !absent.is_empty() {
            let offline = topology.offline().iter().any(|cpu| absent.contains(cpu.id));
            let what = if offline {
                wording::agree(
                    absent,
                    "does not exist or is offline",
                    "do not exist or are offline",
                )
            } else {
                wording::agree(absent, "does not exist", "do not exist")
            };
            let cpus = wording::cpus(absent);
            let why = format!("{cpus} {what}; online CPUs: {}", topology.online());
            return Err(source.at(self.field(), why));
        }
        Ok(Reservation::list(list))
    }

    /// In thousandths of a CPU.
    fn amount(&self) -> u64 {
        let amounts = [&self.system.cpu, &self.kube.cpu].into_iter().flatten();
        amounts.fold(0, |sum, amount| sum.saturating_add(amount.milli))
    }

    /// How many CPUs are reserved, if these are all of the machine or more; `None` if one is left to
    /// assign.
    pub(super) fn takes_all(&self, topology: &Topology) -> Option<String> {
        let online = topology.online().len();
        if let Some(list) = self.list {
            let takes_all = topology.online().is_subset(&list);
            return takes_all.then(|| format!("all CPUs of this machine ({list}) are reserved"));
        }
        let cpus = self.amount().div_ceil(1000);
        if cpus < online as u64 {
            return None;
        }
        // An amount without a unit is often meant as thousandths.
        let amounts = [&self.system.cpu, &self.kube.cpu].into_iter().flatten();
        let mut unlikely = amounts.filter(|Amount { text, .. }| {
            text.len() >= 3 && text.bytes().all(|byte| byte.is_ascii_digit())
        });
        let hint = match unlikely.next() {
            Some(Amount { text, .. }) => format!(" (did you mean {text}m?)"),
            None => String::new(),
        };
        Some(format!("{cpus} CPUs are reserved{hint}, and this machine has {online}"))
    }
}

/// A Kubernetes quantity of CPUs, in thousandths of a CPU. More than fit into the type is an error.
fn parse_milli_cpus(text: &str) -> Result<u64, String> {
    let milli = Quantity::parse(text).ok().map(Quantity::milli);
    milli
        .filter(|milli| *milli < u64::MAX)
        .ok_or_else(|| format!("invalid amount of CPUs {text:?}: expected one like 2, 1.5 or 500m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_quantity_of_cpus() {
        for (text, milli) in [("2", 2000), ("1.5", 1500), ("500m", 500), ("0.0001", 1), ("0", 0)] {
            assert_eq!(parse_milli_cpus(text), Ok(milli), "{text}");
        }
        for text in ["", "m", "-1", "two", "99999999999999999999", "18446744073709551615"] {
            assert!(parse_milli_cpus(text).is_err(), "{text:?}");
        }
    }
}
