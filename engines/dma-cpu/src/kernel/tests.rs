//! Tests of every kernel against an oracle in ordinary memory.

use std::ops::Range;

use proptest::prelude::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use dma_core::{DeviceAddr, InlineCopy};

use super::{Kernel, pieces};

const PAGE: usize = 4096;
/// Length of the inaccessible memory on each side: a whole number of pages on any processor, as is `SIZE`.
const FENCE: usize = 64 << 10;
const SIZE: usize = 3 * FENCE;
const CANARY: u8 = 0xc5;

/// Memory with inaccessible pages on either side, so that an access one byte too far faults.
struct Fenced(*mut u8);

impl Fenced {
    fn new() -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), SIZE + 2 * FENCE, access, MapFlags::PRIVATE) };
        let base = base.expect("map test memory");
        for fence in [base, base.wrapping_byte_add(SIZE + FENCE)] {
            // SAFETY: these are the first and the last pages of that mapping, which no other code uses yet.
            unsafe { mprotect(fence, FENCE, MprotectFlags::empty()) }.expect("protect the fence");
        }
        Self(base.wrapping_byte_add(FENCE).cast::<u8>())
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= SIZE);
        self.0.wrapping_add(offset)
    }

    fn store(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), SIZE);
        // SAFETY: the mapping has `SIZE` accessible bytes, and only this value refers to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, SIZE) };
    }

    fn load(&self) -> Vec<u8> {
        // SAFETY: the mapping has `SIZE` accessible bytes, and no other code writes to them here.
        unsafe { std::slice::from_raw_parts(self.0, SIZE) }.to_vec()
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no pointer into it is used any more.
        unsafe { munmap(self.0.wrapping_sub(FENCE).cast(), SIZE + 2 * FENCE) }.expect("unmap test memory");
    }
}

/// Returns bytes that differ from their neighbours, also those one line or one page away.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..SIZE)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A range within `SIZE`. The length of the range is short, close to a multiple of a loop's step, or random.
/// The position is random, or at an end of the memory.
fn range() -> impl Strategy<Value = Range<usize>> {
    let len = prop_oneof![
        0..=2 * 64_usize,
        (0..=9_usize, 0..=2 * 64_usize).prop_map(|(pages, extra)| (pages * PAGE + extra).saturating_sub(64)),
        0..=SIZE / 2,
    ];
    (len, 0..=2 * PAGE, 0..4).prop_map(|(len, offset, place)| {
        let start = match place {
            0 => 0,
            1 => SIZE - len,
            2 => offset.min(SIZE - len),
            _ => (offset & !63).min(SIZE - len),
        };
        start..start + len
    })
}

/// Returns all kernels of this CPU, and the code that `memcpy` would use on other CPUs.
fn all() -> impl Iterator<Item = Kernel> {
    let pieces = Kernel { name: "memcpy in pieces", copy: pieces::copy_in_pieces, ..Kernel::memcpy() };
    Kernel::all().chain(Kernel::streaming()).chain([pieces])
}

/// Twice as many cases as the environment variable `PROPTEST_CASES` says, or as are usual.
fn twice_the_cases() -> ProptestConfig {
    ProptestConfig { cases: 2 * ProptestConfig::default().cases, ..ProptestConfig::default() }
}

/// Returns both copies by vectors if the CPU has the instructions. Their ranges have at least 320 bytes.
#[cfg(target_arch = "x86_64")]
fn by_vectors() -> impl Iterator<Item = Kernel> {
    let copies: [(_, _, super::CopyFn); 2] = [
        ("vectors of 32 bytes", is_x86_feature_detected!("avx2"), super::vectors::copy_by_32),
        ("vectors of 64 bytes", is_x86_feature_detected!("avx512f"), super::vectors::copy_by_64),
    ];
    let available = copies.into_iter().filter(|(_, is_available, _)| *is_available);
    available.map(|(name, _, copy)| Kernel { name, copy, ..Kernel::memcpy() })
}

