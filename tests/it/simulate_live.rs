//! `simulate` decides as a daemon does that gets the same events: otherwise a simulation would be
//! worthless.
//!
//! Each event of a simulation is also sent to a daemon with a separate ledger, machine and state
//! file, and the two answers are compared. `ARRIVALS=100000 cargo test --test it simulate_live`
//! simulates that many pods on the large machine.

use crate::support::events::local;
use crate::support::observed;
use crate::support::observed::ObservedDaemon;
use config::Config;
use cpuctl::machine;
use edge::Response;
use ledger::{Call, Ledger};
use machines::presets::preset;
use machines::synthetic::Machine;
use placement::Rejection;
use simulate::{Happening, NoRoom, StepObserver, Time, run, table};
use std::fmt::Write;
use std::thread;
use tokio::sync::mpsc;

/// The default number of pods on the large machine, which take some seconds.
const FEW: usize = 2_000;

/// Sends each call to the simulation's ledger, with the answer.
struct Recorder(mpsc::Sender<(Call, Result<Response, Rejection>)>);

impl StepObserver for Recorder {
    fn see(&mut self, _: Time, _: &Ledger, happening: &Happening<'_>) {
        let call_and_answer = match happening {
            Happening::Decided(admission, decided) => {
                let response = decided.as_ref().map(|decision| Response {
                    setting: decision.setting(),
                    updates: decision.due.updates.clone(),
                    ..Response::default()
                });
                ((*admission).clone().into(), response.map_err(Clone::clone))
            }
            Happening::Recorded(event, updates) => {
                let response = Response { updates: updates.to_vec(), ..Response::default() };
                ((*event).clone().into(), Ok(response))
            }
            _ => return,
        };
        assert!(self.0.blocking_send(call_and_answer).is_ok(), "the comparison has ended");
    }
}

/// A table of pods of all kinds that arrive and depart. `largest` bounds their CPUs, and `stay`
/// their seconds beyond the first 20.
fn busy(pods: usize, (largest, stay): (u64, u64)) -> String {
    let mut text = "pod,container,kind,cpu,limit,arrive,depart\n".to_owned();
    // A Lehmer generator.
    let mut state = 48_271u64;
    let mut next = |n: u64| {
        state = state * 48_271 % 2_147_483_647;
        state % n
    };
    for pod in 0..pods {
        let arrive = pod as u64 * 10 + next(10);
        let depart = arrive + 20 + next(stay);
        let line = |text: &mut String, container: &str, kind: &str, cpu: String, limit: &str| {
            let _ = writeln!(text, "p{pod},{container},{kind},{cpu},{limit},{arrive},{depart}");
        };
        match next(10) {
            0..=4 => {
                let cpus = 1 + next(largest);
                line(&mut text, "main", "app", cpus.to_string(), &cpus.to_string());
            }
            5 | 6 => {
                line(&mut text, "prepare", "init", "2".into(), "2");
                line(&mut text, "main", "app", "4".into(), "4");
                line(&mut text, "helper", "app", "1500m".into(), "1500m");
            }
            7 => {
                line(&mut text, "proxy", "sidecar", "1".into(), "1");
                line(&mut text, "main", "app", "6".into(), "6");
            }
            8 => line(&mut text, "main", "app", "500m".into(), "2"),
            _ => line(&mut text, "main", "app", String::new(), ""),
        }
    }
    text
}

/// Counts of equal answers.
#[derive(Debug, Default)]
struct Equal {
    events: usize,
    exclusive: usize,
    refused: usize,
}

/// Simulates, sends the same events to a daemon, and compares the answers.
async fn compare(machine: &Machine, config: &str, workload: &str) -> Equal {
    let config = format!("{}{config}", observed::CONFIG);
    let daemon = ObservedDaemon::start_on(machine, &config);
    daemon.connect_runtime(1).await;
    // Read from the same files as the daemon's.
    let topology = machine::load(daemon.paths.sysfs_root.to_str().unwrap()).unwrap().topology;
    let settings = Config::parse("test", &config).unwrap().resolve(&topology).unwrap();
    let mut ledger = Ledger::new(topology, settings, Vec::new());
    let workload = table::parse(workload).unwrap();
    let (sender, mut calls) = mpsc::channel(1024);
    let simulation = thread::spawn(move || {
        run(&mut ledger, &workload, NoRoom::Wait, None, &mut Recorder(sender));
    });
    let mut equal = Equal::default();
    while let Some((event, simulated)) = calls.recv().await {
        let number = equal.events;
        let live = daemon.event(event.clone()).await;
        match (&live, &simulated) {
            (Ok(live), Ok(simulated)) => assert_eq!(live, simulated, "{number}: {event:?}"),
            (Err(live), Err(simulated)) => {
                assert_eq!(live.0, simulated.to_string(), "{number}: {event:?}")
            }
            _ => panic!("{number}: {event:?}: live {live:?}, simulated {simulated:?}"),
        }
        let setting = simulated.as_ref().ok().and_then(|response| response.setting.clone());
        equal.events += 1;
        equal.exclusive += usize::from(setting.is_some_and(|setting| setting.is_exclusive()));
        equal.refused += usize::from(simulated.is_err());
    }
    simulation.join().unwrap();
    println!("{equal:?}");
    equal
}

#[tokio::test]
async fn simulated_decisions_equal_those_of_a_daemon() {
    let mut refused = 0;
    for (machine, config) in [
        (
            preset("kep-4800-smt").unwrap(),
            "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n",
        ),
        (
            "pack:2 numa:2 l3:2 core:4 pu:2".parse::<Machine>().unwrap(),
            "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n",
        ),
        (preset("core-12850hx").unwrap(), "cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n"),
    ] {
        local(async {
            let equal = compare(&machine, config, &busy(250, (12, 200))).await;
            assert!(equal.exclusive > 50, "{equal:?}");
            refused += equal.refused;
        })
        .await;
    }
    assert!(refused > 0, "no refusal was compared");
}

/// Two sockets, four NUMA nodes, 24 uncore caches, and for a long time more pods than fit.
#[tokio::test]
async fn simulated_decisions_equal_those_of_a_daemon_on_a_large_machine() {
    let pods = std::env::var("ARRIVALS").map_or(FEW, |pods| pods.parse().unwrap());
    let config = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n\
                  topologyManagerPolicy: restricted\n";
    local(async {
        let machine = preset("epyc-9654-nps2").unwrap();
        let equal = compare(&machine, config, &busy(pods, (48, 700))).await;
        assert!(equal.exclusive > pods / 2 && equal.refused > 0, "{equal:?}");
    })
    .await;
}
