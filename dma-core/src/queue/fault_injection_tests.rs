//! Tests of queues on a device that injects faults: it refuses descriptors, fails them, delays them, reports
//! them twice, or never reports them.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

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
}

impl QueueEvents for Odd {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.event.as_fd())
    }
    fn arm(&mut self) -> Result<bool> {
        let mut script = lock(&self.script);
        script.armed = true;
        script.arms += 1;
        Ok(true)
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

/// An end that was reported already does not end the next operation of the same slot.
#[test]
fn an_end_that_was_seen_already_is_not_the_end_of_what_has_the_slot_next() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let mut refused = rig.copy(33);
    assert!(poll(&mut refused, Waker::noop()).is_pending());
    lock(&rig.script).full = false;
    lock(&rig.script).mute = true;
    rig.refuse(33);
    // The last copy submits the 32 copies before it. The first of them is refused.
    let others: Vec<_> = (0..32).map(|_| rig.copy(10)).collect();
    assert_eq!(poll(&mut refused, Waker::noop()), Poll::Ready(Err(ErrorKind::OutOfRange)));
    let (transfer, given_back) = rig.copy_to_owned(44);
    drop(transfer);
    rig.queue.flush();
    assert!(rig.took(44));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    lock(&rig.script).mute = false;
    others.into_iter().for_each(|other| drop(other.wait().expect("done")));
    while count(&given_back) == 0 {
        rig.queue.poll();
    }
    assert_eq!(rig.queue.available(), 64, "every slot is free, and no slot is free twice");
}

/// If a submission ends an operation, its task is woken without waiting for the next poll.
#[test]
fn a_refusal_while_submitting_wakes_who_awaits() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).full = true;
    let woken = Arc::<Flag>::default();
    let mut refused = rig.copy(33);
    assert!(poll(&mut refused, &Arc::clone(&woken).into()).is_pending());
    lock(&rig.script).full = false;
    rig.refuse(33);
    let others: Vec<_> = (0..32).map(|_| rig.copy(10)).collect();
    assert!(woken.0.load(Ordering::Relaxed));
    drop(others);
}

thread_local! {
    /// The transfers that [`Dropper`]'s wakers drop.
    static HELD: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// A waker that drops a transfer whenever it is woken, cloned or dropped.
struct Dropper;

impl Dropper {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            Self::act();
            RawWaker::new(std::ptr::null(), &Self::TABLE)
        },
        |_| Self::act(),
        |_| Self::act(),
        |_| Self::act(),
    );

    fn waker() -> Waker {
        // SAFETY: the functions of the table do not use the data pointer and are thread-safe.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &Self::TABLE)) }
    }

    fn act() {
        let held = HELD.with(|held| held.borrow_mut().pop());
        drop(held);
    }
}

#[test]
fn wakers_may_use_the_queue_whenever_they_run() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut counts = Vec::new();
    for _ in 0..20 {
        let (held, given_back) = rig.copy_to_owned(44);
        HELD.with(|all| all.borrow_mut().push(held));
        counts.push(given_back);
    }
    let mut awaited = rig.copy(11);
    let waker = Dropper::waker();
    assert!(!panics(|| assert!(poll(&mut awaited, &waker).is_pending())));
    assert!(
        !panics(|| assert!(poll(&mut awaited, Waker::noop()).is_pending())),
        "replacing a waker drops the old waker"
    );
    assert!(!panics(|| assert!(poll(&mut awaited, &waker).is_pending())));
    assert!(!panics(|| drop(awaited)));
    rig.queue.flush();
    let dropped = 20 - HELD.with(|all| all.borrow().len());
    assert!(dropped >= 6, "every waker function ran: {dropped} transfers were dropped");
    assert!(
        rig.took(44) && counts.iter().all(|given_back| count(given_back) == 0),
        "the memory was freed while the device may access it"
    );
    lock(&rig.script).mute = false;
    HELD.with(|all| all.borrow_mut().clear());
    while counts.iter().any(|given_back| count(given_back) == 0) {
        rig.queue.poll();
    }
    drop(waker);
}

/// A log subscriber that calls a closure at every event.
struct Log<F>(F);

