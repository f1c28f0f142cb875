//! Tests of queues on a device that injects faults: it refuses descriptors, fails them, delays them, reports
//! them twice, or never reports them.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

mod alone;
mod closing;
mod lost_devices;
mod panics;
mod refusals;
mod waits;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use test_support::log::with_log;

use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Access, Batch, BufferMut, Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, NativeError, Outcome, Queue, QueueEvents, QueueOptions,
    QueueStats, RawQueue, Result, Retry,
};

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// The faults to inject, and the observed calls. A descriptor is identified by its length, so each test uses
/// a length only once.
#[derive(Debug, Default)]
struct Script {
    /// Lengths of descriptors that are refused once.
    refuse: Vec<usize>,
    /// Outcomes to report, by length.
    fail: HashMap<usize, (Outcome, i32)>,
    /// Lengths of descriptors whose next completion is lost.
    lose: Vec<usize>,
    /// True if every descriptor is refused.
    refuse_all: bool,
    /// True if the device accepts nothing.
    full: bool,
    /// True if the device reports nothing.
    mute: bool,
    /// If set, the engine says that its device is lost, for this reason.
    dies_of: Option<&'static str>,
    /// True if the engine logs when it is polled, and when its event is armed.
    logs: bool,
    /// Number of calls of `poll`.
    polls: u64,
    /// Number of polls that report nothing. Each later poll reports one descriptor.
    silent: Option<u64>,
    /// Durations of the polls after the stop that report nothing, in reverse order.
    stops_late: Vec<Duration>,
    /// True if the device panics after it has accepted a descriptor.
    panics: bool,
    /// If set, the first descriptor is reported again, in addition to the others or instead of the last one.
    again: Option<Again>,
    /// Lengths and fences of the accepted descriptors.
    taken: Vec<(usize, bool)>,
    dropped: bool,
    /// True if the next completion signals the event fd.
    armed: bool,
    /// Number of calls of `arm`.
    arms: u64,
    /// True if the event cannot be armed, as that of a lost device, or of one that is restarting.
    unarmed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Again {
    Beside,
    Instead,
}

#[derive(Debug)]
struct Odd {
    inner: Box<dyn RawQueue>,
    script: Arc<Mutex<Script>>,
    ends: HashMap<u64, Vec<(Outcome, i32)>>,
    /// Tokens whose next completion is lost.
    lost: Vec<u64>,
    stopped: bool,
    /// The event fd, which never becomes readable.
    event: PipeReader,
    _writer: PipeWriter,
}

impl Drop for Odd {
    fn drop(&mut self) {
        lock(&self.script).dropped = true;
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().expect("no thread panics while it holds the lock")
}

// SAFETY: every call goes to the inner queue. The faults withhold descriptors and reports, change outcomes,
// or repeat a report that the inner queue has just made. These tests do not rely on the bytes of descriptors
// with faults, and check that the planner detects a repeated report.
unsafe impl RawQueue for Odd {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let mut script = lock(&self.script);
        if script.full {
            return Ok(0);
        }
        let refuses = |d: &Descriptor<'_>| script.refuse_all || script.refuse.contains(&d.len());
        let refused = batch.iter().position(refuses);
        if refused == Some(0) {
            script.refuse.retain(|len| *len != batch[0].len());
            return Err(Error::new(ErrorKind::OutOfRange, "told to"));
        }
        let batch = &batch[..refused.unwrap_or(batch.len())];
        // SAFETY: the caller meets the requirements for every descriptor of the batch, and this slice is the
        // beginning of the batch.
        let n = unsafe { self.inner.submit(batch) }?;
        for descriptor in &batch[..n] {
            script.taken.push((descriptor.len(), descriptor.fence()));
            if let Some(at) = script.lose.iter().position(|len| *len == descriptor.len()) {
                script.lose.swap_remove(at);
                self.lost.push(descriptor.token());
            }
            if let Some(end) = script.fail.get(&descriptor.len()) {
                self.ends.entry(descriptor.token()).or_default().push(*end);
            }
        }
        let panics = script.panics;
        drop(script);
        assert!(!panics, "this test makes the engine panic");
        Ok(n)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let mut script = lock(&self.script);
        script.polls += 1;
        if script.logs {
            crate::deferred_log!(info, "the engine polls");
        }
        if script.mute || script.silent.is_some_and(|silent| script.polls <= silent) {
            return 0;
        }
        let completions = if script.silent.is_some() { &mut completions[..1] } else { completions };
        if self.stopped
            && let Some(nap) = script.stops_late.pop()
        {
            drop(script);
            std::thread::sleep(nap);
            return 0;
        }
        let again = script.again;
        drop(script);
        let reported = self.inner.poll(completions);
        let mut n = 0;
        for at in 0..reported {
            if let Some(lost) = self.lost.iter().position(|token| *token == completions[at].token) {
                self.lost.swap_remove(lost);
                continue;
            }
            completions[n] = completions[at];
            n += 1;
        }
        for completion in &mut completions[..n] {
            let end = self
                .ends
                .get_mut(&completion.token)
                .and_then(|ends| (!ends.is_empty()).then(|| ends.remove(0)));
            if let Some((outcome, native)) = end {
                (completion.outcome, completion.native) = (outcome, native);
            }
        }
        match again {
            Some(Again::Beside) if n > 0 => {
                completions[n] = completions[0];
                return n + 1;
            }
            Some(Again::Instead) if n > 0 => completions[n - 1] = completions[0],
            _ => {}
        }
        n
    }
    fn explain(&self, code: i32) -> NativeError {
        NativeError { code, name: "CODE".into(), description: "".into() }
    }
    fn stop(&mut self) {
        self.stopped = true;
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        Some(self)
    }
    fn lost(&self) -> Option<Error> {
        let reason = lock(&self.script).dies_of?;
        Some(Error::new(ErrorKind::DeviceFault, reason).with_native(self.explain(7)).with_hint("a hint"))
    }
}

impl QueueEvents for Odd {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.event.as_fd())
    }
    fn arm(&mut self) -> Result<bool> {
        let mut script = lock(&self.script);
        script.armed = !script.unarmed;
        script.arms += 1;
        if script.logs {
            crate::deferred_log!(info, "the engine arms its event");
        }
        let (armed, arms) = (script.armed, script.arms);
        drop(script);
        assert!(arms < 100_000, "a caller arms the event without an end");
        Ok(armed)
    }
    fn disarm(&mut self) {
        lock(&self.script).armed = false;
    }
}

