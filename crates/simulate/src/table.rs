//! Reads pods from a table: CSV with a line per container, which has the arrival and departure of
//! its pod.
//!
//! The first line names the columns, in any order. `pod`, `cpu` and `arrive` are required;
//! `namespace`, `container`, `kind`, `limit`, `memory`, `qos` and `depart` are optional.

use crate::workload::{Amounts, ContainerSpec, PodSpec, Time, Workload, WorkloadError, qos};
use ledger::{Annotations, ContainerKind, Qos};
use placement::memory_manager::MemoryKind;
use quantity::Quantity;
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    namespace: String,
    pod: String,
    #[serde(default)]
    container: String,
    #[serde(default)]
    kind: String,
    cpu: String,
    #[serde(default)]
    limit: String,
    /// Request and limit.
    #[serde(default)]
    memory: String,
    #[serde(default)]
    qos: String,
    arrive: String,
    #[serde(default)]
    depart: String,
}

/// A pod from the lines so far.
struct Collected {
    pod: PodSpec,
    amounts: Vec<Amounts>,
    /// The class in the table, if given.
    qos: Option<Qos>,
    /// The first line of the pod.
    place: String,
}

pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let mut pods: Vec<Collected> = Vec::new();
    // A name with another arrival is another pod.
    let mut known: HashMap<(String, String, Time), usize> = HashMap::new();
    let header = reader.headers().map_err(|error| form("line 1", error))?.clone();
    let limited = header.iter().any(|column| column == "limit");
    for record in reader.records() {
        let record = record.map_err(|error| form("the table", error))?;
        let place = format!("line {}", record.position().map_or(0, csv::Position::line));
        let mut line: Line =
            record.deserialize(Some(&header)).map_err(|error| form(&place, error))?;
        if !limited {
            line.limit.clone_from(&line.cpu);
        }
        let (one, its_amounts) = container(&place, &line)?;
        if line.pod.is_empty() {
            return Err(form(&place, "pod is empty"));
        }
        let arrive = time(&place, "arrive", &line.arrive)?;
        let depart = match line.depart.as_str() {
            "" => None,
            text => Some(time(&place, "depart", text)?),
        };
        if depart.is_some_and(|depart| depart < arrive) {
            return Err(form(&place, "depart is before arrive"));
        }
        let namespace = or_else(&line.namespace, "default");
        let class = class_of(&place, &line.qos)?;
        let name = (namespace.clone(), line.pod.clone(), arrive);
        let at = *known.entry(name).or_insert_with(|| {
            let pod = PodSpec {
                namespace,
                name: line.pod.clone(),
                qos: Qos::Unknown,
                annotations: Annotations::default(),
                containers: Vec::new(),
                arrive,
                depart,
            };
            let place = place.clone();
            pods.push(Collected { pod, amounts: Vec::new(), qos: class, place });
            pods.len() - 1
        });
        let Collected { pod, amounts, qos, .. } = &mut pods[at];
        if pod.depart != depart || *qos != class {
            let why = format!("depart or qos differs from an earlier line of pod {}", pod.name);
            return Err(form(&place, why));
        }
        if pod.containers.iter().any(|other| other.name == one.name) {
            let why = format!("two containers of pod {} are named {}", pod.name, one.name);
            return Err(form(&place, why));
        }
        pod.containers.push(one);
        amounts.push(its_amounts);
    }
    one_at_a_time(&pods)?;
    let finish = |Collected { pod, amounts, qos: class, .. }| PodSpec {
        qos: class.unwrap_or_else(|| qos(&amounts)),
        ..pod
    };
    Workload::new(pods.into_iter().map(finish).collect(), Vec::new())
}

/// Checks that a name arrives again only after the departure of the last pod of this name.
fn one_at_a_time(pods: &[Collected]) -> Result<(), WorkloadError> {
    let mut until: HashMap<(&str, &str), Option<Time>> = HashMap::new();
    let mut ordered: Vec<&Collected> = pods.iter().collect();
    ordered.sort_by_key(|one| one.pod.arrive);
    for Collected { pod, place, .. } in ordered {
        let last = until.insert((&pod.namespace, &pod.name), pod.depart);
        if last.is_some_and(|depart| depart.is_none_or(|depart| depart > pod.arrive)) {
            return Err(form(place, format!("pod {} is still there at its arrival", pod.name)));
        }
    }
    Ok(())
}

/// The container of a line. Its memory counts as equal to CPU for the class of its pod, so that CPU
/// alone decides whether a pod is Guaranteed.
fn container(place: &str, line: &Line) -> Result<(ContainerSpec, Amounts), WorkloadError> {
    let quantity = |what: &str, text: &str| match text {
        "" => Ok(Quantity::default()),
        text => Quantity::parse(text).map_err(|why| form(place, format!("{what}: {why}"))),
    };
    let cpu = quantity("cpu", &line.cpu)?;
    let limit = quantity("limit", &line.limit)?;
    let memory = quantity("memory", &line.memory)?.whole();
    let request = if line.cpu.is_empty() { limit } else { cpu };
    let kind = match line.kind.as_str() {
        "" | "app" => ContainerKind::App,
        "init" => ContainerKind::Init,
        "sidecar" => ContainerKind::RestartableInit,
        other => {
            return Err(form(
                place,
                format!("unknown kind {other:?}: expected app, init or sidecar"),
            ));
        }
    };
    let one = ContainerSpec {
        name: or_else(&line.container, "main"),
        kind,
        request: request.milli(),
        limit: limit.milli(),
        memory: if memory > 0 { [(MemoryKind::Memory, memory)].into() } else { Default::default() },
    };
    let amounts = Amounts { cpu: (request, limit), memory: (request, limit) };
    amounts.check().map_err(|why| form(place, why))?;
    Ok((one, amounts))
}

