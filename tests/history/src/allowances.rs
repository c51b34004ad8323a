//! What a verdict allows beside the calls that were recorded.

/// How often clients send a call again, and how exactly times were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowances {
    /// How often each call may have been executed in addition, because a client got no reply and sent it again.
    pub repeats: u8,
    /// How far the server's clock may lie outside the interval of a call, µs.
    pub tolerance_us: u64,
}

impl Allowances {
    /// For real processes and servers whose connections break. A server reads its clock once for several commands, and
    /// each process reads the clocks by itself.
    pub const REAL: Self = Self { repeats: 1, tolerance_us: 5_000 };
    /// For a run with one clock, in which no connection breaks and no reply is late.
    pub const EXACT: Self = Self { repeats: 0, tolerance_us: 0 };

    /// Without calls that were sent again.
    #[must_use]
    pub const fn without_repeats(self) -> Self {
        Self { repeats: 0, ..self }
    }
}
