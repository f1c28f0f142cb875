//! Operations with results, and fills, with data inside and outside the cache.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hint::black_box;

use crc_fast::CrcAlgorithm;
use dma_core::{DmaEngine, DmaEngineExt, Queue};

use super::support::cpu_time;
use super::{Contender, Extent, IN_FLIGHT, Pair, are_copied, compare, done, memcpy, one_at_a_time, pairs};

fn crc_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Compares operations with results, and fills: with 32 in flight, and one at a time.
pub(super) fn results(engine: &dyn DmaEngine, queue: &Queue, extent: Extent, len: usize) {
    let times = ((32 << 20) / (len + 512) / IN_FLIGHT / extent.fewer).max(1);
    let make = || pairs(engine, len, IN_FLIGHT);
    /// Executes an operation on all pairs at the same time, `times` times.
    macro_rules! in_flight {
        ($pairs:ident, $submit:expr, $end:expr) => {{
            let (pairs, mut transfers) = (&mut $pairs, Vec::with_capacity(IN_FLIGHT));
            move || {
                for _ in 0..times {
                    transfers.extend(pairs.drain(..).map($submit));
                    pairs.extend(transfers.drain(..).map($end));
                }
            }
        }};
    }
    let compared = |name: &str, of: Vec<Contender<'_>>| {
        let name = format!("{name}, {len} B");
        compare(extent, cpu_time, &name, times * IN_FLIGHT, of);
    };
    let plain = make();
    let crcs: Vec<u32> = plain.iter().map(|(src, _)| crc32c::crc32c(src)).collect();
    let (mut many, mut one) = (make(), make());
    let (many_seen, one_seen) = &(Cell::new(0_u64), Cell::new(0_u64));
    let add = |sum: &Cell<u64>, crc: u32| sum.set(sum.get().wrapping_add(crc.into()));
    let rounds = (extent.rounds + 2) * times;
    let expected: u64 = crcs.iter().map(|crc| u64::from(*crc)).sum::<u64>().wrapping_mul(rounds as u64);
    let of: Vec<Contender<'_>> = vec![
        (
            "crc-fast",
            Box::new(|| {
                for _ in 0..times {
                    for ((src, _), crc) in plain.iter().zip(&crcs) {
                        assert_eq!(crc_of(black_box(src)), *crc);
                    }
                }
            }),
        ),
        (
            "in flight",
            Box::new(in_flight!(many, |(src, dst)| (done(queue.crc32c(src, 0)), dst), |(transfer, dst)| {
                let (src, crc) = done(transfer.wait());
                add(many_seen, crc);
                (src, dst)
            })),
        ),
        (
            "one at a time",
            Box::new(|| {
                one_at_a_time(&mut one, times, |(src, dst)| {
                    let (src, crc) = done(done(queue.crc32c(src, 0)).wait());
                    add(one_seen, crc);
                    (src, dst)
                });
            }),
        ),
    ];
    compared("CRC-32C", of);
    assert_eq!((many_seen.get(), one_seen.get()), (expected, expected), "the sums of all CRCs");

    let (mut copied, mut many, mut one) = (make(), make(), make());
    let of: Vec<Contender<'_>> = vec![
        (
            "memcpy and crc-fast",
            Box::new(|| {
                for _ in 0..times {
                    for ((src, dst), crc) in copied.iter_mut().zip(&crcs) {
                        black_box(&mut **dst).copy_from_slice(black_box(src));
                        assert_eq!(crc_of(black_box(dst)), *crc);
                    }
                }
            }),
        ),
        (
            "in flight",
            Box::new(in_flight!(many, |(src, dst)| done(queue.copy_crc32c(src, dst, 0)), |transfer| {
                let (pair, crc) = done(transfer.wait());
                black_box(crc);
                pair
            })),
        ),
        (
            "one at a time",
            Box::new(|| {
                one_at_a_time(&mut one, times, |(src, dst)| {
                    let (pair, crc) = done(done(queue.copy_crc32c(src, dst, 0)).wait());
                    black_box(crc);
                    pair
                });
            }),
        ),
    ];
    compared("copy with CRC-32C", of);
    assert!(are_copied(&copied) && are_copied(&many) && are_copied(&one), "copies with CRC-32C");

    // Both sides of each pair are equal now.
    let (mut many, mut one) = (many, one);
    let of: Vec<Contender<'_>> = vec![
        (
            "slices",
            Box::new(|| {
                for _ in 0..times {
                    for (src, dst) in &copied {
                        assert!(black_box(&src[..]) == black_box(&dst[..]));
                    }
                }
            }),
        ),
        (
            "in flight",
            Box::new(in_flight!(many, |(a, b)| done(queue.compare(a, b)), |transfer| {
                let (pair, difference) = done(transfer.wait());
                assert_eq!(difference, None);
                pair
            })),
        ),
        (
            "one at a time",
            Box::new(|| {
                one_at_a_time(&mut one, times, |(a, b)| {
                    let (pair, difference) = done(done(queue.compare(a, b)).wait());
                    assert_eq!(difference, None);
                    pair
                });
            }),
        ),
    ];
    compared("compare", of);

    let (mut filled, mut many, mut one) = (make(), make(), make());
    let of: Vec<Contender<'_>> =
        vec![
            (
                "slices",
                Box::new(|| {
                    for _ in 0..times {
                        filled.iter_mut().for_each(|(_, dst)| black_box(&mut **dst).fill(black_box(7)));
                    }
                }),
            ),
            (
                "in flight",
                Box::new(in_flight!(
                    many,
                    |(src, dst)| (src, done(queue.fill(dst, [7; 8]))),
                    |(src, transfer)| (src, done(transfer.wait()))
                )),
            ),
            (
                "one at a time",
                Box::new(|| {
                    one_at_a_time(&mut one, times, |(src, dst)| {
                        (src, done(done(queue.fill(dst, [7; 8])).wait()))
                    });
                }),
            ),
        ];
    compared("fill", of);
    let are_filled = |pairs: &[Pair]| pairs.iter().all(|(_, dst)| dst.iter().all(|byte| *byte == 7));
    assert!(are_filled(&filled) && are_filled(&many) && are_filled(&one), "fills");
}

