//! Random programs on one window. The programs test that an operation behind a fence sees the effects of all
//! operations before the fence. The device is full at times, refuses descriptors, and lacks operations.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::inline_tests::{LIMIT, Spy};
use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Batch, BufferMut, Capabilities, Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, Error,
    ErrorKind, InlineExecutor, NativeError, OpError, Queue, QueueEvents, QueueOptions, QueueStats, RawQueue,
    Result, Window,
};

/// A device that accepts a random number of descriptors, and refuses some of them.
#[derive(Debug)]
struct Moody {
    inner: Box<dyn RawQueue>,
    seed: u64,
    refuses: bool,
    has_executor: bool,
}

impl Moody {
    /// Returns a random number below `n`.
    fn roll(&mut self, n: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) as usize % n
    }
}

// SAFETY: every call goes to the inner queue, except for descriptors that are not accepted.
unsafe impl RawQueue for Moody {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.refuses && self.roll(8) == 0 {
            return Err(Error::new(ErrorKind::OutOfResources, "told to"));
        }
        let n = self.roll(batch.len() + 2).min(batch.len());
        // SAFETY: the caller meets the requirements for every descriptor of the batch, and this slice is the
        // beginning of the batch.
        unsafe { self.inner.submit(&batch[..n]) }
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        self.inner.poll(completions)
    }
    fn explain(&self, native: i32) -> NativeError {
        self.inner.explain(native)
    }
    fn stop(&mut self) {
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        if self.has_executor { self.inner.inline_executor() } else { None }
    }
}