impl<F: Fn(&tracing::Event<'_>) + 'static> tracing::Subscriber for Log<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        (self.0)(event);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Runs `act` with a log subscriber that calls `event`.
pub(crate) fn with_log<R>(
    event: impl Fn(&tracing::Event<'_>) + Send + Sync + 'static,
    act: impl FnOnce() -> R,
) -> R {
    // Set a second subscriber. If there is only one, and another thread logs an event first, `tracing` may
    // cache that no subscriber wants the event (`tracing-core` 0.1.36, `Dispatchers::has_just_one`).
    static GLOBAL: std::sync::Once = std::sync::Once::new();
    GLOBAL.call_once(|| {
        tracing::subscriber::set_global_default(Log(|_: &tracing::Event<'_>| ())).expect("the only one")
    });
    tracing::subscriber::with_default(Log(event), act)
}

#[test]
fn a_panic_of_the_log_frees_nothing_that_a_silent_device_has() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let (transfer, given_back) = rig.copy_to_owned(44);
    drop(transfer);
    let Rig { queue, script, .. } = rig;
    let panicked = Arc::new(AtomicBool::new(false));
    let of_log = Arc::clone(&panicked);
    // The leak is logged as an error.
    let full = move |event: &tracing::Event<'_>| {
        if *event.metadata().level() == tracing::Level::ERROR {
            of_log.store(true, Ordering::Relaxed);
            panic!("this log subscriber panics");
        }
    };
    with_log(full, || drop(queue));
    assert!(panicked.load(Ordering::Relaxed));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    assert!(!lock(&script).dropped, "the device's queue is not dropped");
}

#[test]
fn a_panic_of_the_log_loses_no_completion() {
    let rig = Rig::new();
    let fault = ErrorKind::DeviceFault;
    lock(&rig.script).fail = HashMap::from([(22, (Outcome::Failed(fault), 7))]);
    let transfers = [21, 22, 23, 24].map(|len| rig.copy(len));
    rig.queue.flush();
    assert_eq!(with_log(|_| panic!("this log subscriber panics"), || rig.queue.poll()), 4);
    let ends = transfers.map(|transfer| transfer.wait().err().map(|e| e.kind()));
    assert_eq!(ends, [None, Some(fault), None, None]);
}

#[test]
fn a_panic_of_the_log_hides_no_failure_of_a_batch() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let batch: Batch<_, _> = [33, 34].map(|len| rig.pair(len)).into_iter().collect();
    let batch = rig.queue.submit(batch).expect("room");
    lock(&rig.script).full = false;
    rig.refuse(33);
    with_log(|_| panic!("this log subscriber panics"), || rig.queue.flush());
    let e = batch.wait().expect_err("the batch's first copy was refused");
    assert_eq!(e.failures().len(), 1);
}

thread_local! {
    /// The queue that the log subscriber uses.
    static LOGGED: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

#[test]
fn the_log_may_use_the_queue() {
    let Rig { engine, queue, script } = Rig::new();
    lock(&script).fail = HashMap::from([(22, (Outcome::Failed(ErrorKind::DeviceFault), 7))]);
    let memory = |len| engine.allocate(len).expect("memory");
    let transfers = [21, 22, 23].map(|len| queue.copy(memory(len), memory(len)).expect("room"));
    LOGGED.set(Some(queue));
    let events = Arc::<Mutex<u32>>::default();
    let of_log = Arc::clone(&events);
    let uses = move |_: &tracing::Event<'_>| {
        LOGGED.with_borrow(|queue| queue.as_ref().map(|queue| (queue.poll(), queue.counters())));
        *of_log.lock().expect("no thread panics while it holds the lock") += 1;
    };
    let ends = with_log(uses, || transfers.map(|transfer| transfer.wait().is_ok()));
    assert_eq!((ends, count(&events)), ([true, false, true], 1));
    drop(LOGGED.take());
}

/// A wait ends at its deadline, even if the device continues to report descriptors.
#[test]
fn deadlines_hold_while_the_device_makes_progress() {
    const LONG: usize = 1 << 20;
    let rig = Rig::new();
    let mut long = rig.copy(LONG);
    long.wait_for(Duration::ZERO).expect_err("the copy needs thousands of descriptors");
    let counters = rig.queue.close(Duration::ZERO);
    assert_eq!((counters.aborted, counters.in_flight), (1, 0));
    assert_eq!(long.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
}

/// On a busy machine, a software device may not run for some time, so a device that stops late is not
/// abandoned.
#[test]
fn a_device_that_takes_its_time_to_stop_is_not_dead() {
    let (script, long, counters) = loop {
        let rig = Rig::new();
        lock(&rig.script).stops_late = [vec![Duration::ZERO; 100], vec![Duration::from_millis(30)]].concat();
        let (script, long) = (Arc::clone(&rig.script), rig.copy(1 << 20));
        let begun = Instant::now();
        let counters = rig.queue.close(Duration::ZERO);
        // If the machine stood still for the whole grace period, the device had no time.
        if begun.elapsed() < crate::STOP_GRACE {
            break (script, long, counters);
        }
    };
    assert_eq!((counters.aborted, counters.abandoned, counters.in_flight), (1, 0, 0));
    assert_eq!(lock(&script).stops_late, [], "the device was polled until it reported the copy");
    let e = long.wait().expect_err("the close stopped the device");
    assert_eq!(
        (e.kind(), e.error().retry(), e.error().hint()),
        (ErrorKind::Closed, Retry::Never, "open another queue")
    );
    assert!(e.into_operands().is_some(), "the operands are returned");
}

/// The device may complete an operation while the waiting thread does not run. Therefore the wait polls once
/// more after the timeout.
#[test]
fn a_wait_does_not_time_out_at_a_poll_that_reports() {
    let wait = |silent: Option<u64>| {
        let rig = Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO));
        lock(&rig.script).silent = silent;
        let (_first, second) = (rig.copy(11), rig.copy(12));
        let done = second.wait().is_ok();
        let polls = lock(&rig.script).polls;
        lock(&rig.script).silent = None;
        (done, polls)
    };
    let (done, polls) = wait(Some(u64::MAX));
    assert!(!done, "the device reports nothing");
    // The last poll before the timeout reports the first copy.
    assert!(wait(Some(polls - 1)).0, "a completion at the last poll restarts the timeout");
    assert!(!wait(Some(polls)).0, "the wait makes exactly this number of polls");
}

