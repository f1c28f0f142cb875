//! The baseline on one core: the C library's `memcpy`, `memset` and `memcmp`, and the crate `crc32c`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use apps_shared::hold;
use dma::{BufferMut, DmaEngine, DmaEngineExt, MemoryRequest};
use hdrhistogram::Histogram;

use super::cpu_time;
use super::drive::{BYTES_PER_CHECK, COMPARE_MUCH, CellError, Counts, Extent};
use super::layout::{Layout, Offsets};
use super::memory::{Difference, PATTERN};
use crate::interrupt;
use crate::plan::{Cell, Op};

/// The baseline's memory, allocated by the CPU engine.
#[derive(Debug)]
pub(crate) struct Memcpy {
    src: BufferMut,
    dst: BufferMut,
    epoch: Instant,
    /// The buffer and the result of the last operation.
    last: (usize, u64),
}

/// Number of bytes that are filled between two checks for an interrupt; a multiple of eight.
const FILL_CHUNK: usize = 1 << 20;

impl Memcpy {
    /// Allocates `len` bytes on each side, on the NUMA nodes of sources and of destinations. If `alike` is
    /// true, as for comparisons, every page of both sides has the same bytes.
    pub(crate) fn new(
        engine: &Arc<dyn DmaEngine>,
        nodes: Option<(u32, u32)>,
        len: usize,
        alike: bool,
    ) -> dma::Result<Self> {
        let (src_node, dst_node) = nodes.unzip();
        let mut request = MemoryRequest::new(len);
        request.huge_pages = true;
        let mut src = engine.allocate_with(&request.clone().with_node(src_node))?;
        interrupt::check()?;
        let mut dst = engine.allocate_with(&request.with_node(dst_node))?;
        // Writing makes all pages present. Most bytes differ from the expected ones, so that a missing copy
        // is detected.
        for (part, (src, dst)) in src.chunks_mut(FILL_CHUNK).zip(dst.chunks_mut(FILL_CHUNK)).enumerate() {
            interrupt::check()?;
            for (at, chunk) in src.chunks_mut(8).enumerate() {
                let at = if alike { at % 512 } else { part * FILL_CHUNK / 8 + at };
                let word = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
            if alike {
                dst.copy_from_slice(src);
            } else {
                dst.fill(0xFF);
            }
        }
        Ok(Self { src, dst, epoch: Instant::now(), last: (0, 0) })
    }

    /// Runs one sample from buffer `index` on, and sets `index` to the buffer after the last one used. Adds
    /// latencies to `latency`. Returns the counts and the CPU time in nanoseconds. An interrupt ends the
    /// sample early.
    pub(crate) fn run(
        &mut self,
        cell: &Cell,
        layout: &Layout,
        extent: Extent,
        index: &mut usize,
        latency: &mut Histogram<u64>,
    ) -> Result<(Counts, f64), CellError> {
        let (first, size) = (*index, layout.size());
        let compared = size <= extent.compare || extent.compare >= COMPARE_MUCH;
        if compared && cell.op.writes() {
            for (at, len) in parts(layout, first) {
                let (to, from) = (at.dst..at.dst + len, at.src..at.src + len);
                for (to, from) in self.dst[to].iter_mut().zip(&self.src[from]) {
                    *to = !from;
                }
            }
        }
        let now = |epoch: &Instant| epoch.elapsed().as_nanos() as u64;
        let at_once = (BYTES_PER_CHECK / cell.size.max(1)).clamp(1, 1 << 14);
        let (mut warm, mut ops) = (0, 0);
        while warm < extent.warm && !interrupt::stopped() {
            let run = at_once.min(extent.warm - warm);
            self.several(run, cell, layout, index);
            warm += run;
        }
        let cpu = cpu_time::of_thread();
        let from = now(&self.epoch);
        // The operations between two timed operations run without reading the clock. The first iteration
        // always runs, so that at least one operation can be compared.
        while ops < extent.ops {
            let run = (extent.ops - ops).min(extent.timed_every).min(at_once);
            let begun = now(&self.epoch);
            self.several(1, cell, layout, index);
            // This cannot fail, because the histogram has no bounds.
            let _ = latency.record((now(&self.epoch) - begun).max(1));
            self.several(run - 1, cell, layout, index);
            ops += run;
            hold::reached("baseline's operations", interrupt::stopped);
            if interrupt::stopped() {
                break;
            }
        }
        let to = now(&self.epoch);
        let cpu = cpu_time::of_thread() - cpu;
        if compared {
            self.check(cell, layout, first)?;
        }
        let (all_ops, verified, interrupted) = (warm + ops, u64::from(compared), ops < extent.ops);
        Ok((Counts { ops, span: (from, to), all_ops, polls: 0, doorbells: 0, verified, interrupted }, cpu))
    }

    /// Runs `count` operations from buffer `index` on.
    #[inline]
    fn several(&mut self, count: u64, cell: &Cell, layout: &Layout, index: &mut usize) {
        for _ in 0..count {
            self.once(cell, layout, *index, layout.size());
            self.last.0 = *index;
            *index = layout.next(*index, 1);
        }
    }

    #[inline]
    fn once(&mut self, cell: &Cell, layout: &Layout, index: usize, size: usize) {
        let Offsets { src, dst } = layout.at(index);
        let from = black_box(&self.src[src..src + size]);
        match cell.op {
            Op::Copy => return black_box(&mut self.dst[dst..dst + size]).copy_from_slice(from),
            Op::Compare => {
                self.last.1 = u64::from(from == black_box(&self.dst[dst..dst + size]));
                return;
            }
            Op::Crc32c => {
                self.last.1 = crc32c::crc32c(from).into();
                return;
            }
            Op::CopyCrc32c => {
                black_box(&mut self.dst[dst..dst + size]).copy_from_slice(from);
                self.last.1 = crc32c::crc32c(black_box(&self.dst[dst..dst + size])).into();
                return;
            }
            Op::Fill | Op::Sg | Op::Gather | Op::Scatter | Op::CopyToBoth => {}
        }
        for (at, len) in parts(layout, index) {
            let dst = black_box(&mut self.dst[at.dst..at.dst + len]);
            if cell.op == Op::Fill {
                dst.fill(PATTERN[0]);
            } else {
                dst.copy_from_slice(black_box(&self.src[at.src..at.src + len]));
            }
        }
    }

    fn check(&self, cell: &Cell, layout: &Layout, index: usize) -> Result<(), CellError> {
        let (last, found) = self.last;
        let (Offsets { src, .. }, size) = (layout.at(last), layout.size());
        let expected = match cell.op {
            Op::Compare => 1,
            Op::Crc32c | Op::CopyCrc32c => {
                let (one, other) = self.src[src..src + size].split_at(size / 2);
                crc32c::crc32c_append(crc32c::crc32c(one), other).into()
            }
            _ => found,
        };
        if found != expected {
            return Err(CellError::WrongResult { at: src, size, expected, found });
        }
        if !cell.op.writes() {
            return Ok(());
        }
        let mut before = 0;
        for (at, len) in parts(layout, index) {
            let (found, copied) = (&self.dst[at.dst..at.dst + len], &self.src[at.src..at.src + len]);
            let right = |i: usize| if cell.op == Op::Fill { PATTERN[0] } else { copied[i] };
            if cell.op != Op::Fill && found == copied {
                before += len;
                continue;
            }
            if let Some(i) = (0..len).find(|&i| found[i] != right(i)) {
                let offset = (before + i) % size;
                let difference = Difference { offset, expected: right(i), found: found[i] };
                let at = layout.at(index).dst;
                return Err(CellError::WrongBytes { at, size, difference });
            }
            before += len;
        }
        Ok(())
    }
}

/// Returns the parts of a buffer, including its second destination if it has one.
fn parts(layout: &Layout, index: usize) -> impl Iterator<Item = (Offsets, usize)> {
    let also = layout.second_dst().into_iter().flat_map(move |also| {
        layout.parts(index).map(move |(at, len)| (Offsets { dst: at.dst + also, ..at }, len))
    });
    layout.parts(index).chain(also)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Footprint};
    use crate::run::drive::histogram;
    use crate::run::layout::Position;

