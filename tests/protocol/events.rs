//! Each event becomes the same event of the ledger, by whichever call it arrives; answers,
//! refusals, late decisions.

use crate::owner::{Received, at_once, connect, no_change, refuse, shared};
use crate::runtime::{ALL, Generation, container, cpu, of, pod};
use edge::Response;
use ledger::{
    Admission, Call, ContainerId, CpuRequest, CpuSetting, Event, MilliCpu, Qos, RequestedUpdate,
    SandboxId,
};
use nri::wire;
use protobuf::Message as _;
use std::time::Duration;
use tokio::time::Instant;
use ttrpc::proto::{Code, Request, Status};
use wire::Event as Kind;

fn code(status: &Status) -> Code {
    status.code.enum_value_or_default()
}

#[tokio::test(start_paused = true)]
async fn every_generation_reports_the_same_life_of_a_pod() {
    for generation in ALL {
        let (mut runtime, plugin) = connect(generation, no_change);
        runtime.handshake().await;
        let pod = pod("uid", 4000);
        let container = container("c", "uid", 4000);
        runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
        runtime.create(&pod, &container).await.unwrap();
        for event in [
            Kind::POST_CREATE_CONTAINER,
            Kind::START_CONTAINER,
            Kind::POST_START_CONTAINER,
            Kind::POST_UPDATE_CONTAINER,
        ] {
            runtime.report(event, &pod, Some(&container)).await.unwrap();
        }
        runtime.stop(&pod, &container).await.unwrap();
        runtime.report(Kind::REMOVE_CONTAINER, &pod, Some(&container)).await.unwrap();
        runtime.report(Kind::POST_UPDATE_POD_SANDBOX, &pod, None).await.unwrap();
        runtime.report(Kind::STOP_POD_SANDBOX, &pod, None).await.unwrap();
        runtime.report(Kind::REMOVE_POD_SANDBOX, &pod, None).await.unwrap();
        assert_eq!(runtime.fallbacks, 0, "{generation:?}");

        // Events without news for the ledger only show that the runtime has gone on.
        let received = plugin.log.received();
        let went_on = received.iter().filter(|one| matches!(one, Received::WentOn(_))).count();
        assert_eq!(went_on, 3, "{received:?}");
        let events = plugin.log.events();
        let [
            Call::Event(Event::Synchronize { .. }),
            Call::Event(Event::RunPod(run)),
            Call::Admission(Admission::Create { pod: of, container }),
            Call::Event(Event::Starting { .. }),
            Call::Event(Event::Started { pod: also, container: same }),
            Call::Event(Event::Stop(stopped)),
            Call::Event(Event::Remove(removed)),
            Call::Event(Event::StopPod(stopped_pod)),
            Call::Event(Event::RemovePod(removed_pod)),
        ] = &events[..]
        else {
            panic!("{generation:?}: {events:?}")
        };
        assert_eq!((run, also), (of, of));
        assert_eq!((&*of.uid.0, &*of.sandbox.0, of.qos), ("uid", "sandbox-uid", Qos::Guaranteed));
        assert_eq!((&*of.namespace, &*of.name), ("default", "pod-uid"));
        assert_eq!(of.budget, Some(MilliCpu(4000)));
        assert_eq!(container, same);
        assert_eq!((&*container.name, &container.sandbox), ("name-c", &of.sandbox));
        let four = Some(MilliCpu(4000));
        assert_eq!(container.cpu, CpuRequest { request: four, limit: four });
        assert_eq!((stopped, removed), (&container.id, &container.id));
        assert_eq!((stopped_pod, removed_pod), (&of.sandbox, &of.sandbox));
    }
}

/// The pod may be empty by then.
#[tokio::test(start_paused = true)]
async fn stops_and_removals_need_only_the_containers_id() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    let empty = wire::PodSandbox::new();
    let bare = wire::Container { id: "c".into(), ..Default::default() };
    runtime.stop(&empty, &bare).await.unwrap();
    runtime.report(Kind::REMOVE_CONTAINER, &empty, Some(&bare)).await.unwrap();
    let id = || ContainerId("c".into());
    assert_eq!(
        plugin.log.events()[1..],
        [Call::Event(Event::Stop(id())), Call::Event(Event::Remove(id()))]
    );
}