/// A wait reads the clock after each sleep on the event, because a sleep takes some milliseconds.
#[test]
fn a_wait_that_sleeps_looks_at_the_clock_after_each_nap() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::from_millis(10)).expect_err("the device reports nothing");
    let naps = lock(&rig.script).arms;
    assert!(naps <= 6, "a wait of 10 ms made {naps} sleeps of 2 ms");
    lock(&rig.script).mute = false;
}

#[test]
fn nothing_is_left_to_wait_for_once_the_queue_was_closed() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    let _ = rig.queue.close(Duration::ZERO);
    assert!(transfer.is_done(), "otherwise a caller that loops until this is true would never end");
    transfer.wait_for(Duration::ZERO).expect("a wait for a transfer of a closed queue returns at once");
    assert_eq!(transfer.wait().expect_err("the device never reports the copy").kind(), ErrorKind::DeviceLost);
}

#[test]
fn nothing_is_left_to_wait_for_once_a_transfer_was_ready() {
    let rig = Rig::new();
    let mut spent = rig.copy(11);
    rig.queue.flush();
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut spent).poll(&mut context).is_pending() {}
    // The slot now belongs to another operation, which does not end.
    lock(&rig.script).mute = true;
    let _other = rig.copy(12);
    assert!(spent.is_done());
    spent.wait_for(Duration::ZERO).expect("a spent transfer has ended");
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| spent.wait()))
        .expect_err("the operands have been returned already");
    assert!(again.downcast_ref::<&str>().is_some_and(|said| said.contains("after it was ready")));
    lock(&rig.script).mute = false;
}

/// After a panic of the engine, it is unknown which descriptors the engine has accepted. If they were
/// submitted again, the device could write to memory that was returned.
#[test]
fn an_engine_that_panics_is_given_up() {
    let rig = Rig::new();
    let (parked, given_back) = rig.copy_to_owned(44);
    drop(parked);
    let held = rig.copy(11);
    lock(&rig.script).panics = true;
    assert!(panics(|| rig.queue.flush()));
    lock(&rig.script).panics = false;
    rig.queue.flush();
    rig.queue.poll();
    let taken: Vec<_> = lock(&rig.script).taken.iter().map(|(len, _)| *len).collect();
    assert_eq!(taken, [44, 11], "each descriptor is submitted once");
    assert_eq!(held.wait().expect_err("the device never reports the copy").kind(), ErrorKind::DeviceLost);
    let (src, dst) = rig.pair(12);
    assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
    let Rig { queue, script, .. } = rig;
    assert_eq!(queue.close(Duration::ZERO).abandoned, 2);
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    assert!(!lock(&script).dropped);
}

#[test]
fn an_engine_that_reports_twice_is_given_up() {
    for again in [Again::Beside, Again::Instead] {
        let rig = Rig::new();
        let (parked, given_back) = rig.copy_to_owned(44);
        drop(parked);
        let held = rig.copy(11);
        lock(&rig.script).again = Some(again);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rig.queue.flush();
            rig.queue.poll();
        }));
        let said = panicked
            .expect_err("the planner panics, because the engine broke the contract")
            .downcast::<String>()
            .expect("a message");
        assert!(
            said.contains("breaks the contract of `RawQueue`, to report every descriptor once"),
            "{said}"
        );
        lock(&rig.script).again = None;
        rig.queue.poll();
        let end = held.wait().map_err(|e| e.kind()).err();
        assert!(matches!(end, None | Some(ErrorKind::DeviceLost)), "{end:?}");
        let (src, dst) = rig.pair(12);
        assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
        let Rig { queue, script, .. } = rig;
        drop(queue);
        assert!(count(&given_back) <= 1);
        assert!(!lock(&script).dropped, "the device's queue is not dropped, because its state is unknown");
    }
}

#[test]
fn a_panic_of_the_log_while_submitting_gives_nothing_back_that_the_device_will_have() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    rig.refuse(33);
    let refused = rig.copy(33);
    let others: Vec<_> = (0..31).map(|_| rig.copy(10)).collect();
    let given_back = Arc::<Mutex<u32>>::default();
    // The lists of this copy reach the planner before the pending copies are submitted, whose refusal is
    // logged.
    with_log(
        |_| panic!("this log subscriber panics"),
        || {
            let owner = Owner(vec![0; 44], Arc::clone(&given_back));
            let dst = rig.engine.register(HostMemory::from_owner(owner)).expect("registered");
            drop(rig.queue.copy(vec![rig.pair(44).0], vec![dst]).expect("room"));
        },
    );
    rig.queue.flush();
    assert!(rig.took(44));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    lock(&rig.script).mute = false;
    drop((refused, others));
}

/// A waker that panics. A second panic while it is dropped would abort the process.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own");
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the drop of a waker");
        }
    }
}

/// A waker that notes that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A waker panics during the close, which goes on; or the engine panics, so that the queue is not closed.
#[test]
fn a_panic_while_closing_gives_nothing_back_that_the_device_has() {
    for engine_panics in [false, true] {
        let rig = Rig::new();
        rig.queue.shared.borrow_mut().cooperative = false;
        lock(&rig.script).full = true;
        let mut refused = rig.copy(33);
        assert!(poll(&mut refused, &Arc::new(Bad).into()).is_pending());
        let (transfer, given_back) = rig.copy_to_owned(44);
        drop(transfer);
        let mut script = lock(&rig.script);
        (script.full, script.mute, script.panics) = (false, true, engine_panics);
        drop(script);
        rig.refuse(33);
        let Rig { queue, script, .. } = rig;
        assert_eq!(panics(|| drop(queue)), engine_panics);
        drop(refused);
        assert!(lock(&script).taken.iter().any(|taken| taken.0 == 44));
        assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
        assert!(!lock(&script).dropped, "the device's queue is not dropped");
    }
}

