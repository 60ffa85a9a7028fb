//! For both test programs of the lab.

use std::sync::OnceLock;

use lab::binaries::Binaries;

pub(crate) fn binaries() -> &'static Binaries {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    BINARIES.get_or_init(|| Binaries::build().unwrap())
}
