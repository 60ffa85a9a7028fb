//! Frames of the multiplexed socket: [`Unframer`] reads the runtime's, and [`Framer`] cuts messages into
//! frames that the runtime can read.
//!
//! A frame is the number of a connection (4 bytes), the length of the payload (4 bytes), both big
//! endian, and the payload. Both directions are pure: bytes in, bytes out.

/// The connection for the runtime's calls (service `Plugin`).
pub const PLUGIN_CONN: u32 = 1;
/// The connection for the plugin's calls (service `Runtime`).
pub const RUNTIME_CONN: u32 = 2;
/// Bytes before the payload of a frame.
pub const FRAME_HEADER: usize = 8;
/// The longest accepted payload in bytes: the longest of NRI before 0.7 (16 MiB), and some slack.
pub const MAX_FRAME: usize = (16 << 20) + 4096;

/// Bytes before the payload of a ttrpc message. The first four are the length of the payload.
const MESSAGE_HEADER: usize = 10;
/// The runtime reads the start of a message through a buffer of this size. It closes the connection
/// if a frame does not fit into the buffer.
const READER_BUFFER: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the runtime sent a frame for connection 0, which does not exist")]
    ReservedConnection,
    #[error("the runtime announced a frame of {0} bytes: more than {MAX_FRAME}")]
    TooLong(usize),
}

/// Splits a stream of bytes into pieces of payload. Frames may arrive in parts of any size.
#[derive(Debug, Default)]
pub struct Unframer {
    /// Header bytes read so far, as one big endian number, and their count.
    header: u64,
    header_bytes: usize,
    /// Payload bytes of the current frame that are still to come.
    left: usize,
    conn: u32,
}

impl Unframer {
    /// The next piece of payload in `input` with the number of its connection; moves `input` past it.
    /// `None` at the end of `input`. The payload of a frame may come in several pieces, none of which is
    /// empty. After an error the caller has to close the connection.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<(u32, &'a [u8])>, FrameError> {
        while self.left == 0 {
            let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
            *input = rest;
            self.header = (self.header << 8) | u64::from(byte);
            self.header_bytes += 1;
            if self.header_bytes == FRAME_HEADER {
                self.begin()?;
            }
        }
        if input.is_empty() {
            return Ok(None);
        }
        let (piece, rest) = input.split_at(self.left.min(input.len()));
        *input = rest;
        self.left -= piece.len();
        Ok(Some((self.conn, piece)))
    }

    /// Whether the bytes so far end between two frames.
    pub fn between_frames(&self) -> bool {
        self.left == 0 && self.header_bytes == 0
    }

    fn begin(&mut self) -> Result<(), FrameError> {
        let length = (self.header & u64::from(u32::MAX)) as usize;
        self.conn = (self.header >> 32) as u32;
        self.header = 0;
        self.header_bytes = 0;
        if self.conn == 0 {
            return Err(FrameError::ReservedConnection);
        }
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        self.left = length;
        Ok(())
    }
}

/// Cuts a stream of ttrpc messages into frames that the runtime's reader accepts.
///
/// The runtime's reader passes on one whole frame at a time, and fails if it does not fit into its
/// buffer. So a frame with any part of a message's header is at most 4096 bytes long, and a longer frame
/// has only payload of one message. Callers may cut pieces of any size.
#[derive(Debug, Default)]
pub struct Framer {
    /// Header bytes of the current message so far.
    header_bytes: usize,
    /// Payload length from the header bytes so far.
    length: u32,
    /// Payload bytes of the current message that are still to come.
    left: usize,
}

impl Framer {
    /// The number of bytes at the start of `bytes` for the next frame's payload; zero only if
    /// `bytes` is empty.
    pub fn cut(&mut self, bytes: &[u8]) -> usize {
        if self.left > 0 {
            let payload = self.left.min(bytes.len());
            self.left -= payload;
            return payload;
        }
        let mut taken = 0;
        for &byte in bytes.iter().take(MESSAGE_HEADER - self.header_bytes) {
            if self.header_bytes < 4 {
                self.length = (self.length << 8) | u32::from(byte);
            }
            self.header_bytes += 1;
            taken += 1;
        }
        if self.header_bytes < MESSAGE_HEADER {
            return taken;
        }
        let payload = (self.length as usize).min(bytes.len() - taken).min(READER_BUFFER - taken);
        self.left = self.length as usize - payload;
        self.header_bytes = 0;
        self.length = 0;
        taken + payload
    }
}