#[test]
fn a_panicking_destructor_or_waker_costs_nobody_else_the_wake() {
    struct Bomb(Vec<u8>);
    impl AsMut<[u8]> for Bomb {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor's own");
        }
    }
    for (waker, close) in [(false, false), (true, false), (true, true)] {
        let rig = Rig::new();
        rig.queue.shared.borrow_mut().cooperative = false;
        lock(&rig.script).mute = true;
        let mut unlucky = waker.then(|| rig.copy(11));
        match &mut unlucky {
            Some(unlucky) => assert!(poll(unlucky, &Arc::new(Bad).into()).is_pending()),
            None => {
                let dst = rig.engine.register(HostMemory::from_owner(Bomb(vec![0; 11]))).expect("registered");
                drop(rig.queue.copy(rig.pair(11).0, dst).expect("room"));
            }
        }
        let woken = Arc::<Flag>::default();
        let mut awaited = rig.copy(12);
        assert!(poll(&mut awaited, &Arc::clone(&woken).into()).is_pending());
        lock(&rig.script).mute = close;
        if close {
            drop(rig.queue);
        } else {
            assert_eq!(rig.queue.poll(), 2);
            let counters = rig.queue.counters();
            assert_eq!((counters.completed, counters.in_flight), (2, 0));
            rig.copy(13).wait().expect("the queue goes on");
        }
        assert!(woken.0.load(Ordering::Relaxed), "the task is woken, otherwise it would sleep forever");
    }
}

/// The task of another transfer has a waker that panics. The wait polls the device for it.
#[test]
fn a_wait_returns_its_operands_though_a_waker_of_another_task_panics() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).mute = true;
    let mut unlucky = rig.copy(11);
    assert!(poll(&mut unlucky, &Arc::new(Bad).into()).is_pending());
    let (waited, given_back) = rig.copy_to_owned(44);
    lock(&rig.script).mute = false;
    let (src, dst) = waited.wait().expect("done");
    assert_eq!((&src[..], count(&given_back)), (&dst[..], 0));
    // The task that has the waker finds its own copy done.
    assert_eq!(poll(&mut unlucky, Waker::noop()), Poll::Ready(Ok(())));
    let counters = rig.queue.counters();
    assert_eq!((counters.submitted, counters.completed, counters.in_flight), (2, 2, 0));
    assert_eq!(rig.queue.available(), rig.queue.depth());
    rig.copy(12).wait().expect("the queue goes on");
}

/// A transfer may move to another task, which replaces the waker of the first one.
#[test]
fn a_waker_that_panics_as_it_is_dropped_reaches_no_other_task() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).mute = true;
    let (mut moved, mut dropped) = (rig.copy(11), rig.copy(12));
    assert!(poll(&mut moved, &Arc::new(Bad).into()).is_pending());
    assert!(poll(&mut dropped, &Arc::new(Bad).into()).is_pending());
    assert!(poll(&mut moved, Waker::noop()).is_pending());
    drop(dropped);
    lock(&rig.script).mute = false;
    moved.wait().expect("done");
    assert_eq!(rig.queue.available(), rig.queue.depth());
}

/// A panic of the engine unwinds through a wait. The queue keeps the operands, because it is unknown whether
/// the device uses them.
#[test]
fn a_wait_that_a_panic_of_the_engine_unwinds_keeps_its_operands() {
    let rig = Rig::new();
    let (waited, given_back) = rig.copy_to_owned(44);
    lock(&rig.script).panics = true;
    assert!(panics(|| _ = waited.wait()));
    lock(&rig.script).panics = false;
    rig.queue.poll();
    assert_eq!(rig.queue.close(Duration::ZERO).abandoned, 1);
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
}

#[test]
fn a_batch_that_is_refused_whole_says_so_of_every_copy() {
    const COPIES: usize = 50_000;
    let rig = Rig::new();
    lock(&rig.script).refuse_all = true;
    let (src, dst) = (rig.pair(8).0.freeze(), rig.engine.allocate(COPIES).expect("memory").share());
    let batch: Batch<_, _> = (0..COPIES).map(|at| (src.slice(at % 8..=at % 8), dst.slice(at..=at))).collect();
    let e = rig.queue.submit(batch).expect("room").wait().expect_err("refused");
    assert!(e.failures().iter().map(|failure| failure.index).eq(0..COPIES));
}

#[test]
fn a_time_longer_than_the_clock_counts_is_for_ever() {
    let rig = Rig::new();
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::MAX).expect("done");
    transfer.wait().expect("done");
    let options = QueueOptions::new().with_drop_timeout(Duration::MAX).with_stall_timeout(Duration::MAX);
    let queue = rig.engine.open_queue(&options).expect("it opens");
    let (src, dst) = rig.pair(11);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(rig.queue.close(Duration::MAX).completed, 1);
}

