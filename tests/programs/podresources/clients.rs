//! Clients of other libraries: the bytes that they send, and a client in Python.

use super::Node;
use super::messages::listed;
use crate::support::events::local;
use ledger::Qos;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:authority` by its index in the table, with an uncompressed value.
pub(crate) fn literal(authority: &str) -> Vec<u8> {
    [&[0x41, authority.len() as u8], authority.as_bytes()].concat()
}

/// The fields of a call of `List` with this encoding of `:authority`.
fn header_block(authority: &[u8]) -> Vec<u8> {
    let path = b"/v1.PodResourcesLister/List";
    [
        &[0x83, 0x86, 0x44, path.len() as u8],
        &path[..],
        authority,
        b"\x5f\x10application/grpc\x40\x02te\x08trailers",
        b"\x40\x0auser-agent\x0egrpc-go/1.72.0",
    ]
    .concat()
}

pub(crate) fn request_head(authority: &[u8]) -> Vec<u8> {
    frame(1, 4, 1, &header_block(authority))
}

pub(crate) fn request(authority: &[u8]) -> Vec<u8> {
    [request_head(authority), frame(0, 1, 1, &[0; 5])].concat()
}

/// Sends these frames, and returns the message of the answer on a stream.
async fn answer(socket: &Path, frames: &[u8], stream: u32) -> Result<Vec<u8>, String> {
    let mut connection = UnixStream::connect(socket).await.unwrap();
    let settings = frame(4, 0, 0, &[0, 4, 0, 0x10, 0, 0]);
    let client = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], frames].concat();
    connection.write_all(&client).await.unwrap();
    let mut message = Vec::new();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.map_err(|error| error.to_string())?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).await.map_err(|error| error.to_string())?;
        let of_stream = head[5..] == stream.to_be_bytes();
        match (head[3], of_stream) {
            (0, true) => message.extend(payload),
            // The end: trailers.
            (1, true) if head[4] & 1 == 1 => return Ok(message.split_off(5)),
            (3, true) => return Err(format!("the stream was reset: {payload:?}")),
            (7, _) => return Err(format!("the connection ends: {payload:?}")),
            _ => {}
        }
    }
}

async fn answers(node: &Node, frames: &[u8], stream: u32) {
    let answer = timeout(Duration::from_secs(5), answer(&node.socket(), frames, stream)).await;
    let listed = listed(&answer.unwrap().unwrap());
    assert_eq!(listed, [("ns/a/c".to_owned(), vec![2, 3])].into());
}

/// A text of the characters in [`SOCKET`], in Huffman's code.
fn huffman(text: &str) -> Vec<u8> {
    // RFC 7541, appendix B.
    let code = |byte: u8| match byte {
        b'/' => "011000",
        b'-' => "010110",
        b'.' => "010111",
        b'a' => "00011",
        b'b' => "100011",
        b'c' => "00100",
        b'd' => "100100",
        b'e' => "00101",
        b'i' => "00110",
        b'k' => "1110101",
        b'l' => "101000",
        b'o' => "00111",
        b'p' => "101011",
        b'r' => "101100",
        b's' => "01000",
        b't' => "01001",
        b'u' => "101101",
        b'v' => "1110111",
        other => panic!("no code of {}", char::from(other)),
    };
    let mut bits: String = text.bytes().map(code).collect();
    bits.extend(std::iter::repeat_n('1', (8 - bits.len() % 8) % 8));
    let byte = |at| u8::from_str_radix(&bits[at..at + 8], 2).unwrap();
    (0..bits.len()).step_by(8).map(byte).collect()
}

#[tokio::test]
async fn clients_that_send_the_sockets_path_as_authority_are_answered() {
    local(async {
        let node = Node::start().await;
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        let encoded = SOCKET.replace('/', "%2F");
        for authority in [SOCKET, &encoded, "localhost", "", "[::1]:80", "user@host"] {
            answers(&node, &request(&literal(authority)), 1).await;
        }
        let compressed = huffman(SOCKET);
        let named = [&b"\x10\x0a:authority"[..], &[SOCKET.len() as u8], SOCKET.as_bytes()].concat();
        let indexed = [&[0x01, 0x80 | compressed.len() as u8], &compressed[..]].concat();
        for authority in [&named, &indexed] {
            answers(&node, &request(authority), 1).await;
        }
    })
    .await;
}

/// The fields of the second call are indices of the connection's table, in a padded frame with a
/// priority, and in a continuation.
#[tokio::test]
async fn later_calls_of_a_connection_are_answered() {
    local(async {
        let node = Node::start().await;
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        // The newest first: user-agent, te, content-type, :authority, :path.
        let block = [0x83, 0x86, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];
        let padded = [&[2, 0, 0, 0, 0, 9], &block[..3], &[0, 0]].concat();
        let frames = [
            request(&literal(SOCKET)),
            frame(1, 0x08 | 0x20, 3, &padded),
            frame(9, 4, 3, &block[3..]),
            frame(0, 1, 3, &[0; 5]),
        ];
        answers(&node, &frames.concat(), 3).await;
    })
    .await;
}

fn has_grpc(python: &str) -> bool {
    let output = Command::new(python).args(["-c", "import grpc"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Skipped if the library is missing.
#[test]
fn a_client_of_grpcs_c_core_is_answered() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/podresources.py");
    // Another Python that comes first in the path does not find packages of the distribution.
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(|python| has_grpc(python))
    else {
        println!("skipped: podresources with gRPC's C core: install python3-grpcio");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(local(async {
        let node = Node::start().await;
        node.daemon.create("a", Qos::Guaranteed, 2000).await.unwrap();
        node.daemon.create("s", Qos::Burstable, 500).await.unwrap();
        for authority in [None, Some("localhost")] {
            let mut client = Command::new(python);
            client.arg(&script).arg(node.socket()).args(["ns", "a"]).args(authority);
            let output = tokio::task::spawn_blocking(move || client.output().unwrap());
            let output = output.await.unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                "List: ns/a/c 2,3; ns/s/c none\nGet: ns/a/c 2,3\n\
                 GetAllocatableResources: 2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\
                 Get of another pod: NOT_FOUND pod another in namespace ns not found\n",
                "{authority:?}: {err}"
            );
        }
    }));
}