/// Compares operations that are executed one at a time on the same buffers.
pub(super) fn single(engine: &dyn DmaEngine, queue: &Queue, extent: Extent, len: usize) {
    let times = ((256 << 20) / (len + 512) / extent.fewer).max(1);
    let make = || pairs(engine, len, 1);
    let compared = |name: &str, of: Vec<Contender<'_>>| {
        compare(extent, cpu_time, &format!("{name}, {len} B, one pair"), times, of);
    };
    let (mut plain, mut ours) = (make(), make());
    let of: Vec<Contender<'_>> = vec![
        ("memcpy", Box::new(|| memcpy(&mut plain, times))),
        (
            "copy().wait()",
            Box::new(|| {
                one_at_a_time(&mut ours, times, |(src, dst)| done(done(queue.copy(src, dst)).wait()));
            }),
        ),
    ];
    compared("copy", of);
    assert!(are_copied(&plain) && are_copied(&ours), "copies of {len} B");
    let of: Vec<Contender<'_>> = vec![
        (
            "slices",
            Box::new(|| {
                for _ in 0..times {
                    assert!(black_box(&plain[0].0[..]) == black_box(&plain[0].1[..]));
                }
            }),
        ),
        (
            "compare().wait()",
            Box::new(|| {
                one_at_a_time(&mut ours, times, |(a, b)| {
                    let (pair, difference) = done(done(queue.compare(a, b)).wait());
                    assert_eq!(difference, None);
                    pair
                });
            }),
        ),
    ];
    compared("compare", of);
    let of: Vec<Contender<'_>> = vec![
        ("slices", Box::new(|| (0..times).for_each(|_| black_box(&mut *plain[0].1).fill(black_box(7))))),
        (
            "fill().wait()",
            Box::new(|| {
                one_at_a_time(&mut ours, times, |(src, dst)| {
                    (src, done(done(queue.fill(dst, [7; 8])).wait()))
                });
            }),
        ),
    ];
    compared("fill", of);
    assert!(plain[0].1[..] == ours[0].1[..], "fills of {len} B");
    let mut also = engine.allocate(len).expect("memory");
    let mut operands = Some((make().remove(0), engine.allocate(len).expect("memory")));
    let (src, dst) = &mut plain[0];
    let of: Vec<Contender<'_>> = vec![
        (
            "two memcpy",
            Box::new(|| {
                for _ in 0..times {
                    black_box(&mut **dst).copy_from_slice(black_box(src));
                    black_box(&mut *also).copy_from_slice(black_box(src));
                }
            }),
        ),
        (
            "copy_to_both().wait()",
            Box::new(|| {
                let ((mut src, mut dst), mut also) = operands.take().expect("returned");
                for _ in 0..times {
                    (src, dst, also) = done(done(queue.copy_to_both(src, dst, also)).wait());
                }
                operands = Some(((src, dst), also));
            }),
        ),
    ];
    compared("two destinations", of);
    let ((src, dst), also) = operands.expect("returned");
    assert!(src[..] == dst[..] && src[..] == also[..], "two destinations of {len} B");
}

