//! The clock of what is logged and remembered.

use super::time::Moment;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970. A clock before that is as good as none.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
