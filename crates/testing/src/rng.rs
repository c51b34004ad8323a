//! Random numbers from a seed.
#![cfg_attr(not(feature = "lambda"), allow(dead_code, reason = "only the queue uses most of it"))]

/// Purpose of a random number. Each purpose has its own sequence, so draws for one do not shift another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Draw {
    MessageId,
    ReceiptHandle,
    Order,
    ConcurrentDelivery,
    Redelivery,
    StaleHandle,
    Throttled,
    DeleteLost,
    Fault,
    ExpiredHandle,
    PartialReceive,
    InvocationDelay,
}

/// A stateless generator. A number depends only on the seed and its purpose, not on earlier draws, so concurrent
/// threads get the same number for the same message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The generator of a named object.
    pub(super) fn of(self, name: &str) -> Self {
        Self(name.bytes().fold(mix(self.0), |state, byte| mix(state ^ u64::from(byte))))
    }

    pub(super) fn draw(self, what: Draw, number: u64, time: u64) -> u64 {
        [what as u64, number, time].into_iter().fold(self.0, |state, part| mix(state ^ part))
    }

    /// Uniformly distributed from 0 to 1.
    pub(super) fn fraction(self, what: Draw, number: u64, time: u64) -> f64 {
        const BITS: u64 = 1 << 53;
        #[expect(clippy::cast_precision_loss, reason = "an f64 holds 53 bits")]
        let fraction = (self.draw(what, number, time) % BITS) as f64 / BITS as f64;
        fraction
    }

    /// Whether an event of this probability happens.
    pub(super) fn happens(self, probability: f64, what: Draw, number: u64, time: u64) -> bool {
        self.fraction(what, number, time) < probability
    }

    /// A UUID of version 4, as SQS and Lambda generate them.
    pub(super) fn uuid(self, what: Draw, number: u64) -> String {
        let bits = u128::from(self.draw(what, number, 0)) << 64 | u128::from(self.draw(what, number, 1));
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

/// One step of `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
