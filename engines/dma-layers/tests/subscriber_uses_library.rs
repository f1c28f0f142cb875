//! A log subscriber of the program uses the engine, its shared queue and its pool in every event and span of
//! a meter. The test has a process of its own, because the subscriber is that of all threads.

mod engines;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dma_core::{
    Access, BufferPool, DmaEngine, DmaEngineExt, MemoryRequest, PoolOptions, QueueOptions, RegistrationCache,
    RegistrationCacheOptions, SharedQueue, SharedQueueOptions,
};
use dma_layers::meter::MeterEngine;
use engines::{meter, sim};
use tracing::{Event, Metadata, Subscriber, span};

/// A time limit that the test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(120);

/// The objects that the log subscriber uses.
#[derive(Clone)]
struct Used {
    engine: Arc<MeterEngine>,
    queue: SharedQueue,
    pool: BufferPool,
    cache: Arc<RegistrationCache<Arc<MeterEngine>>>,
    memory: Arc<Vec<u8>>,
}

static USED: Mutex<Option<Used>> = Mutex::new(None);
/// Number of times that the log subscriber has used the library.
static USES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IN_LOG: Cell<bool> = const { Cell::new(false) };
}

fn used() -> Option<Used> {
    USED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Does what needs each lock of the library.
fn use_library() {
    // The calls below are also logged.
    if IN_LOG.replace(true) {
        return;
    }
    if let Some(Used { engine, queue, pool, cache, memory }) = used() {
        let _ = queue.counters();
        let pair = (engine.allocate(64).expect("memory"), engine.allocate(64).expect("memory"));
        // The queue may be closed.
        if let Ok(transfer) = queue.copy(pair.0, pair.1) {
            transfer.wait().expect("completes");
        }
        drop(pool.try_get(8));
        drop(cache.get(&memory).expect("registered"));
        USES.fetch_add(1, Ordering::Relaxed);
    }
    IN_LOG.set(false);
}

struct UsesLibrary;

impl Subscriber for UsesLibrary {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        use_library();
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        use_library();
    }
    fn enter(&self, _: &span::Id) {
        use_library();
    }
    fn exit(&self, _: &span::Id) {
        use_library();
    }
    fn try_close(&self, _: span::Id) -> bool {
        use_library();
        true
    }
}

/// Runs `act`, and checks that the log subscriber has used the library meanwhile.
fn logged<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let before = USES.load(Ordering::Relaxed);
    let result = act();
    assert!(USES.load(Ordering::Relaxed) > before, "nothing was logged: {what}");
    result
}

fn work() {
    let engine = meter(sim("sim:profile=bluefield3"));
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let options = PoolOptions::new().with_growing_class(64, 1, 8);
    let pool = BufferPool::growing(Arc::clone(&engine), &options).expect("a pool");
    let cache = RegistrationCache::new(Arc::clone(&engine), &RegistrationCacheOptions::new());
    let (cache, memory) = (Arc::new(cache), Arc::new(vec![7; 100]));
    let own = Used { engine, queue, pool, cache, memory };
    *USED.lock().expect("no panic") = Some(own.clone());
    let Used { engine, queue, pool, cache, .. } = own;

    let single = logged("open", || engine.open_queue(&QueueOptions::new()).expect("a queue"));
    let request = MemoryRequest::new(4096).exportable(Access::READ);
    let window = logged("allocate", || engine.allocate_window(&request).expect("memory"));
    let export = logged("export", || window.export(Access::READ).expect("a grant"));
    let buffers: Vec<_> = logged("growth", || (0..4).map(|_| pool.try_get(64).expect("it grows")).collect());
    logged("registration", || drop(cache.get(&Arc::new(vec![1; 50])).expect("registered")));
    logged("close", || drop(single));
    logged("deregister", || drop((export, window)));
    drop(buffers);
    // The log subscriber has another clone of the queue that is closed.
    let counters = logged("close of a shared queue", || queue.close(HANGS));
    assert!(counters.completed > 0 && counters.in_flight == 0, "{counters}");
    *USED.lock().expect("no panic") = None;
    assert!(engine.info().device.contains("metered"));
}

#[test]
fn a_log_subscriber_may_use_the_library_in_every_span_of_a_meter() {
    tracing::subscriber::set_global_default(UsesLibrary).expect("the only subscriber");
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).expect("the test waits");
    });
    match ended.recv_timeout(HANGS) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the log subscriber hangs"),
        _ => thread.join().expect("no panic"),
    }
}
