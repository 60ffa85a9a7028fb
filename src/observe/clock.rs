//! The clock of the log, the status and the history.

use super::time::{Moment, Stamp};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Moment {
    stamp().moment
}

/// A clock before 1970 counts as 1970.
pub(super) fn stamp() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = Moment(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    Stamp { moment, millis: since.subsec_millis() }
}