struct Rig {
    engine: ReferenceEngine,
    queue: Queue,
    script: Arc<Mutex<Script>>,
}

impl Rig {
    /// Makes a queue on a device that has native fences and accepts descriptors of up to 64 bytes.
    fn new() -> Self {
        Self::with(QueueOptions::new().with_depth(64).with_stall_timeout(Duration::from_secs(5)))
    }

    fn with(options: QueueOptions) -> Self {
        let of_engine =
            ReferenceOptions { max_transfer: 64, native: true, per_poll: 64, ..ReferenceOptions::default() };
        let engine = ReferenceEngine::new(of_engine);
        let script = Arc::<Mutex<Script>>::default();
        let options = options.with_drop_timeout(Duration::from_millis(500));
        let inner = engine.open_queue_raw(&options).expect("it opens");
        let (event, writer) = std::io::pipe().expect("a pipe");
        let raw = Odd {
            inner,
            script: Arc::clone(&script),
            ends: HashMap::new(),
            lost: Vec::new(),
            stopped: false,
            event,
            _writer: writer,
        };
        let queue = Queue::new(Box::new(raw), engine.info(), &options, None);
        Self { engine, queue, script }
    }

    fn pair(&self, len: usize) -> (BufferMut, BufferMut) {
        let mut src = self.engine.allocate(len).expect("memory");
        src.fill(len as u8);
        (src, self.engine.allocate(len).expect("memory"))
    }

    fn copy(&self, len: usize) -> crate::Transfer<(BufferMut, BufferMut)> {
        let (src, dst) = self.pair(len);
        self.queue.copy(src, dst).expect("room")
    }