/// If a driver's owner waits for one transfer long enough to sleep, the event stays armed for the other
/// transfers.
#[test]
fn waiting_leaves_the_event_to_the_driver() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::from_millis(50)).expect_err("the device reports nothing");
    assert!(!lock(&rig.script).armed, "without a driver, a wait leaves the event unarmed");
    let driver = rig.queue.driver().expect("the device has an event");
    driver.run().expect("armed");
    transfer.wait_for(Duration::from_millis(50)).expect_err("the device reports nothing");
    assert!(lock(&rig.script).armed);
    lock(&rig.script).mute = false;
    transfer.wait().expect("done");
    assert!(lock(&rig.script).armed);
}

/// Undefined bits in the rights do not make another engine's memory acceptable.
#[test]
fn unknown_rights_are_none() {
    let engines: Vec<_> = (0..4).map(|_| ReferenceEngine::new(ReferenceOptions::default())).collect();
    let request = MemoryRequest::new(64).with_access(Access::from_bits_retain(0xffff_fff3));
    for from in &engines {
        for to in engines.iter().filter(|to| !std::ptr::eq(*to, from)) {
            let queue = to.open_queue(&QueueOptions::new()).expect("it opens");
            let src = from.allocate_with(&request).expect("memory");
            let batch: Batch<_, _> = [(src, to.allocate(64).expect("memory"))].into_iter().collect();
            assert_eq!(queue.submit(batch).expect_err("another's").kind(), ErrorKind::WrongEngine);
        }
    }
    assert_eq!(engines[0].allocate_with(&request).expect("memory").region().access(), Access::all());
}

#[test]
fn a_refused_descriptor_fails_its_own_operation_and_no_other() {
    let rig = Rig::new();
    let refused = Some(ErrorKind::OutOfRange);
    for (at, len) in [11, 12, 13].into_iter().enumerate() {
        rig.refuse(len);
        let mut expected = [None; 3];
        expected[at] = refused;
        assert_eq!(rig.run(&[11, 12, 13]).0, expected);
    }
    // Refuse the first chunk of a split operation, then the last chunk.
    rig.refuse(64);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None, refused, None]);
    rig.refuse(36);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None, refused, None]);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None; 3]);
    let counters = rig.queue.counters();
    assert_eq!((counters.submitted, counters.completed, counters.failed, counters.in_flight), (18, 13, 5, 0));
}

#[test]
fn a_refusal_says_what_the_engine_said() {
    let rig = Rig::new();
    rig.refuse(11);
    let e = rig.copy(11).wait().expect_err("it was refused");
    assert_eq!((e.error().message(), e.error().operation()), ("told to", "copy"));
}

#[test]
fn a_fence_outlives_the_refusal_of_what_carries_it() {
    let refused = Some(ErrorKind::OutOfRange);
    // The fence passes to the next waiting operation.
    let rig = Rig::new();
    rig.refuse(12);
    let (ends, taken) = rig.run(&[11, -12, 13]);
    assert_eq!((&ends[..], &taken[..]), (&[None, refused, None][..], &[(11, false), (13, true)][..]));
    // The fence passes to the first chunk of a split operation.
    rig.refuse(12);
    let (ends, taken) = rig.run(&[11, -12, 100]);
    assert_eq!(ends, [None, refused, None]);
    assert_eq!(taken, [(11, false), (64, true), (36, false)]);
    // The fence of a split operation passes to the next operation.
    rig.refuse(64);
    let (ends, taken) = rig.run(&[11, -100, 13]);
    assert_eq!((&ends[..], &taken[..]), (&[None, refused, None][..], &[(11, false), (13, true)][..]));
    // If no operation waits, the fence passes to the next submitted operation.
    for len in [12, 100] {
        rig.refuse(if len == 12 { 12 } else { 64 });
        assert_eq!(rig.run(&[-len]), (vec![refused], vec![]));
        assert_eq!(rig.run(&[14]), (vec![None], vec![(14, true)]));
    }
    // The fence of an operation with a result passes to the next operation, whether it has one descriptor or
    // several.
    for (len, behind) in [(12, 13), (100, 13), (12, 100), (100, 100)] {
        rig.refuse(if len == 12 { 12 } else { 64 });
        lock(&rig.script).taken.clear();
        let first = rig.copy(11);
        rig.queue.fence();
        let crc = rig.queue.crc32c(rig.pair(len).0, 0).expect("room");
        rig.queue.flush();
        let last = rig.copy(behind);
        crc.wait().expect_err("the CRC is refused");
        first.wait().expect("done");
        last.wait().expect("done");
        let taken = lock(&rig.script).taken.clone();
        assert_eq!(taken[..2], [(11, false), (behind.min(64), true)]);
    }
}

#[test]
fn nothing_overtakes_a_fence_that_waits() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    rig.queue.fence();
    let first = rig.copy(100);
    let flat = rig.copy(13);
    let batch: Batch<_, _> = [15, 16].map(|len| rig.pair(len)).into_iter().collect();
    let batch = rig.queue.submit(batch).expect("room");
    rig.queue.flush();
    lock(&rig.script).full = false;
    first.wait().expect("done");
    flat.wait().expect("done");
    batch.wait().expect("done");
    let taken = lock(&rig.script).taken.clone();
    assert_eq!(taken[..2], [(64, true), (36, false)], "{taken:?}");
    assert_eq!(taken.len(), 5);
    // The first submitted copy of a batch carries the fence.
    lock(&rig.script).taken.clear();
    rig.queue.fence();
    let batch: Batch<_, _> = [15, 16].map(|len| rig.pair(len)).into_iter().collect();
    rig.queue.submit(batch).expect("room").wait().expect("done");
    assert_eq!(lock(&rig.script).taken[..], [(15, true), (16, false)]);
}