#[derive(Clone, Copy, Debug)]
struct Device {
    native: bool,
    /// Bits of the capabilities that the device lacks, if `native` is true.
    lacks: u32,
    per_poll: usize,
    max_segments: usize,
    refuses: bool,
    has_executor: bool,
    /// True if the CPU cannot reach the window.
    hidden: bool,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Write(Write),
    Read(Read),
    /// An operation on memory of this length outside the window.
    Other(Other, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Copy,
    Gather,
    Fill,
    Both,
    CopyCrc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Copy,
    Batch,
    Compare,
    Crc,
    CopyCrc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Copy,
    Fill,
    Crc,
    Compare,
}

fn device() -> impl Strategy<Value = Device> {
    let flags = any::<(bool, bool, bool, bool)>();
    (flags, any::<u32>(), 1_usize..8, 1_usize..4, any::<u64>()).prop_map(
        |((native, refuses, has_executor, hidden), lacks, per_poll, max_segments, seed)| Device {
            native,
            lacks,
            per_poll,
            max_segments,
            refuses,
            has_executor,
            hidden,
            seed,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    use proptest::sample::select;
    prop_oneof![
        3 => select(vec![Write::Copy, Write::Gather, Write::Fill, Write::Both, Write::CopyCrc])
            .prop_map(Op::Write),
        4 => select(vec![Read::Copy, Read::Batch, Read::Compare, Read::Crc, Read::CopyCrc])
            .prop_map(Op::Read),
        2 => (select(vec![Other::Copy, Other::Fill, Other::Crc, Other::Compare]), 1_usize..300)
            .prop_map(|(other, len)| Op::Other(other, len)),
    ]
}

/// Waits for an operation and checks its result. The argument is the byte that fills the window, if known.
/// Returns whether the operation was done.
type End = Box<dyn FnOnce(Option<u8>) -> bool>;

struct Program {
    engine: Spy,
    queue: Queue,
    window: Window,
}

impl Program {
    fn new(device: Device, len: usize) -> Self {
        let mut options = ReferenceOptions::default();
        (options.native, options.inline_limit, options.max_transfer) = (device.native, LIMIT, 64);
        (options.per_poll, options.max_segments) = (device.per_poll, device.max_segments);
        let engine = Spy::of(ReferenceEngine::new(options));
        let mut info = engine.info().clone();
        if device.native {
            let optional = [
                Capabilities::FILL,
                Capabilities::FENCE,
                Capabilities::COMPARE,
                Capabilities::CRC32C,
                Capabilities::COPY_CRC32C,
                Capabilities::COPY_TO_BOTH,
            ];
            for (bit, capability) in optional.into_iter().enumerate() {
                info.capabilities.set(capability, device.lacks >> bit & 1 == 0);
            }
        }
        let queue_options = QueueOptions::new().with_stall_timeout(Duration::from_secs(60));
        let raw = Moody {
            inner: engine.open_queue_raw(&queue_options).expect("it opens"),
            seed: device.seed,
            refuses: device.refuses,
            has_executor: device.has_executor,
        };
        let bounce = engine.allocate(64).expect("memory");
        let queue = Queue::new(Box::new(raw), &info, &queue_options, Some(bounce));
        let window = if device.hidden { engine.hidden(len) } else { engine.window(len) };
        Self { engine, queue, window }
    }

    fn buffer(&self, len: usize, byte: u8) -> BufferMut {
        let mut buffer = self.engine.allocate(len).expect("memory");
        buffer.fill(byte);
        buffer
    }

    /// Submits an operation that writes `byte` to the window.
    fn write(&self, op: Write, byte: u8) -> End {
        let (queue, window, len) = (&self.queue, self.window.clone(), self.window.len());
        let src = self.buffer(len, byte);
        match op {
            Write::Copy => {
                let transfer = queue.copy(src, window).expect("room");
                Box::new(|_| done(transfer.wait()).is_some())
            }
            Write::Gather => {
                let mut front = src;
                let back = front.split_off(len / 2);
                let transfer = queue.copy((front, back), window).expect("room");
                Box::new(|_| done(transfer.wait()).is_some())
            }
            Write::Fill => {
                let transfer = queue.fill(window, [byte; 8]).expect("room");
                Box::new(|_| done(transfer.wait()).is_some())
            }
            Write::Both => {
                let transfer = queue.copy_to_both(src, window, self.buffer(len, 0)).expect("room");
                Box::new(|_| done(transfer.wait()).is_some())
            }
            Write::CopyCrc => {
                let transfer = queue.copy_crc32c(src, window, 0).expect("room");
                Box::new(move |_| {
                    let Some((_, crc)) = done(transfer.wait()) else { return false };
                    assert_eq!(crc, crc32c::crc32c(&vec![byte; len]), "the CRC is the CRC of the source");
                    true
                })
            }
        }
    }

    /// Submits an operation that reads the window. `byte` was written to the window last.
    fn read(&self, op: Read, byte: u8) -> End {
        let (queue, window, len) = (&self.queue, self.window.clone(), self.window.len());
        let expected = move |byte: u8| crc32c::crc32c(&vec![byte; len]);
        match op {
            Read::Copy => {
                let transfer = queue.copy(window, self.buffer(len, 0)).expect("room");
                Box::new(|byte| {
                    let Some((_, dst)) = done(transfer.wait()) else { return false };
                    assert!(byte.is_none_or(|byte| dst.iter().all(|b| *b == byte)), "{dst:?} for {byte:?}");
                    true
                })
            }
            Read::Batch => {
                let half = len / 2;
                let batch: Batch<_, _> = [
                    (window.slice(..half), self.buffer(half, 0)),
                    (window.slice(half..), self.buffer(len - half, 0)),
                ]
                .into_iter()
                .collect();
                let transfer = queue.submit(batch).expect("room");
                Box::new(|byte| {
                    let Some(batch) = done(transfer.wait()) else { return false };
                    for (_, dst) in batch.iter() {
                        assert!(
                            byte.is_none_or(|byte| dst.iter().all(|b| *b == byte)),
                            "{dst:?} for {byte:?}"
                        );
                    }
                    true
                })
            }
            Read::Compare => {
                let transfer = queue.compare(window, self.buffer(len, byte)).expect("room");
                Box::new(|byte| {
                    let Some((_, difference)) = done(transfer.wait()) else { return false };
                    assert!(byte.is_none() || difference.is_none(), "differs at {difference:?}");
                    true
                })
            }
            Read::Crc => {
                let transfer = queue.crc32c(window, 0).expect("room");
                Box::new(move |byte| {
                    let Some((_, crc)) = done(transfer.wait()) else { return false };
                    assert!(
                        byte.is_none_or(|byte| crc == expected(byte)),
                        "the CRC is not the CRC of the window's bytes"
                    );
                    true
                })
            }
            Read::CopyCrc => {
                let transfer = queue.copy_crc32c(window, self.buffer(len, 0), 0).expect("room");
                Box::new(move |byte| {
                    let Some(((_, dst), crc)) = done(transfer.wait()) else { return false };
                    assert!(byte.is_none_or(|byte| dst.iter().all(|b| *b == byte)), "{dst:?} for {byte:?}");
                    assert!(
                        byte.is_none_or(|byte| crc == expected(byte)),
                        "the CRC is not the CRC of the window's bytes"
                    );
                    true
                })
            }
        }
    }

    /// Submits an operation on memory that no other operation uses.
    fn other(&self, op: Other, len: usize) -> End {
        let (queue, byte) = (&self.queue, len as u8);
        let src = self.buffer(len, byte);
        match op {
            Other::Copy => {
                let transfer = queue.copy(src, self.buffer(len, 0)).expect("room");
                Box::new(|_| {
                    let Some((src, dst)) = done(transfer.wait()) else { return false };
                    assert_eq!(src[..], dst[..]);
                    true
                })
            }
            Other::Fill => {
                let transfer = queue.fill(src, *b"pattern!").expect("room");
                Box::new(|_| {
                    let Some(dst) = done(transfer.wait()) else { return false };
                    assert!(dst.iter().eq(b"pattern!".iter().cycle().take(dst.len())), "{dst:?}");
                    true
                })
            }
            Other::Crc => {
                let transfer = queue.crc32c(src, 0).expect("room");
                Box::new(|_| {
                    let Some((src, crc)) = done(transfer.wait()) else { return false };
                    assert_eq!(crc, crc32c::crc32c(&src));
                    true
                })
            }
            Other::Compare => {
                let mut other = self.buffer(len, byte);
                other[len - 1] ^= 1;
                let transfer = queue.compare(src, other).expect("room");
                Box::new(move |_| {
                    let Some((_, difference)) = done(transfer.wait()) else { return false };
                    assert_eq!(difference, Some(len - 1));
                    true
                })
            }
        }
    }
}

/// Returns the operands and the result, or `None` if a descriptor was refused.
fn done<T, O>(end: Result<T, OpError<O>>) -> Option<T> {
    match end {
        Ok(done) => Some(done),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
            None
        }
    }
}

proptest! {
    // Run many cases, because only a few cases find each fault.
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, ..Default::default() })]

    #[test]
    fn operations_behind_a_fence_see_those_before_it(
        device in device(),
        len in prop_oneof![2_usize..60, 60_usize..250],
        ops in prop::collection::vec((op(), any::<bool>(), 0_usize..4), 1..40),
    ) {
        let program = Program::new(device, len);
        // `read` and `written` are true if the window was read or written since the last fence. `last` is the
        // byte that was written last.
        let (mut read, mut written, mut last) = (false, true, 0);
        let mut ends: Vec<(Op, u8, End)> = Vec::new();
        for ((op, fence, polls), number) in ops.into_iter().zip(1_u8..) {
            let needs_fence = match op {
                Op::Write(_) => read || written,
                Op::Read(_) => written,
                Op::Other(..) => false,
            };
            if needs_fence || (fence && polls == 0) {
                program.queue.fence();
                (read, written) = (false, false);
            }
            let end = match op {
                Op::Write(write) => {
                    (written, last) = (true, number);
                    program.write(write, number)
                }
                Op::Read(of) => {
                    read = true;
                    program.read(of, last)
                }
                Op::Other(other, len) => program.other(other, len),
            };
            ends.push((op, number, end));
            if polls > 1 {
                program.queue.flush();
            }
            for _ in 0..polls {
                program.queue.poll();
            }
        }
        // The byte that fills the window, if known.
        let mut byte = None;
        for (op, number, end) in ends {
            let is_done = end(byte);
            prop_assert!(is_done || device.refuses);
            if matches!(op, Op::Write(_)) {
                byte = is_done.then_some(number);
            }
        }
        let counters = program.queue.close(Duration::from_secs(60));
        prop_assert_eq!((counters.in_flight, counters.aborted, counters.abandoned), (0, 0, 0));
        prop_assert_eq!(counters.submitted, counters.completed + counters.failed);
    }
}
