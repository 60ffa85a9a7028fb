//! Sets of events, for the subscription.

use crate::wire::Event;
use std::fmt;
use std::ops::BitOr;

/// A set of events; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(i32);

impl Events {
    /// Every event of NRI 0.12.
    pub const ALL: Events = Events(0x3fff);

    /// These events; [`Event::UNKNOWN`] is none.
    pub const fn of(events: &[Event]) -> Events {
        let mut mask = 0;
        let mut at = 0;
        // `for` cannot be used in a const function yet.
        while at < events.len() {
            if events[at] as i32 > 0 {
                mask |= 1 << (events[at] as i32 - 1);
            }
            at += 1;
        }
        Events(mask)
    }

    pub const fn without(self, others: Events) -> Events {
        Events(self.0 & !others.0)
    }

    pub const fn contains(self, event: Event) -> bool {
        let one = Events::of(&[event]).0;
        one != 0 && self.0 & one == one
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The events that both sets have.
    pub const fn common(self, other: Events) -> Events {
        Events(self.0 & other.0)
    }

    /// The set on the wire: bit `event - 1` for each event.
    pub const fn mask(self) -> i32 {
        self.0
    }
}

impl BitOr for Events {
    type Output = Events;

    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::Enum;

    #[test]
    fn all_is_every_event_that_the_protocol_declares() {
        assert_eq!(Events::of(Event::VALUES), Events::ALL);
        assert!(!Events::ALL.contains(Event::UNKNOWN));
    }

    #[test]
    fn events_are_combined_and_removed_as_bits() {
        let two = Events::of(&[Event::RUN_POD_SANDBOX, Event::START_CONTAINER]);
        assert_eq!(two.mask(), 0x21);
        assert!(two.contains(Event::START_CONTAINER) && !two.contains(Event::STOP_CONTAINER));
        let one = Events::of(&[Event::START_CONTAINER]);
        assert_eq!(two.without(one) | one, two);
        assert!(two.without(one).common(one).is_empty());
    }
}
