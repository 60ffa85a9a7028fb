//! The format of the target `ttrpc`: a list of calls by the runtime.
//!
//! Each record is the call (one byte, see [`METHODS`]), the payload's length (two bytes, little
//! endian), and the payload. The payload of a truncated record is the rest of the input, so all
//! bytes are a list of calls.

/// The calls by their number in a record.
pub const METHODS: &[&str] = &[
    "Configure",
    "Synchronize",
    "CreateContainer",
    "UpdateContainer",
    "StopContainer",
    "StateChange",
    "RunPodSandbox",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "PostUpdateContainer",
    "RemoveContainer",
    "ValidateContainerAdjustment",
    "Shutdown",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<'a> {
    /// A call of this method with this payload. An unknown number is `NoSuchMethod`.
    Method(&'static str, &'a [u8]),
    /// Bytes that are no message, on the plugin's connection (1) or the runtime's (2).
    Raw(u32, &'a [u8]),
}

const RAW_PLUGIN: u8 = 0xfe;
const RAW_RUNTIME: u8 = 0xff;

pub fn decode(mut bytes: &[u8]) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    while let [number, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, later) = rest.split_at(length);
        calls.push(match *number {
            RAW_PLUGIN => Call::Raw(1, payload),
            RAW_RUNTIME => Call::Raw(2, payload),
            number => {
                let method = METHODS.get(usize::from(number)).copied();
                Call::Method(method.unwrap_or("NoSuchMethod"), payload)
            }
        });
        bytes = later;
    }
    calls
}

pub fn encode(bytes: &mut Vec<u8>, method: &str, payload: &[u8]) {
    let number = METHODS.iter().position(|known| *known == method).expect("a known method");
    bytes.push(u8::try_from(number).expect("few methods"));
    bytes.extend(u16::try_from(payload.len()).expect("a short payload").to_le_bytes());
    bytes.extend(payload);
}
