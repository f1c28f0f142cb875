//! Operations with results, and fills, with data inside and outside the cache.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hint::black_box;

use crc_fast::CrcAlgorithm;
use dma_core::{BufferMut, DmaEngine, DmaEngineExt, Queue};

use super::support::cpu_time;
use super::{Contender, Extent, IN_FLIGHT, Pair, are_copied, compare, done, memcpy, one_at_a_time, pairs};

fn crc_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Executes an operation on all operands at the same time, `times` times. Iterators collect the transfers.
///
/// This is a macro, so that each use has the code of a program that calls the operation in one place.
macro_rules! extend {
    ($operands:ident, $times:expr, $submit:expr, $end:expr) => {{
        let (operands, times, mut transfers) = (&mut $operands, $times, Vec::with_capacity(IN_FLIGHT));
        Box::new(move || {
            for _ in 0..times {
                transfers.extend(operands.drain(..).map($submit));
                operands.extend(transfers.drain(..).map($end));
            }
        })
    }};
}
pub(super) use extend;

/// Does the same as `extend` by loops that push each transfer.
macro_rules! push {
    ($operands:ident, $times:expr, |$operand:pat_param| $submit:expr, |$transfer:pat_param| $end:expr) => {{
        let (operands, times, mut transfers) = (&mut $operands, $times, Vec::with_capacity(IN_FLIGHT));
        Box::new(move || {
            for _ in 0..times {
                for $operand in operands.drain(..) {
                    transfers.push($submit);
                }
                for $transfer in transfers.drain(..) {
                    operands.push($end);
                }
            }
        })
    }};
}
pub(super) use push;

/// Compares operations with results, and fills: with 32 in flight, and one at a time.
pub(super) fn results(engine: &dyn DmaEngine, queue: &Queue, extent: Extent, len: usize) {
    let times = ((32 << 20) / (len + 512) / IN_FLIGHT / extent.fewer).max(1);
    let make = || pairs(engine, len, IN_FLIGHT);
    let compared = |name: &str, of: Vec<Contender<'_>>| {
        let name = format!("{name}, {len} B");
        compare(extent, cpu_time, &name, times * IN_FLIGHT, of);
    };
    let plain = make();
    let crcs: Vec<u32> = plain.iter().map(|(src, _)| crc32c::crc32c(src)).collect();
    let sources = || make().into_iter().map(|(src, _)| src).collect::<Vec<_>>();
    let (mut many, mut pushed, mut alone, mut alone_pushed, mut one) =
        (make(), make(), sources(), sources(), make());
    let (many_seen, pushed_seen, alone_seen, alone_pushed_seen, one_seen) = &Default::default();
    let add = |sum: &Cell<u64>, crc: u32| sum.set(sum.get().wrapping_add(crc.into()));
    let rounds = (extent.rounds + 2) * times;
    let expected: u64 = crcs.iter().map(|crc| u64::from(*crc)).sum::<u64>().wrapping_mul(rounds as u64);
    /// Adds the CRC of a transfer to a sum, and returns the source.
    macro_rules! end {
        ($transfer:ident, $seen:ident) => {{
            let (src, crc) = done($transfer.wait());
            add($seen, crc);
            src
        }};
    }
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
            extend!(many, times, |(src, dst)| (done(queue.crc32c(src, 0)), dst), |(transfer, dst)| (
                end!(transfer, many_seen),
                dst
            )),
        ),
        (
            "pushed",
            push!(pushed, times, |(src, dst)| (done(queue.crc32c(src, 0)), dst), |(transfer, dst)| (
                end!(transfer, pushed_seen),
                dst
            )),
        ),
        (
            "alone in flight",
            extend!(alone, times, |src| done(queue.crc32c(src, 0)), |transfer| end!(transfer, alone_seen)),
        ),
        (
            "alone pushed",
            push!(alone_pushed, times, |src| done(queue.crc32c(src, 0)), |transfer| end!(
                transfer,
                alone_pushed_seen
            )),
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
    for seen in [many_seen, pushed_seen, alone_seen, alone_pushed_seen, one_seen] {
        assert_eq!(seen.get(), expected, "the sum of all CRCs");
    }

    let (mut copied, mut many, mut pushed, mut one) = (make(), make(), make(), make());
    let end = |(pair, crc): (Pair, u32)| {
        black_box(crc);
        pair
    };
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
            extend!(many, times, |(src, dst)| done(queue.copy_crc32c(src, dst, 0)), |transfer| end(done(
                transfer.wait()
            ))),
        ),
        (
            "pushed",
            push!(pushed, times, |(src, dst)| done(queue.copy_crc32c(src, dst, 0)), |transfer| end(done(
                transfer.wait()
            ))),
        ),
        (
            "one at a time",
            Box::new(|| {
                one_at_a_time(&mut one, times, |(src, dst)| {
                    end(done(done(queue.copy_crc32c(src, dst, 0)).wait()))
                });
            }),
        ),
    ];
    compared("copy with CRC-32C", of);
    let all = [&copied, &many, &pushed, &one];
    assert!(all.iter().all(|pairs| are_copied(pairs)), "copies with CRC-32C");

    // Both sides of each pair are equal now.
    let end = |(pair, difference): (Pair, Option<usize>)| {
        assert_eq!(difference, None);
        pair
    };
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
            extend!(many, times, |(a, b)| done(queue.compare(a, b)), |transfer| end(done(transfer.wait()))),
        ),
        (
            "pushed",
            push!(pushed, times, |(a, b)| done(queue.compare(a, b)), |transfer| end(done(transfer.wait()))),
        ),
        (
            "one at a time",
            Box::new(|| {
                one_at_a_time(&mut one, times, |(a, b)| end(done(done(queue.compare(a, b)).wait())));
            }),
        ),
    ];
    compared("compare", of);

    let (mut filled, mut one) = (make(), make());
    let (mut alone, mut alone_pushed) = (sources(), sources());
    let of: Vec<Contender<'_>> = vec![
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
            extend!(many, times, |(src, dst)| (src, done(queue.fill(dst, [7; 8]))), |(src, transfer)| (
                src,
                done(transfer.wait())
            )),
        ),
        (
            "pushed",
            push!(pushed, times, |(src, dst)| (src, done(queue.fill(dst, [7; 8]))), |(src, transfer)| (
                src,
                done(transfer.wait())
            )),
        ),
        (
            "alone in flight",
            extend!(alone, times, |dst| done(queue.fill(dst, [7; 8])), |transfer| done(transfer.wait())),
        ),
        (
            "alone pushed",
            push!(alone_pushed, times, |dst| done(queue.fill(dst, [7; 8])), |transfer| done(transfer.wait())),
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
    let is_filled = |buffer: &BufferMut| buffer.iter().all(|byte| *byte == 7);
    for pairs in [&filled, &many, &pushed, &one] {
        assert!(pairs.iter().all(|(_, dst)| is_filled(dst)), "fills");
    }
    assert!(alone.iter().chain(&alone_pushed).all(is_filled), "fills");
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
