//! Hints, copies that are never timed, and records in any order.

use proptest::prelude::*;

use super::*;

#[test]
fn hints_and_short_copies_are_never_timed() {
    let mut tuner = tuner();
    for _ in 0..1_000 {
        for (len, hint, streaming) in [
            (0, CacheHint::Auto, false),
            (1, CacheHint::Cold, false),
            (4095, CacheHint::Cold, false),
            (4096, CacheHint::Cold, true),
            (1 << 30, CacheHint::Cold, true),
            (1 << 30, CacheHint::Hot, false),
            (MAYBE_ALONE_MAX, CacheHint::Hot, false),
            (16383, CacheHint::Auto, false),
        ] {
            let pick = tuner.pick(len, hint);
            assert!(!pick.is_timed() && pick.streaming == streaming, "{len} {hint:?}: {pick:?}");
            assert_eq!(
                pick.alone,
                hint == CacheHint::Hot && len <= MAYBE_ALONE_MAX,
                "{len} {hint:?}: {pick:?}"
            );
        }
    }
}

#[test]
fn without_a_streaming_kernel_everything_is_memcpy() {
    let mut tuner = CopyTuner::with_streaming(None);
    for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
        for _ in 0..100 {
            let pick = tuner.pick(1 << 20, hint);
            assert!(!pick.is_timed());
            assert_eq!(tuner.kernel(pick).name(), "memcpy");
        }
    }
}

proptest! {
    /// Times may be recorded late, in any order, or never, with any costs. The tuner must still choose, and
    /// probes must stay rare.
    #[test]
    fn any_order_of_records(steps in prop::collection::vec((any::<u64>(), 0..4_u8, 0..40_usize), 1..2_000)) {
        let mut tuner = tuner().for_cores(4);
        let mut open: Vec<Pick> = Vec::new();
        for (value, action, len) in steps {
            let len = 1_usize << len;
            match action {
                0 if !open.is_empty() => {
                    let pick = open.swap_remove(value as usize % open.len());
                    if pick.is_shared_trial() {
                        tuner.record_shared(pick, value, value / 2, len);
                    } else {
                        tuner.record(pick, value, len);
                    }
                }
                1 => open.clear(),
                _ => {
                    let pick = tuner.pick(len, CacheHint::Auto);
                    let no_helper = pick.is_shared_trial() && value.is_multiple_of(2);
                    open.push(if no_helper { tuner.postpone_trial(pick, value.is_multiple_of(4), value.is_multiple_of(3)) } else { pick });
                }
            }
        }
        let probes = (0..10_000).filter(|_| tuner.pick(1 << 20, CacheHint::Auto).role == Role::Probe).count();
        prop_assert!(probes < 2_000, "{probes} probes in 10000 picks without a recorded time");
    }

    #[test]
    fn copies_and_fills_arrive(len in 0..200_000_usize, pattern: [u8; 8], times in 1..12_usize) {
        let mut tuner = CopyTuner::new();
        let src: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        let filled: Vec<u8> = pattern.into_iter().cycle().take(len).collect();
        for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
            for _ in 0..times {
                let mut dst = vec![0_u8; len];
                // SAFETY: both vectors have `len` bytes and do not overlap.
                unsafe { tuner.copy(dst.as_mut_ptr(), src.as_ptr(), len, hint) };
                prop_assert!(dst == src);
                // SAFETY: the vector has `len` bytes.
                unsafe { tuner.fill(dst.as_mut_ptr(), pattern, len, hint) };
                prop_assert!(dst == filled);
            }
        }
    }
}
