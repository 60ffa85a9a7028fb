//! The podresources socket: any bytes as the kubelet's answer, and as a client's request.

use podresources::{Container, Known, Pod, Readable, answer, devices};
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

const POD: u64 = 1;
const CONTAINER: u64 = 3;
const CONTAINER_CPUS: u64 = 3;
const ALLOCATABLE_CPUS: u64 = 2;

/// Two pods with exclusive CPUs, assigned by the plugin, and by an active kubelet.
static KNOWN: LazyLock<[Known; 2]> = LazyLock::new(|| {
    let pods = [("a", "2-5"), ("b", "8-11")].map(|(name, cpus)| Pod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        runs: true,
        created_at: None,
        containers: vec![Container {
            name: "main".to_owned(),
            exclusive: Some(cpus.parse().expect("a list of CPUs")),
            memory: Vec::new(),
        }],
    });
    let allocatable = "2-15".parse().expect("a list of CPUs");
    [true, false].map(|assigns| Known {
        assigns,
        allocatable,
        allocatable_memory: None,
        pods: pods.to_vec(),
    })
});

/// Any bytes as the kubelet's answer to each call. Everything but `cpu_ids` stays unchanged.
pub fn podresources(bytes: &[u8]) {
    let _ = devices::of_list(bytes);
    let is_pods = |level: usize, number| [POD, CONTAINER].get(level) == Some(&number);
    let is_pods_cpus = |level, number| level == 2 && number == CONTAINER_CPUS;
    for known in KNOWN.iter() {
        if let Ok(list) = answer::list(known, bytes) {
            keeps(bytes, &list, &is_pods, &is_pods_cpus);
            assert_eq!(answer::list(known, &list), Ok(list.clone()), "edited twice");
        }
        // A request for pod default/a, and these bytes as a request.
        for request in [&b"\x0a\x01a\x12\x07default"[..], bytes] {
            if let Ok(Some(pod)) = answer::get(known, request, bytes) {
                keeps(bytes, &pod, &is_pods, &is_pods_cpus);
            }
        }
        if let Ok(allocatable) = answer::allocatable(known, Some(bytes)) {
            let is_cpus = |level, number| level == 0 && number == ALLOCATABLE_CPUS;
            keeps(bytes, &allocatable, &|_, _| false, &is_cpus);
        }
    }
    if let Ok(list) = answer::list(&Known::default(), bytes) {
        assert_eq!(list, bytes);
    }
}

/// Every field of the kubelet's answer except CPUs is in the edited one, in the same order.
fn keeps(kubelet: &[u8], edited: &[u8], is_message: Judge<'_>, is_cpus: Judge<'_>) {
    let parts = |message| {
        let mut parts = Vec::new();
        split(message, 0, is_message, is_cpus, &mut parts);
        parts
    };
    let mut edited = parts(edited).into_iter();
    for part in parts(kubelet) {
        assert!(edited.any(|other| other == part), "lost: {part:?}");
    }
}

/// A predicate of a field: how deep its message is nested, and its number.
type Judge<'a> = &'a dyn Fn(usize, u64) -> bool;

/// Appends the fields of a message and of nested messages, each with its level, without CPUs. Bytes
/// that are no message are one part.
fn split<'a>(
    message: &'a [u8],
    level: usize,
    is_message: Judge<'_>,
    is_cpus: Judge<'_>,
    parts: &mut Vec<(usize, &'a [u8])>,
) {
    let Some(fields) = fields(message) else {
        parts.push((level, message));
        return;
    };
    for Field { number, content, is_number, raw } in fields {
        match content {
            Some(content) if is_message(level, number) => {
                split(content, level + 1, is_message, is_cpus, parts);
            }
            _ if is_cpus(level, number) && (content.is_some() || is_number) => {}
            _ => parts.push((level, raw)),
        }
    }
}

struct Field<'a> {
    number: u64,
    /// The bytes of a string or a nested message.
    content: Option<&'a [u8]>,
    is_number: bool,
    raw: &'a [u8],
}

/// An independent reader of the wire format, to compare with the plugin's; it accepts more.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let key = varint(&mut rest)?;
        let content = value(key, &mut rest)?;
        let raw = &start[..start.len() - rest.len()];
        fields.push(Field { number: key >> 3, content, is_number: key & 7 == 0, raw });
    }
    Some(fields)
}

/// Takes the value that follows a tag.
fn value<'a>(key: u64, rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = match key & 7 {
        0 => return varint(rest).map(|_| None),
        1 => 8,
        2 => usize::try_from(varint(rest)?).ok()?,
        3 => loop {
            match varint(rest)? {
                end if end & 7 == 4 => return Some(None),
                inner => value(inner, rest)?,
            };
        },
        5 => 4,
        _ => return None,
    };
    let (content, later) = rest.split_at_checked(length)?;
    *rest = later;
    Some(if key & 7 == 2 { Some(content) } else { None })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let length = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let (bytes, later) = rest.split_at(length);
    *rest = later;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
}

/// Any bytes as a client's request. The size of the pieces in which they arrive does not change the
/// result, and rewriting the result again changes nothing.
pub fn authority(bytes: &[u8]) {
    let (whole, is_accepted) = rewritten(bytes, bytes.len());
    let (single, is_accepted_single) = rewritten(bytes, 1);
    assert_eq!(is_accepted_single, is_accepted);
    // A large piece with an error delivers nothing; single bytes before the error are delivered.
    assert!(single.starts_with(&whole) && (whole == single || !is_accepted));
    assert_eq!(rewritten(&single, 7), (single, true), "rewritten twice");
}

/// The rewritten bytes when they arrive in pieces of this size, and whether all of them are
/// accepted.
fn rewritten(bytes: &[u8], size: usize) -> (Vec<u8>, bool) {
    let mut to = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pieces = Pieces { rest: bytes, size };
    let done = runtime.block_on(Readable::new(pieces).read_to_end(&mut to));
    (to, done.is_ok())
}

struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.size.min(self.rest.len()).min(to.remaining());
        let (piece, rest) = self.rest.split_at(length);
        to.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}
