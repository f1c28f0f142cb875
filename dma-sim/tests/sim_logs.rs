//! The program's log subscriber uses a shared queue in the events of its engine, whose device fails and is
//! reset. The test has a process of its own, because the subscriber is that of all threads.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dma_core::{BufferMut, DmaEngineExt, SharedQueue, SharedQueueOptions};
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::log::set_log;

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// The engine and the queue that the log subscriber uses.
static USED: Mutex<Option<(Arc<SimEngine>, SharedQueue)>> = Mutex::new(None);
/// The names of the threads on which events of the engine's queue were logged and the queue was used.
static THREADS: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static IN_EVENT: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn memory(engine: &SimEngine) -> (BufferMut, BufferMut) {
    (engine.allocate(64).unwrap(), engine.allocate(64).unwrap())
}

/// The log subscriber: calls the methods of the queue, copies and waits.
fn use_queue(event: &tracing::Event<'_>) {
    // The copy below may also be logged.
    if IN_EVENT.replace(true) {
        return;
    }
    let used = lock(&USED).clone();
    if let Some((engine, queue)) = used {
        assert!(queue.counters().submitted > 0);
        assert_eq!(queue.stalled(), None);
        let (src, dst) = memory(&engine);
        if queue.available() > 0
            && let Ok(transfer) = queue.copy(src, dst)
        {
            // The device may also fail this copy.
            let _ = transfer.wait();
        }
        if event.metadata().target().starts_with("dma_sim::sim::queue") {
            lock(&THREADS).extend(std::thread::current().name().map(str::to_owned));
        }
    }
    IN_EVENT.set(false);
}

#[test]
fn a_log_subscriber_may_use_the_queue_in_events_of_its_engine() {
    set_log(use_queue);
    let faults = "fail:p=0.3+reset:p=0.3".parse().unwrap();
    let engine = Arc::new(SimEngine::open(&SimOptions::new().with_seed(2).with_faults(faults)).unwrap());
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).unwrap();
    *lock(&USED) = Some((Arc::clone(&engine), queue.clone()));
    let (sender, receiver) = channel();
    let copies = move |thread: &str, waits: bool| {
        let began = Instant::now();
        while !lock(&THREADS).iter().any(|name| name.starts_with(thread)) {
            assert!(began.elapsed() < HANGS, "no event on {thread}");
            let (src, dst) = memory(&engine);
            match queue.copy(src, dst) {
                Ok(transfer) if waits => drop(transfer.wait()),
                // The lane's thread polls for transfers that were dropped.
                Ok(_) => {}
                Err(_) => std::thread::yield_now(),
            }
        }
    };
    let work = move || {
        copies("waits", true);
        copies("dma-lane", false);
        drop(lock(&USED).take());
        drop(copies);
        sender.send(()).unwrap();
    };
    std::thread::Builder::new().name("waits".to_owned()).spawn(work).unwrap();
    receiver.recv_timeout(2 * HANGS).expect("no thread waits for a lock of its own");
}