fn class_of(place: &str, text: &str) -> Result<Option<Qos>, WorkloadError> {
    Ok(Some(match text {
        "" => return Ok(None),
        "Guaranteed" => Qos::Guaranteed,
        "Burstable" => Qos::Burstable,
        "BestEffort" => Qos::BestEffort,
        other => {
            let why =
                format!("unknown qos {other:?}: expected Guaranteed, Burstable or BestEffort");
            return Err(form(place, why));
        }
    }))
}

/// Reads a time in seconds, with at most three digits after the point.
pub fn seconds(text: &str) -> Result<Time, String> {
    let bad = || format!("invalid time {text:?}: expected seconds like 12 or 0.5");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return Err(bad());
    }
    let whole: Time = whole.parse().map_err(|_| bad())?;
    let milli: Time = format!("{fraction:0<3}").parse().map_err(|_| bad())?;
    whole.checked_mul(1000).and_then(|whole| whole.checked_add(milli)).ok_or_else(bad)
}

fn time(place: &str, what: &str, text: &str) -> Result<Time, WorkloadError> {
    seconds(text).map_err(|why| form(place, format!("{what}: {why}")))
}

fn or_else(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}

fn form(place: &str, why: impl ToString) -> WorkloadError {
    WorkloadError::Form { place: place.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_pods_in_the_order_of_arrival() {
        let text = "pod,container,kind,cpu,limit,arrive,depart\n\
                    late,,,2,2,10,\n\
                    # a remark\n\
                    db,main,,4,4,0.5,20\n\
                    db,first,init,1,1,0.5,20\n\
                    web,,,500m,,1,2\n\
                    idle,,,,,1,2\n";
        let workload = parse(text).unwrap();
        let pods: Vec<String> = workload
            .pods
            .iter()
            .map(|pod| {
                format!(
                    "{} {:?} {} {:?} {}",
                    pod.name,
                    pod.qos,
                    pod.arrive,
                    pod.depart,
                    pod.containers.len()
                )
            })
            .collect();
        assert_eq!(
            pods,
            [
                "db Guaranteed 500 Some(20000) 2",
                "web Burstable 1000 Some(2000) 1",
                "idle BestEffort 1000 Some(2000) 1",
                "late Guaranteed 10000 None 1"
            ]
        );
        assert_eq!(workload.pods[0].containers[0].name, "first", "init containers come first");
        let again = "pod,cpu,arrive,depart\na,2,0,5\na,2,5,9\n";
        assert_eq!(parse(again).unwrap().pods.len(), 2, "one goes when the next comes");
        let memory = parse("pod,cpu,memory,arrive\na,2,1Ki,0\nb,2,,0\n").unwrap();
        let memory = [0, 1].map(|at| memory.pods[at].containers[0].memory.clone());
        assert_eq!(memory[0].get(&MemoryKind::Memory), Some(&1024));
        assert!(memory[1].is_empty());
        let short = parse("pod,cpu,arrive\na,2,0\n").unwrap();
        assert_eq!((short.pods[0].qos, short.pods[0].depart), (Qos::Guaranteed, None));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        for (text, expect) in [
            ("pod,cpu,arrive\n", "no pods found"),
            ("pod,cpu\na,2\n", "missing field `arrive`"),
            ("pod,cpu,arrive,size\na,2,0,1\n", "unknown field `size`"),
            ("pod,cpu,arrive\na,two,0\n", "line 2: cpu: invalid quantity \"two\""),
            ("pod,cpu,arrive\na,2,-1\n", "line 2: arrive: invalid time \"-1\""),
            ("pod,cpu,arrive,depart\na,2,5,4\n", "line 2: depart is before arrive"),
            ("pod,cpu,arrive\na,2,5\na,2,5\n", "line 3: two containers of pod a are named main"),
            ("pod,container,cpu,arrive,depart\na,x,2,5,6\na,y,2,5,7\n", "line 3: depart or qos"),
            ("pod,cpu,arrive\n,2,5\n", "line 2: pod is empty"),
            ("pod,cpu,limit,arrive\na,2,1,5\n", "line 2: cpu: the request exceeds the limit"),
            ("pod,cpu,arrive,depart\na,2,5,9\na,2,1,6\n", "line 2: pod a is still there"),
            ("pod,cpu,arrive\na,2,5\na,2,6\n", "line 3: pod a is still there at its arrival"),
            ("pod,cpu,arrive,kind\na,2,5,batch\n", "line 2: unknown kind \"batch\""),
            ("pod,cpu,arrive,qos\na,2,5,Best\n", "line 2: unknown qos \"Best\""),
            ("pod,cpu,arrive\na,2\n", "found record with 2 fields"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}\n{expect}");
        }
    }
}