#[tokio::test(start_paused = true)]
async fn events_without_ids_are_ignored_and_creations_without_ids_refused() {
    for generation in ALL {
        let (mut runtime, plugin) = connect(generation, no_change);
        runtime.handshake().await;
        let pod = wire::PodSandbox::new();
        let container = wire::Container::new();
        for kind in [Kind::RUN_POD_SANDBOX, Kind::STOP_POD_SANDBOX, Kind::REMOVE_POD_SANDBOX] {
            runtime.report(kind, &pod, None).await.unwrap();
        }
        for kind in [Kind::POST_START_CONTAINER, Kind::REMOVE_CONTAINER] {
            runtime.report(kind, &pod, Some(&container)).await.unwrap();
        }
        runtime.stop(&pod, &container).await.unwrap();
        let update = wire::UpdatePodSandboxRequest::new();
        runtime.call::<wire::Empty>("UpdatePodSandbox", &update).await.unwrap();
        let refused = runtime.create(&pod, &container).await.unwrap_err();
        assert_eq!(code(&refused), Code::INVALID_ARGUMENT);
        assert_eq!(plugin.log.events().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn creations_are_pinned_and_others_moved() {
    let decide = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => at_once(Response {
            setting: CpuSetting::exclusive("8-17".parse().unwrap()),
            environment: vec![("NRI_CPU_MANAGER_CPUS", "8-17".to_owned())],
            directory: Some("/var/lib/nri-cpu-manager/exposed/new".to_owned()),
            updates: vec![shared("s2", "0-1"), shared("s1", "0-1,18-23"), shared("new", "5")],
        }),
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_8, decide);
    runtime.handshake().await;
    let made = runtime.create(&pod("a", 10_000), &container("new", "a", 10_000)).await.unwrap();
    let cpu = &made.adjust.linux.resources.cpu;
    assert_eq!((&*cpu.cpus, cpu.quota.value), ("8-17", -1));
    let [mount] = &made.adjust.mounts[..] else { panic!("{:?}", made.adjust.mounts) };
    let read_only = ["rbind", "ro", "nosuid", "nodev", "noexec"];
    assert_eq!(mount.source, "/var/lib/nri-cpu-manager/exposed/new");
    assert_eq!(mount.destination, "/run/nri-cpu-manager");
    assert_eq!((&*mount.type_, &mount.options[..]), ("bind", &read_only.map(str::to_owned)[..]));
    let env: Vec<_> = made.adjust.env.iter().map(|env| (&*env.key, &*env.value)).collect();
    let directory = ("NRI_CPU_MANAGER_DIR", "/run/nri-cpu-manager");
    assert_eq!(env, [("NRI_CPU_MANAGER_CPUS", "8-17"), directory]);
    let moved: Vec<_> =
        made.update.iter().map(|u| (&*u.container_id, &*u.linux.resources.cpu.cpus)).collect();
    // The runtime fails a creation whose answer also updates the new container.
    assert_eq!(moved, [("s2", "0-1"), ("s1", "0-1,18-23")]);
    assert!(made.update.iter().all(|update| update.ignore_failure));
}

/// Below a mount that propagates, the files would appear on the host as well.
#[tokio::test(start_paused = true)]
async fn files_are_not_mounted_where_they_would_appear_on_the_host() {
    let decide = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) => at_once(Response {
            setting: CpuSetting::exclusive("8-17".parse().unwrap()),
            directory: Some("/source".to_owned()),
            ..Response::default()
        }),
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_8, decide);
    runtime.handshake().await;
    for (mounts, is_mounted) in [
        (&[][..], true),
        (&[("/run", "rslave")], true),
        (&[("/run", "rshared")], false),
        (&[("run/", "shared")], false),
        (&[("/", "rshared")], false),
        (&[("/var/run", "rshared")], false),
        (&[("/var", "rshared")], false),
        (&[("/mnt/../run", "rshared")], false),
        (&[("/data", "rslave"), ("/run/./", "rshared")], false),
        (&[("/run/other", "rshared"), ("/run/nri", "rshared"), ("/var/lib", "rshared")], true),
        (&[("/run/nri-cpu-manager/", "rprivate")], false),
        (&[("/run/nri-cpu-manager/cpus", "rprivate")], true),
    ] {
        let mounts = mounts.iter().map(|(destination, option)| wire::Mount {
            destination: (*destination).to_owned(),
            options: vec!["rbind".to_owned(), (*option).to_owned()],
            ..Default::default()
        });
        let mounts: Vec<wire::Mount> = mounts.collect();
        let created = wire::Container { mounts: mounts.clone(), ..container("c", "a", 500) };
        let adjust = runtime.create(&pod("a", 500), &created).await.unwrap().adjust;
        assert_eq!(adjust.linux.resources.cpu.cpus, "8-17");
        assert_eq!(
            (adjust.mounts.len(), adjust.env.len()),
            (is_mounted.into(), is_mounted.into()),
            "{mounts:?}"
        );
        runtime.stop(&pod("a", 500), &created).await.unwrap();
    }
}

