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
        let amounts = [&self.system.cpu, &self.kube.cpu];
        self.list.is_none() && amounts.into_iter().flatten().all(|amount| amount.milli == 0)
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

    /// The list, or without one the sum of the amounts.
    ///
    /// # Errors
    /// If this machine does not have so many CPUs, or not these.
    pub(super) fn on(
        &self,
        topology: &Topology,
        source: &Source,
    ) -> Result<Reservation, ConfigError> {
        let Some(list) = self.list else { return self.amount_on(topology, source) };
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

    /// A kubelet does not start either if more is reserved than there is.
    fn amount_on(&self, topology: &Topology, source: &Source) -> Result<Reservation, ConfigError> {
        let online = topology.online().len();
        let exceeds = |milli: u64| milli > online as u64 * 1000;
        let mut sum: u64 = 0;
        for (field, amount) in [(SYSTEM, &self.system.cpu), (KUBE, &self.kube.cpu)] {
            let Some(Amount { text, milli }) = amount else { continue };
            if exceeds(*milli) {
                // A plain number is often meant as thousandths.
                let plain = text.bytes().all(|byte| byte.is_ascii_digit());
                let hint = if plain { format!(" (did you mean {text}m?)") } else { String::new() };
                let why = format!("{text:?} is more CPUs than this machine has ({online}){hint}");
                return Err(source.at(field, why));
            }
            sum = sum.saturating_add(*milli);
        }
        if exceeds(sum) {
            let why = format!(
                "with both amounts, {sum} thousandths of a CPU are reserved, more than this machine has ({online} CPUs)"
            );
            return Err(source.at(self.field(), why));
        }
        Ok(Reservation::amount(sum))
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
