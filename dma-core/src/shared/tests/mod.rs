//! Tests of shared queues. User code panics, calls the queue, or runs at an unfavourable time, or the engine
//! panics.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

mod doorbell_delay;
mod ready;
mod stalls;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;

use super::lane::{Caller, nap_for};
use super::slot::{Request, Seen};
use super::*;
use crate::queue::fault_injection_tests::with_log;
use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Completion, Descriptor, DmaEngine, DmaEngineExt, HostMemory, NativeError, Outcome, QueueEvents,
    QueueStats,
};

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// The faults to inject, and the observed calls.
#[derive(Debug, Default)]
struct Script {
    /// True if the device reports nothing.
    mute: AtomicBool,
    /// True if polls panic.
    panics: AtomicBool,
    /// True if the device reports all operations as failed.
    fails: AtomicBool,
    /// True if the device reports operations after it is stopped.
    stops: AtomicBool,
    /// Time for which the first poll after the stop takes the thread away from the device.
    stop_takes: Mutex<Duration>,
    /// The only thread to which the device reports.
    only: Mutex<Option<ThreadId>>,
    dropped: AtomicBool,
}

#[derive(Debug)]
struct Odd {
    inner: Box<dyn RawQueue>,
    script: Arc<Script>,
    stopped: bool,
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.script.dropped.store(true, SeqCst);
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
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.submit(batch) }
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
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

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Does(f)).into()
}

fn lane_of(engine: &ReferenceEngine, script: &Arc<Script>) -> Arc<Lane> {
    lane_with(engine, script, &QueueOptions::new().with_depth(64))
}