#[test]
fn copy_matches_the_oracle() {
    let (src, dst) = (Fenced::new(), Fenced::new());
    proptest!(twice_the_cases(), |(to in range(), from in 0..=SIZE, aligned: bool, seed: u64)| {
        let len = to.len();
        let from = from.min(SIZE - len);
        let from = if aligned { from & !63 } else { from };
        let input = noise(seed);
        src.store(&input);
        for kernel in all() {
            dst.store(&[CANARY; SIZE]);
            // SAFETY: the `len` bytes lie within each mapping, and the two mappings do not overlap.
            unsafe { kernel.copy(dst.at(to.start), src.at(from), len) };
            let mut expected = vec![CANARY; SIZE];
            expected[to.clone()].copy_from_slice(&input[from..from + len]);
            prop_assert!(dst.load() == expected, "{}: {len} bytes from {from} to {to:?}", kernel.name());
            prop_assert!(src.load() == input, "{}: source changed", kernel.name());
        }
    });
}

/// The destinations have different positions, and both are between inaccessible pages.
#[test]
fn copy_to_both_matches_the_oracle() {
    let (src, dst) = (Fenced::new(), [Fenced::new(), Fenced::new()]);
    proptest!(|(to in range(), also in 0..=SIZE, from in 0..=SIZE, seed: u64)| {
        let len = to.len();
        let (starts, from) = ([to.start, also.min(SIZE - len)], from.min(SIZE - len));
        let input = noise(seed);
        src.store(&input);
        for kernel in all() {
            dst.iter().for_each(|dst| dst.store(&[CANARY; SIZE]));
            let to = [dst[0].at(starts[0]), dst[1].at(starts[1])];
            // SAFETY: the `len` bytes lie within each mapping, and the mappings do not overlap.
            unsafe { kernel.copy_to_both(to, src.at(from), len) };
            for (dst, start) in dst.iter().zip(starts) {
                let mut expected = vec![CANARY; SIZE];
                expected[start..start + len].copy_from_slice(&input[from..from + len]);
                prop_assert!(dst.load() == expected, "{}: {len} bytes from {from} to {starts:?}", kernel.name());
            }
            prop_assert!(src.load() == input, "{}: source changed", kernel.name());
        }
    });
}

/// Windows allow several copies to write the same byte. Each byte must have the value of one of these copies.
#[test]
fn copies_of_a_batch_may_overlap() {
    const STEP: usize = 1000;
    let (src, dst) = (Fenced::new(), Fenced::new());
    src.store(&(0..SIZE).map(|at| 1 + (at / PAGE) as u8).collect::<Vec<_>>());
    let addr = |fenced: &Fenced, at| DeviceAddr(fenced.at(at).expose_provenance() as u64);
    let count = (SIZE / PAGE).min((SIZE - PAGE) / STEP + 1);
    let copies: Vec<_> = (0..count)
        .map(|n| InlineCopy { src: addr(&src, n * PAGE), dst: addr(&dst, n * STEP), len: PAGE })
        .collect();
    assert!(count >= 4, "the ranges are not copied side by side");
    for kernel in all() {
        dst.store(&[0; SIZE]);
        // SAFETY: all ranges lie within two mappings, and those of one copy do not overlap.
        unsafe { kernel.copy_all(&copies) };
        for (at, byte) in dst.load().into_iter().enumerate() {
            let writers: Vec<_> = (0..count)
                .filter(|n| (n * STEP..n * STEP + PAGE).contains(&at))
                .map(|n| 1 + n as u8)
                .collect();
            let is_right = writers.contains(&byte) || writers.is_empty() && byte == 0;
            assert!(is_right, "{}: {byte} at {at}, of {writers:?}", kernel.name());
        }
    }
}

