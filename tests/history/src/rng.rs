//! Random choices of a seed.

use std::ops::Range;
use std::time::Duration;

/// `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend only on this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A generator whose numbers do not depend on how many this one returns later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number of this range.
    pub fn draw(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// A time of this range of milliseconds.
    pub fn ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.draw(range))
    }

    /// Whether an event happens that does so this often of 1000 times.
    pub fn happens(&mut self, per_mille: u64) -> bool {
        self.draw(0..1000) < per_mille
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = self.draw(0..choices.len() as u64);
        &choices[usize::try_from(at).unwrap_or_default()]
    }
}
