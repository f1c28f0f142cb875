//! Tests of shared queues. User code panics, calls the queue, or runs at an unfavourable time, or the engine
//! panics.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

mod alone;
mod closing;
mod doorbell_delay;
mod engine_logs;
mod panics;
mod ready;
mod refusing_lanes;
mod stalls;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Instant;

use test_support::log::with_log;

use super::lane::{Caller, nap_for};
use super::slot::{Request, Seen};
use super::wait_queue::WaitQueue;
use super::*;
use crate::planner::Planner;
use crate::planner::wait::deadline;
use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, NativeError, Outcome,
    QueueEvents, QueueOptions, QueueStats,
};

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// The faults to inject, and the observed calls.
#[derive(Debug, Default)]
struct Script {
    /// True if the device reports nothing.
    mute: AtomicBool,
    /// True if the engine logs in polls, in the stop and in the drop.
    logs: AtomicBool,
    /// True if polls panic.
    panics: AtomicBool,
    /// True if the device reports all operations as failed.
    fails: AtomicBool,
    /// True if the engine refuses every descriptor.
    refuses: AtomicBool,
    /// True if the device is lost.
    is_lost: AtomicBool,
    /// True if the device has no room.
    is_full: AtomicBool,
    /// True if the device reports operations after it is stopped.
    stops: AtomicBool,
    /// Time for which the first poll after the stop takes the thread away from the device.
    stop_takes: Mutex<Duration>,
    /// The only thread to which the device reports.
    only: Mutex<Option<ThreadId>>,
    /// True if the drop of the engine's queue panics.
    drop_panics: AtomicBool,
    dropped: AtomicBool,
}

#[derive(Debug)]
struct Odd {
    inner: Box<dyn RawQueue>,
    script: Arc<Script>,
    stopped: bool,
}

impl Odd {
    fn log(&self, text: &'static str) {
        if self.script.logs.load(SeqCst) {
            crate::deferred_log!(info, "{text}");
        }
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.log("the engine drops its queue");
        self.script.dropped.store(true, SeqCst);
        assert!(!self.script.drop_panics.load(SeqCst), "this test makes the engine's drop panic");
    }
}

// SAFETY: every call goes to the inner queue. The faults only withhold reports or change outcomes, and these
// tests do not rely on the bytes of such operations.
unsafe impl RawQueue for Odd {
    fn engine_id(&self) -> crate::EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.script.refuses.load(SeqCst) {
            return Err(Error::new(ErrorKind::OutOfRange, "this test makes the engine refuse"));
        }
        if self.script.is_full.load(SeqCst) {
            return Ok(0);
        }
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.submit(batch) }
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        self.log("the engine polls");
        self.log("the engine still polls");
        assert!(!self.script.panics.load(SeqCst), "this test makes the engine panic");
        let only = *self.script.only.lock().expect("no thread panics while it holds the lock");
        if self.stopped {
            let nap = std::mem::take(&mut *self.script.stop_takes.lock().expect("no thread panics"));
            if !nap.is_zero() {
                std::thread::sleep(nap);
                return 0;
            }
        }
        if self.script.mute.load(SeqCst) || only.is_some_and(|only| only != std::thread::current().id()) {
            return 0;
        }
        let n = self.inner.poll(completions);
        if self.script.fails.load(SeqCst) {
            for completion in &mut completions[..n] {
                completion.outcome = Outcome::Failed(ErrorKind::DeviceFault);
            }
        }
        n
    }
    fn explain(&self, code: i32) -> NativeError {
        self.inner.explain(code)
    }
    fn stop(&mut self) {
        self.log("the engine stops");
        if self.script.stops.load(SeqCst) {
            self.script.mute.store(false, SeqCst);
        }
        self.stopped = true;
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
    fn lost(&self) -> Option<Error> {
        let is_lost = self.script.is_lost.load(SeqCst);
        is_lost.then(|| Error::new(ErrorKind::DeviceLost, "it fell off the bus"))
    }
}

/// The owner of memory. Dropping the owner calls a closure.
struct Owner<F: FnOnce()>(Vec<u8>, Option<F>);

impl<F: FnOnce()> AsMut<[u8]> for Owner<F> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<F: FnOnce()> Drop for Owner<F> {
    fn drop(&mut self) {
        if let Some(f) = self.1.take() {
            f();
        }
    }
}

/// A waker that calls a closure.
struct Does<F: Fn()>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that calls a closure when it is dropped.
struct LetGo<F: FnMut()>(F);

impl<F: FnMut() + Send + Sync + 'static> Wake for LetGo<F> {
    fn wake(self: Arc<Self>) {}
}

impl<F: FnMut()> Drop for LetGo<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Does(f)).into()
}

fn lane_of(engine: &ReferenceEngine, script: &Arc<Script>) -> Arc<Lane> {
    lane_with(engine, script, &QueueOptions::new().with_depth(64))
}

