//! A model of how a runtime written in Go reads the plugin's frames: no reader is stricter.
//!
//! Its connection returns exactly one frame per read, and fails if the frame is longer than the
//! buffer of the read. Messages are read through a buffer of 4096 bytes; a payload is read directly
//! into its place only if that buffer is empty and at least 4096 bytes of the payload are missing.
//! Here the failure is a failed assertion.

const BUFFER: usize = 4096;
const HEADER: usize = 10;
const MAX_MESSAGE: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TtrpcMessage {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl TtrpcMessage {
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
    /// What was read so far of the current message, including its header.
    message: Vec<u8>,
    /// Lengths of all frames that arrived, for tests.
    pub(crate) frames: Vec<usize>,
}

impl Reader {
    /// Bytes of the current message that the reader is waiting for: header or payload, never both
    /// at once.
    fn requested(&self) -> usize {
        match self.length() {
            None => HEADER - self.message.len(),
            Some(length) => HEADER + length - self.message.len(),
        }
    }

    fn length(&self) -> Option<usize> {
        let header = self.message.get(..HEADER)?;
        Some(u32::from_be_bytes(header[..4].try_into().unwrap()) as usize)
    }

    /// Reads a frame; returns the messages that it completes.
    pub(crate) fn frame(&mut self, frame: &[u8]) -> Vec<TtrpcMessage> {
        self.frames.push(frame.len());
        assert!(!frame.is_empty(), "an empty frame means the end of the stream to the reader");
        let in_payload = self.length().is_some();
        let buffer =
            if in_payload && self.requested() >= BUFFER { self.requested() } else { BUFFER };
        assert!(
            frame.len() <= buffer,
            "ENOMEM: a frame of {} bytes is read into a buffer of {buffer}",
            frame.len()
        );
        let mut messages = Vec::new();
        let mut rest = frame;
        loop {
            let (now, later) = rest.split_at(self.requested().min(rest.len()));
            self.message.extend(now);
            rest = later;
            if self.requested() == 0 && self.message.len() >= HEADER {
                let whole = std::mem::take(&mut self.message);
                let payload = whole[HEADER..].to_vec();
                assert!(payload.len() <= MAX_MESSAGE, "a message of {} bytes", payload.len());
                let stream = u32::from_be_bytes(whole[4..8].try_into().unwrap());
                messages.push(TtrpcMessage { stream, kind: whole[8], payload });
            } else if rest.is_empty() {
                return messages;
            }
        }
    }

    /// Whether the bytes read so far end with a whole message.
    pub(crate) fn between_messages(&self) -> bool {
        self.message.is_empty()
    }
}

/// The model must fail where Go's reader fails, and nowhere else.
mod tests {
    use super::*;

    fn message(payload: usize) -> Vec<u8> {
        TtrpcMessage { stream: 1, kind: 2, payload: vec![7; payload] }.bytes()
    }

    fn reads(cuts: &[usize], payload: usize) -> bool {
        let bytes = message(payload);
        let cuts = cuts.to_vec();
        std::panic::catch_unwind(move || {
            let mut reader = Reader::default();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (frame, later) = rest.split_at(cut);
                reader.frame(frame);
                rest = later;
            }
        })
        .is_ok()
    }

    #[test]
    fn the_reader_fails_where_gos_does() {
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