#[test]
fn every_failure_of_a_batch_is_told_with_its_place() {
    let rig = Rig::new();
    let fault = Outcome::Failed(ErrorKind::DeviceFault);
    lock(&rig.script).fail = HashMap::from([(22, (Outcome::Aborted, 5)), (24, (fault, 7)), (26, (fault, 9))]);
    let batch: Batch<_, _> = (20..28).map(|len| rig.pair(len)).collect();
    let e = rig.queue.submit(batch).expect("room").wait().expect_err("three copies of the batch failed");
    let told: Vec<_> = e
        .failures()
        .iter()
        .map(|f| (f.index, f.error.kind(), f.error.native().map_or(0, |native| native.code)))
        .collect();
    let (aborted, fault) = (ErrorKind::Aborted, ErrorKind::DeviceFault);
    assert_eq!(told, [(2, aborted, 5), (4, fault, 7), (6, fault, 9)]);
    assert_eq!(e.kind(), fault, "a failure has priority over an abort");
    let counters = rig.queue.counters();
    assert_eq!((counters.completed, counters.failed, counters.aborted), (5, 2, 1));
    for (src, dst) in e.into_operands().expect("the operands are returned").drain() {
        assert!(dst[..] == src[..]);
    }
}

#[test]
fn the_worst_of_a_copys_pieces_is_what_became_of_it() {
    let fault = Outcome::Failed(ErrorKind::DeviceFault);
    for ends in [[(fault, 7), (Outcome::Aborted, 5)], [(Outcome::Aborted, 5), (fault, 7)]] {
        let rig = Rig::new();
        lock(&rig.script).fail = HashMap::from([(64, ends[0]), (36, ends[1])]);
        let e = rig.copy(100).wait().expect_err("both pieces failed");
        let native = e.error().native().map(|native| native.code);
        assert_eq!((e.kind(), native), (ErrorKind::DeviceFault, Some(7)));
    }
}

#[test]
fn closing_aborts_unsubmitted_operations() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let transfers = [11, 100, 13].map(|len| rig.copy(len));
    let Rig { queue, script, .. } = rig;
    let counters = queue.close(Duration::from_millis(20));
    assert_eq!((counters.aborted, counters.failed, counters.abandoned, counters.in_flight), (3, 0, 0, 0));
    for transfer in transfers {
        assert_eq!(transfer.wait().expect_err("the copy was not submitted").kind(), ErrorKind::Closed);
    }
    assert!(lock(&script).dropped);
}

#[test]
fn a_device_that_does_not_answer_is_never_taken_apart() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let transfer = rig.copy(11);
    let Rig { queue, script, .. } = rig;
    let counters = queue.close(Duration::from_millis(20));
    assert_eq!((counters.abandoned, counters.in_flight), (1, 0));
    let e = transfer.wait().expect_err("the device never reports the copy");
    assert_eq!(e.kind(), ErrorKind::DeviceLost);
    assert!(e.into_operands().is_none(), "the device may still access the operands");
    assert!(!lock(&script).dropped);
}

/// All copies of a batch are checked before any is submitted, like a single copy.
#[test]
fn a_batch_with_one_bad_copy_is_refused_whole() {
    let rig = Rig::new();
    let read_only = || {
        let request = MemoryRequest::new(32).with_access(Access::READ);
        rig.engine.allocate_window(&request).expect("memory")
    };
    let write_only = || {
        let request = MemoryRequest::new(32).with_access(Access::WRITE);
        rig.engine.allocate_window(&request).expect("memory")
    };
    let both = || rig.engine.allocate_window(&MemoryRequest::new(32)).expect("memory");
    let elsewhere = Rig::new().engine.allocate_window(&MemoryRequest::new(32)).expect("memory");
    let whole = both();
    for (bad, kind) in [
        ((write_only(), both()), ErrorKind::AccessDenied),
        ((both(), read_only()), ErrorKind::AccessDenied),
        ((elsewhere.clone(), both()), ErrorKind::WrongEngine),
        ((both(), elsewhere.clone()), ErrorKind::WrongEngine),
        ((both().slice(1..), both()), ErrorKind::LengthMismatch),
        ((whole.slice(..20), whole.slice(12..)), ErrorKind::Overlap),
        ((whole.slice(12..), whole.slice(..20)), ErrorKind::Overlap),
    ] {
        let batch: Batch<_, _> = [(both(), both()), bad, (both(), both())].into_iter().collect();
        let e = rig.queue.submit(batch).expect_err("one copy of the batch is invalid");
        assert_eq!(e.kind(), kind);
        assert_eq!(e.into_operands().expect("the operands are returned").len(), 3);
    }
    rig.queue.flush();
    assert_eq!(lock(&rig.script).taken, [], "no copy of a refused batch was submitted");
    // Adjacent ranges do not overlap.
    let batch: Batch<_, _> = [(whole.slice(..16), whole.slice(16..)), (both(), both())].into_iter().collect();
    rig.queue.submit(batch).expect("room").wait().expect("done");
}