#[test]
fn copies_of_a_batch_match_the_oracle() {
    let (src, dst) = (Fenced::new(), Fenced::new());
    let len = prop_oneof![
        3 => Just(PAGE),
        1 => 1..=200_usize,
        2 => PAGE - 70..=PAGE + 70,
        1 => 1..=3 * PAGE,
    ];
    let copies = prop::collection::vec((len, 0..=SIZE, 0..100_usize), 1..14);
    proptest!(ProptestConfig::default(), |(copies in copies, aligned: bool, seed: u64)| {
        let input = noise(seed);
        src.store(&input);
        let mut expected = vec![CANARY; SIZE];
        let (mut to, mut batch) = (0, Vec::new());
        for (len, from, gap) in copies {
            let from = from.min(SIZE - len);
            to += if aligned { 0 } else { gap };
            if to + len > SIZE {
                break;
            }
            expected[to..to + len].copy_from_slice(&input[from..from + len]);
            batch.push((from, to, len));
            to += len;
        }
        let addr = |fenced: &Fenced, at| DeviceAddr(fenced.at(at).expose_provenance() as u64);
        let batch: Vec<_> = batch
            .into_iter()
            .map(|(from, to, len)| InlineCopy { src: addr(&src, from), dst: addr(&dst, to), len })
            .collect();
        for kernel in all() {
            dst.store(&[CANARY; SIZE]);
            // SAFETY: all ranges lie within two mappings that do not overlap, and the destinations do not
            // overlap each other.
            unsafe { kernel.copy_all(&batch) };
            prop_assert!(dst.load() == expected, "{}: {batch:?}", kernel.name());
        }
        prop_assert!(src.load() == input, "source changed");
    });
}

#[test]
fn fill_matches_the_oracle() {
    let dst = Fenced::new();
    let pattern = prop_oneof![any::<[u8; 8]>(), any::<u8>().prop_map(|byte| [byte; 8])];
    proptest!(twice_the_cases(), |(to in range(), pattern in pattern)| {
        for kernel in all() {
            dst.store(&[CANARY; SIZE]);
            // SAFETY: `to` lies within the mapping.
            unsafe { kernel.fill(dst.at(to.start), pattern, to.len()) };
            let mut expected = vec![CANARY; SIZE];
            for (byte, value) in expected[to.clone()].iter_mut().zip(pattern.iter().cycle()) {
                *byte = *value;
            }
            prop_assert!(dst.load() == expected, "{}: {to:?} with {pattern:?}", kernel.name());
        }
    });
}

/// Tests every pair of alignments within a line, with length 0 and lengths close to one and two lines.
#[test]
fn copy_at_every_alignment() {
    let (src, dst) = (Fenced::new(), Fenced::new());
    let input = noise(7);
    src.store(&input);
    for kernel in all() {
        for (to, from) in (0..64).flat_map(|to| (0..64).map(move |from| (to, from))) {
            for len in [0, 1, 63, 64, 65, 127, 128, 191] {
                let window = 2 * PAGE - 8..2 * PAGE + 8 + 64 + 191;
                // SAFETY: the window lies within the mapping.
                unsafe { std::ptr::write_bytes(dst.at(window.start), CANARY, window.len()) };
                let start = 2 * PAGE + to;
                // SAFETY: the ranges lie within two mappings that do not overlap.
                unsafe { kernel.copy(dst.at(start), src.at(from), len) };
                for at in window {
                    // SAFETY: the range lies within the mapping, and no other code writes to it now.
                    let found = unsafe { dst.at(at).read() };
                    let copied = (start..start + len).contains(&at);
                    let expected = if copied { input[at - start + from] } else { CANARY };
                    assert_eq!(found, expected, "{}: {len} from {from} to {to}, byte {at}", kernel.name());
                }
            }
        }
    }
}

/// [`Kernel::memcpy`] uses at most one of the copies by vectors.
#[cfg(target_arch = "x86_64")]
#[test]
fn copies_by_vectors_match_the_oracle() {
    let (src, dst) = (Fenced::new(), Fenced::new());
    let input = noise(9);
    src.store(&input);
    for kernel in by_vectors() {
        for len in [2049, 2303, 2304, 2305, 4095, 4096, 4097, 16383] {
            for offset in 0..64 {
                // One of the ranges ends near the fence behind its memory, and the other one begins near the
                // fence before its memory.
                let near = offset * 7 % 64;
                for (from, to) in [(near, SIZE - len - offset), (SIZE - len - near, offset)] {
                    dst.store(&[CANARY; SIZE]);
                    // SAFETY: the ranges lie within two mappings that do not overlap, they are longer than
                    // 320 bytes, and the CPU has the instructions.
                    unsafe { (kernel.copy)(dst.at(to), src.at(from), len) };
                    let mut expected = vec![CANARY; SIZE];
                    expected[to..to + len].copy_from_slice(&input[from..from + len]);
                    assert!(dst.load() == expected, "{}: {len} from {from} to {to}", kernel.name);
                }
            }
        }
    }
}

