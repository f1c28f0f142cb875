//! [`WaitWatch`]: logs a warning when a task waits too long for a buffer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{BufferPool, PoolInner};

/// Watches the waits for buffers of one pool, with a thread that exists only while tasks wait.
pub(super) struct WaitWatch {
    limit: Duration,
    /// True while the thread exists.
    watching: AtomicBool,
    /// Number of warnings that were logged.
    warnings: AtomicU64,
}

impl WaitWatch {
    /// Makes the watch. `limit` is the wait after which a warning is logged; 0 for no warning.
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, watching: AtomicBool::new(false), warnings: AtomicU64::new(0) }
    }

    /// Returns the number of warnings that were logged.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Starts the thread if it does not exist. A task that begins to wait calls this.
    pub(super) fn begin(&self, pool: &Arc<PoolInner>) {
        // These accesses and the accesses in `run` are sequentially consistent. Therefore either a thread
        // that is about to end sees the waiting task, or the task sees that no thread watches.
        if self.limit.is_zero() || self.watching.swap(true, Ordering::SeqCst) {
            return;
        }
        let (pool, limit) = (Arc::downgrade(pool), self.limit);
        if let Err(error) = dma_process::spawn_thread("dma-pool-waits".to_owned(), move || run(&pool, limit))
        {
            self.watching.store(false, Ordering::SeqCst);
            crate::guarded_log!(debug, %error, "cannot watch the waits for buffers of a pool");
        }
    }
}

/// Runs the watch thread: logs a warning for each wait that exceeds `limit`, and returns when no task waits.
fn run(pool: &Weak<PoolInner>, limit: Duration) {
    let mut warned: Vec<Option<u64>> = Vec::new();
    let mut pause = limit;
    loop {
        std::thread::sleep(pause);
        let Some(pool) = pool.upgrade() else { return };
        if pool.classes.iter().all(|class| class.free.waits().tasks == 0) {
            pool.watch.watching.store(false, Ordering::SeqCst);
            let again = pool.classes.iter().any(|class| class.free.waits().tasks > 0);
            if !again || pool.watch.watching.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        warned.resize(pool.classes.len(), None);
        pause = limit;
        for (class, warned) in pool.classes.iter().zip(&mut warned) {
            let Some((task, wait)) = class.free.waits().oldest else { continue };
            if *warned == Some(task) {
                continue;
            }
            match limit.checked_sub(wait) {
                Some(left) if !left.is_zero() => pause = pause.min(left),
                _ => {
                    *warned = Some(task);
                    pool.watch.warnings.fetch_add(1, Ordering::Relaxed);
                    let holders = BufferPool { inner: Arc::clone(&pool), holder: 0 }.explain();
                    let (label, len) = (&pool.label, class.len);
                    crate::guarded_log!(warn, %label, len, ?wait, "a task waits too long for a buffer of a pool: {holders}");
                }
            }
        }
    }
}
