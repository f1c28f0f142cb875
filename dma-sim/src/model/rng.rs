//! The model's random numbers: one seed, and one stream for each purpose. Faults use [their
//! own](super::FaultInjector) random numbers.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

/// Purpose of a stream of random numbers. Streams are independent: for example, an additional report does not
/// change the jitter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The jitter, tearing and corruption of a channel's tasks.
    Tasks = 0,
    /// The order in which finished tasks are reported.
    Reports = 2,
}

/// A stream of random numbers.
#[derive(Debug)]
pub(super) struct Stream(ChaCha8Rng);

impl Default for Stream {
    fn default() -> Self {
        Self::new(0, 0, Purpose::Tasks)
    }
}

impl Stream {
    /// Returns the stream for one purpose on one channel.
    pub(super) fn new(seed: u64, channel: u32, purpose: Purpose) -> Self {
        // The key is computed here and not by `seed_from_u64`, so that traces stay equal across releases of
        // the random number crates. ChaCha itself does not change.
        let mut key = [0; 32];
        for (i, part) in (0..).zip(key.chunks_exact_mut(8)) {
            part.copy_from_slice(&mix(seed.wrapping_add(i)).to_le_bytes());
        }
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(u64::from(channel) << 8 | purpose as u64);
        Self(rng)
    }

    /// Returns 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `n`, which must not be 0.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        scale(self.bits(), n)
    }
}

/// Maps `bits` to `0..n`.
#[inline]
pub(super) fn scale(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

/// Hashes a number by the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[inline]
pub(super) const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_fixed_for_ever_and_differ() {
        // A change of these numbers changes every recorded trace, so it must be intended.
        assert_eq!(Stream::new(7, 0, Purpose::Tasks).bits(), 3_897_896_367_851_784_436);
        let first = |channel, purpose| Stream::new(7, channel, purpose).bits();
        assert_ne!(first(0, Purpose::Tasks), first(0, Purpose::Reports));
        assert_ne!(first(0, Purpose::Tasks), first(1, Purpose::Tasks));
        assert_ne!(first(0, Purpose::Tasks), Stream::new(8, 0, Purpose::Tasks).bits());
    }

    #[test]
    fn numbers_are_below_their_limit() {
        let mut stream = Stream::new(1, 0, Purpose::Reports);
        assert!((0..1_000).all(|_| stream.below(3) < 3));
    }
}