/// AddressSanitizer reports an access one byte too far, even if a kernel makes it in an `asm!` block. The
/// report ends the process, so a child process makes each access.
#[cfg(all(dma_address_sanitizer, target_arch = "x86_64"))]
#[test]
fn address_sanitizer_checks_every_kernel() {
    use std::alloc::{Layout, alloc_zeroed};
    use std::env;
    use std::process::Command;

    const CASE: &str = "DMA_CPU_ASAN_CASE";
    /// Whole lines, so that every byte of an aligned range can be streamed.
    const LEN: usize = PAGE;
    let memory = |len| {
        // SAFETY: the length is not zero.
        unsafe { alloc_zeroed(Layout::from_size_align(len, 64).expect("a valid layout")) }
    };

    let mut cases: Vec<(&str, &str, Box<dyn Fn()>)> = Vec::new();
    for (name, copy) in all().chain(by_vectors()).map(|kernel| (kernel.name, kernel.copy)) {
        // SAFETY: AddressSanitizer ends the process before the access to a byte too far.
        cases.push((name, "WRITE", Box::new(move || unsafe { copy(memory(LEN - 1), memory(LEN), LEN) })));
        // SAFETY: AddressSanitizer ends the process before the access to a byte too far.
        cases.push((name, "READ", Box::new(move || unsafe { copy(memory(LEN), memory(LEN - 1), LEN) })));
    }
    for kernel in Kernel::all() {
        let overrun = move || {
            let addr = |len| DeviceAddr(memory(len).expose_provenance() as u64);
            let copies =
                [LEN, LEN, LEN - 1, LEN].map(|dst| InlineCopy { src: addr(LEN), dst: addr(dst), len: LEN });
            // SAFETY: AddressSanitizer ends the process before the access to a byte too far.
            unsafe { kernel.copy_all(&copies) };
        };
        cases.push((kernel.name, "WRITE", Box::new(overrun)));
        // SAFETY: AddressSanitizer ends the process before the access to a byte too far.
        let overrun = move || unsafe { kernel.fill(memory(LEN - 1), [1, 2, 3, 4, 5, 6, 7, 8], LEN) };
        cases.push((kernel.name, "WRITE", Box::new(overrun)));
    }

    if let Ok(case) = env::var(CASE) {
        return cases[case.parse::<usize>().expect("a number")].2();
    }
    for (case, (kernel, access, _)) in cases.iter().enumerate() {
        let child = Command::new(env::current_exe().expect("the path of the tests"))
            .args(["--exact", "kernel::tests::address_sanitizer_checks_every_kernel"])
            .env(CASE, case.to_string())
            // Without the names of functions, a report takes much less time.
            .env("ASAN_OPTIONS", "symbolize=0")
            .output()
            .expect("the tests start");
        let report = String::from_utf8_lossy(&child.stderr);
        let is_seen = !child.status.success()
            && report.contains("heap-buffer-overflow")
            && report.contains(&format!("{access} of size"));
        assert!(is_seen, "{kernel}, case {case}, {access}: {report}");
    }
}

#[test]
fn memcpy_comes_first_and_every_other_kernel_streams() {
    let kernels: Vec<_> = Kernel::all().collect();
    let (first, others) = kernels.split_first().expect("memcpy at least");
    assert_eq!((first.name(), first.is_streaming()), ("memcpy", false));
    assert!(others.iter().all(Kernel::is_streaming));
    let is_best = |name: &str| others.first().is_some_and(|first| first.name().starts_with(name));
    assert!(Kernel::streaming().is_none_or(|kernel| kernel.is_streaming() && is_best(kernel.name())));
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    assert!(!others.is_empty());
}