/// The plugin never sends an empty list of CPUs.
#[tokio::test(start_paused = true)]
async fn a_container_without_a_setting_is_not_adjusted() {
    let (mut runtime, _plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    let made = runtime.create(&pod("a", 500), &container("c", "a", 500)).await.unwrap();
    assert!(made.adjust.is_none() && made.update.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_stop_carries_updates() {
    let decide = |call: &Call| match call {
        Call::Event(Event::Stop(_)) => {
            at_once(Response { updates: vec![shared("s", "0-31")], ..Response::default() })
        }
        _ => no_change(call),
    };
    let (mut runtime, _plugin) = connect(Generation::V0_8, decide);
    runtime.handshake().await;
    let answer = runtime.stop(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
    assert_eq!(answer.update.len(), 1);
    assert_eq!(answer.update[0].linux.resources.cpu.cpus, "0-31");
}

#[tokio::test(start_paused = true)]
async fn updates_reach_the_owner_and_are_overridden() {
    let decide = |call: &Call| match call {
        Call::Admission(Admission::Update { container, .. }) => at_once(Response {
            updates: vec![shared("s", "0"), shared(&container.id.0, "1-2")],
            ..Response::default()
        }),
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, decide);
    runtime.handshake().await;
    let mut requested = cpu(4000);
    requested.cpu.as_mut().unwrap().cpus = "4-7".into();
    let request = wire::UpdateContainerRequest {
        pod: Some(pod("a", 4000)).into(),
        container: Some(container("c", "a", 2000)).into(),
        linux_resources: Some(requested).into(),
        ..Default::default()
    };
    let answer: wire::UpdateContainerResponse =
        runtime.call("UpdateContainer", &request).await.unwrap();
    let ids: Vec<_> = answer.update.iter().map(|update| &*update.container_id).collect();
    assert_eq!(ids, ["s", "c"]);
    let [_, Call::Admission(Admission::Update { container, requested, .. })] =
        &plugin.log.events()[..]
    else {
        panic!()
    };
    assert_eq!(container.cpu.limit, Some(MilliCpu(2000)), "the limit before the update");
    let four = Some(MilliCpu(4000));
    let cpu = CpuRequest { request: four, limit: four };
    let cpus = Some("4-7".parse().unwrap());
    assert_eq!(
        *requested,
        RequestedUpdate { cpu, sets_quota: true, cpus, ..RequestedUpdate::default() }
    );
}

/// The pod's own fields keep the resources of its creation; the call has the new ones separately.
#[tokio::test(start_paused = true)]
async fn a_resized_pod_has_its_new_budget() {
    let (mut runtime, plugin) = connect(Generation::V0_12, no_change);
    runtime.handshake().await;
    for (resources, budget) in [(Some(cpu(4000)), Some(4000)), (None, None)] {
        let request = wire::UpdatePodSandboxRequest {
            pod: Some(pod("a", 2000)).into(),
            linux_resources: resources.into(),
            ..Default::default()
        };
        runtime.call::<wire::Empty>("UpdatePodSandbox", &request).await.unwrap();
        let events = plugin.log.events();
        let Some(Call::Event(Event::UpdatePod(pod))) = events.last() else { panic!("{events:?}") };
        assert_eq!(pod.budget, budget.map(MilliCpu));
        assert_eq!(pod.sandbox, SandboxId("sandbox-a".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_fails_admissions_with_its_reason_and_no_other_call() {
    let why =
        "SMTAlignmentError: SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2";
    for generation in ALL {
        let decide = move |call: &Call| match call {
            Call::Event(Event::Synchronize { .. }) => no_change(call),
            _ => refuse(why),
        };
        let (mut runtime, plugin) = connect(generation, decide);
        runtime.handshake().await;
        let pod = pod("a", 5000);
        let container = container("c", "a", 5000);
        let refused = runtime.create(&pod, &container).await.unwrap_err();
        assert_eq!(refused.message, why);
        let update = wire::UpdateContainerRequest {
            pod: Some(pod.clone()).into(),
            container: Some(container.clone()).into(),
            ..Default::default()
        };
        let refused = runtime
            .call::<wire::UpdateContainerResponse>("UpdateContainer", &update)
            .await
            .unwrap_err();
        assert_eq!(refused.message, why);
        // With these codes a runtime treats the call as not made, or as timed out.
        let misread = [Code::UNIMPLEMENTED, Code::DEADLINE_EXCEEDED, Code::CANCELLED];
        assert!(!misread.contains(&code(&refused)));

        runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
        runtime.report(Kind::POST_START_CONTAINER, &pod, Some(&container)).await.unwrap();
        assert!(runtime.stop(&pod, &container).await.unwrap().update.is_empty());
        runtime.report(Kind::REMOVE_CONTAINER, &pod, Some(&container)).await.unwrap();
        runtime.report(Kind::STOP_POD_SANDBOX, &pod, None).await.unwrap();
        runtime.report(Kind::REMOVE_POD_SANDBOX, &pod, None).await.unwrap();
        assert_eq!(plugin.log.events().len(), 9);
    }
}

/// The owner takes too long. The runtime gets an answer in time, and the owner learns that it was
/// late.
#[tokio::test(start_paused = true)]
async fn a_late_decision_is_dropped_and_the_call_answered_in_time() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { .. }) | Call::Event(Event::Stop(_)) => {
            let updates = vec![shared("s", "0-1")];
            (Duration::from_secs(5), Ok(Response { updates, ..Response::default() }))
        }
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, slow);
    runtime.handshake().await;
    let pod = pod("a", 1000);
    let container = container("c", "a", 1000);

    let started = Instant::now();
    let late = runtime.create(&pod, &container).await.unwrap_err();
    assert!(late.message.contains("did not decide in time; trying again is safe"), "{late}");
    let due = 1190..=1200; // 60 % of almost 2 s
    assert!(due.contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    tokio::time::sleep(Duration::from_secs(10)).await;

    let started = Instant::now();
    let answer = runtime.stop(&pod, &container).await.unwrap();
    assert!(answer.update.is_empty());
    assert!(due.contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(plugin.log.in_time(), [true, false, false]);

    // The late answers are never sent: `reply` would fail on them.
    runtime.report(Kind::RUN_POD_SANDBOX, &pod, None).await.unwrap();
}

/// In milliseconds; the plugin uses 60 % of the limit.
#[tokio::test(start_paused = true)]
async fn the_time_limit_is_the_least_of_the_handshakes_and_the_calls() {
    for (generation, of_handshake, of_call, expected) in [
        (Generation::V0_6_1, 0, 0, 1200),
        (Generation::V0_8, 2000, 0, 1200),
        (Generation::V0_8, 10_000, 0, 6000),
        (Generation::V0_8, 2000, 500, 300),
        (Generation::V0_8, 2000, 60_000, 1200),
        (Generation::V0_8, i64::MAX, i64::MAX / 1_000_000, 360_000),
        (Generation::V0_8, -1, -1, 1200),
    ] {
        let slow = |call: &Call| match call {
            Call::Event(Event::RunPod(_)) => {
                (Duration::from_secs(100_000), Ok(Response::default()))
            }
            _ => no_change(call),
        };
        let (mut runtime, _plugin) = connect(generation, slow);
        runtime.registration().await;
        let mut configure = generation.configure();
        configure.request_timeout = of_handshake;
        runtime.call::<wire::ConfigureResponse>("Configure", &configure).await.unwrap();
        let change = wire::StateChangeEvent {
            event: Kind::RUN_POD_SANDBOX.into(),
            pod: Some(pod("a", 1000)).into(),
            ..Default::default()
        };
        let mut request = Request::new();
        request.service = "nri.pkg.api.v1alpha1.Plugin".into();
        request.method = "StateChange".into();
        request.payload = change.write_to_bytes().unwrap();
        request.timeout_nano = of_call * 1_000_000;
        let started = Instant::now();
        let stream = runtime.send_request(&request).await;
        runtime.reply(stream).await.unwrap();
        let took = started.elapsed().as_millis();
        assert!(took.abs_diff(expected) < 10, "{of_handshake} ms, {of_call} ms: {took} ms");
    }
}

/// The runtime gives up on a call and makes the next one: both events arrive in order.
#[tokio::test(start_paused = true)]
async fn a_call_after_a_cancelled_one_gets_its_own_answer() {
    let slow = |call: &Call| match call {
        Call::Admission(Admission::Create { container, .. }) => {
            let setting = CpuSetting::shared(container.id.0.parse().unwrap());
            (Duration::from_millis(700), Ok(Response { setting, ..Response::default() }))
        }
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, slow);
    runtime.handshake().await;
    let mut streams = Vec::new();
    for id in ["1", "2"] {
        let request = of(&pod("a", 1000), &container(id, "a", 1000)).write_to_bytes().unwrap();
        streams.push(runtime.send("CreateContainer", &request).await);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    // The second call waits 300 ms for the first and takes 700 ms itself. That is in time: its time
    // limit began when it arrived.
    for (stream, cpus) in streams.into_iter().zip(["1", "2"]) {
        let answer = runtime.reply(stream).await.unwrap();
        let answer = wire::CreateContainerResponse::parse_from_bytes(&answer).unwrap();
        assert_eq!(answer.adjust.linux.resources.cpu.cpus, cpus);
    }
    let ids: Vec<_> = plugin.log.events()[1..]
        .iter()
        .map(|call| match call {
            Call::Admission(Admission::Create { container, .. }) => container.id.to_string(),
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(ids, ["1", "2"]);
}

/// There are many more calls than may wait in the plugin.
#[tokio::test(start_paused = true)]
async fn many_calls_at_once_are_answered_in_order() {
    let slow = |call: &Call| match call {
        Call::Event(Event::Stop(_)) => (Duration::from_millis(3), Ok(Response::default())),
        _ => no_change(call),
    };
    let (mut runtime, plugin) = connect(Generation::V0_8, slow);
    runtime.handshake().await;
    let mut streams = Vec::new();
    for index in 0..300 {
        let request = of(&pod("a", 1000), &container(&index.to_string(), "a", 1000));
        streams.push(runtime.send("StopContainer", &request.write_to_bytes().unwrap()).await);
    }
    for stream in streams {
        runtime.reply(stream).await.unwrap();
    }
    let expected: Vec<_> = (0..300)
        .map(|index| Call::Event(Event::Stop(ContainerId(index.to_string().into()))))
        .collect();
    assert_eq!(plugin.log.events()[1..], expected);
    assert!(plugin.log.in_time().into_iter().all(|in_time| in_time));
}

/// With any other code than UNIMPLEMENTED, a newer runtime does not fall back to `StateChange`.
#[tokio::test(start_paused = true)]
async fn unknown_calls_are_unimplemented() {
    let (mut runtime, _plugin) = connect(Generation::V0_12, no_change);
    runtime.handshake().await;
    for (service, method) in [
        ("nri.pkg.api.v1alpha1.Plugin", "AdjustTheMoon"),
        ("nri.pkg.api.v1alpha1.Plugin", ""),
        ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin"),
        ("", ""),
    ] {
        let mut request = Request::new();
        request.service = service.into();
        request.method = method.into();
        let stream = runtime.send_request(&request).await;
        let status = runtime.reply(stream).await.unwrap_err();
        assert_eq!(code(&status), Code::UNIMPLEMENTED, "{service} {method}");
    }
    runtime.create(&pod("a", 1000), &container("c", "a", 1000)).await.unwrap();
}

/// Events of a later protocol, and events that are never reported by `StateChange`.
#[tokio::test(start_paused = true)]
async fn unknown_events_are_ignored() {
    let (mut runtime, plugin) = connect(Generation::V0_8, no_change);
    runtime.handshake().await;
    for number in [0, 4, 8, 12, 14, 15, 99, -1] {
        let change = wire::StateChangeEvent {
            event: protobuf::EnumOrUnknown::from_i32(number),
            pod: Some(pod("a", 1000)).into(),
            container: Some(container("c", "a", 1000)).into(),
            ..Default::default()
        };
        runtime.call::<wire::Empty>("StateChange", &change).await.unwrap();
    }
    assert_eq!(plugin.log.events().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn validation_accepts_what_the_owner_accepts() {
    let (mut runtime, plugin) = connect(Generation::V0_10, no_change);
    runtime.handshake().await;
    let request = wire::ValidateContainerAdjustmentRequest {
        container: Some(container("c", "a", 1000)).into(),
        ..Default::default()
    };
    let answer: wire::ValidateContainerAdjustmentResponse =
        runtime.call("ValidateContainerAdjustment", &request).await.unwrap();
    assert!(!answer.reject && answer.reason.is_empty());
    runtime.call::<wire::Empty>("Shutdown", &wire::Empty::new()).await.unwrap();
    assert_eq!(plugin.log.events().len(), 1);
}
