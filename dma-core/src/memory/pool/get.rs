//! [`PoolGet`]: a future that takes a buffer from a pool.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use super::BufferPool;
use super::size_class::fail;
use crate::memory::range::Range;
use crate::memory::sync::deadline;
use crate::{BufferMut, ErrorKind, Result};

impl BufferPool {
    /// Takes a buffer of `len` bytes as [`try_get`](Self::try_get) does, but waits until a buffer is free.
    /// Tasks that wait for a size are served in FIFO order.
    ///
    /// This wait polls no queue. Operations complete, and their buffers return, only if another task or
    /// thread waits for the operations.
    ///
    /// # Errors
    ///
    /// The future fails with the errors of [`try_get`](Self::try_get), but never with `OutOfResources`.
    pub fn get(&self, len: usize) -> PoolGet {
        PoolGet(Take::new(self.clone(), len))
    }

    /// Takes a buffer of `len` bytes, and waits up to `timeout` for it, in the same wait list as the tasks of
    /// [`get`](Self::get). Blocks the calling thread, which polls no queue during that time.
    ///
    /// # Errors
    ///
    /// The errors of [`try_get`](Self::try_get), with `TimedOut` instead of `OutOfResources`.
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<BufferMut> {
        self.take_timeout(len, timeout).map(BufferMut)
    }

    pub(super) fn take_timeout(&self, len: usize, timeout: Duration) -> Result<Range> {
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.inner.backend));
        }
        if let Some(block) = class.free.take() {
            return Ok(class.range_for(block, len, self.holder));
        }
        Take::new(self.clone(), len).wait(timeout).unwrap_or_else(|| {
            let message = format!("{} in use for {timeout:?}", class.all("was", "were"));
            Err(fail(ErrorKind::TimedOut, message, self.inner.backend).with_hint(
                "drop buffers, poll the queues that use buffers, or give the pool more buffers of this size; a device that has stalled keeps the buffers of its operations, so look at `stalled` of the queues",
            ))
        })
    }
}

/// A future that takes a buffer from a pool; made by [`BufferPool::get`]. Dropping the future ends the wait.
/// The future keeps the pool alive, as a clone of the pool does.
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct PoolGet(pub(super) Take);

impl Future for PoolGet {
    type Output = Result<BufferMut>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(BufferMut)
    }
}

/// A future that takes a block.
pub(super) struct Take {
    pool: BufferPool,
    len: usize,
    /// The task's number in the wait list of its size class while the task waits.
    task: Option<u64>,
}

impl Take {
    pub(super) const fn new(pool: BufferPool, len: usize) -> Self {
        Self { pool, len, task: None }
    }

    /// Blocks the thread until the future is ready. Returns `None` after `timeout`.
    pub(super) fn wait(mut self, timeout: Duration) -> Option<Result<Range>> {
        let until = deadline(timeout);
        let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let waker = Arc::clone(&unpark).into();
        loop {
            if let Poll::Ready(got) = Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                return Some(got);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // Other code on this thread, such as a log subscriber, may have consumed the token.
            if !unpark.woken.swap(false, Ordering::Acquire) {
                std::thread::park_timeout(left);
            }
        }
    }
}

/// Wakes the blocked thread.
struct Unpark {
    thread: std::thread::Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Future for Take {
    type Output = Result<Range>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, len, task } = &mut *self;
        let class = pool.class(*len)?;
        if *len == 0 {
            return Poll::Ready(Ok(class.no_bytes(pool.inner.backend)));
        }
        let waited = task.is_some();
        let mut polled =
            if waited { Poll::Pending } else { class.free.take().map_or(Poll::Pending, Poll::Ready) };
        if polled.is_pending() && !waited {
            polled = class.grown().map_or(Poll::Pending, Poll::Ready);
        }
        if polled.is_pending() {
            polled = class.free.poll_take(task, context.waker());
        }
        if !waited && task.is_some() {
            pool.inner.watch.begin(&pool.inner);
        }
        polled.map(|block| Ok(class.range_for(block, *len, pool.holder)))
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        // A forked process has no class: it must not take the parent's locks.
        if let Some(task) = self.task.take()
            && let Ok(class) = self.pool.class(self.len)
            && let Some(block) = class.free.leave(task)
        {
            // The block becomes free, or is passed to the next task.
            drop(class.handle(block));
        }
    }
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Take")
            .field("len", &self.len)
            .field("waits", &self.task.is_some())
            .finish_non_exhaustive()
    }
}
