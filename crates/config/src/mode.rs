//! `mode`: whether the plugin carries out what it decides.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Enforce,
    /// It changes nothing, and shows and logs what it would do.
    Observe,
}

impl Mode {
    pub const ALL: [Mode; 2] = [Mode::Enforce, Mode::Observe];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        }
    }
}
