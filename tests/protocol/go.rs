//! How a runtime written in Go reads what we write: the strictest reader there is.
//!
//! Its connection hands over exactly one frame per read and fails if the frame is longer than the
//! buffer it is read into. Messages are read through a buffer of 4096 bytes; only when that is
//! empty and at least so much of a payload is still missing is it read straight into place. Here
//! that failure is a failed assertion.

const BUFFER: usize = 4096;
const HEADER: usize = 10;
const MAX_MESSAGE: usize = 4 << 20;

/// A ttrpc message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = u32::try_from(self.payload.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend([self.kind, 0]);
        bytes.extend(&self.payload);
        bytes
    }
}

/// The reader of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Bytes of the message being read: first its header, then all of it.
    message: Vec<u8>,
    /// Lengths of all frames that came, for tests that look at them.
    pub(crate) frames: Vec<usize>,
}

impl Reader {
    /// Bytes of the current message that the reader is waiting for: header or payload, never both
    /// at once.
    fn wanted(&self) -> usize {
        match self.length() {
            None => HEADER - self.message.len(),
            Some(length) => HEADER + length - self.message.len(),
        }
    }

    fn length(&self) -> Option<usize> {
        let header = self.message.get(..HEADER)?;
        Some(u32::from_be_bytes(header[..4].try_into().unwrap()) as usize)
    }

    /// Reads a frame as a reader does that has been waiting for it; gives the messages completed by
    /// it.
    pub(crate) fn frame(&mut self, frame: &[u8]) -> Vec<Message> {
        self.frames.push(frame.len());
        assert!(!frame.is_empty(), "an empty frame means the end of the stream to the reader");
        let in_payload = self.length().is_some();
        let room = if in_payload && self.wanted() >= BUFFER { self.wanted() } else { BUFFER };
        assert!(
            frame.len() <= room,
            "ENOMEM: a frame of {} bytes is read into a buffer of {room}",
            frame.len()
        );
        let mut messages = Vec::new();
        let mut rest = frame;
        loop {
            let (now, later) = rest.split_at(self.wanted().min(rest.len()));
            self.message.extend(now);
            rest = later;
            if self.wanted() == 0 && self.message.len() >= HEADER {
                let whole = std::mem::take(&mut self.message);
                let payload = whole[HEADER..].to_vec();
                assert!(payload.len() <= MAX_MESSAGE, "a message of {} bytes", payload.len());
                let stream = u32::from_be_bytes(whole[4..8].try_into().unwrap());
                messages.push(Message { stream, kind: whole[8], payload });
            } else if rest.is_empty() {
                return messages;
            }
        }
    }

    /// Whether what was read ends with a whole message.
    pub(crate) fn between_messages(&self) -> bool {
        self.message.is_empty()
    }
}

/// The reader itself is right only if it fails where Go's does.
mod tests {
    use super::*;

    fn message(payload: usize) -> Vec<u8> {
        Message { stream: 1, kind: 2, payload: vec![7; payload] }.bytes()
    }

    fn reads(cuts: &[usize], payload: usize) -> bool {
        let bytes = message(payload);
        let cuts = cuts.to_vec();
        std::panic::catch_unwind(move || {
            let (mut reader, mut rest) = (Reader::default(), &bytes[..]);
            for cut in cuts {
                let (frame, later) = rest.split_at(cut);
                reader.frame(frame);
                rest = later;
            }
        })
        .is_ok()
    }

    #[test]
    fn what_go_reads() {
        for (cuts, payload, survives) in [
            (&[4096][..], 4086, true),
            (&[4097], 4087, false),
            (&[4096, 58], 4144, true),
            (&[10, 5000], 5000, true),
            (&[10, 4096, 904], 5000, true),
            (&[4096, 96_014], 100_100, true),
            (&[4096, 60_000, 36_014], 100_100, true),
            (&[4, 4, 2, 5000], 5000, true),
            (&[4, 5006], 5000, false),
        ] {
            assert_eq!(reads(cuts, payload), survives, "{cuts:?} of {payload}");
        }
    }

    #[test]
    fn a_long_frame_must_not_reach_into_the_next_message() {
        let mut bytes = message(5000);
        bytes.extend(message(0));
        let read = std::panic::catch_unwind(move || {
            let mut reader = Reader::default();
            reader.frame(&bytes[..10]);
            reader.frame(&bytes[10..]);
        });
        assert!(read.is_err());
    }
}
