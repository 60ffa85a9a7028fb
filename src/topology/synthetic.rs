//! Described machines.
