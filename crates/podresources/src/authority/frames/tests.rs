use super::*;
use proptest::prelude::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn rewritten(client: &[u8]) -> Result<Vec<u8>, RewriteError> {
    let mut to = Vec::new();
    Rewriter::default().push(client, &mut to)?;
    Ok(to)
}

#[track_caller]
fn refuses(frames: &[Vec<u8>], why: &'static str) {
    let client = [PREFACE, &frames.concat()].concat();
    assert_eq!(rewritten(&client), Err(RewriteError(why)));
}

const AUTHORITY: &[u8] = b"\x01\x06/x/y.z";
const REWRITTEN: &[u8] = b"\x00\x0a:authority\x09localhost";
const PRIORITIES: &[u8] = &[0x80, 0, 0, 3, 15];

/// The bytes of a client, and the rewritten ones.
fn connection() -> (Vec<u8>, Vec<u8>) {
    let settings = frame(4, 0, 0, &[0, 1, 0, 0, 0, 0]);
    let data = frame(0, PADDED | END_STREAM, 1, &[1, 7, 7, 0]);
    let unknown = frame(200, 0xff, 77, b"whatever");
    let padded = [&[3], PRIORITIES, AUTHORITY, &[0; 3]].concat();
    let (one, two) = AUTHORITY.split_at(3);
    let client = [
        PREFACE.to_vec(),
        settings.clone(),
        frame(HEADERS, END_HEADERS, 1, AUTHORITY),
        data.clone(),
        frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 3, &padded),
        unknown.clone(),
        frame(HEADERS, END_STREAM, 5, one),
        frame(CONTINUATION, 0, 5, b""),
        frame(CONTINUATION, END_HEADERS, 5, two),
    ];
    let server = [
        PREFACE.to_vec(),
        settings,
        frame(HEADERS, END_HEADERS, 1, REWRITTEN),
        data,
        frame(HEADERS, END_HEADERS | PRIORITY, 3, &[PRIORITIES, REWRITTEN].concat()),
        unknown,
        frame(HEADERS, END_HEADERS | END_STREAM, 5, REWRITTEN),
    ];
    (client.concat(), server.concat())
}

#[test]
fn only_header_blocks_change_in_pieces_of_any_size() {
    let (client, server) = connection();
    for size in 1..=client.len() {
        let mut rewriter = Rewriter::default();
        let mut to = Vec::new();
        client.chunks(size).for_each(|piece| rewriter.push(piece, &mut to).unwrap());
        assert_eq!(to, server, "pieces of {size}");
    }
}

#[test]
fn bytes_that_are_not_http2_are_refused_at_the_first_wrong_byte() {
    for client in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nXX"] {
        assert_eq!(rewritten(client), Err(RewriteError("not HTTP/2")));
    }
    assert_eq!(rewritten(&PREFACE[..10]), Ok(Vec::new()));
}

#[test]
fn large_frames_and_large_header_blocks_are_refused() {
    let head = |length: u32| [&length.to_be_bytes()[1..], &[0, 0, 0, 0, 0, 1]].concat();
    refuses(&[head(MAX_FRAME as u32 + 1)], "a frame is too large");
    let headers = frame(HEADERS, 0, 1, b"");
    let empty = frame(CONTINUATION, 0, 1, b"");
    let flood = [vec![headers.clone()], vec![empty; MAX_CONTINUATIONS + 1]].concat();
    refuses(&flood, "a header block has too many frames");
    let large = frame(HEADERS, END_HEADERS, 1, &[0; MAX_BLOCK + 1]);
    refuses(&[large], "a header block is too large");
    let half = frame(CONTINUATION, 0, 1, &[0; MAX_BLOCK / 2 + 1]);
    refuses(&[headers, half.clone(), half], "a header block is too large");
}

#[test]
fn illegal_sequences_of_frames_are_refused() {
    let interrupted = "a header block is interrupted";
    let headers = || frame(HEADERS, 0, 1, b"");
    refuses(&[headers(), frame(0, 0, 1, b"")], interrupted);
    refuses(&[headers(), headers()], interrupted);
    refuses(&[headers(), frame(CONTINUATION, END_HEADERS, 3, b"")], interrupted);
    refuses(&[frame(CONTINUATION, END_HEADERS, 1, b"")], interrupted);
    refuses(&[frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])], "clients cannot push");
    let short = "a HEADERS frame is too short";
    refuses(&[frame(HEADERS, PADDED, 1, b"")], short);
    refuses(&[frame(HEADERS, PRIORITY, 1, &[0; 4])], short);
    refuses(&[frame(HEADERS, PADDED, 1, &[2, 0])], short);
    refuses(&[frame(HEADERS, PADDED | PRIORITY, 1, &[1, 0, 0, 0, 0, 0])], short);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_frames_are_rewritten_or_refused(
        frames in prop::collection::vec(
            (0..11_u8, any::<u8>(), 0..4_u32, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let frames = frames.iter().map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload));
        let client = [PREFACE, &frames.collect::<Vec<_>>().concat(), &rest].concat();
        let mut rewriter = Rewriter::default();
        let mut to = Vec::new();
        let _ = client.chunks(7).try_for_each(|piece| rewriter.push(piece, &mut to));
    }

    #[test]
    fn damaged_connections_are_rewritten_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let (mut client, _) = connection();
        for (at, byte) in edits {
            let at = at.index(client.len());
            client[at] = byte;
        }
        let _ = rewritten(&client);
    }
}
