//! Placeholder of the lab's command.
fn main() {}
