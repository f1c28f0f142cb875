//! [`SharedReady`]: waiting for room on a shared queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Handle;
use super::lane::Driven;
use super::slot::let_go;
use crate::queue::error;
use crate::queue::wait::Backoff;
use crate::{Error, ErrorKind, Result};

/// Room on a [`SharedQueue`](crate::SharedQueue), to be waited for or awaited: made by [`SharedQueue::ready`](crate::SharedQueue::ready).
///
/// Dropping it gives up the place in the line and leaves nothing behind. It keeps the queue open as a clone does.
#[must_use = "it does nothing unless it is awaited or waited for"]
pub struct SharedReady {
    handle: Arc<Handle>,
    /// This task's in the line, once it is in it.
    number: Option<u64>,
}

impl SharedReady {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle, number: None }
    }

    /// Waits until there is room. Meanwhile the calling thread drives the device.
    ///
    /// # Errors
    ///
    /// As those of awaiting it: see [`SharedQueue::ready`](crate::SharedQueue::ready).
    pub fn wait(self) -> Result<()> {
        self.block(None)
    }

    /// Waits until there is room or `deadline` has passed. Meanwhile the calling thread drives the device.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and `TimedOut` without a message when `deadline` has passed.
    pub fn wait_until(self, deadline: Instant) -> Result<()> {
        self.block(Some(deadline))
    }

    fn block(&self, until: Option<Instant>) -> Result<()> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(answer) = self.answer() {
                return answer;
            }
            let mut progress = 0;
            for lane in &self.handle.hub.lanes {
                if let Driven::Progress(n) = lane.help(self.handle.number) {
                    progress += n;
                }
            }
            // Without a deadline nobody looks at the clock: a lane's thread notices a device that hangs.
            let Some(until) = until else {
                backoff.pause();
                continue;
            };
            if backoff.idle(progress, || until) {
                return self.answer().unwrap_or_else(|| Err(Error::bare(ErrorKind::TimedOut)));
            }
        }
    }

    /// What there is to tell, if anything.
    fn answer(&self) -> Option<Result<()>> {
        let hub = &self.handle.hub;
        let home = self.handle.lane(self.handle.number % hub.lanes.len());
        let fail = |e: Error| Some(Err(e.with_operation("wait for room").with_backend(home.backend)));
        if home.refuses() {
            return fail(error::closed());
        }
        if hub.lanes.iter().any(|lane| lane.has_room()) {
            return Some(Ok(()));
        }
        hub.hangs().and_then(|silence| fail(error::stalled(silence)))
    }

    /// Leaves the line. `seen`: this task has seen room, and there may be more.
    fn leave(&mut self, seen: bool) {
        let Some(number) = self.number.take() else { return };
        let waker = self.handle.hub.line.leave(number);
        // Was it woken, it goes without having used what it was woken for.
        let next = seen || waker.is_none();
        let_go(waker);
        if next {
            self.handle.hub.wake_next();
        }
    }
}

impl Future for SharedReady {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.answer();
        if answer.is_none() {
            // A fast device has freed a place by the time it is looked at: no need to sleep for it.
            self.handle.hub.lanes.iter().for_each(|lane| _ = lane.drive(Some(self.handle.number)));
            answer = self.answer();
        }
        if answer.is_none() {
            let (number, old) = self.handle.hub.line.join(self.number, context.waker().clone());
            self.number = Some(number);
            let_go(old);
            // Whoever frees a place from here on sees this task; what was freed before is seen here.
            answer = self.answer();
        }
        match answer {
            None => Poll::Pending,
            Some(answer) => {
                self.leave(answer.is_ok());
                Poll::Ready(answer)
            }
        }
    }
}

impl Drop for SharedReady {
    fn drop(&mut self) {
        self.leave(false);
    }
}

impl fmt::Debug for SharedReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReady").field("in_line", &self.number.is_some()).finish_non_exhaustive()
    }
}
