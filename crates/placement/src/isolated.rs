//! CPUs that the kernel was booted to isolate (`isolcpus=`). Engines know nothing of them: an
//! engine gets a request for the part of the machine in which the container may run, and the rest
//! of the machine counts as reserved.

use super::engine::{Engine, Placement, Weighed};
use super::rejection::Rejection;
use super::request::Request;
use super::settings::IsolatedCpus;
use cpuset::CpuSet;
use topology::Topology;

/// The answer for the first part of the machine that can meet the request, or the rejection for the
/// last part. The container keeps `held` whether these CPUs are isolated or not.
pub(super) fn first_that_fits<T>(
    machine: &Topology,
    request: &Request,
    held: &CpuSet,
    answer: impl Fn(&Request) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    if is_whole(machine, request) {
        return answer(request);
    }
    let isolated = machine.isolated();
    let others = machine.online() - isolated;
    let held = request.footprint(machine, held);
    let answer_in = |part: CpuSet| answer(&within(machine, request, &(part | held)));
    match request.settings.isolated {
        IsolatedCpus::Exclude => answer_in(others),
        IsolatedCpus::Prefer => {
            answer_in(isolated).or_else(|_| answer_in(others)).or_else(|_| answer(request))
        }
        IsolatedCpus::Require => {
            let assignable = isolated & (machine.online() - request.settings.reserved);
            let room = ((request.free | request.reuse.cpus) & assignable) | held;
            // An engine's rejection would not say that isolated CPUs are lacking.
            if room.len() < request.cpus {
                let all = (assignable | held).len();
                return Err(Rejection::not_enough_isolated(request.cpus, room.len(), all));
            }
            answer_in(isolated)
        }
    }
}

/// What the engine considered in the part of the machine whose answer was taken.
pub(super) fn explain(
    machine: &Topology,
    request: &Request,
    placement: Option<&Placement>,
    engine: &dyn Engine,
) -> Weighed {
    if is_whole(machine, request) {
        return engine.explain(machine, request, placement);
    }
    let isolated = machine.isolated();
    let others = machine.online() - isolated;
    let taken = placement.map(|placement| placement.cpus & isolated).unwrap_or_default();
    let (part, why) = match request.settings.isolated {
        IsolatedCpus::Exclude => (others, "isolated CPUs are for containers that ask for them"),
        IsolatedCpus::Require => (isolated, "isolated CPUs only"),
        IsolatedCpus::Prefer => match placement {
            Some(placement) if taken == placement.cpus => {
                (isolated, "all of its CPUs are isolated")
            }
            Some(_) if taken.is_empty() => (others, "too few isolated CPUs were free, it has none"),
            Some(_) => (machine.online(), "too few CPUs of one kind were free, it has both"),
            None => (machine.online(), "isolated CPUs first"),
        },
    };
    let mut weighed = engine.explain(machine, &within(machine, request, &part), placement);
    if placement.is_some() {
        weighed.reasons.push(format!("isolatedCPUs {}: {why}.", request.settings.isolated.name()));
    }
    weighed
}

/// Whether isolated CPUs make no difference to this request.
fn is_whole(machine: &Topology, request: &Request) -> bool {
    machine.isolated().is_empty() && request.settings.isolated != IsolatedCpus::Require
}