#[test]
fn copies_of_a_batch_are_cut_and_left_out_like_others() {
    let rig = Rig::new();
    let mut empty = rig.pair(20);
    let rest = (empty.0.split_off(20), empty.1.split_off(20));
    for (pairs, expected) in
        [(vec![rig.pair(64), rig.pair(65)], &[1, 64, 64][..]), (vec![empty, rest], &[20])]
    {
        lock(&rig.script).taken.clear();
        let batch: Batch<_, _> = pairs.into_iter().collect();
        let mut batch = rig.queue.submit(batch).expect("room").wait().expect("done");
        assert!(batch.drain().all(|(src, dst)| src[..] == dst[..]));
        let mut taken: Vec<_> = lock(&rig.script).taken.iter().map(|(len, _)| *len).collect();
        taken.sort_unstable();
        assert_eq!(taken, expected);
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
fn memory_that_a_silent_device_has_is_never_given_back() {
    for (mute, dropped_early) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new();
        lock(&rig.script).mute = mute;
        let given_back = Arc::<Mutex<u32>>::default();
        let memory = || {
            let owner = Owner(vec![0; 50], Arc::clone(&given_back));
            rig.engine.register(HostMemory::from_owner(owner)).expect("registered")
        };
        let transfer = rig.queue.copy(memory(), memory()).expect("room");
        let Rig { queue, .. } = rig;
        if dropped_early {
            drop(transfer);
            let _ = queue.close(Duration::from_millis(20));
        } else {
            let _ = queue.close(Duration::from_millis(20));
            drop(transfer);
        }
        let expected = if mute { 0 } else { 2 };
        assert_eq!(*given_back.lock().expect("no thread panicked"), expected, "{mute} {dropped_early}");
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

/// Makes a queue of depth 8 whose stall timeout is zero, on a device that reports nothing, with 7 copies
/// whose transfers were dropped.
fn hung() -> (Rig, crate::Transfer<(BufferMut, BufferMut)>) {
    let rig = Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO));
    lock(&rig.script).mute = true;
    (1..8).for_each(|len| drop(rig.copy(len)));
    let last = rig.copy(8);
    (rig, last)
}

fn refusal(rig: &Rig) -> crate::OpError<(BufferMut, BufferMut)> {
    let (src, dst) = rig.pair(9);
    rig.queue.copy(src, dst).expect_err("the queue is full")
}

#[test]
fn a_full_queue_says_that_its_device_hangs_and_no_longer_than_it_does() {
    let (rig, last) = hung();
    rig.queue.flush();
    for round in 0..64 {
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "{round} polls are not enough for a stall");
        rig.queue.poll();
    }
    for refusal in [refusal(&rig), refusal(&rig)] {
        assert_eq!(refusal.kind(), ErrorKind::TimedOut);
        assert!(refusal.error().hint().contains("open another"), "{refusal}");
        assert!(refusal.into_operands().is_some(), "the operands are returned");
    }
    assert_eq!(rig.queue.counters().full, 66);
    lock(&rig.script).mute = false;
    rig.queue.poll();
    lock(&rig.script).mute = true;
    (0..7).for_each(|len| drop(rig.copy(20 + len)));
    rig.queue.flush();
    assert_eq!(
        refusal(&rig).kind(),
        ErrorKind::QueueFull,
        "the device has completed operations since the stall"
    );
    assert!(last.wait().is_ok());
}

#[test]
fn a_full_queue_does_not_blame_a_device_that_nobody_polls_or_flushes() {
    let (rig, last) = hung();
    for _ in 0..200 {
        rig.queue.poll();
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "no operation was submitted to the device");
    }
    rig.queue.flush();
    for _ in 0..200 {
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "the device was not polled");
    }
    lock(&rig.script).mute = false;
    rig.queue.poll();
    assert!(last.is_done());
    // Seven slots are free, and a transfer still holds the last slot.
    let held: Vec<_> = (0..7).map(|len| rig.copy(30 + len)).collect();
    rig.queue.flush();
    while rig.queue.poll() > 0 {}
    for _ in 0..200 {
        rig.queue.poll();
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "the device has completed all operations");
    }
    held.into_iter().chain([last]).for_each(|transfer| _ = transfer.wait().expect("done"));
}

#[test]
fn a_lost_result_delays_nothing_else() {
    // The lost operation has one descriptor, then several descriptors.
    for len in [30, 200] {
        let rig = Rig::new();
        lock(&rig.script).lose.push(len.min(64));
        let (lost, _) = rig.pair(len);
        let mut lost = rig.queue.crc32c(lost, 0).expect("room");
        let (src, expected) = (rig.pair(20).0, crc32c::crc32c(&[20; 20]));
        let (_, crc) = rig
            .queue
            .crc32c(src, 0)
            .expect("room")
            .wait()
            .expect("a CRC does not wait for the lost operation");
        assert_eq!(crc, expected);
        let ((a, b), difference) =
            rig.queue.compare(rig.pair(150).0, rig.pair(150).0).expect("room").wait().expect("done");
        assert_eq!((a.len(), b.len(), difference), (150, 150, None));
        rig.copy(10).wait().expect("done");
        assert!(!lost.is_done(), "the completion of the first CRC is lost");
        lost.wait_for(Duration::from_millis(1)).expect_err("the completion of the first CRC is lost");
        // A fence waits for the lost operation.
        rig.queue.fence();
        let mut behind = rig.copy(11);
        if behind.wait_for(Duration::from_millis(1)).is_ok() {
            assert_eq!(len, 30, "with one descriptor, the device itself executes the fence");
        }
    }
}

