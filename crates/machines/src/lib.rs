//! Machines that nobody has read: [`synthetic`] builds one from a description, [`presets`] are named
//! descriptions, and [`picture`] draws a machine as text.
//!
//! ```
//! use machines::presets::preset;
//! use topology::Topology;
//!
//! let machine: Topology = preset("kep-4800").ok_or("no such machine")?.topology()?;
//! assert_eq!(machine.online().len(), 32);
//! assert_eq!(machine.uncores().len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod picture;
pub mod presets;
pub mod synthetic;
