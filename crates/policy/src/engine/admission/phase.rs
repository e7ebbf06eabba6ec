//! The phases of admission: validate and mutate.

/// Which half of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Who may refuse: `/validate`.
    Validate,
    /// Who may change: `/mutate`.
    Mutate,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 2;
    /// Each once, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [Self::Validate, Self::Mutate];

    /// The place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As paths, metrics and logs spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }
}
