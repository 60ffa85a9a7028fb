//! The clock of the log, the status and the history.

use std::time::{Duration, SystemTime};
use wording::{Moment, Stamp};

pub fn now() -> Moment {
    SystemTime::now().into()
}

/// The moment that long before now.
pub fn ago(time: Duration) -> Moment {
    (SystemTime::now() - time).into()
}

pub fn stamp() -> Stamp {
    SystemTime::now().into()
}