fn lane_with(engine: &ReferenceEngine, script: &Arc<Script>, options: &QueueOptions) -> Arc<Lane> {
    Arc::new(lane_on(engine, script, options, Arc::new(WaitQueue::new())))
}

fn lane_on(
    engine: &ReferenceEngine,
    script: &Arc<Script>,
    options: &QueueOptions,
    wait_queue: Arc<WaitQueue>,
) -> Lane {
    let inner = engine.open_queue_raw(options).expect("it opens");
    let raw = Odd { inner, script: Arc::clone(script), stopped: false };
    let depth = raw.depth();
    let planner = Planner::new(Box::new(raw), engine.info(), depth, None);
    Lane::new(planner, options, wait_queue)
}

struct Rig {
    engine: ReferenceEngine,
    script: Arc<Script>,
    queue: SharedQueue,
}

impl Rig {
    /// Makes a queue with one lane. The lane's thread runs `work`.
    fn with(work: impl FnOnce(&Lane) + Send + 'static) -> Self {
        Self::on(ReferenceEngine::new(ReferenceOptions { per_poll: 64, ..ReferenceOptions::default() }), work)
    }

    fn on(engine: ReferenceEngine, work: impl FnOnce(&Lane) + Send + 'static) -> Self {
        // No test is stopped for that long.
        let stall = Duration::from_secs(100 * 3600);
        Self::of(engine, &QueueOptions::new().with_depth(64).with_stall_timeout(stall), work)
    }

    fn of(
        engine: ReferenceEngine,
        options: &QueueOptions,
        work: impl FnOnce(&Lane) + Send + 'static,
    ) -> Self {
        let script = Arc::<Script>::default();
        let lane = lane_with(&engine, &script, options);
        let (own, line) = (Arc::clone(&lane), lane.wait_queue());
        let hub = Hub {
            wait_queue: line,
            lanes: [lane].into(),
            clones: AtomicUsize::new(0),
            inline: Default::default(),
            threads: Mutex::new(vec![std::thread::spawn(move || work(&own))]),
            process: dma_process::ForkMark::new(),
            drop_timeout: Duration::from_secs(5),
        };
        Self { engine, script, queue: SharedQueue::of(Arc::new(hub)) }
    }

    fn new() -> Self {
        Self::with(Lane::serve)
    }

    /// Makes a queue with a stall timeout of zero and a depth of `depth`.
    fn impatient(depth: usize) -> Self {
        let options = QueueOptions::new().with_depth(depth).with_stall_timeout(Duration::ZERO);
        Self::of(ReferenceEngine::new(ReferenceOptions::default()), &options, Lane::serve)
    }

    /// Makes a queue whose lane thread does nothing, so only waiting threads poll.
    fn still() -> Self {
        Self::with(|_| ())
    }

    fn memory(&self, at_drop: impl FnOnce() + Send + Sync + 'static) -> BufferMut {
        self.engine.register(HostMemory::from_owner(Owner(vec![0; 32], Some(at_drop)))).expect("it registers")
    }

    /// Submits a copy to memory whose drop calls `at_drop`.
    fn copy(&self, at_drop: impl FnOnce() + Send + Sync + 'static) -> SharedTransfer<(BufferMut, BufferMut)> {
        let dst = self.memory(at_drop);
        self.queue.copy(self.engine.allocate(32).expect("memory"), dst).expect("room")
    }

    fn lane(&self) -> &Lane {
        self.queue.handle.lane(0)
    }

    /// Submits a copy and drops its transfer.
    fn try_copy(&self) -> Result<(), OpError<(BufferMut, BufferMut)>> {
        let memory = || self.engine.allocate(32).expect("memory");
        self.queue.copy(memory(), memory()).map(drop)
    }

    /// Submits copies until the result of a submission is `end`. Returns the error if `end` is an error.
    #[track_caller]
    fn copy_until(&self, end: Option<ErrorKind>) -> Option<OpError<(BufferMut, BufferMut)>> {
        let deadline = Instant::now() + HANGS;
        loop {
            let refusal = self.try_copy().err();
            if refusal.as_ref().map(OpError::kind) == end {
                return refusal;
            }
            assert!(Instant::now() < deadline, "it stays {refusal:?}");
            std::thread::yield_now();
        }
    }

    fn mute(&self, mute: bool) {
        self.script.mute.store(mute, SeqCst);
    }
}

/// Makes a function that sends a message, and the receiver of the messages.
fn signal() -> (impl Fn() + Clone + Send + Sync + 'static, Receiver<()>) {
    let (sender, receiver): (Sender<()>, _) = channel();
    // Ignore an error, because the receiver may have been dropped.
    (move || _ = sender.send(()), receiver)
}

#[track_caller]
fn heard(receiver: &Receiver<()>) {
    receiver.recv_timeout(HANGS).expect("the test does not reach its condition in time");
}

/// Waits until the lane refuses operations.
#[track_caller]
fn refuses(lane: &Lane) {
    until(|| lane.refuses());
}

