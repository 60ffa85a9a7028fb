//! gRPC over HTTP/2, as far as unary calls without compression need it.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http::header::HeaderValue;
use std::fmt::{self, Write as _};

pub(crate) const MEDIA_TYPE: &str = "application/grpc";

/// The bytes before a message: a flag (compressed), and the message's length.
const PREFIX: usize = 5;

/// A status code of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const INVALID_ARGUMENT: Code = Code(3);
    pub(crate) const DEADLINE_EXCEEDED: Code = Code(4);
    pub(crate) const NOT_FOUND: Code = Code(5);
    pub(crate) const RESOURCE_EXHAUSTED: Code = Code(8);
    pub(crate) const UNIMPLEMENTED: Code = Code(12);
    pub(crate) const UNAVAILABLE: Code = Code(14);
    const UNKNOWN: Code = Code(2);
}

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// The status in trailers, or in the headers of a response without a body; `None` if they have
    /// none.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Result<(), Status>> {
        let code = fields.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
        let code = code.map_or(Code::UNKNOWN, Code);
        if code == Code(0) {
            return Some(Ok(()));
        }
        let message = fields.get("grpc-message").map_or(&b""[..], HeaderValue::as_bytes);
        Some(Err(Status::new(code, decoded(message))))
    }

    pub(crate) fn trailers(result: &Result<(), Status>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let code = result.as_ref().err().map_or(0, |status| status.code.0);
        fields.insert("grpc-status", HeaderValue::from(code));
        if let Err(status) = result {
            // Always `Ok`: the encoded text is a valid header value.
            if let Ok(message) = HeaderValue::from_str(&encoded(&status.message)) {
                fields.insert("grpc-message", message);
            }
        }
        fields
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC code {})", self.message, self.code.0)
    }
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

/// Reads the one message of a body, of at most `max` bytes.
pub(crate) async fn message(body: &mut RecvStream, max: usize) -> Result<Bytes, Status> {
    let mut bytes = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| Status::new(Code::UNAVAILABLE, error.to_string()))?;
        if bytes.len() + data.len() > PREFIX + max {
            let why = format!("the message is longer than {max} bytes");
            return Err(Status::new(Code::RESOURCE_EXHAUSTED, why));
        }
        bytes.extend_from_slice(&data);
        // Fails only if the stream has ended, and then the next `data` shows it.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(Status::new(Code::INVALID_ARGUMENT, "no message"));
    };
    let &[compressed, length @ ..] = prefix;
    if compressed != 0 {
        return Err(Status::new(Code::UNIMPLEMENTED, "compressed messages are not supported"));
    }
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(Status::new(Code::INVALID_ARGUMENT, "expected one complete message"));
    }
    Ok(bytes.freeze().slice(PREFIX..))
}

/// Percent-encoded: printable ASCII stands for itself.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

fn decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let hex = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                decoded.push(value);
                rest = &after[2..];
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_its_encoding() {
        let failed = |text: &str| Err(Status::new(Code::NOT_FOUND, text));
        for result in [Ok(()), failed("pod a in namespace b not found"), failed("100 %\n\u{fc}")] {
            assert_eq!(Status::of(&Status::trailers(&result)), Some(result));
        }
        assert_eq!(Status::of(&HeaderMap::new()), None);
    }

    #[test]
    fn invalid_encodings_in_a_message_are_kept_or_replaced() {
        for (text, expect) in [("%", "%"), ("%4", "%4"), ("%zz%41", "%zzA"), ("%ff", "\u{fffd}")] {
            assert_eq!(decoded(text.as_bytes()), expect);
        }
    }
}