/// This request, limited to a part of the machine.
fn within(machine: &Topology, request: &Request, part: &CpuSet) -> Request {
    let mut narrowed = *request;
    narrowed.free &= *part;
    narrowed.reuse = request.reuse.within(*part);
    narrowed.settings.reserved |= machine.online() - *part;
    narrowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_options::Smt;
    use crate::{
        DeviceNodes, EngineKind, Options, PlacementSettings, PodDemand, PodOptions, Reuse, Running,
        explain, place, resize,
    };
    use machines::synthetic::Machine;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn machine(isolated: &str) -> Topology {
        let isolated = set(isolated);
        Machine { cores: 8, threads: 2, isolated, ..Machine::default() }.topology().unwrap()
    }

    /// One request for each engine; CPUs 0-1 are reserved.
    fn requests(isolated: IsolatedCpus, cpus: usize, free: &str) -> impl Iterator<Item = Request> {
        let free = set(free);
        EngineKind::ALL.into_iter().map(move |engine| Request {
            cpus,
            free,
            reuse: Reuse::NONE,
            promised: 0,
            pod: None::<PodDemand>,
            pod_options: PodOptions::NONE,
            devices: DeviceNodes::NONE,
            memory: None,
            settings: PlacementSettings {
                engine,
                reserved: set("0-1"),
                isolated,
                ..PlacementSettings::default()
            },
        })
    }

    fn shown(answer: Result<CpuSet, Rejection>) -> String {
        answer.map_or_else(|why| why.to_string(), |cpus| cpus.to_string())
    }

    #[track_caller]
    fn check(isolated: IsolatedCpus, cpus: usize, free: &str, expect: &str) {
        for request in requests(isolated, cpus, free) {
            let answer = place(&machine("10-15"), &request).map(|placement| placement.cpus);
            assert_eq!(shown(answer), expect, "{:?}", request.settings.engine);
        }
    }

    #[test]
    fn isolated_cpus_are_given_out_as_configured() {
        use IsolatedCpus::{Exclude, Prefer, Require};
        check(Exclude, 2, "2-15", "2-3");
        check(Exclude, 8, "2-15", "2-9");
        check(Prefer, 4, "2-15", "10-13");
        check(Prefer, 8, "2-15", "2-9");
        check(Prefer, 14, "2-15", "2-15");
        check(Require, 6, "2-15", "10-15");
        let few = "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=9, available=8, which is unexpected";
        check(Exclude, 9, "2-15", few);
    }

    #[test]
    fn a_container_that_requires_isolated_cpus_is_refused_without_them() {
        let refusal = |cpus, free, all, advice| {
            format!(
                "IsolatedCPUsError: Isolated CPUs Error: isolated cpus required: requested {cpus} cpus, free isolated cpus = {free}, isolated cpus of the node = {all}; {advice}"
            )
        };
        let wait = "wait until other containers leave some";
        let more = "request fewer, boot the node with more (isolcpus=), or do not require them";
        check(IsolatedCpus::Require, 4, "2-12", &refusal(4, 3, 6, wait));
        check(IsolatedCpus::Require, 7, "2-15", &refusal(7, 6, 6, more));
        for request in requests(IsolatedCpus::Require, 1, "2-15") {
            let answer = place(&machine(""), &request).map(|placement| placement.cpus);
            assert_eq!(shown(answer), refusal(1, 0, 0, more));
        }
    }

    /// CPU 1 is reserved and isolated.
    #[test]
    fn reserved_cpus_are_never_given_out_as_isolated_ones() {
        for request in requests(IsolatedCpus::Require, 2, "0-15") {
            let answer = place(&machine("1-2,7"), &request).map(|placement| placement.cpus);
            assert_eq!(shown(answer), "2,7");
        }
    }

    /// To a container without isolated CPUs, a core with one counts like a core with a reserved
    /// CPU.
    #[test]
    fn a_core_is_whole_only_if_all_or_none_of_its_cpus_are_isolated() {
        for (isolated, expect) in [
            (IsolatedCpus::Exclude, "4-5"),
            (IsolatedCpus::Require, "6-7"),
            (IsolatedCpus::Prefer, "6-7"),
        ] {
            for mut request in requests(isolated, 2, "2-7") {
                request.settings.options = Options { full_pcpus_only: true, ..Options::default() };
                let answer = place(&machine("3,6-7"), &request).map(|placement| placement.cpus);
                assert_eq!(shown(answer), expect);
                let pod_options = PodOptions { smt: Some(Smt::Isolate), ..PodOptions::NONE };
                let request = Request { cpus: 1, pod_options, ..request };
                let answer = place(&machine("3,6-7"), &request).map(|placement| placement.cpus);
                assert_eq!(shown(answer), expect.split('-').next().unwrap());
            }
        }
    }

    #[test]
    fn a_resize_keeps_isolated_cpus_and_takes_others_as_configured() {
        use IsolatedCpus::{Exclude, Prefer, Require};
        for (isolated, held, cpus, expect) in [
            (Exclude, "10-11", 3, "2,10-11"),
            (Exclude, "10-13", 2, "10-11"),
            (Prefer, "10-11", 3, "10-12"),
            (Prefer, "8-9", 3, "8-10"),
            (Require, "2-3", 4, "2-3,10-11"),
        ] {
            for request in requests(isolated, cpus, "2-15") {
                let answer = resize(&machine("10-15"), &request, &Running::Exclusive(set(held)));
                assert_eq!(
                    shown(answer),
                    expect,
                    "{isolated:?} {held} {:?}",
                    request.settings.engine
                );
            }
        }
    }

    #[test]
    fn an_explanation_says_whether_isolated_cpus_were_used() {
        for (isolated, cpus, expect) in [
            (
                IsolatedCpus::Exclude,
                2,
                "exclude: isolated CPUs are for containers that ask for them",
            ),
            (IsolatedCpus::Prefer, 2, "prefer: all of its CPUs are isolated"),
            (IsolatedCpus::Prefer, 8, "prefer: too few isolated CPUs were free, it has none"),
            (IsolatedCpus::Prefer, 10, "prefer: too few CPUs of one kind were free, it has both"),
            (IsolatedCpus::Require, 2, "require: isolated CPUs only"),
        ] {
            for request in requests(isolated, cpus, "2-15") {
                let machine = machine("10-15");
                let placement = place(&machine, &request).unwrap();
                let weighed = explain(&machine, &request, Some(&placement));
                assert_eq!(weighed.reasons.last(), Some(&format!("isolatedCPUs {expect}.")));
                let taken: usize = weighed.uncores.iter().map(|cache| cache.taken).sum();
                assert_eq!(taken, cpus);
            }
        }
    }
}
