//! Random programs of operations on the cells of one region. Fences separate operations that depend on one
//! another. An oracle runs the operations one after the other.
#![expect(unsafe_code, reason = "submits to a raw queue")]

use dma_core::{
    Capabilities, Completion, Descriptor, DmaEngine, MemoryRequest, Outcome, QueueOptions, RawQueue,
    RegionInfo, Segment,
};
use proptest::prelude::*;

/// Number of cells, and their distance in bytes. Two cells whose numbers differ by 8 are 4096 bytes apart, so
/// DSA can write both in one operation.
const CELLS: usize = 24;
const STRIDE: usize = 512;
const LEN: usize = 500;

/// A step of a program. Cells are given by number.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Copy(usize, usize),
    Fill(usize, [u8; 8]),
    Crc(usize),
    Both(usize, usize, usize),
    /// A fence that no operation needs.
    Fence,
    Flush,
    Poll(usize),
}

pub(crate) fn programs() -> impl Strategy<Value = Vec<Step>> {
    let cell = || 0..CELLS;
    let step = prop_oneof![
        6 => (cell(), cell()).prop_map(|(from, to)| Step::Copy(from, to)),
        2 => (cell(), any::<[u8; 8]>()).prop_map(|(to, pattern)| Step::Fill(to, pattern)),
        2 => cell().prop_map(Step::Crc),
        2 => (cell(), cell(), prop_oneof![Just(8), 1..CELLS])
            .prop_map(|(from, to, on)| Step::Both(from, to, (to + on) % CELLS)),
        1 => Just(Step::Fence),
        2 => Just(Step::Flush),
        1 => (1..9_usize).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..80)
}

/// The queue, its completions, and the expected values of the cells.
struct Run {
    queue: Box<dyn RawQueue>,
    region: RegionInfo,
    cells: Vec<Vec<u8>>,
    /// Expected results, indexed by token. `None` after the report.
    expected: Vec<Option<u64>>,
    batch: Vec<(Op, bool)>,
    /// Cells that operations since the last fence read (`read`), and cells that they write (`written`).
    read: u32,
    written: u32,
    fence: bool,
}

#[derive(Clone, Copy)]
enum Op {
    Copy(Segment, Segment),
    Fill([Segment; 1], [u8; 8]),
    Crc(Segment),
    Both(Segment, [Segment; 2]),
}

impl Run {
    /// Adds an operation that reads and writes these cells. If the operation depends on another one since the
    /// last fence, adds a fence before it.
    fn push(&mut self, op: Op, read: u32, written: u32, result: u64) {
        let depends = read & self.written | written & (self.written | self.read) != 0;
        let fence = std::mem::take(&mut self.fence) || depends;
        if fence {
            (self.read, self.written) = (0, 0);
        }
        self.read |= read;
        self.written |= written;
        self.batch.push((op, fence));
        self.expected.push(Some(result));
    }

    fn submit(&mut self) {
        let first = self.expected.len() - self.batch.len();
        let batch = std::mem::take(&mut self.batch);
        let descriptors: Vec<_> = (first as u64..)
            .zip(&batch)
            .map(|(token, (op, fence))| {
                let descriptor = match op {
                    Op::Copy(src, dst) => Descriptor::copy(token, *src, *dst),
                    Op::Fill(dst, pattern) => Descriptor::fill(token, *pattern, dst),
                    Op::Crc(src) => Descriptor::crc32c(token, *src, 0),
                    Op::Both(src, dst) => Descriptor::copy_to_both(token, *src, dst),
                };
                descriptor.with_fence(*fence)
            })
            .collect();
        let mut taken = 0;
        while taken < descriptors.len() {
            // SAFETY: the cells belong to the engine's region, which is dropped after the queue. Operations
            // that may run at the same time do not write each other's cells.
            match unsafe { self.queue.submit(&descriptors[taken..]) }.unwrap() {
                0 => {
                    self.queue.flush();
                    self.poll(64);
                }
                n => taken += n,
            }
        }
    }

    fn poll(&mut self, most: usize) {
        let mut completions = vec![Completion::done(0); most];
        let n = self.queue.poll(&mut completions);
        if n == 0 {
            std::thread::yield_now();
        }
        for Completion { token, result, outcome, .. } in completions.drain(..n) {
            assert_eq!(outcome, Outcome::Done);
            let expected = self.expected[token as usize].take().expect("reported once");
            assert_eq!(result, expected, "the result of operation {token}");
        }
    }
}

/// Runs a program on an engine that keeps fences.
pub(crate) fn run(engine: &dyn DmaEngine, depth: usize, program: &[Step]) {
    assert!(engine.info().capabilities.contains(Capabilities::FENCE | Capabilities::COPY_TO_BOTH));
    let memory = engine.allocate_raw(&MemoryRequest::new(CELLS * STRIDE)).unwrap();
    let region = *memory.info();
    let cells: Vec<Vec<u8>> =
        (0..CELLS).map(|n| (0..LEN).map(|i| (n * 37 + i * 7) as u8).collect()).collect();
    for (n, cell) in cells.iter().enumerate() {
        // SAFETY: the cell is within the region, and no operation uses it yet.
        unsafe {
            region.segment(n * STRIDE, LEN).addr.as_ptr().copy_from_nonoverlapping(cell.as_ptr(), LEN);
        }
    }
    let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).unwrap();
    let (expected, batch) = (Vec::new(), Vec::new());
    let mut run = Run { queue, region, cells, expected, batch, read: 0, written: 0, fence: false };
    for step in program {
        let cell = |n: usize| run.region.segment(n * STRIDE, LEN);
        match *step {
            Step::Copy(from, to) if from != to => {
                run.push(Op::Copy(cell(from), cell(to)), 1 << from, 1 << to, 0);
                run.cells[to] = run.cells[from].clone();
            }
            Step::Fill(to, pattern) => {
                run.push(Op::Fill([cell(to)], pattern), 0, 1 << to, 0);
                run.cells[to] = pattern.into_iter().cycle().take(LEN).collect();
            }
            Step::Crc(from) => {
                let crc = crc32c::crc32c(&run.cells[from]);
                run.push(Op::Crc(cell(from)), 1 << from, 0, crc.into());
            }
            Step::Both(from, to, also) if from != to && from != also => {
                run.push(Op::Both(cell(from), [cell(to), cell(also)]), 1 << from, 1 << to | 1 << also, 0);
                run.cells[to] = run.cells[from].clone();
                run.cells[also] = run.cells[from].clone();
            }
            Step::Copy(..) | Step::Both(..) => {}
            Step::Fence => run.fence = true,
            Step::Flush => {
                run.submit();
                run.queue.flush();
            }
            Step::Poll(most) => run.poll(most),
        }
    }
    run.submit();
    run.queue.flush();
    while run.expected.iter().any(Option::is_some) {
        run.poll(3);
    }
    for (n, cell) in run.cells.iter().enumerate() {
        // SAFETY: the cell is within the region, and no operation is in flight.
        let got = unsafe { std::slice::from_raw_parts(region.segment(n * STRIDE, LEN).addr.as_ptr(), LEN) };
        assert!(got == cell, "cell {n}");
    }
}