    #[test]
    fn bytes_arrive_where_they_belong() {
        let engine = dma::open("cpu:threads=0").unwrap();
        let ops = [Op::Copy, Op::Fill, Op::Compare, Op::Crc32c, Op::CopyCrc32c, Op::CopyToBoth];
        for (op, segments) in ops.map(|op| (op, 1)).into_iter().chain([(Op::Sg, 3)]) {
            for footprint in [Footprint::Hot, Footprint::Cold] {
                let cell = Cell {
                    engine: "memcpy".to_owned(),
                    op,
                    size: 5000,
                    depth: 4,
                    batch: 1,
                    queues: 1,
                    segments,
                    footprint,
                    direction: Direction::Local,
                };
                let (footprint, free) = (100_000, 1 << 20);
                let bytes = Layout::bytes(&cell, footprint) + free;
                let mut memcpy = Memcpy::new(&engine, None, bytes, op == Op::Compare).unwrap();
                let mut right = memcpy.dst.to_vec();
                let layout = Layout::new(&cell, 0, footprint).in_pass(
                    &cell,
                    Position { pass: 2, group_pass: 3 },
                    free,
                );
                let (buffers, mut at) = (layout.buffers(), 0);
                let ops = buffers as u64;
                let extent =
                    Extent { warm: 0, ops, timed_every: 2, compare: COMPARE_MUCH, compare_each: false };
                let (counts, _) = memcpy.run(&cell, &layout, extent, &mut at, &mut histogram()).unwrap();
                assert_eq!((counts.ops, counts.verified, at), (ops, 1, 0));
                for (Offsets { src, dst }, len) in (0..buffers).flat_map(|index| parts(&layout, index)) {
                    assert_ne!(src, dst);
                    match op {
                        Op::Compare | Op::Crc32c => {}
                        Op::Fill => right[dst..dst + len].fill(PATTERN[0]),
                        _ => right[dst..dst + len].copy_from_slice(&memcpy.src[src..src + len]),
                    }
                }
                assert!(memcpy.dst[..] == right[..], "{op:?} {footprint}: wrong bytes");
            }
        }
    }
}
