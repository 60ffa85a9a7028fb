//! The plugin's name and index for the registration.

use std::fmt;

/// A plugin's valid name and index. A runtime does not answer a plugin with an invalid one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    index: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("plugin index {0:?}: must be two digits, from 00 to 99")]
    Index(String),
    #[error("plugin name {0:?}: must be letters, digits and any of _ . + -")]
    Name(String),
}

impl Identity {
    /// Runtimes call plugins in the order of their `index`.
    pub fn new(name: &str, index: &str) -> Result<Identity, IdentityError> {
        if index.len() != 2 || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(IdentityError::Index(index.to_owned()));
        }
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_legal) {
            return Err(IdentityError::Name(name.to_owned()));
        }
        Ok(Identity { name: name.to_owned(), index: index.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn index(&self) -> &str {
        &self.index
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_indices_that_runtimes_accept_are_valid() {
        for (name, index, legal) in [
            ("cpu-manager", "90", true),
            ("A.b_c+d-9", "00", true),
            ("", "90", false),
            ("cpu manager", "90", false),
            ("cpu/manager", "90", false),
            ("größe", "90", false),
            ("cpu-manager", "9", false),
            ("cpu-manager", "900", false),
            ("cpu-manager", "9a", false),
            ("cpu-manager", "+9", false),
            ("cpu-manager", "٩", false),
        ] {
            assert_eq!(Identity::new(name, index).is_ok(), legal, "{index}-{name}");
        }
    }
}