pub fn header(conn: u32, payload: usize) -> [u8; FRAME_HEADER] {
    let length = u32::try_from(payload).unwrap_or(u32::MAX);
    (u64::from(conn) << 32 | u64::from(length)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(payload: usize) -> Vec<u8> {
        let mut message = u32::try_from(payload).unwrap().to_be_bytes().to_vec();
        message.extend([0, 0, 0, 1, 2, 0]);
        message.resize(MESSAGE_HEADER + payload, 0xa5);
        message
    }

    /// The frame lengths of messages with these payloads, written all at once.
    fn cuts(payloads: &[usize]) -> Vec<usize> {
        let bytes: Vec<u8> = payloads.iter().flat_map(|&payload| message(payload)).collect();
        let mut framer = Framer::default();
        let mut rest = &bytes[..];
        let mut cuts = Vec::new();
        while !rest.is_empty() {
            let cut = framer.cut(rest);
            cuts.push(cut);
            rest = &rest[cut..];
        }
        cuts
    }

    #[test]
    fn a_frame_with_the_start_of_a_message_is_at_most_4096_bytes_long() {
        for (payloads, expected) in [
            (vec![0], vec![10]),
            (vec![1, 2], vec![11, 12]),
            (vec![4086], vec![4096]),
            (vec![4087], vec![4096, 1]),
            (vec![1 << 20], vec![4096, (1 << 20) - 4086]),
            (vec![5000, 0, 9000], vec![4096, 914, 10, 4096, 4914]),
        ] {
            assert_eq!(cuts(&payloads), expected, "payloads {payloads:?}");
        }
    }

    #[test]
    fn frames_for_connection_0_and_long_frames_are_errors() {
        for (bytes, error) in [
            (header(0, 1), FrameError::ReservedConnection),
            (header(0, 0), FrameError::ReservedConnection),
            (header(1, MAX_FRAME + 1), FrameError::TooLong(MAX_FRAME + 1)),
            (header(7, u32::MAX as usize), FrameError::TooLong(u32::MAX as usize)),
        ] {
            assert_eq!(Unframer::default().next(&mut &bytes[..]), Err(error));
        }
        assert_eq!(Unframer::default().next(&mut &header(1, MAX_FRAME)[..]), Ok(None));
    }

    proptest! {
        #[test]
        fn the_bytes_of_each_connection_arrive_in_order_however_the_stream_is_split(
            frames in prop::collection::vec((1_u32..4, prop::collection::vec(any::<u8>(), 0..40)), 0..12),
            splits in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let mut sent = vec![Vec::<u8>::new(); 4];
            let mut bytes = Vec::new();
            for (conn, payload) in &frames {
                bytes.extend(header(*conn, payload.len()));
                bytes.extend(payload);
                sent[*conn as usize].extend(payload);
            }
            let mut unframer = Unframer::default();
            let mut received = vec![Vec::<u8>::new(); 4];
            let mut sizes = splits.iter().cycle();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (mut part, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                while let Some((conn, piece)) = unframer.next(&mut part).unwrap() {
                    prop_assert!(!piece.is_empty());
                    received[conn as usize].extend(piece);
                }
                prop_assert!(part.is_empty());
                rest = later;
            }
            prop_assert!(unframer.between_frames());
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn arbitrary_bytes_give_no_more_payload_than_input(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut unframer = Unframer::default();
            let mut rest = &bytes[..];
            let mut out = 0;
            while let Ok(Some((conn, piece))) = unframer.next(&mut rest) {
                prop_assert!(conn != 0);
                out += piece.len();
            }
            prop_assert!(out <= bytes.len());
        }

        #[test]
        fn no_frame_with_header_bytes_exceeds_the_readers_buffer_and_none_spans_two_messages(
            payloads in prop::collection::vec(0_usize..20_000, 1..6),
            writes in prop::collection::vec(1_usize..9_000, 1..12),
        ) {
            let mut heads = Vec::new();
            let mut bytes = Vec::new();
            for payload in payloads {
                heads.push(bytes.len()..bytes.len() + MESSAGE_HEADER);
                bytes.extend(message(payload));
            }
            let mut framer = Framer::default();
            let mut at = 0;
            let mut sizes = writes.iter().cycle();
            while at < bytes.len() {
                let end = bytes.len().min(at + sizes.next().unwrap());
                while at < end {
                    let cut = framer.cut(&bytes[at..end]);
                    prop_assert!(cut > 0);
                    let frame = at..at + cut;
                    let holds_header = heads.iter().any(|head| head.start < frame.end && frame.start < head.end);
                    prop_assert!(!holds_header || cut <= READER_BUFFER);
                    prop_assert!(!heads.iter().any(|head| frame.start < head.start && head.start < frame.end));
                    at += cut;
                }
            }
        }
    }
}
