//! Booleans as the kubelet's options spell them.

/// A text Go does not read as a boolean, in the words of its standard library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.ParseBool: parsing {0:?}: invalid syntax")]
pub struct NotABool(pub String);

/// Reads a boolean as Go does, and so the kubelet.
///
/// # Errors
/// If it is none of `1 t T TRUE true True 0 f F FALSE false False`.
pub(super) fn parse_bool(text: &str) -> Result<bool, NotABool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(NotABool(text.to_owned())),
    }
}