fn lane_with(engine: &ReferenceEngine, script: &Arc<Script>, options: &QueueOptions) -> Arc<Lane> {
    let inner = engine.open_queue_raw(options).expect("it opens");
    let raw = Odd { inner, script: Arc::clone(script), stopped: false };
    let depth = raw.depth();
    let planner = Planner::new(Box::new(raw), engine.info(), depth, None);
    Arc::new(Lane::new(planner, options, Arc::new(WaitQueue::new())))
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
        Self::of(engine, &QueueOptions::new().with_depth(64), work)
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
    let deadline = Instant::now() + HANGS;
    while !lane.refuses() {
        assert!(Instant::now() < deadline, "the test does not reach its condition in time");
        std::thread::yield_now();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn nothing(request: &mut Request) {
    request.operations = 1;
}

#[test]
fn the_driver_takes_the_requests_of_others_too() {
    let lane = lane_of(&ReferenceEngine::new(ReferenceOptions::default()), &Arc::default());
    let theirs = lane.submit(1, nothing).expect("room");
    for _ in 0..100 {
        let own = lane.submit(0, nothing).expect("room");
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
fn a_destructor_may_use_the_queue() {
    let rig = Rig::new();
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    drop(rig.copy(move || {
        assert_eq!(queue.counters().completed, 1);
        let foreign = (engine.allocate(8).expect("memory"), engine.allocate(8).expect("memory"));
        assert!(queue.copy(foreign.0, foreign.1).is_err(), "of another engine");
        done();
    }));
    heard(&receiver);
}

#[test]
fn a_waker_may_use_the_queue() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let mut transfer = rig.copy(|| ());
    let queue = rig.queue.clone();
    let waker = waker(move || {
        assert_eq!(queue.counters().completed, 1);
        done();
    });
    assert!(poll(&mut transfer, &waker).is_pending());
    rig.mute(false);
    heard(&receiver);
    assert!(matches!(poll(&mut transfer, &waker), Poll::Ready(Ok(_))));
}

#[test]
fn a_panicking_destructor_costs_no_other_operation() {
    let rig = Rig::new();
    for _ in 0..3 {
        let (done, receiver) = signal();
        // The device reports nothing, so that the lane runs the destructor, and not this thread.
        rig.mute(true);
        drop(rig.copy(|| panic!("this test makes a destructor panic")));
        drop(rig.copy(done));
        rig.mute(false);
        heard(&receiver);
    }
    assert_eq!(rig.queue.close(HANGS).completed, 6);
}

#[test]
fn a_panicking_waker_costs_no_other_operation() {
    let rig = Rig::new();
    rig.mute(true);
    let mut unlucky = rig.copy(|| ());
    assert!(poll(&mut unlucky, &waker(|| panic!("this test makes a waker panic"))).is_pending());
    let (done, receiver) = signal();
    drop(rig.copy(done));
    rig.mute(false);
    heard(&receiver);
    assert!(unlucky.wait().is_ok());
}

#[test]
fn the_log_may_use_the_queue() {
    let rig = Rig::still();
    rig.script.fails.store(true, SeqCst);
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    let transfer = rig.copy(|| ());
    let uses = move |_: &tracing::Event<'_>| {
        assert_eq!(queue.counters().failed, 1);
        done();
    };
    std::thread::spawn(move || with_log(uses, || transfer.wait().expect_err("it failed")));
    heard(&receiver);
}

#[test]
fn a_panicking_log_costs_no_operation() {
    let rig = Rig::still();
    let full = |_: &tracing::Event<'_>| panic!("this log subscriber panics");
    rig.script.fails.store(true, SeqCst);
    let failed = rig.copy(|| ());
    assert_eq!(with_log(full, || failed.wait()).expect_err("it failed").kind(), ErrorKind::DeviceFault);
    rig.script.fails.store(false, SeqCst);
    assert!(rig.copy(|| ()).wait().is_ok(), "no engine panicked");
}

#[test]
fn a_panicking_destructor_spares_who_drives() {
    let rig = Rig::still();
    drop(rig.copy(|| panic!("this test makes a destructor panic")));
    let (done, receiver) = signal();
    drop(rig.copy(done));
    assert!(rig.copy(|| ()).wait().is_ok());
    heard(&receiver);
}

#[test]
fn a_closer_drains_for_a_dead_thread() {
    let rig = Rig::with(|_| panic!("this test makes the lane's thread panic"));
    let (done, receiver) = signal();
    drop(rig.copy(done));
    let held = rig.copy(|| ());
    assert_eq!(rig.queue.close(HANGS).completed, 2);
    receiver.try_recv().expect("it was drained");
    assert!(held.wait().is_ok());
}

#[test]
fn a_wait_that_a_panic_unwinds_does_not_keep_the_queue() {
    let rig = Rig::still();
    let waited = rig.copy(|| ());
    rig.script.panics.store(true, SeqCst);
    catch_unwind(AssertUnwindSafe(|| drop(waited.wait()))).expect_err("the engine panics");
    let hub = rig.queue.downgrade();
    drop(rig.queue);
    assert!(hub.upgrade().is_none());
}

/// The engine panics on the lane's thread, or on a waiting thread.
#[test]
fn memory_that_a_silent_device_has_is_never_given_back_after_a_panic() {
    for still in [false, true] {
        let rig = if still { Rig::still() } else { Rig::new() };
        rig.mute(true);
        let freed = Arc::new(AtomicBool::new(false));
        let of_owner = Arc::clone(&freed);
        let parked = rig.copy(move || of_owner.store(true, SeqCst));
        let held = rig.copy(|| ());
        assert!(!parked.is_done());
        drop(parked);
        rig.script.panics.store(true, SeqCst);
        if still {
            catch_unwind(AssertUnwindSafe(|| held.is_done())).expect_err("the engine panics");
        } else {
            refuses(rig.lane());
        }
        let error = held.wait().expect_err("the device never reports the copy");
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.into_operands().is_none());
        let (src, dst) = (rig.memory(|| ()), rig.memory(|| ()));
        assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
        assert_eq!(rig.queue.close(HANGS).abandoned, 2);
        drop(rig);
        assert!(!freed.load(SeqCst), "the memory was freed while the device may write to it");
    }
}

#[test]
fn memory_that_a_silent_device_has_is_never_given_back_by_a_lane() {
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    let script = Arc::<Script>::default();
    script.mute.store(true, SeqCst);
    let lane = lane_of(&engine, &script);
    let freed = Arc::new(AtomicBool::new(false));
    let of_owner = Arc::clone(&freed);
    let segment = engine.allocate(8).expect("memory");
    let target = engine.allocate(8).expect("memory");
    let slot = lane.submit_flat(0, segment.0.segment(), target.0.segment());
    lane.drive(Caller::Closer);
    let owner = Owner(Vec::new(), Some(move || of_owner.store(true, SeqCst)));
    // SAFETY: this test holds the operation, because no transfer was made for it.
    let parked = unsafe { lane.slots[slot.expect("room") as usize].park(Box::new((owner, segment, target))) };
    assert!(parked.is_ok(), "the operation is in flight, because the device reports nothing");
    drop(lane);
    assert!(!freed.load(SeqCst));
}

#[test]
fn the_last_clone_may_go_on_its_lanes_thread() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let (script, last) = (Arc::clone(&rig.script), rig.queue.clone());
    drop(rig.copy(move || {
        drop(last);
        assert!(script.dropped.load(SeqCst), "dropping the last clone closes the device");
        done();
    }));
    let (also_done, other) = signal();
    drop(rig.copy(also_done));
    let Rig { queue, script, engine: _engine } = rig;
    drop(queue);
    script.mute.store(false, SeqCst);
    heard(&receiver);
    heard(&other);
}