#[track_caller]
fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + HANGS;
    while !condition() {
        assert!(Instant::now() < deadline, "the test does not reach its condition in time");
        std::thread::yield_now();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn nothing(request: &mut Request) -> Result<()> {
    request.operations = 1;
    Ok(())
}

#[test]
fn the_driver_takes_the_requests_of_others_too() {
    let lane = lane_of(&ReferenceEngine::new(ReferenceOptions::default()), &Arc::default());
    let theirs = lane.submit(1, nothing).expect("room").expect("memory");
    for _ in 0..100 {
        let own = lane.submit(0, nothing).expect("room").expect("memory");
        lane.drive(Caller::Waiter(0));
        assert_eq!(
            lane.slots[own as usize].look(),
            Seen::Done,
            "a call of `drive` serves the caller's own request"
        );
        lane.release(own);
    }
    assert_eq!(lane.slots[theirs as usize].look(), Seen::Done);
}

#[test]
fn for_ever_is_a_duration() {
    let rig = Rig::new();
    let mut transfer = rig.copy(|| ());
    transfer.wait_for(Duration::MAX).expect("the copy is done before the deadline");
    transfer.wait().expect("done");
    assert_eq!(rig.queue.close(Duration::MAX).completed, 1);
}

/// A wait ends at its deadline, even if the device continues to report descriptors.
#[test]
fn deadlines_hold_while_the_device_makes_progress() {
    let options = ReferenceOptions { max_transfer: 64, per_poll: 1, ..ReferenceOptions::default() };
    let rig = Rig::on(ReferenceEngine::new(options), |_| ());
    let memory = || rig.engine.allocate(1 << 20).expect("memory");
    let mut long = rig.queue.copy(memory(), memory()).expect("room");
    long.wait_for(Duration::ZERO).expect_err("the copy needs thousands of descriptors");
    let lane = rig.lane();
    lane.drain(lane.close(Instant::now()));
    assert_eq!(rig.queue.counters().aborted, 1);
    assert_eq!(long.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
}

#[test]
fn a_transfer_that_was_ready_takes_no_wake_from_another() {
    let rig = Rig::still();
    let mut spent = rig.copy(|| ());
    assert!(matches!(poll(&mut spent, Waker::noop()), Poll::Ready(Ok(_))));
    rig.mute(true);
    let mut other = rig.copy(|| ());
    let (done, receiver) = signal();
    assert!(poll(&mut other, &waker(done)).is_pending());
    catch_unwind(AssertUnwindSafe(|| poll(&mut spent, Waker::noop()))).expect_err("it was ready");
    // Calls on a spent transfer do not affect the operation that now uses the slot.
    assert!(spent.is_done() && spent.wait_for(Duration::ZERO).is_ok());
    catch_unwind(AssertUnwindSafe(|| spent.wait())).expect_err("the operands have been returned already");
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
    receiver.try_recv().expect("the task is woken, otherwise it would sleep forever");
}

/// A device that completes descriptors is not stalled, whichever thread polls it.
#[test]
fn a_wait_goes_on_while_others_see_the_device_complete() {
    const STALL: Duration = Duration::from_millis(100);
    // The test is repeated until this thread could poll without a long pause, because a busy machine may
    // suspend the thread.
    let stalled = || {
        let options = ReferenceOptions { max_transfer: 64, per_poll: 1, ..ReferenceOptions::default() };
        let rig = Rig::on(ReferenceEngine::new(options), |_| ());
        let memory = || rig.engine.allocate(1 << 20).expect("memory");
        let long = rig.queue.copy(memory(), memory()).expect("room");
        *rig.script.only.lock().expect("no thread panics while it holds the lock") =
            Some(std::thread::current().id());
        let waiter = std::thread::spawn(move || long.block(None, STALL));
        let (started, mut before, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while started.elapsed() < 4 * STALL && !waiter.is_finished() {
            if rig.lane().drive(Caller::Closer) > 0 {
                let now = Instant::now();
                longest = longest.max(now - before);
                before = now;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *rig.script.only.lock().expect("no thread panics while it holds the lock") = None;
        longest = longest.max(before.elapsed());
        let done = waiter.join().expect("it waits");
        rig.lane().drain(rig.lane().close(deadline(HANGS)));
        (longest < STALL / 4).then_some(!done)
    };
    let stalled = std::iter::repeat_with(stalled).take(50).flatten().next();
    assert_ne!(
        stalled,
        Some(true),
        "the wait does not stall, because the device completes descriptors all the time"
    );
}

#[test]
fn a_queue_has_one_to_65535_lanes() {
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    for (lanes, kind) in [(0, ErrorKind::InvalidArgument), (1 << 16, ErrorKind::OutOfRange)] {
        let e = engine.open_shared_queue(&SharedQueueOptions::new().with_lanes(lanes)).expect_err("refused");
        assert_eq!(e.kind(), kind, "{e}");
        assert!(e.to_string().contains(&format!("{lanes} lanes")), "{e}");
    }
}
