//! Code shared by the benches: memory, pairs of addresses, rounds and their medians.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

const HUGE: usize = 2 << 20;

/// Maps anonymous, resident memory, in huge pages if the kernel provides them. The memory is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    base: *mut u8,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn new(len: usize, byte: u8) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len + HUGE, access, MapFlags::PRIVATE) };
        let base = base.expect("map bench memory").cast::<u8>();
        let base = base.wrapping_add(base.align_offset(HUGE));
        // SAFETY: `len` bytes from `base` on lie within the mapping, and the advice changes no byte. A
        // refusal is ignored, because small pages work as well.
        let _ = unsafe { madvise(base.cast(), len, Advice::LinuxHugepage) };
        // SAFETY: the `len` bytes lie within the new mapping, which no other code uses yet.
        unsafe { std::ptr::write_bytes(base, byte, len) };
        Self { base, len }
    }
}

/// Pairs of source and destination ranges to cycle over.
pub(crate) struct Pairs {
    src: Memory,
    dst: Memory,
    pub(crate) len: usize,
    /// The additional offset of each destination, in bytes.
    pub(crate) shift: usize,
    stride: usize,
    slots: usize,
    next: usize,
    /// The distance to the next pair, in pairs. This distance has no common factor with the number of pairs.
    pub(crate) step: usize,
}

impl Pairs {
    /// Makes `slots` pairs of `len` bytes, page-aligned, used in order.
    pub(crate) fn new(src: Memory, dst: Memory, len: usize, slots: usize) -> Self {
        let stride = len.next_multiple_of(64);
        let slots = slots.min(src.len / stride).max(1);
        Self { src, dst, len, shift: 0, stride, slots, next: 0, step: 1 }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    #[inline]
    pub(crate) fn next(&mut self) -> (*mut u8, *const u8) {
        let offset = self.next * self.stride;
        self.next += self.step;
        if self.next >= self.slots {
            self.next -= self.slots;
        }
        (self.dst.base.wrapping_add(offset + self.shift), self.src.base.wrapping_add(offset))
    }

    /// Returns the nanoseconds of this thread's CPU time that `work` takes. Other processes on the core do
    /// not count.
    #[inline]
    pub(crate) fn cpu_time(&mut self, work: impl FnOnce(&mut Self)) -> f64 {
        let start = cpu_time();
        work(self);
        cpu_time() - start
    }
}

pub(crate) fn cpu_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn size_name(len: usize) -> String {
    match len {
        _ if len >= 1 << 20 => format!("{} MiB", len >> 20),
        _ if len >= 1 << 10 => format!("{} KiB", len >> 10),
        _ => format!("{len} B"),
    }
}

/// Runs `rounds` rounds. Each round runs all contenders one after the other, and starts with a different one,
/// so that other load on the machine affects all alike. `time` returns nanoseconds for `bytes` bytes. Returns
/// for each contender the median of GB/s, and the median of its speed divided by the first contender's in the
/// same round.
pub(crate) fn compare(
    rounds: usize,
    contenders: usize,
    bytes: usize,
    mut time: impl FnMut(usize) -> f64,
) -> Vec<(f64, f64)> {
    let mut speeds = vec![Vec::with_capacity(rounds); contenders];
    for round in 0..rounds {
        for turn in 0..contenders {
            let contender = (round + turn) % contenders;
            speeds[contender].push(bytes as f64 / time(contender));
        }
    }
    let base = speeds[0].clone();
    speeds
        .iter_mut()
        .map(|speeds| {
            let mut ratios: Vec<f64> = speeds.iter().zip(&base).map(|(speed, base)| speed / base).collect();
            (median(speeds), median(&mut ratios))
        })
        .collect()
}