#[test]
fn a_destructor_may_close_while_another_thread_does() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    drop(rig.copy(move || {
        assert_eq!(queue.close(Duration::ZERO).completed, 1);
        assert_eq!(queue.counters().completed, 1);
        done();
    }));
    let queue = rig.queue.clone();
    let closer = std::thread::spawn(move || queue.close(HANGS));
    refuses(rig.lane());
    rig.mute(false);
    heard(&receiver);
    assert_eq!(closer.join().expect("it closes").completed, 1);
}

#[test]
fn a_request_after_the_last_look_of_the_lane_is_ended_by_its_submitter() {
    let rig = Rig::new();
    rig.queue.close(HANGS);
    // Submits like a thread that has checked the lane before the lane was closed.
    let late = |memory| {
        let slot = rig.lane().submit(0, nothing).expect("room");
        let flags = TransferFlags::new(Operation::Copy);
        let ticket = Ticket::new(Arc::clone(&rig.queue.handle), slot, flags);
        let transfer = SharedTransfer::<_>::new(ticket, memory);
        rig.lane().notice();
        transfer
    };
    let (done, receiver) = signal();
    let dropped = late(rig.memory(done));
    assert_eq!(
        rig.lane().slots[0].look(),
        Seen::Reported,
        "the submitter ends its request, because the lane's thread has exited"
    );
    drop(dropped);
    receiver.try_recv().expect("the operands are dropped");
    let mut awaited = late(rig.memory(|| ()));
    match poll(&mut awaited, Waker::noop()) {
        Poll::Ready(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.into_operands().is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_at_the_end_of_the_lane_is_refused_rather_than_abandoned() {
    let rig = Rig::still();
    let memory = (rig.engine.allocate(8).expect("memory"), rig.engine.allocate(8).expect("memory"));
    let (src, dst) = (memory.0.0.segment(), memory.1.0.segment());
    let (script, queue) = (Arc::clone(&rig.script), rig.queue.clone());
    let (sender, receiver) = channel();
    drop(rig.copy(move || {
        // Submits like a thread that has checked the lane before the lane was closed, and then drives the
        // lane.
        script.mute.store(true, SeqCst);
        let lane = queue.handle.lane(0);
        let late = lane.submit_flat(0, src, dst);
        lane.drive(Caller::Closer);
        sender.send(late.expect("room")).expect("it is heard");
    }));
    let lane = rig.lane();
    lane.drain(lane.close(deadline(HANGS)));
    let late = receiver.try_recv().expect("it ran");
    assert_eq!(lane.slots[late as usize].look(), Seen::Reported);
    assert_eq!((rig.queue.counters().completed, rig.queue.counters().abandoned), (1, 0));
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

#[test]
fn a_waker_that_panics_as_it_is_let_go_costs_nobody_the_wake() {
    let rig = Rig::still();
    rig.mute(true);
    let mut transfer = rig.copy(|| ());
    let bad = Arc::new(LetGo(|| panic!("this test makes a waker panic"))).into();
    assert!(poll(&mut transfer, &bad).is_pending());
    drop(bad);
    let (done, receiver) = signal();
    let waker = waker(done);
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut transfer, &waker).is_pending()));
    assert!(polled.expect("the panic of another task's waker does not reach this task"));
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
    receiver.try_recv().expect("the task is woken, otherwise it would sleep forever");
}

#[test]
fn wakers_that_nobody_will_wake_are_let_go() {
    let rig = Rig::still();
    rig.mute(true);
    let mut transfer = rig.copy(|| ());
    let (done, receiver) = signal();
    let waker = Arc::new(LetGo(done)).into();
    assert!(poll(&mut transfer, &waker).is_pending());
    drop(transfer);
    drop(waker);
    receiver.try_recv().expect("dropping the transfer drops its waker, which may keep the queue alive");
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
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
                longest = longest.max(before.elapsed());
                before = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        longest = longest.max(before.elapsed());
        *rig.script.only.lock().expect("no thread panics while it holds the lock") = None;
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
fn close_waits_no_longer_than_its_limit() {
    let rig = Rig::new();
    rig.mute(true);
    drop(rig.copy(|| ()));
    let queue = rig.queue.clone();
    let patient = std::thread::spawn(move || queue.close(HANGS));
    refuses(rig.lane());
    let started = Instant::now();
    assert_eq!(rig.queue.close(Duration::ZERO).abandoned, 1);
    assert!(started.elapsed() < HANGS / 2, "a close with a short timeout does not wait for another close");
    assert_eq!(patient.join().expect("it closes").abandoned, 1);
}

/// Because the transfers are dropped, only a refusal tells that the device has stalled.
#[test]
fn a_full_queue_says_that_its_device_hangs_and_no_longer_than_it_does() {
    let rig = Rig::impatient(4);
    for _ in 0..2 {
        rig.mute(true);
        // Each dropped transfer keeps its slot.
        let refusal = rig.copy_until(Some(ErrorKind::TimedOut)).expect("it is refused");
        assert!(refusal.error().message().contains("has completed nothing for"), "{refusal}");
        assert!(refusal.error().hint().contains("open another"), "{refusal}");
        assert!(refusal.into_operands().is_some(), "they come back");
        assert!(rig.queue.stalled().is_some());
        rig.mute(false);
        rig.copy_until(None);
        let deadline = Instant::now() + HANGS;
        while rig.queue.stalled().is_some() {
            assert!(Instant::now() < deadline, "it completes everything");
        }
    }
    assert_eq!(rig.queue.close(HANGS).abandoned, 0);
}

#[test]
fn an_idle_queue_is_not_stalled_and_a_stalled_one_says_so_before_it_is_full() {
    let rig = Rig::impatient(4);
    rig.try_copy().expect("room");
    // The lane's thread sleeps when nothing is in flight.
    let deadline = Instant::now() + HANGS;
    while rig.queue.counters().completed == 0 || !rig.lane().sleeps() {
        assert!(Instant::now() < deadline, "the test does not reach its condition in time");
        std::thread::yield_now();
    }
    assert_eq!(rig.queue.stalled(), None);
    rig.mute(true);
    rig.try_copy().expect("room");
    while rig.queue.stalled().is_none() {
        assert!(Instant::now() < deadline, "it completes nothing");
        std::thread::yield_now();
    }
    rig.try_copy().expect("room");
    rig.queue.close(Duration::ZERO);
    assert_eq!(rig.queue.stalled(), None, "a closed queue has no device that could stall");
}

/// Even with a stall timeout of zero, no stall is reported if the lane's thread does not run.
#[test]
fn a_queue_whose_thread_does_not_run_does_not_blame_the_device() {
    let options = QueueOptions::new().with_depth(4).with_stall_timeout(Duration::ZERO);
    let rig = Rig::of(ReferenceEngine::new(ReferenceOptions::default()), &options, |_| ());
    rig.mute(true);
    for _ in 0..1_000 {
        if let Err(refusal) = rig.try_copy() {
            assert_eq!(refusal.kind(), ErrorKind::QueueFull);
        }
    }
}

/// The naps of the lane's thread become longer, but stay short compared to the whole wait.
#[test]
fn the_thread_of_a_device_that_hangs_sleeps_longer() {
    let rig = Rig::new();
    rig.mute(true);
    rig.try_copy().expect("room");
    let deadline = Instant::now() + HANGS;
    while !rig.lane().sleeps() {
        assert!(
            Instant::now() < deadline,
            "the thread does not sleep, although the device completes nothing"
        );
        std::hint::spin_loop();
    }
    let naps = |count: u32| (0..count).map(nap_for).map(u64::from).sum::<u64>();
    for vain in 1..2_000 {
        assert!(nap_for(vain) <= 20 && u64::from(nap_for(vain)) <= 1 + naps(vain) / 60, "{vain} naps");
    }
    assert_eq!(nap_for(u32::MAX), 20);
}

#[test]
fn operations_ended_by_close_say_so_and_are_not_to_be_tried_again() {
    let rig = Rig::new();
    rig.script.stops.store(true, SeqCst);
    rig.mute(true);
    let one = rig.copy(|| ());
    let pair = || (rig.engine.allocate(32).expect("memory"), rig.engine.allocate(32).expect("memory"));
    let batch = rig.queue.submit((0..2).map(|_| pair()).collect::<Batch<_, _>>()).expect("room");
    assert!(!one.is_done() && !batch.is_done());
    assert_eq!(rig.queue.close(Duration::ZERO).aborted, 3);
    let says = |error: &Error| {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Closed, crate::Retry::Never), "{error}");
        assert_eq!(error.hint(), "open another queue", "{error}");
    };
    let error = one.wait().expect_err("the close aborted the operation");
    says(error.error());
    assert!(error.into_operands().is_some(), "the operands are returned");
    says(batch.wait().expect_err("the close aborted the operation").error());
    says(rig.try_copy().expect_err("it is closed").error());
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