/// A device that needs 0.7 s to stop is not abandoned, even if the thread that closes the queue does not run
/// during the grace period.
#[test]
fn a_device_that_stops_within_the_grace_period_keeps_its_memory() {
    for late in [Duration::from_millis(700), crate::STOP_GRACE + Duration::from_millis(50)] {
        let rig = Rig::new();
        lock(&rig.script).stops_late = vec![late];
        let copy = rig.copy(1 << 20);
        let counters = rig.queue.close(Duration::ZERO);
        assert_eq!((counters.aborted, counters.abandoned), (1, 0), "{late:?}");
        assert_eq!(copy.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
    }
}

fn impatient() -> Rig {
    Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO))
}

/// An await fails as a wait does, and the queue keeps the operands until the device reports the operation.
#[test]
fn an_awaited_transfer_fails_if_the_device_stalls() {
    let rig = impatient();
    lock(&rig.script).mute = true;
    let (mut awaited, given_back) = rig.copy_to_owned(10);
    let mut outlasts = rig.copy(11).outlast_stalls();
    let begun = Instant::now();
    let error = loop {
        assert!(poll(&mut outlasts, Waker::noop()).is_pending());
        if let Poll::Ready(end) = Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop())) {
            break end.expect_err("the device reports nothing");
        }
        assert!(begun.elapsed() < HANGS, "the await does not end");
    };
    assert!(lock(&rig.script).polls >= 64, "a few polls are not enough for a stall");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.error().message().contains("completed nothing for"), "{error}");
    assert!(error.into_operands().is_none(), "the device may still write to the operands");
    assert_eq!((count(&given_back), rig.queue.available()), (0, 6));
    assert!(rig.queue.stalled().is_some());
    drop(awaited);
    lock(&rig.script).mute = false;
    while count(&given_back) == 0 {
        rig.queue.poll();
    }
    assert_eq!(rig.queue.stalled(), None);
    assert_eq!(poll(&mut outlasts, Waker::noop()), Poll::Ready(Ok(())));
    assert_eq!(poll(&mut rig.copy(12), Waker::noop()), Poll::Ready(Ok(())));
}

/// The event loop sleeps on the driver's file descriptor, and the device's event never becomes readable.
#[test]
fn a_driver_wakes_the_tasks_of_a_device_that_stalls() {
    let rig = impatient();
    let driver = rig.queue.driver().expect("the device has an event");
    driver.run().expect("the event is armed");
    assert!(!driver.timer.is_set());
    let readable = |timeout: rustix::event::Timespec| {
        let mut fds = [rustix::event::PollFd::new(&driver, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&timeout)).expect("polled") > 0
    };
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert!(!readable(at_once), "no operation is in flight, so there is nothing to look for");
    lock(&rig.script).mute = true;
    let mut awaited = rig.copy(10);
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    assert!(poll(&mut awaited, &waker).is_pending());
    let end = loop {
        driver.run().expect("the event is armed");
        if flag.0.swap(false, Ordering::Relaxed)
            && let Poll::Ready(end) = poll(&mut awaited, &waker)
        {
            break end;
        }
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert!(readable(minute), "the driver's timer expires");
    };
    assert_eq!(end, Err(ErrorKind::TimedOut));
    lock(&rig.script).mute = false;
    while rig.queue.counters().in_flight > 0 {
        driver.run().expect("the event is armed");
    }
    let begun = Instant::now();
    while driver.timer.is_set() {
        driver.run().expect("the event is armed");
        assert!(begun.elapsed() < HANGS, "the timer is not stopped");
    }
    assert!(!readable(at_once), "an idle queue has no timer");
}

#[test]
fn a_retry_follows_the_advice_of_the_error() {
    let policy = crate::RetryPolicy::new();
    let rig = Rig::with(QueueOptions::new().with_depth(2));
    let retry = |len| rig.queue.retry(&policy, rig.pair(len), |(src, dst)| rig.queue.copy(src, dst));
    // The first outcomes of a copy of this length are reported in this order.
    lock(&rig.script).fail.insert(20, (Outcome::Aborted, 0));
    let attempts = std::cell::Cell::new(0);
    let done = rig.queue.retry(&policy, rig.pair(20), |(src, dst)| {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 5 {
            lock(&rig.script).fail.clear();
        }
        rig.queue.copy(src, dst)
    });
    let (src, dst) = done.expect("the fifth attempt succeeds");
    assert!(src[..] == dst[..] && attempts.get() == 5);
    lock(&rig.script).fail.insert(21, (Outcome::Failed(ErrorKind::DeviceFault), 0));
    let error = retry(21).expect_err("all attempts fail");
    assert_eq!(error.kind(), ErrorKind::DeviceFault);
    assert!(error.into_operands().is_some(), "the operands are returned");
    assert_eq!(lock(&rig.script).taken.iter().filter(|taken| taken.0 == 21).count(), 4);
    // The queue is full of operations whose transfers were dropped, so it makes room itself.
    (0..2).for_each(|_| drop(rig.copy(10)));
    retry(22).expect("the device completes the other operations");
    // Only the owner of the transfers can make room.
    let held = [rig.copy(10), rig.copy(10)];
    let error = retry(23).expect_err("the queue stays full");
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert!(error.into_operands().is_some(), "the operands are returned");
    held.into_iter().for_each(|held| _ = held.wait().expect("done"));
}