pub(super) fn cold_results(engine: &dyn DmaEngine, queue: &Queue, extent: Extent, len: usize) {
    let count = extent.cold / len;
    let mut all: VecDeque<Pair> = pairs(engine, len, count).into();
    let crcs: Vec<u32> = all.iter().map(|(src, _)| crc_of(src)).collect();
    all.iter_mut().for_each(|(src, dst)| dst.copy_from_slice(src));
    let times = (count / 8).max(1);
    let state = RefCell::new((&mut all, 0_usize));
    // Runs an operation on the next pairs. Each pair has the CRC of its source.
    let each = |operate: &dyn Fn(Pair, u32) -> Pair| {
        for _ in 0..times {
            let (pair, at) = {
                let mut state = state.borrow_mut();
                let at = state.1;
                state.1 = (at + 1) % count;
                (state.0.pop_front().expect("a pair"), at)
            };
            let pair = operate(pair, crcs[at]);
            state.borrow_mut().0.push_back(pair);
        }
    };
    let cells: [(&str, Vec<Contender<'_>>); 3] = [
        (
            "CRC-32C",
            vec![
                (
                    "crc-fast",
                    Box::new(|| {
                        each(&|pair, crc| {
                            assert_eq!(crc_of(black_box(&pair.0)), crc);
                            pair
                        });
                    }),
                ),
                (
                    "crc32c().wait()",
                    Box::new(|| {
                        each(&|(src, dst), crc| {
                            let (src, result) = done(done(queue.crc32c(src, 0)).wait());
                            assert_eq!(result, crc);
                            (src, dst)
                        });
                    }),
                ),
            ],
        ),
        (
            "compare",
            vec![
                (
                    "slices",
                    Box::new(|| {
                        each(&|pair, _| {
                            assert!(black_box(&pair.0[..]) == black_box(&pair.1[..]));
                            pair
                        });
                    }),
                ),
                (
                    "compare().wait()",
                    Box::new(|| {
                        each(&|(a, b), _| {
                            let (pair, difference) = done(done(queue.compare(a, b)).wait());
                            assert_eq!(difference, None);
                            pair
                        });
                    }),
                ),
            ],
        ),
        (
            "copy with CRC-32C",
            vec![
                (
                    "copy().wait()",
                    Box::new(|| each(&|(src, dst), _| done(done(queue.copy(src, dst)).wait()))),
                ),
                (
                    "copy_crc32c().wait()",
                    Box::new(|| {
                        each(&|(src, dst), crc| {
                            let (pair, result) = done(done(queue.copy_crc32c(src, dst, 0)).wait());
                            assert_eq!(result, crc);
                            pair
                        });
                    }),
                ),
                (
                    "memcpy and crc-fast",
                    Box::new(|| {
                        each(&|(src, mut dst), crc| {
                            black_box(&mut *dst).copy_from_slice(black_box(&src));
                            assert_eq!(crc_of(black_box(&dst)), crc);
                            (src, dst)
                        });
                    }),
                ),
            ],
        ),
    ];
    for (name, of) in cells {
        compare(extent, cpu_time, &format!("{name}, {len} B, one at a time"), times, of);
    }
}
