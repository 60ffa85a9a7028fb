//! Slow, hostile and many clients.

use super::Node;
use super::client::{Client, LIST, call};
use crate::support::events::local;
use ledger::Qos;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const SOON: Duration = Duration::from_secs(2);

/// Whether the server closes the connection soon.
async fn is_closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_silent_client_delays_no_other_and_is_disconnected() {
    local(async {
        let node = Node::start().await;
        let mut silent = UnixStream::connect(node.socket()).await.unwrap();
        let mut half = UnixStream::connect(node.socket()).await.unwrap();
        half.write_all(&PREFACE[..20]).await.unwrap();
        // A request without its message.
        let mut open = UnixStream::connect(node.socket()).await.unwrap();
        let head = super::clients::request_head(&super::clients::literal("localhost"));
        open.write_all(&[PREFACE, SETTINGS, &head].concat()).await.unwrap();
        let started = Instant::now();
        call(&node.socket(), LIST, &[]).await.unwrap();
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(is_closed(&mut silent).await);
        assert!(is_closed(&mut half).await);
    })
    .await;
}

/// The answer does not fit into the socket's buffers.
#[tokio::test]
async fn a_client_that_reads_nothing_delays_no_other() {
    local(async {
        let node = Node::start().await;
        let kubelet = super::messages::field(9, &[&vec![b'x'; 1 << 20]]);
        let answers = [(LIST, Ok(kubelet.clone()))];
        let _kubelet = super::kubelet::Kubelet::start(&node.kubelet(), answers.into());
        let mut lazy = Vec::new();
        for _ in 0..8 {
            let mut stream = UnixStream::connect(node.socket()).await.unwrap();
            let request = super::clients::request(&super::clients::literal("localhost"));
            stream.write_all(&[PREFACE, SETTINGS, &request].concat()).await.unwrap();
            lazy.push(stream);
        }
        let started = Instant::now();
        assert_eq!(call(&node.socket(), LIST, &[]).await, Ok(kubelet));
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_new_connection_replaces_the_one_that_is_idle_the_longest() {
    local(async {
        let node = Node::start().await;
        let mut clients = Vec::new();
        for _ in 0..16 {
            let mut client = Client::connect(&node.socket()).await;
            client.call(LIST, &[]).await.unwrap();
            clients.push(client);
        }
        clients[0].call(LIST, &[]).await.unwrap();
        call(&node.socket(), LIST, &[]).await.unwrap();
        clients[1].send(LIST, vec![0; 5]).await.unwrap_err();
        for client in [0, 2, 15] {
            clients[client].call(LIST, &[]).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn hostile_clients_are_disconnected_and_others_served() {
    local(async {
        let node = Node::start().await;
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            // A frame of 16 MiB.
            [PREFACE, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
            // A header block of 16 KiB.
            [PREFACE, SETTINGS, &[0, 0x40, 0, 1, 4, 0, 0, 0, 1], &[0; 0x4000]].concat(),
            // The first half of a table size.
            [PREFACE, SETTINGS, &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x3f]].concat(),
        ] {
            let mut stream = UnixStream::connect(node.socket()).await.unwrap();
            // The server may close the connection before it has read everything.
            let _ = stream.write_all(&bytes).await;
            assert!(is_closed(&mut stream).await, "{:x?}", &bytes[..bytes.len().min(40)]);
        }
        call(&node.socket(), LIST, &[]).await.unwrap();
    })
    .await;
}
