//! Tests of each set of instructions, and of the addresses of prefetches.

use proptest::prelude::*;

use super::*;

/// Prefetches have no effect that a test can see, so this tests their addresses.
#[test]
fn no_prefetch_leaves_the_range() {
    fn test<const CHAIN: usize>() {
        let (mut none, mut some) = (0, 0);
        for len in 3 * CHAIN..8 * CHAIN {
            match ahead_at_the_end::<CHAIN>(len) {
                0 => none += 1,
                ahead => {
                    some += 1;
                    // The end of the last chain's last line.
                    assert!(3 * CHAIN + ahead <= len, "{CHAIN}, {len}, {ahead}");
                }
            }
        }
        assert!(none > 0 && some > 0);
    }
    test::<256>();
    test::<4096>();
}

proptest! {
    /// Tests all sets of instructions that this CPU supports, not only the set that `instructions`
    /// selects.
    #[test]
    fn every_set_of_instructions_has_the_same_crc(
        len in prop_oneof![0..700_usize, 700..3000_usize, 12_000..40_000_usize],
        (from, to) in (0..70_usize, 0..70_usize),
        seed: u32,
        first: u64,
    ) {
        let src: Vec<u8> = (0..(len + from) as u64).map(|i| (first.wrapping_mul(i + 1) >> 23) as u8).collect();
        let expected = crc32c::crc32c_append(seed, &src[from..]);
        let start = src.as_ptr().wrapping_add(from);
        let mut dst = vec![0; to + len + 70];
        for (set, prefetch) in (BASE..=widest()).flat_map(|set| [false, true].map(|prefetch| (set, prefetch))) {
            for by in [by::<NOWHERE>, by::<CACHE>, by::<MEMORY>] {
                dst.fill(0xA5);
                // SAFETY: the ranges lie within both vectors, and a CPU also supports the instructions of
                // every lower set.
                prop_assert_eq!(unsafe { by(set, prefetch, seed, dst.as_mut_ptr().wrapping_add(to), start, len) }, expected);
                prop_assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 0xA5));
            }
            prop_assert_eq!(&dst[to..to + len], &src[from..]);
        }
    }
}