    /// Runs copies of these lengths. A negative length means a fence before the copy. Returns the results of
    /// the copies, and the lengths and fences of the accepted descriptors.
    fn run(&self, lens: &[isize]) -> (Vec<Option<ErrorKind>>, Vec<(usize, bool)>) {
        lock(&self.script).taken.clear();
        let transfers: Vec<_> = lens
            .iter()
            .map(|len| {
                if *len < 0 {
                    self.queue.fence();
                }
                self.copy(len.unsigned_abs())
            })
            .collect();
        self.queue.flush();
        let ends = transfers.into_iter().map(|transfer| match transfer.wait() {
            Ok((src, dst)) => {
                assert!(src[..] == dst[..]);
                None
            }
            Err(e) => Some(e.kind()),
        });
        (ends.collect(), lock(&self.script).taken.clone())
    }

    fn refuse(&self, len: usize) {
        lock(&self.script).refuse.push(len);
    }

    /// Submits a copy to memory that counts its release.
    fn copy_to_owned(&self, len: usize) -> (Pair, Arc<Mutex<u32>>) {
        let given_back = Arc::<Mutex<u32>>::default();
        let owner = Owner(vec![0; len], Arc::clone(&given_back));
        let dst = self.engine.register(HostMemory::from_owner(owner)).expect("registered");
        (self.queue.copy(self.pair(len).0, dst).expect("room"), given_back)
    }

    /// Returns whether the device has accepted the copy of this length.
    fn took(&self, len: usize) -> bool {
        lock(&self.script).taken.iter().any(|taken| taken.0 == len)
    }
}

type Pair = crate::Transfer<(BufferMut, BufferMut)>;

fn count(given_back: &Mutex<u32>) -> u32 {
    *given_back.lock().expect("no thread panics while it holds the lock")
}

fn poll(transfer: &mut Pair, waker: &Waker) -> Poll<std::result::Result<(), ErrorKind>> {
    let end = Pin::new(transfer).poll(&mut Context::from_waker(waker));
    end.map(|end| end.map(drop).map_err(|e| e.kind()))
}

/// Returns whether the call panics.
fn panics(act: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err()
}

/// A waker that notes that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Memory that counts its release.
struct Owner(Vec<u8>, Arc<Mutex<u32>>);

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        *self.1.lock().expect("no thread panics while it holds the lock") += 1;
    }
}

#[test]
fn views_stay_within_their_memory_and_are_joined_only_where_they_were_split() {
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    let make = || engine.allocate(100).expect("memory");
    let panics = |act: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err();
    assert!(panics(&|| drop(make().split_off(101))));
    assert!(panics(&|| drop(make().split_to(101))));
    assert!(panics(&|| drop(make().freeze().slice(..101))));
    assert!(panics(&|| drop(make().freeze().slice(101..))));
    assert!(panics(&|| drop(make().share().slice(50..101))));
    let mut head = make();
    let mut middle = head.split_off(10);
    let tail = middle.split_off(10);
    let tail = head.unsplit(tail).expect_err("the ranges are not adjacent");
    let head = middle.unsplit(head).expect_err("the second range is before the first");
    middle.unsplit(tail).expect("the ranges are adjacent");
    assert_eq!((head.len(), middle.len()), (10, 90));
    // The ranges are adjacent, but in two regions.
    let mut memory = vec![0_u8; 64];
    let half = |at: usize, memory: &mut [u8]| {
        let pointer = std::ptr::NonNull::from(&mut memory[at..at + 32]).cast();
        // SAFETY: `memory` outlives the regions, and the test does not access it during that time.
        engine.register(unsafe { HostMemory::from_raw(pointer, 32, ()) }).expect("registered")
    };
    let (mut first, second) = (half(0, &mut memory), half(32, &mut memory));
    drop(first.unsplit(second).expect_err("the range is in another region"));
    drop(first);
    // A window with other views cannot become a buffer. An empty range can be exported, but not without
    // rights.
    let window = make().share();
    let other = window.clone();
    let window = window.try_into_mut().expect_err("another view exists");
    drop(other);
    assert!(window.slice(3..3).export(Access::READ).expect("no bytes").descriptor().is_empty());
    assert_eq!(window.export(Access::empty()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    window.try_into_mut().expect("the last view");
    let e = ExportDescriptor::new("", Access::READ, 8, &[]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfRange);
}
