#[allow(dead_code, reason = "other tests look for warnings")]
#[path = "../../../../tests/support/logged.rs"]
mod logged;

use super::*;
use crate::exchange::{Answer, Update};
use crate::plugin::Plugin;
use crate::service::{Handshake, Service};
use crate::updater::Updater;
use crate::wire::{self, Container, PodSandbox, RuntimeClient};
use protobuf::Message;
use std::time::Duration;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::sleep;
use ttrpc::r#async::Client;
use ttrpc::r#async::transport::Socket;

/// The bytes of lines about one call in an hour.
const MOST: usize = 48 << 10;

struct Late;

impl Plugin for Late {
    const LATE: &'static str = "late";

    async fn create_container(&self, _: PodSandbox, _: Container) -> Result<Answer, CallError> {
        Ok(Answer { warning: Some("no files".to_owned()), ..Answer::default() })
    }

    async fn stop_container(&self, _: PodSandbox, _: Container) -> Result<Vec<Update>, CallError> {
        Err(CallError::Refused("not now".to_owned()))
    }
}

fn client_of(conn: DuplexStream) -> Client {
    Client::new(Socket::new(conn))
}

/// Makes these calls every second for a minute, on a connection of its own.
async fn minute(calls: &[(&str, Vec<u8>)], repeats: &mut Repeats) {
    let (ours, theirs) = duplex(1 << 16);
    let (other, _) = duplex(64);
    let (progress, _) = watch::channel(Handshake::Connected);
    let updater = Updater::new(RuntimeClient::new(client_of(other)));
    let mut service = Service::new(&Late, progress, updater);
    let handle = |request: &RpcRequest<'_>, arrived| service.call(request, arrived);
    let serving = serve(ours, handle, repeats, std::future::pending::<()>());
    let runtime = async {
        let runtime = client_of(theirs);
        for _ in 0..60 {
            for (method, payload) in calls {
                let request = ttrpc::proto::Request {
                    service: "nri.pkg.api.v1alpha1.Plugin".to_owned(),
                    method: (*method).to_owned(),
                    payload: payload.clone(),
                    ..Default::default()
                };
                // Some get an error.
                let _ = runtime.request(request).await;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        end = serving => panic!("{end:?}"),
        () = runtime => {}
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_runtime_repeats_fill_no_log() {
    let _ = logged::logged(Level::Info, "");
    let about_a_container = wire::ContainerRequest {
        container: Some(Container { id: "c".into(), ..Default::default() }).into(),
        ..Default::default()
    };
    let about_a_container = about_a_container.write_to_bytes().unwrap();
    let unnamed = wire::SynchronizeRequest {
        pods: vec![PodSandbox::new(); 3],
        ..wire::SynchronizeRequest::default()
    };
    let long =
        wire::SynchronizeRequest { pods: vec![PodSandbox::new(); 65_537], ..unnamed.clone() };
    let calls = [
        ("Shutdown", Vec::new()),
        ("RunPodSandbox", Vec::new()),
        ("StartContainer", Vec::new()),
        ("Synchronize", unnamed.write_to_bytes().unwrap()),
        ("StopContainer", about_a_container.clone()),
        ("CreateContainer", about_a_container),
    ];
    let mut repeats = Repeats::default();
    for _ in 0..60 {
        minute(&calls, &mut repeats).await;
    }
    minute(&[("Synchronize", long.write_to_bytes().unwrap())], &mut repeats).await;
    for text in [
        "the runtime is shutting down",
        "ignoring RUN_POD_SANDBOX without an id",
        "ignoring START_CONTAINER without an id",
        "ignoring 3 listed pods and containers without an id",
        "Stop answered without changes: not now",
        "no files",
        "synchronisation: the list has more than 65536 pods and containers",
    ] {
        let bytes = logged::bytes_with(text);
        assert!((1..=MOST).contains(&bytes), "{bytes} bytes of lines with {text:?}");
    }
}
